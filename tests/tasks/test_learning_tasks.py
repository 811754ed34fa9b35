"""Small models learn what small data holds, from nothing, through the whole of `weft finetune`."""

import json
import random

import pytest

from weft.recipe.file import read_recipe
from weft.tasks.learning.finetune import finetune

ANIMALS, TOOLS = "cat dog horse cow sheep goat".split(), "saw hammer drill file spade axe".split()
FILLERS = "the a old small my her under over near behind was is seen lost bought sold".split()
GERMAN, ENGLISH = "eins zwei drei vier rot blau haus baum".split(), "one two three four red blue house tree".split()
DICTIONARY = dict(zip(GERMAN, ENGLISH, strict=True))
BERT = {"family": "bert", "layers": 2, "width": 64, "heads": 2}


def rows(task: str, count: int) -> list[dict]:
    chance = random.Random(task)
    found = []
    for _ in range(count):
        words = chance.choices(FILLERS, k=chance.randint(3, 9))
        kind, thing = chance.choice([("animal", chance.choice(ANIMALS)), ("tool", chance.choice(TOOLS))])
        words.insert(chance.randrange(len(words)), thing)
        tags = [f"B-{kind}" if word == thing else "O" for word in words]
        if task == "classify":
            found.append({"text": " ".join(words), "label": kind})
        elif task == "tag":
            found.append({"words": words, "tags": tags})
        elif task == "intent":
            found.append({"words": words, "tags": tags, "intent": "feed" if kind == "animal" else "sharpen"})
        else:
            source = chance.choices(list(DICTIONARY), k=chance.randint(2, 4))
            found.append({"source": " ".join(source), "target": " ".join(DICTIONARY[word] for word in source)})
    return found


LEARNT = {
    "classify": ("accuracy", 0.95, BERT, {}),
    "tag": ("f1", 0.95, BERT, {"crf": True}),
    "intent": ("exact", 0.9, BERT, {}),
    "translate": ("bleu", 80.0, {"family": "transformer", "layers": 2, "width": 64, "heads": 2}, {"beams": 2}),
    "reply": ("chrf", 80.0, {"family": "qwen3", "layers": 2, "width": 64, "heads": 2}, {"beams": 1}),
}


@pytest.mark.parametrize("task", LEARNT)
def test_a_task_is_learnt_and_judged(task, tmp_path):
    figure, least, model, settings = LEARNT[task]
    for name, count in (("train", 600), ("test", 60)):
        lines = rows(task, count) if name == "train" else rows(task, 700)[600:]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    tree = {
        "name": task,
        "tokenizer": {"kind": "wordpiece" if model is BERT else "bpe"},
        "finetune": {
            "model": model,
            "task": task,
            "data": {"train": "train.jsonl", "test": "test.jsonl"},
            "budget": "150 steps" if model is BERT else "300 steps",
            "sequence_length": 32,
            **settings,
        },
    }
    (tmp_path / "recipe.yml").write_text(json.dumps(tree))
    results = finetune(read_recipe(tmp_path / "recipe.yml"), tmp_path, tmp_path / "run")
    assert results["figures"][figure] >= least
    low, high = results["intervals"][figure]
    assert low <= results["figures"][figure] <= high
    assert results["baseline"]["figures"][figure] <= 100
    report = json.loads((tmp_path / "run/report.json").read_text())
    assert report["figures"] == results["figures"]
