"""Tags of a sentence with their probabilities, and the entities they mark."""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from weft.metrics.entities import entities_in
from weft.tasks.example import Example
from weft.tasks.words import places_of
from weft.tokenizer.tokenizer import Tokenizer


class PredictedTags(tuple[str, ...]):
    """The tag of each word, and `probabilities`, one per word.

    The product of the probabilities over the words of an entity is the probability that all of them have these tags.
    """

    probabilities: tuple[float, ...]

    def __new__(cls, tags: Iterable[str], probabilities: Iterable[float] = ()) -> "PredictedTags":
        found = super().__new__(cls, tags)
        found.probabilities = tuple(probabilities)
        return found


def entities(example: Example, tags: Sequence[str]) -> list[dict[str, Any]]:
    """Each entity as JSON: its words from `start` to `end`, its characters if the example has a text.

    Of predicted tags also a `confidence`: the probability of the tags of its words.
    """
    words, text = example.given, example.text
    places = places_of(words, text) if text else []
    found = []
    for start, end, kind in entities_in(tags):
        one: dict[str, Any] = {"text": text_of(words[start:end]), "kind": kind, "start": start, "end": end}
        if text:
            first, last = places[start][0], places[end - 1][1]
            one |= {"text": text[first:last], "characters": [first, last]}
        if isinstance(tags, PredictedTags):
            one["confidence"] = round(prod(tags.probabilities[start:end]), 6)
        found.append(one)
    return found


def as_written(words: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    """The words with the space before them, for tokenizers to which it matters."""
    gap = _gap(words) if tokenizer.joins_spaces else ""
    return [*words[:1], *(gap + word if word else "" for word in words[1:])]


def text_of(words: Sequence[str]) -> str:
    return _gap(words).join(words)


def _gap(words: Sequence[str]) -> str:
    """Chinese is written without spaces."""
    return "" if any("\u3400" <= c <= "\u9fff" for word in words[:20] for c in word) else " "
