import pytest

import weft
from trained import train


@pytest.fixture(scope="session")
def letters(tmp_path_factory) -> weft.Model:
    return train(tmp_path_factory.mktemp("letters"), "char", "gpt2")


@pytest.fixture(scope="session")
def pieces(tmp_path_factory) -> weft.Model:
    return train(tmp_path_factory.mktemp("pieces"), "bpe", "qwen3", "1000")
