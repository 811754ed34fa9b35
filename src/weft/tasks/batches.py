"""Inputs of like lengths, packed into batches without padding."""

from collections.abc import Iterator, Sequence

import numpy as np

from weft.model.packed import Packed, group_by_tokens, order_by_length, pack
from weft.progress import Gauge
from weft.tasks.example import Input

ANSWERED_TOKENS = 4096  # tokens in a batch of predictions; larger batches leave the CPU's caches


def pack_inputs(inputs: Sequence[Input]) -> Packed:
    segments = [one.segments for one in inputs]
    known = [row for row in segments if row is not None]
    # Without special tokens, a text of control characters has no tokens at all.
    return pack([row if len(row) else [0] for one in inputs for row in _sequences(one)], known if known else None)


def _sequences(one: Input) -> list[np.ndarray]:
    return np.split(one.ids, np.cumsum(one.parts)[:-1]) if one.parts else [one.ids]


def windows_in(inputs: Sequence[Input]) -> tuple[int, ...] | None:
    """How many sequences each input has; None if each has one."""
    return tuple(max(1, len(one.parts)) for one in inputs) if any(one.parts for one in inputs) else None


def groups(inputs: Sequence[Input], most_tokens: int = ANSWERED_TOKENS) -> Iterator[list[int]]:
    """Indices of inputs that go through the network together."""
    order = order_by_length([one.ids for one in inputs])
    for part in group_by_tokens([len(inputs[i].ids) for i in order], most_tokens):
        yield [order[i] for i in part]


def tracked_groups(inputs: Sequence[Input], what: str, unit: str) -> Iterator[list[int]]:
    """`groups`, with progress. It counts inputs, which are windows if an example has several."""
    unit = "windows" if inputs and inputs[-1].example + 1 < len(inputs) else unit
    with Gauge(what, unit=unit, total_items=len(inputs), summary=False) as gauge:
        for part in groups(inputs):
            yield part
            gauge.add(len(part))


def count_cut(inputs: Sequence[Input]) -> int:
    """The number of examples that do not fit into one input."""
    return len({one.example for one in inputs if one.was_cut})
