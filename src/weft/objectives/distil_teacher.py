"""A teacher at work: what it says about a batch, computed or taken from a store of earlier answers.

`Teacher(network, wanted)(batch)` gives tensors by name: `rows` (what the language head's output layer reads of the
scored tokens), `last`, `hidden.2`, `scores.1`, `heads.5.q`, `logits.classify`. With a store, the outputs of a batch are
computed once for all students. They are the same bits as without: a batch always goes through the teacher as a whole,
and its key is a hash of everything it holds.

The teacher is in evaluation mode and has no gradients: dropout in the targets is noise. On a CPU it computes by the
compiled forward pass, in the precision that it was compiled for, unless single layers are wanted.
"""

import hashlib
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from weft.model.keep import Keep, Kept
from weft.model.network import Network
from weft.model.packed import Packed, pack
from weft.objectives.answers import Answers, ClassAnswers, MultiLabelAnswers, RegressionAnswers
from weft.objectives.objective import Batch

Outputs = dict[str, Tensor]
RowAnswers = ClassAnswers | MultiLabelAnswers | RegressionAnswers


@dataclass(frozen=True)
class Wanted:
    """What a loss needs of the teacher. Layers are counted as in `Keep`."""

    hidden: tuple[int, ...] = ()
    scores: tuple[int, ...] = ()  # attention scores before the softmax
    heads: tuple[int, ...] = ()  # queries, keys, values
    last: bool = False  # the hidden states at the top
    language_head: str | None = None  # whose input rows are wanted
    answers: bool = False  # the logits of the task's heads

    @property
    def keep(self) -> Keep | None:
        if not (self.hidden or self.scores or self.heads):
            return None
        return Keep(hidden=self.hidden, scores=self.scores, heads=self.heads)


class Store(Protocol):
    """Outputs of earlier batches."""

    def find(self, key: str) -> Outputs | None: ...

    def add(self, key: str, outputs: Outputs) -> None: ...


class Teacher:
    def __init__(self, network: Network, wanted: Wanted, store: Store | None = None) -> None:
        self.network, self.wanted, self.store = network.eval().requires_grad_(False), wanted, store

    def __call__(self, batch: Batch) -> Outputs:
        if self.store is None:
            return self.compute(batch)
        key = key_of(batch)
        found = self.store.find(key)
        if found is None:
            found = self.compute(batch)
            self.store.add(key, found)
        return {name: tensor.to(batch.packed.tokens.device) for name, tensor in found.items()}

    @torch.no_grad()
    def compute(self, batch: Batch) -> Outputs:
        network, wanted = self.network, self.wanted
        reader = batch.decoder or batch.packed
        outputs: Outputs = {}
        with self._own_precision():
            if (keep := wanted.keep) is None:
                hidden = network(batch.packed, batch.decoder)
            else:
                hidden, kept = network(batch.packed, batch.decoder, keep=keep)
                outputs |= _kept_outputs(kept)
            if wanted.last:
                outputs["last"] = hidden
            if wanted.language_head is not None:
                outputs["rows"] = network.head(wanted.language_head).prepare(hidden, reader, batch.rows)
            if wanted.answers:
                outputs |= self._answers(hidden, batch)
        return outputs

    def _answers(self, hidden: Tensor, batch: Batch) -> Outputs:
        if self.is_compiled and reads_sequences_alone(batch):
            each = logits_of_each(self.network, hidden, batch)
            return {name: torch.cat([one[name] for one in each]) for name in each[0]}
        reader = batch.decoder or batch.packed
        return {f"logits.{kind}": one.logits(self.network, hidden, reader) for kind, one in batch.answers.items()}

    @property
    def is_compiled(self) -> bool:
        """Then a sequence has the same hidden states, to the bit, in any batch."""
        return self.network.fast is not None and self.network.recurrent is None and self.wanted.keep is None

    def _own_precision(self) -> AbstractContextManager[object]:
        """The compiled forward pass stands aside under autocast, which training uses."""
        return torch.autocast("cpu", enabled=False) if self.is_compiled else nullcontext()


def reads_sequences_alone(batch: Batch) -> bool:
    """Whether the logits are rows of single sequences or tokens."""
    return batch.decoder is None and all(
        isinstance(one, RowAnswers) and windows_of(one) is None for one in batch.answers.values()
    )


def windows_of(answers: Answers) -> tuple[int, ...] | None:
    return getattr(answers, "windows", None)


def logits_of_each(network: Network, hidden: Tensor, batch: Batch) -> list[Outputs]:
    """Of each sequence by itself: torch's products of many rows have other last bits than those of a few."""
    packed, found = batch.packed, []
    ends = packed.starts.tolist()
    for start, end in pairwise(ends):
        alone, states = pack([packed.tokens[start:end].numpy()]), hidden[start:end]
        outputs = {}
        for kind, one in batch.answers.items():
            rows = getattr(one, "rows", None)
            if rows is not None:
                one = replace(one, rows=rows[(rows >= start) & (rows < end)] - start)  # type: ignore[type-var]
            outputs[f"logits.{kind}"] = one.logits(network, states, alone)
        found.append(outputs)
    return found


def _kept_outputs(kept: Kept) -> Outputs:
    """One tensor per layer: the scores of all sequences lie end to end."""
    found = {f"hidden.{number}": state for number, state in kept.hidden.items()}
    found |= {f"scores.{layer}": torch.cat([one.flatten() for one in maps]) for layer, maps in kept.scores.items()}
    for layer, heads in kept.heads.items():
        found |= {f"heads.{layer}.{name}": one.contiguous() for name, one in zip("qkv", heads, strict=True)}
    return found


def scores_of(outputs: Mapping[str, Tensor], layer: int, batch: Packed) -> list[Tensor]:
    """The attention scores of each sequence, (H, L, L)."""
    flat = outputs[f"scores.{layer}"]
    squares = [length * length for length in batch.lengths]
    heads = len(flat) // max(sum(squares), 1)
    parts = flat.split([heads * square for square in squares])
    return [part.view(heads, length, length) for part, length in zip(parts, batch.lengths, strict=True)]


def key_of(batch: Batch) -> str:
    """A hash of everything that the teacher reads."""
    digest = hashlib.sha256()
    sides = [side for side in (batch.packed, batch.decoder) if side is not None]
    tensors = [tensor for side in sides for tensor in (side.tokens, side.starts, side.segments)]
    rows = [getattr(answers, "rows", None) for answers in batch.answers.values()]
    for tensor in (*tensors, batch.rows, *rows):
        digest.update(b"none" if tensor is None else tensor.cpu().numpy().tobytes())
        digest.update(b"/")
    digest.update(",".join(batch.answers).encode())
    digest.update(str([windows_of(answers) for answers in batch.answers.values()]).encode())
    return digest.hexdigest()
