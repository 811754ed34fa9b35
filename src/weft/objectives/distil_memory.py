"""A teacher that remembers its answers to each sequence, so that it costs nothing in later epochs.

Only logits of tasks are remembered; they are small. They must be rows of single sequences or tokens, and the hidden
states computed by the compiled forward pass, where a sequence has the same bits in any batch. So a run ends with the
same bytes with and without this memory, resumed or not.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from weft.model.network import Network
from weft.model.packed import Packed, pack
from weft.objectives.distil_teacher import Outputs, Teacher, Wanted, logits_of_each, reads_sequences_alone
from weft.objectives.objective import Batch

MOST_REMEMBERED = 2**28  # bytes


def can_remember(network: Network, wanted: Wanted, batch: Batch) -> bool:
    """`batch`: some sequences that the teacher will see, for a trial: are their bits the same alone?"""
    teacher, is_on_cpu = Teacher(network, wanted), next(network.parameters()).device.type == "cpu"
    if not (wanted == Wanted(answers=True) and is_on_cpu and teacher.is_compiled and reads_sequences_alone(batch)):
        return False
    together, memory = teacher(batch), MemorizingTeacher(network, wanted)
    for number in range(len(batch.packed.lengths)):
        memory(_part_of(batch, [number]))
    return all(torch.equal(found, together[name]) for name, found in memory(batch).items())


class MemorizingTeacher(Teacher):
    def __init__(self, network: Network, wanted: Wanted) -> None:
        super().__init__(network, wanted)
        self.known: dict[bytes, Outputs] = {}
        self.bytes = 0

    def __call__(self, batch: Batch) -> Outputs:
        keys = _sequence_keys(batch)
        first = {key: number for number, key in reversed(list(enumerate(keys)))}
        new = sorted(number for key, number in first.items() if key not in self.known)
        if self.bytes > MOST_REMEMBERED and new:
            return self.compute(batch)
        if new:
            part = batch if len(new) == len(keys) else _part_of(batch, new)
            self._learn([keys[number] for number in new], part)
        names = self.known[keys[0]]
        return {name: torch.cat([self.known[key][name] for key in keys]) for name in names}

    @torch.no_grad()
    def _learn(self, keys: Sequence[bytes], batch: Batch) -> None:
        with self._own_precision():
            each = logits_of_each(self.network, self.network(batch.packed), batch)
        self.known |= zip(keys, each, strict=True)
        self.bytes += sum(one.numel() * one.element_size() for outputs in each for one in outputs.values())


def _sequence_keys(batch: Batch) -> list[bytes]:
    """Everything that the teacher reads of each sequence, and which of its tokens are scored."""
    packed = batch.packed
    parts = [_bytes_of_each(packed.tokens, packed)]
    if packed.segments is not None:
        parts.append(_bytes_of_each(packed.segments, packed))
    for one in batch.answers.values():
        if (rows := getattr(one, "rows", None)) is not None:
            is_scored = torch.zeros(len(packed.tokens), dtype=torch.bool)
            is_scored[rows] = True
            parts.append(_bytes_of_each(is_scored, packed))
    return [b"/".join(each) for each in zip(*parts, strict=True)]


def _bytes_of_each(values: Tensor, packed: Packed) -> list[bytes]:
    return [part.numpy().tobytes() for part in values.split(list(packed.lengths))]


def _part_of(batch: Batch, numbers: Sequence[int]) -> Batch:
    """Of these sequences only. Targets stay as they are: the teacher does not read them."""
    packed, lengths = batch.packed, list(batch.packed.lengths)
    tokens = packed.tokens.split(lengths)
    segments = None if packed.segments is None else packed.segments.split(lengths)
    part = pack(
        [tokens[number].numpy() for number in numbers],
        None if segments is None else [segments[number].numpy() for number in numbers],
    )
    answers = {}
    for kind, one in batch.answers.items():
        rows = getattr(one, "rows", None)
        answers[kind] = one if rows is None else replace(one, rows=_rows_in_part(rows, packed, part, numbers))  # type: ignore[type-var]
    return Batch(part, answers=answers, counts=batch.counts)


def _rows_in_part(rows: Tensor, packed: Packed, part: Packed, numbers: Sequence[int]) -> Tensor:
    place = np.full(len(packed.lengths), -1)
    place[list(numbers)] = np.arange(len(numbers))
    owner = packed.owner[rows].numpy()
    kept = place[owner] >= 0
    shift = part.first.numpy()[place[owner[kept]]] - packed.first.numpy()[owner[kept]]
    return torch.from_numpy(rows.numpy()[kept] + shift)
