"""Every family and head that GGUF takes, in every precision, in llama.cpp against weft. Prints a table.

    python scripts/export_gguf_proof.py [--families gpt2 llama] [--precisions fp32 q8_0]

Models have random weights, in which every layer matters; --trained trains small ones on Alice in Wonderland instead.
`difference` is the largest of all log-probabilities (or numbers of a vector, or scores), `scale` the largest value.
Of T5 they are those of next tokens after the same beginnings.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch

import weft
from weft.exports.gguf import GGUF
from weft.exports.run import export_model
from weft.tokenizer.tokenizer import Tokenizer
from weft.tokenizer.train import train_tokenizer

ALICE = Path(__file__).parents[1] / "examples/alice.txt"
KINDS = {"bert": "wordpiece", "distilbert": "wordpiece", "modernbert": "wordpiece", "t5": "unigram"}  # others: bpe
HEADS = {
    "gpt2": ("causal", "none"),
    "llama": ("causal", "none"),
    "qwen3": ("causal", "none"),
    "bert": ("masked", "none", "sequence"),
    "roberta": ("masked", "none", "sequence"),
    "distilbert": ("masked", "none"),
    "modernbert": ("masked", "none", "sequence"),
    "t5": ("seq2seq", "encoder"),
}


@cache
def tokenizer_for(family: str) -> Tokenizer:
    return train_tokenizer([ALICE], KINDS.get(family, "bpe"), 500, family=family)  # type: ignore[arg-type]


def random_model(family: str, head: str, **more) -> weft.Model:
    """Random weights with which every word of a text counts: embeddings of size 1, attention that picks."""
    tokenizer = replace(tokenizer_for(family), files={})
    shape = {"layers": 2, "width": 64, "heads": 4, **({"head_width": 16} if family == "t5" else {})}
    model = weft.create(family, head=head, labels=3, tokenizer=tokenizer, **{**shape, **more})
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.network.named_parameters():
            is_table, is_norm = name.startswith("embed."), "norm" in name and name.endswith("weight")
            scale = 0.1 if parameter.dim() == 1 else 1.0 if is_table else 1.3 * parameter.shape[-1] ** -0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale + is_norm)
    return model


def trained_model(family: str, place: Path) -> weft.Model:
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from trained import train

    folder = place / f"trained-{family}"
    folder.mkdir()
    return train(folder, KINDS.get(family, "bpe"), family, "1000")


def rows(options: argparse.Namespace, place: Path) -> Iterator[tuple[str, ...]]:
    for family in options.families:
        for head in HEADS[family][:1] if options.trained else HEADS[family]:
            model = trained_model(family, place) if options.trained else random_model(family, head)
            for precision in options.precisions:
                result = export_model(model, "gguf", place / "export", precision=precision)
                found = result.comparison
                assert found is not None, "xllamacpp is not installed"
                values = found.logits, found.scale, found.same_tokens
                shown = ["–" if value is None else f"{value:.2g}" for value in values]
                differs = sum("other token ids" in note for note in found.notes)
                yield family, head, precision, f"{result.megabytes:.2f}", *shown, "differ" if differs else "equal"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", nargs="+", default=list(HEADS), choices=list(HEADS))
    parser.add_argument("--precisions", nargs="+", default=list(GGUF.precisions), choices=GGUF.precisions)
    parser.add_argument("--trained", action="store_true", help="train small models first (a minute each)")
    options = parser.parse_args()
    titles = ("family", "head", "precision", "MB", "difference", "scale", "same tokens", "ids of sample texts")
    print(" | ".join(titles), "\n", " | ".join("-" * len(title) for title in titles), sep="")
    with tempfile.TemporaryDirectory() as place:
        for row in rows(options, Path(place)):
            print(" | ".join(row), flush=True)


if __name__ == "__main__":
    main()
