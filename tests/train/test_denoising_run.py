"""`objective: denoise` through the command line: pre-train, resume, evaluate, and fine-tune to summarize."""

import json
import math
import shutil

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file
from small_recipes import ALICE, QUICK, SHAPE

from small_tasks import rows_of, weft
from weft.api.model import load
from weft.compress.calibration_data import text_samples
from weft.compress.card.text_contest import TextContest
from weft.objectives.denoising import Denoising
from weft.sources.reading import Reading
from weft.tokenizer.read import load_tokenizer

STILL = {"precision": "float32", "compile": False, "threads": 1}


@pytest.fixture(scope="module", params=["t5", "transformer"])
def run(request, tmp_path_factory):
    """A run of 3 steps, with a checkpoint after each."""
    place = tmp_path_factory.mktemp(request.param)
    (place / "book.txt").write_text(ALICE.read_text("utf-8")[:20_000])
    tree = {
        "corpus": {"sources": [{"path": "book.txt"}], "splits": {"validation": 0.1}},
        "tokenizer": {"kind": "unigram", "vocab_size": 400},
        "model": {"family": request.param, **SHAPE},
        "pretrain": {"objective": "denoise", **QUICK, **STILL, "budget": "3 steps", "checkpoint_every": 1, "keep": 5},
    }
    (place / "recipe.yml").write_text(yaml.safe_dump(tree))
    said = weft("pretrain", place / "recipe.yml", "-o", place / "run")
    assert said.code == 0, said.err
    return place / "run"


def test_a_run_continued_from_its_first_checkpoint_has_the_same_bytes(run, tmp_path):
    stopped = tmp_path / "run"
    shutil.copytree(run, stopped, ignore=shutil.ignore_patterns("model", "step-000002", "step-000003"))
    said = weft("pretrain", run.parent / "recipe.yml", "-o", stopped, "--resume")
    assert said.code == 0, said.err
    assert (stopped / "checkpoints/step-000002").is_dir()
    weights = "model/model.safetensors"
    assert (stopped / weights).read_bytes() == (run / weights).read_bytes()


def test_evaluation_measures_what_was_learned(run, tmp_path):
    (tmp_path / "text.txt").write_text(ALICE.read_text("utf-8")[20_000:24_000])
    said = weft("evaluate", run / "model", tmp_path / "text.txt", "--json")
    assert said.code == 0, said.err
    found = said.lines[-1]
    assert "denoised tokens" in found["verdict"]
    tokens = len(load_tokenizer(run / "model").encode((tmp_path / "text.txt").read_text()))
    assert found["tokens"] == tokens + math.ceil(tokens / (QUICK["sequence_length"] - 1))  # an end token per window
    assert np.isfinite(found["figures"]["loss"])


def test_compression_goes_by_what_was_learned(run, tmp_path):
    book = run.parent / "book.txt"
    model = load(run / "model")
    samples = text_samples(model, [book], tmp_path, most=4_000)
    assert isinstance(samples.objective, Denoising)
    assert samples.objective.share == 0.3
    read_and_written = TextContest([model], [book], Reading(), limit=10).perform(model).tokens
    assert read_and_written > 10 * 1.5 * QUICK["sequence_length"]  # targets of span corruption are shorter

    tree = {
        "corpus": {"sources": [{"path": str(book)}], "splits": {"validation": 0.1}},
        "distil": {
            "teacher": str(run / "model"), "student": {"layers": 1}, "yardsticks": False,
            "budget": "1 steps", "sequence_length": 32, "batch": 4, "precision": "float32", "threads": 1,
        },
    }  # fmt: skip
    (tmp_path / "recipe.yml").write_text(yaml.safe_dump(tree))
    said = weft("distil", tmp_path / "recipe.yml", "-o", tmp_path / "run", "--json")
    assert said.code == 0, said.err
    assert said.lines[-1]["objective"] == "denoise"


def test_the_model_learns_to_summarize(run, tmp_path):
    rows = [json.dumps(row) for row in rows_of("summarize")]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows) + "\n")
    tree = {
        "finetune": {
            "model": str(run / "model"), "task": "summarize", "data": {"train": "rows.jsonl"},
            "budget": "1 steps", "batch": 4, "sequence_length": 16, "max_new_tokens": 4, "beams": 1,
            "baseline": False, "optimizer": "adamw", "learning_rate": 1e-6, "precision": "float32", "threads": 1,
        }
    }  # fmt: skip
    (tmp_path / "recipe.yml").write_text(yaml.safe_dump(tree))
    said = weft("finetune", tmp_path / "recipe.yml", "-o", tmp_path / "run")
    assert said.code == 0, said.err
    before, after = load_file(run / "model/model.safetensors"), load_file(tmp_path / "run/model/model.safetensors")
    assert before.keys() == after.keys()
    for name, weight in before.items():
        np.testing.assert_allclose(after[name], weight, atol=1e-4)
