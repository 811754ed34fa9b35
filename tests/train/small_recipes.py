"""Recipes of small models that train for a few steps on the beginning of a book."""

import subprocess
import sys
from pathlib import Path

import yaml

from weft.recipe.file import read_recipe

ALICE = Path(__file__).parents[2] / "examples/alice.txt"
WORDS = {"kind": "wordpiece", "vocab_size": 400}
SHAPE = {"layers": 2, "width": 32, "heads": 2}
QUICK = {"budget": "6 steps", "sequence_length": 32, "batch_tokens": 256, "validation_tokens": 500, "seed": 1}


def recipe(place, name="r.yml", **sections):
    tree = {
        "corpus": {"sources": [{"path": "book.txt"}], "splits": {"validation": 0.1}},
        "tokenizer": {"kind": "char"},
        "model": {"family": "gpt2", **SHAPE},
        "pretrain": {"objective": "causal", **QUICK},
    }
    for section, values in sections.items():
        tree[section] = values if section in ("name", "tokenizer", "model") else {**tree[section], **values}
    (place / name).write_text(yaml.safe_dump(tree))
    return read_recipe(place / name)


def read_corpus(place, sources):
    (place / "c.yml").write_text(yaml.safe_dump({"corpus": {"sources": sources}}))
    return read_recipe(place / "c.yml").corpus


def weft_command(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "weft", *map(str, arguments)], capture_output=True, text=True, **options
    )
