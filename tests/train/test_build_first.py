"""A recipe whose corpus is built before anything is learnt from it."""

import json

import yaml
from small_recipes import ALICE, QUICK, SHAPE

from weft.commands.run import run_recipe
from weft.recipe.file import read_recipe
from weft.train.pretrain import pretrain


def test_a_recipe_that_builds_its_corpus(tmp_path):
    place, chapters = tmp_path, ALICE.read_text("utf-8")
    lines = [json.dumps({"body": chapters[start : start + 2000]}) for start in range(0, 40_000, 2000)]
    (place / "lines.jsonl").write_text("\n".join(lines + lines[:5]))
    corpus = {
        "sources": [{"path": "lines.jsonl", "text": "body", "weight": 2.0}],
        "splits": {"validation": 0.1},
        "build": {"filter": None},
    }
    (place / "built.yml").write_text(
        yaml.safe_dump(
            {
                "corpus": corpus,
                "tokenizer": {"kind": "char"},
                "model": {"family": "gpt2", **SHAPE},
                "pretrain": {"objective": "causal", **QUICK},
            }
        )
    )
    read = read_recipe(place / "built.yml")
    results = pretrain(read, place, tmp_path / "run")
    counts = json.loads((tmp_path / "run/corpus/weft.json").read_text())["counts"]
    assert counts["dropped"] == {"exact duplicate": 5}
    assert results["steps"] == 6
    again = run_recipe(read_recipe(tmp_path / "run/recipe.yml"), tmp_path / "run", tmp_path / "again")
    assert again["test" if "test" in again else "validation"] == results["test" if "test" in results else "validation"]
    raw = read_recipe(place / "built.yml", ["corpus.build=null"])  # the column is the source's, built or not
    assert pretrain(raw, place, tmp_path / "raw")["steps"] == 6
