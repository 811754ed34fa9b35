"""What the tests of all targets share."""

from collections.abc import Iterator

import pytest

from weft import folders
from weft.exports import samples


@pytest.fixture(scope="session", autouse=True)
def quick() -> Iterator[None]:
    """Folders are written without waiting for the disk, and models are compared on texts that are not much longer than
    the farthest relative positions, 128.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folders, "sync", lambda path: None)
        patch.setattr(samples, "MOST_LENGTH", 160)
        yield
