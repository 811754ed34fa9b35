"""Plain text for a comparison, cut into pieces that the models read whole."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from weft.errors import InputError
from weft.sources.documents import read_documents
from weft.sources.files import held_out_part, list_files
from weft.sources.reading import Reading
from weft.tasks.labelled.data import named
from weft.tasks.loaded import LoadedModel
from weft.tokenizer.tokenizer import Tokenizer, cut_long
from weft.tokens.keyed_shuffle import KeyedShuffle

MOST_TEXT = 4_000_000  # bytes that are read
MOST_PIECES = 1000  # that are compared, if the user names no number
_USUAL_LENGTH, _MOST_LENGTH = 512, 1024  # tokens, where training's length is unknown


def read_texts(paths: Sequence[Path], reading: Reading) -> tuple[list[str], list[str]]:
    """The documents, and sentences about what was not read."""
    listing = list_files([held_out_part(path) for path in paths], reading.format)
    listing.say_passed_over()
    texts: list[str] = []
    size = 0
    for document in read_documents(listing.files, reading):
        if size >= MOST_TEXT:
            return texts, [f"Only the first {MOST_TEXT:,} bytes of text were used."]
        texts.append(document.text)
        size += len(document.text.encode("utf-8", "surrogatepass"))
    if not texts:
        raise InputError(f"{named(paths)}: the files hold no text to compare on.")
    return texts, []


def shared_length(models: Sequence[LoadedModel]) -> int:
    """The most tokens that every one of the models reads at once, as far as it was trained to."""
    return min(map(_trained_length, models))


def _trained_length(model: LoadedModel) -> int:
    length, limit = model.results.get("sequence_length"), model.longest
    known = length if isinstance(length, int) and length > 1 else min(limit or _USUAL_LENGTH, _MOST_LENGTH)
    return min(known, limit or known)


def cut_pieces(texts: Sequence[str], tokenizer: Tokenizer, most_tokens: int) -> Iterator[str]:
    """The same pieces for all models, whatever their tokenizers are."""
    for text in texts:
        for part in cut_long(text):
            places = tokenizer.engine.encode(part, add_special_tokens=False).offsets
            starts = [0, *(places[i][0] for i in range(most_tokens, len(places), most_tokens)), len(part)]
            yield from (part[begin:end] for begin, end in pairwise(starts) if part[begin:end].strip())


def draw(count: int, most: int | None) -> list[int]:
    """The numbers of at most `most` of `count` texts, drawn at random, in their order."""
    if most is None or most >= count:
        return list(range(count))
    return np.sort(KeyedShuffle(count, 0)[np.arange(most)]).tolist()


def have_same_tokenizer(model: LoadedModel, other: LoadedModel) -> bool:
    return model.tokenizer.engine.to_str() == other.tokenizer.engine.to_str()
