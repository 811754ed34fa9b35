"""The small models whose numbers and pictures the guide shows. scripts/theory_models.py trains them."""

from functools import cache
from pathlib import Path

import torch

from weft.api.model import Model, load
from weft.errors import InputError, suggest
from weft.progress import quieted

EXAMPLE_SENTENCE = "'I beg your pardon,' said the Mock Turtle"


@cache
def guide_model(name: str = "alice") -> Model:
    """In double precision, so that every machine prints the same digits."""
    folder = Path(__file__).parent
    names = sorted(place.name for place in folder.iterdir() if (place / "config.json").is_file())
    if name not in names:
        raise InputError(f"The guide has no model {name}{suggest(name, names)}; it has {', '.join(names)}.")
    with quieted():
        model = load(folder / name, "cpu")
    model.network.to(torch.float64)
    return model


def example_tokens(text: str, name: str = "alice") -> tuple[list[int], list[str]]:
    """The ids of a text's tokens, and the tokens as they are read, without spaces."""
    tokenizer = guide_model(name).tokenizer
    ids = tokenizer.encode(text)
    return ids, [tokenizer.decode([token]).strip() for token in ids]


@cache
def guide_text() -> tuple[str, str]:
    """*Alice in Wonderland*: chapters 1 to 11, which the model `alice` was trained on, and 12, which it never saw."""
    checkout = Path(__file__).parents[4] / "examples/alice.txt"
    file = checkout if checkout.is_file() else Path(__file__).parent / "alice/text.txt"
    known, mark, unseen = file.read_text("utf-8").partition("CHAPTER XII\n")
    return known, mark + unseen
