"""Pruning: is the speed-up as asked, and what does it cost?

    python scripts/prune_proof.py --task MODEL TRAIN TEST [--task …] [--text MODEL TRAIN TEST …] [--t5 2m]
                                  [--cases 1.5:0 2:5]

Each model is pruned from its training data, for 1.5 times the speed without training and for twice the speed with five
minutes of it, and evaluated on test data that pruning has not seen: the metric of its task, or perplexity. Every folder
is opened in transformers, whose logits must equal weft's. `--t5` also trains a small T5 on the last text, for so long.

Prints a table in Markdown. Exits with 1 if a folder differs in transformers by more than 1e-4.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers

import weft

LARGEST_DIFFERENCE = 1e-4
T5_RECIPE = """
name: small-t5
corpus: {{sources: [{{path: "{text}"}}]}}
tokenizer: {{kind: unigram, vocab_size: 4000}}
model: {{family: t5, layers: 4, width: 192, heads: 6, head_width: 32, inner: 768}}
pretrain: {{objective: span, budget: {budget}, sequence_length: 128}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs=3, action="append", default=[], metavar=("MODEL", "TRAIN", "TEST"))
    parser.add_argument("--text", nargs=3, action="append", default=[], metavar=("MODEL", "TRAIN", "TEST"))
    parser.add_argument("--cases", nargs="+", default=["1.5:0", "2:5"], help="speed-up and minutes of training")
    parser.add_argument("--t5", default="", help="train a T5 for so long first, such as 2m")
    options = parser.parse_args()
    print("| model | asked | minutes | what stays | measured (quartiles) | before | after | kept | transformers |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    worst = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        texts = list(options.text)
        if options.t5:
            _, train, test = texts[-1]
            texts.append((str(trained_t5(Path(scratch), train, options.t5)), train, test))
        for model, train, test in (*options.task, *texts):
            before = evaluated(Path(model), test)
            for speedup, minutes in ([float(part) for part in case.split(":")] for case in options.cases):
                worst = max(worst, prove(Path(model), train, test, before, speedup, minutes, Path(scratch)))
    sys.exit(worst > LARGEST_DIFFERENCE)


def prove(
    model: Path, train: str, test: str, before: tuple[str, float], speedup: float, minutes: float, scratch: Path
) -> float:
    folder = scratch / f"{model.parent.name}-{speedup}-{minutes}"
    facts = weft.prune(model, folder, speedup=f"{speedup}x", data=train, minutes=minutes)
    metric, figure = before
    _, after = evaluated(folder, test)
    kept = figure / after if metric in ("perplexity", "loss") else after / figure
    difference = difference_to_transformers(folder)
    times, (low, high) = facts["speedup"]["measured"], facts["speedup"]["quartiles"]
    cells = [model.parent.name, f"{speedup:g}×", f"{minutes:g}", shape_in_words(facts)]
    cells += [f"{times:.2f}× ({low:.2f}–{high:.2f})", f"{metric} {figure:.4g}", f"{after:.4g}", f"{kept:.1%}"]
    print(f"| {' | '.join(cells)} | {difference:.1e} |", flush=True)
    return difference


def shape_in_words(facts: dict[str, Any]) -> str:
    shape = facts["shape"]
    layers = " + ".join(str(len(numbers)) for numbers in shape["layers"].values())
    heads = "" if len(set(shape["key_value_heads"])) == 1 else f", {shape['key_value_heads'][1]} heads"
    return f"{layers} layers, {shape['inner'][1]} of {shape['inner'][0]} neurons{heads}"


def evaluated(folder: Path, test: str) -> tuple[str, float]:
    results = weft.evaluate(folder, test)
    metric = results.get("score") or next(iter(results["figures"])) if "task" in results else "perplexity"
    return metric, results["figures"][metric]


def difference_to_transformers(folder: Path) -> float:
    model = weft.load(folder, "cpu")
    kind = getattr(transformers, model.description.config["architectures"][0])
    theirs = kind.from_pretrained(folder).eval()
    ids = model.tokenizer.encode("It was a very good day, and nobody knew why.")
    given = {"input_ids": torch.tensor([ids])}
    targets = {}
    if model.network.architecture.is_encoder_decoder:
        targets = {"targets": [[0, *ids[:5]]]}
        given["decoder_input_ids"] = torch.tensor(targets["targets"])
    with torch.no_grad():
        logits = theirs(**given).logits[0]
    return float((torch.from_numpy(model.logits([ids], **targets)[0]) - logits).abs().max())


def trained_t5(scratch: Path, text: str, budget: str) -> Path:
    recipe = scratch / "t5.yml"
    recipe.write_text(T5_RECIPE.format(text=Path(text).resolve(), budget=budget))
    return weft.pretrain(recipe, output=scratch / "small-t5").model


if __name__ == "__main__":
    main()
