"""CTranslate2 exports: how far are they from weft, and what does int8 cost?

    python scripts/export_ctranslate2_proof.py [--layers 4] [--width 128] [--steps 300] [--only tables|tasks]

1. Exports every family with every head that the format has, with random weights, in all precisions, and compares them
   with weft in CTranslate2: the largest difference of logits (and the largest logit), the share of equal greedy tokens.
2. Trains a classifier, a language model and a translator from examples/ for a minute each, and measures accuracy,
   perplexity, and BLEU of unseen texts in weft and of each export in CTranslate2.

Prints two tables in Markdown.
"""

import argparse
import csv
import itertools
import json
import math
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import ctranslate2
import numpy as np
import safetensors.numpy
import torch

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))

import small_tasks  # noqa: E402
import weft  # noqa: E402
from task_models import scatter  # noqa: E402
from trained import train  # noqa: E402
from weft.api.model import Model  # noqa: E402
from weft.errors import InputError  # noqa: E402
from weft.exports.ctranslate2.head_recipe import head_logits  # noqa: E402
from weft.exports.run import export_model  # noqa: E402
from weft.metrics.translations import translation_counts, translation_figures  # noqa: E402

PRECISIONS = ("fp32", "f16", "int8")
HEADS = {
    "gpt2": ("causal", "sequence", "none"),
    "llama": ("causal", "token"),
    "qwen3": ("causal", "span"),
    "t5": ("seq2seq", "token", "encoder", "sequence"),
    "transformer": ("seq2seq", "none"),
    "bert": ("masked", "masked+next-sentence", "sequence", "token", "span", "pooler", "none"),
    "roberta": ("masked", "sequence", "token", "span", "pooler", "none"),
    "distilbert": ("masked", "sequence", "token", "span", "none"),
    "modernbert": ("masked",),
    "lstm": ("causal",),
}
SUBJECTS = {
    "the cat": "die Katze", "a dog": "ein Hund", "my brother": "mein Bruder", "the old man": "der alte Mann",
    "she": "sie", "the queen": "die Königin", "your friend": "dein Freund", "the child": "das Kind",
}  # fmt: skip
VERBS = {
    "sees": "sieht", "buys": "kauft", "loves": "liebt", "looks for": "sucht", "has": "hat", "wants": "will",
    "brings": "bringt", "needs": "braucht",
}  # fmt: skip
OBJECTS = {
    "a house": "ein Haus", "the book": "das Buch", "red flowers": "rote Blumen", "the moon": "den Mond",
    "some bread": "etwas Brot", "two birds": "zwei Vögel", "the garden": "den Garten", "a new car": "ein neues Auto",
}  # fmt: skip
Runner = Callable[[Path, str], float]  # a metric of an export


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--steps", type=int, default=300, help="of training, for each task")
    parser.add_argument("--only", choices=("tables", "tasks"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.only != "tasks":
            print_table(differences(Path(folder), options.layers, options.width))
        if options.only != "tables":
            print_table(losses(Path(folder), options.steps))


def print_table(rows: Iterator[list[str]]) -> None:
    for number, row in enumerate(rows):
        print(f"| {' | '.join(row)} |", flush=True)
        if number == 0:
            print(f"|{' --- |' * len(row)}", flush=True)
    print()


def differences(folder: Path, layers: int, width: int) -> Iterator[list[str]]:
    yield ["family", "head", "largest logit", *PRECISIONS, *(f"same tokens, {one}" for one in PRECISIONS)]
    for family, heads in HEADS.items():
        for head in heads:
            model = weft.create(family, head=head, vocabulary=1000, layers=layers, width=width, heads=4)
            scatter(model.network, seed=0)
            if family == "t5":
                calm_queries(model)
            yield [family, head, *compared(model, folder / f"{family}-{head}")]


@torch.no_grad()
def calm_queries(model: Model) -> None:
    """T5 does not divide scores by √D: its queries are smaller instead."""
    for name, weight in model.network.named_parameters():
        if name.endswith(("qkv.weight", "query.weight")):
            rows = len(weight) // (3 if "qkv" in name else 1)
            weight[:rows] /= 8


def compared(model: Model, folder: Path) -> list[str]:
    found = []
    for precision in PRECISIONS:
        try:
            found.append(export_model(model, "ctranslate2", folder, precision=precision).comparison)
        except InputError as refusal:
            return [f"refused: {str(refusal).partition(': ')[2]}", *[""] * (2 * len(PRECISIONS))]
    same = ["" if one.same_tokens is None else f"{one.same_tokens:.0%}" for one in found]
    return [f"{found[0].scale:.1f}", *(f"{one.logits:.1e}" for one in found), *same]


def losses(folder: Path, steps: int) -> Iterator[list[str]]:
    yield ["model", "metric", "weft", *PRECISIONS]
    for name, metric, model, ours, runner in (
        classifier(folder / "classify", steps),
        language_model(folder / "language", "gpt2", steps),
        language_model(folder / "llama", "llama", steps),
        translator(folder / "translate", steps),
    ):
        figures = []
        for precision in PRECISIONS:
            export = folder / f"{name.replace(' ', '-')}-{precision}"
            export_model(model, "ctranslate2", export, precision=precision, compare=False)
            figures.append(f"{runner(export, 'default' if precision == 'int8' else 'float32'):.4f}")
        yield [name, metric, f"{ours:.4f}", *figures]


def classifier(folder: Path, steps: int) -> tuple[str, str, Model, float, Runner]:
    """Who wrote this sentence? Carroll or Austen."""
    shape = {"family": "bert", "layers": 2, "width": 128, "heads": 4}
    data = {"train": str(ROOT / "examples/authors.tsv")}
    small_tasks.learnt(folder, "classify", model=shape, data=data, budget=f"{steps} steps", batch=32)
    model = weft.load(folder / "run/model", "cpu")
    with (ROOT / "examples/authors-test.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    texts, gold = [row["text"] for row in rows], [row["author"] for row in rows]
    inputs = model.tokenizer.encode_many(texts, model.longest)

    def accuracy(export: Path, compute: str) -> float:
        encoder = ctranslate2.Encoder(str(export), compute_type=compute, **threads())
        (head,) = json.loads((export / "heads.json").read_text("utf-8"))
        arrays = safetensors.numpy.load_file(export / "heads.safetensors")
        weights = {name: array.astype(np.float32) for name, array in arrays.items()}
        outputs = (encoder.forward_batch([ids]) for ids in inputs)
        logits = (head_logits(np.array(getattr(one, head["input"]))[0], head, weights) for one in outputs)
        return float(np.mean([head["labels"][one.argmax()] == label for one, label in zip(logits, gold, strict=True)]))

    ours = [one.argmax() for one in model.logits(inputs)]
    right = float(np.mean([model.labels[best] == label for best, label in zip(ours, gold, strict=True)]))
    return "bert", "accuracy of 300 sentences", model, right, accuracy


def language_model(folder: Path, family: str, steps: int) -> tuple[str, str, Model, float, Runner]:
    folder.mkdir()
    model = train(folder, "bpe", family, "500", steps=steps)
    text = (ROOT / "examples/austen.txt").read_text("utf-8")[20_000:40_000]
    ids = model.tokenizer.encode(text)
    windows = [ids[start : start + 64] for start in range(0, len(ids) - 64, 64)]

    def perplexity(logits: Iterator[np.ndarray]) -> float:
        nats = []
        for window, rows in zip(windows, logits, strict=True):
            rows = rows[:-1, : model.network.architecture.vocabulary].astype(np.float64)
            sums = np.log(np.exp(rows - rows.max(-1, keepdims=True)).sum(-1)) + rows.max(-1)
            nats += (sums - rows[np.arange(len(rows)), window[1:]]).tolist()
        return math.exp(float(np.mean(nats)))

    def of_export(export: Path, compute: str) -> float:
        generator = ctranslate2.Generator(str(export), compute_type=compute, **threads())
        return perplexity(np.array(generator.forward_batch([window]))[0] for window in windows)

    ours = perplexity(iter(model.logits(windows)))
    return family, f"perplexity of {len(windows) * 63:,} tokens", model, ours, of_export


def translator(folder: Path, steps: int) -> tuple[str, str, Model, float, Runner]:
    """English to German, in sentences of subject, verb and object, of which a hundred are held out."""
    triples = list(itertools.product(*(table.items() for table in (SUBJECTS, VERBS, OBJECTS))))
    random.Random(0).shuffle(triples)
    pairs = [zip(*triple, strict=True) for triple in triples]
    rows = [{"source": " ".join(english), "target": " ".join(german)} for english, german in pairs]
    folder.mkdir()
    data = {"train": str(small_tasks.write_rows(folder / "rows.jsonl", rows[100:]))}
    shape = {"family": "t5", "layers": 2, "width": 128, "heads": 4}
    budget = f"{max(1, steps // 8)} steps"  # with more, all sentences would be right
    small_tasks.learnt(folder / "tuned", "translate", model=shape, data=data, budget=budget, batch=32)
    model = weft.load(folder / "tuned/run/model", "cpu")
    rows = rows[:100]
    sources, gold = ([row[side] for row in rows] for side in ("source", "target"))
    inputs = [model.tokenizer.encode(text) for text in sources]

    def of_export(export: Path, compute: str) -> float:
        opened = ctranslate2.Translator(str(export), compute_type=compute, **threads())
        tokens = json.loads((export / "shared_vocabulary.json").read_text("utf-8"))
        numbers = {token: number for number, token in enumerate(tokens)}
        texts = [[tokens[number] for number in ids] for ids in inputs]
        results = opened.translate_batch(texts, beam_size=1, max_decoding_length=40, min_decoding_length=0)
        written = [model.tokenizer.decode([numbers[token] for token in one.hypotheses[0]]) for one in results]
        return translation_figures(translation_counts(written, gold))["bleu"]

    written = model.generate(sources, strategy="greedy", max_new_tokens=40)
    return (
        "t5",
        "BLEU of 100 sentences",
        model,
        translation_figures(translation_counts(written, gold))["bleu"],
        of_export,
    )


def threads() -> dict[str, int]:
    return {"inter_threads": 1, "intra_threads": int(os.environ.get("OMP_NUM_THREADS", "1"))}


if __name__ == "__main__":
    main()
