"""Trains the small models of the theory guide and puts them into the package: src/weft/theory/models.

    python scripts/theory_models.py [NAME]

The guide's numbers and pictures come from these weights. They are kept because training does not give the same bits
on every machine: with the weights given, the same text always has the same probabilities. Half precision halves their
size. After training anew, run `python scripts/theory.py` and read the chapters again.
"""

import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from weft.recipe.recipe import Recipe
from weft.tasks.learning.finetune import finetune
from weft.theory.models import guide_text
from weft.train.pretrain import pretrain

ROOT = Path(__file__).parents[1]
MODELS = ROOT / "src/weft/theory/models"
KEPT = ("config.json", "generation_config.json", "tokenizer_config.json")
MONTHS = "January February March April May June July August September October November December".split()
TRAINING = {"batch_tokens": 2048, "sequence_length": 64, "precision": "float32", "compile": False}

# Dropout is high because the text is short: one book of 145 KB.
# The model does not see the last chapter of the book, so the guide can test it there.
RECIPES: dict[str, dict[str, Any]] = {
    "alice": {
        "corpus": {"sources": [{"path": "known.txt"}], "splits": {"validation": 0.1}},
        "tokenizer": {"kind": "bpe", "vocab_size": 2000},
        "model": {"family": "gpt2", "layers": 2, "width": 64, "heads": 4, "positions": 64},
        "pretrain": {"objective": "causal", "budget": "240 steps", "dropout": 0.25, **TRAINING},
    },
    # An encoder–decoder that writes dates, "14 March 1952" or "March 14, 1952", as 1952-03-14.
    "dates": {
        "tokenizer": {"kind": "char"},
        "finetune": {
            "model": {"family": "transformer", "layers": 1, "width": 48, "heads": 1, "inner": 96},
            "task": "translate",
            "data": {"train": "train.tsv", "test": "test.tsv", "source": "source", "target": "target"},
            "budget": "12 epochs",
            "batch": 32,
            "learning_rate": 3e-3,
            "sequence_length": 24,
        },
    },
}


def main() -> None:
    for name in sys.argv[1:] or RECIPES:
        with tempfile.TemporaryDirectory() as folder:
            recipe = Recipe(name=name, **RECIPES[name])
            if recipe.finetune is None:
                known, _ = guide_text()
                Path(folder, "known.txt").write_text(known, "utf-8")
                pretrain(recipe, Path(folder), Path(folder, "run"))
            else:
                write_dates(Path(folder))
                finetune(recipe, Path(folder), Path(folder, "run"))
            keep(Path(folder, "run/model"), MODELS / name)


def write_dates(folder: Path) -> None:
    """3,600 dates to learn from, and 300 to test."""
    draw = random.Random(0)
    rows = []
    for year in range(1900, 2030):
        for _ in range(30):
            number, day = draw.randrange(12), draw.randint(1, 28)
            written = draw.choice([f"{day} {MONTHS[number]} {year}", f"{MONTHS[number]} {day}, {year}"])
            rows.append(f"{written}\t{year}-{number + 1:02}-{day:02}\n")
    draw.shuffle(rows)
    for name, part in (("train", rows[:3600]), ("test", rows[3600:])):
        Path(folder, f"{name}.tsv").write_text("source\ttarget\n" + "".join(part), "utf-8")


def keep(model: Path, place: Path) -> None:
    """The files that `weft.load` needs."""
    place.mkdir(parents=True, exist_ok=True)
    for file in KEPT:
        (place / file).write_bytes((model / file).read_bytes())
    tokenizer = json.loads((model / "tokenizer.json").read_text("utf-8"))
    (place / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")), "utf-8")
    weights = {key: value.to(torch.float16) for key, value in load_file(model / "model.safetensors").items()}
    save_file(weights, place / "model.safetensors", {"format": "pt"})


if __name__ == "__main__":
    main()
