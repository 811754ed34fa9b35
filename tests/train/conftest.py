import pytest
from small_recipes import ALICE


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("place")
    (place / "book.txt").write_text(ALICE.read_text("utf-8")[:40_000])
    return place
