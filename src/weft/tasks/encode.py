"""Texts and pairs of texts as inputs: with the tokenizer's special tokens, truncated to the model's limit.

A long text loses its end, or is read in windows of equal lengths. In a long pair the longer text is truncated first,
token by token, as in `transformers` (`longest_first`).
"""

from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import Any

import numpy as np
from tokenizers import Encoding

from weft.tasks.example import Input
from weft.tasks.input_spec import InputSpec

_PART = 1000  # texts
_SAMPLE = 2000  # texts that tell how many windows are needed
_WHOLE_SHARE = 0.95  # of them
_MOST_CHOSEN_TOKENS = 1024  # in all windows of a text, unless a recipe asks for more: they need memory and time


def encoded(
    texts: Sequence[Any], encode: Callable[..., list[Encoding]], *, special: bool = False
) -> Iterator[Encoding]:
    """Encodings, made `_PART` at a time: an encoding needs about thirty times the memory of its ids."""
    for start in range(0, len(texts), _PART):
        yield from encode(list(texts[start : start + _PART]), add_special_tokens=special)


def encode_texts(texts: Sequence[str], spec: InputSpec) -> list[Input]:
    engine, most = spec.tokenizer.engine, spec.most_tokens
    room = max(1, most - engine.num_special_tokens_to_add(is_pair=False))
    found = []
    for number, encoding in enumerate(encoded(texts, engine.encode_batch_fast, special=True)):
        is_long = len(encoding) > most
        if is_long:
            encoding = engine.encode(texts[number], add_special_tokens=False)
            encoding.truncate(room)
            encoding = engine.post_process(encoding)
        found.append(_input(number, encoding, spec, was_cut=is_long))
    return found


def encode_windows(texts: Sequence[str], spec: InputSpec, most_windows: int) -> list[Input]:
    """Each text is one input. A long one has several sequences, each with the special tokens."""
    engine, most = spec.tokenizer.engine, spec.most_tokens
    room = max(1, most - engine.num_special_tokens_to_add(is_pair=False))
    found = []
    for number, encoding in enumerate(encoded(texts, engine.encode_batch_fast)):
        length = len(encoding)
        count = min(most_windows, max(1, ceil(length / room)))
        size = min(room, max(1, ceil(length / count)))
        encoding.truncate(size)
        windows = [encoding, *encoding.overflowing][:count]
        rows = [np.asarray(engine.post_process(one).ids, np.int32) for one in windows]
        parts = tuple(map(len, rows)) if len(rows) > 1 else ()
        found.append(Input(number, np.concatenate(rows), was_cut=length > size * count, parts=parts))
    return found


def windows_for(texts: Sequence[str], spec: InputSpec) -> int:
    """One, unless a twentieth of the texts and more is too long; then as many as hold nearly all of them whole."""
    some = [texts[number] for number in np.random.default_rng(0).permutation(len(texts))[:_SAMPLE].tolist()]
    room = max(1, spec.most_tokens - spec.tokenizer.engine.num_special_tokens_to_add(is_pair=False))
    lengths = [len(one) for one in encoded(some, spec.tokenizer.engine.encode_batch_fast)]
    longest = float(np.quantile(lengths, _WHOLE_SHARE)) if lengths else 0.0
    return min(max(1, _MOST_CHOSEN_TOKENS // spec.most_tokens), max(1, ceil(longest / room)))


def encode_pairs(pairs: Sequence[tuple[str, str]], spec: InputSpec) -> list[Input]:
    engine, most = spec.tokenizer.engine, spec.most_tokens
    room = max(2, most - engine.num_special_tokens_to_add(is_pair=True))
    found = []
    for number, encoding in enumerate(encoded(pairs, engine.encode_batch_fast, special=True)):
        is_long = len(encoding) > most
        if is_long:
            first, second = (engine.encode(text, add_special_tokens=False) for text in pairs[number])
            a, b = shortened(len(first), len(second), room)
            first.truncate(a)
            second.truncate(b)
            encoding = engine.post_process(first, second)
        found.append(_input(number, encoding, spec, was_cut=is_long))
    return found


def shortened(first: int, second: int, room: int) -> tuple[int, int]:
    """Tokens that are kept of each text: the longer is cut until both are equal, then both are.

    An odd token goes to the longer text, or to the second if both are equally long.
    """
    if first + second <= room:
        return first, second
    short = min(first, second, room // 2)
    return (room - short, short) if first > second else (short, room - short)


def _input(number: int, encoding: Encoding, spec: InputSpec, *, was_cut: bool) -> Input:
    ids = np.asarray(encoding.ids, np.int32)
    segments = np.asarray(encoding.type_ids, np.int32) if spec.segments > 1 else None
    return Input(number, ids, segments, was_cut=was_cut)
