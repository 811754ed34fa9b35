"""The same build with daft's Ray runner on a local cluster of two workers."""

import os
import subprocess
import sys

import pytest

from test_corpus import paragraph, tree_of

pytest.importorskip("ray")

BUILD = """
import sys
from pathlib import Path
from weft.corpus import plan
from weft.corpus.build import build_corpus
from weft.recipe.corpus import CorpusSection
plan.PIECE_BYTES = 20_000
section = CorpusSection.model_validate({"sources": [{"path": "a.txt"}], "documents": "block", "build": {}})
build_corpus(section, Path(sys.argv[1]), Path(sys.argv[2]), workers=2)
"""


@pytest.mark.slow
def test_a_ray_cluster_builds_the_same_bytes(tmp_path):
    (tmp_path / "a.txt").write_text("\n\n".join(paragraph(number % 250) for number in range(300)))
    for runner in ("native", "ray"):
        done = subprocess.run(
            [sys.executable, "-c", BUILD, str(tmp_path), str(tmp_path / runner)],
            env={**os.environ, "DAFT_RUNNER": runner, "RAY_DISABLE_IMPORT_WARNING": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert ("ray" in done.stderr.lower()) == (runner == "ray")
    assert tree_of(tmp_path / "ray") == tree_of(tmp_path / "native")
