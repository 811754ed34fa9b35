"""A batch of sequences being generated: tokens in, the next token's logits out.

The same for every family. A Transformer keeps keys and values (`cache`), an LSTM its state; an encoder–decoder reads
its sources once. Rows are sequences: they can be removed, copied and reordered.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from weft.errors import WeftError
from weft.generate.cache import KeyValueCache, rows_of
from weft.model.network import Network
from weft.model.packed import Packed, pack
from weft.model.recurrent import RecurrentPast

Ids = Sequence[int]


@contextmanager
def plain_inference(network: Network) -> Iterator[None]:
    """Without gradients and without the caller's autocast: the C kernels need the dtype they were given."""
    device = next(network.parameters()).device.type
    with torch.inference_mode(), torch.autocast(device, enabled=False):
        yield


class Decoder:
    """`logits` (R, vocabulary): of each row's next token."""

    def __init__(self, network: Network, prompts: Sequence[Ids], sources: Sequence[Ids] | None, room: int) -> None:
        self.network = network
        self.head = network.head("causal" if sources is None else "seq2seq")
        self.device = next(network.parameters()).device
        self.past: KeyValueCache | RecurrentPast
        if network.decoder is None:
            self.past = RecurrentPast()
        else:
            self.past = KeyValueCache(network.decoder, room)
        if sources is not None:
            source = pack(sources).to(self.device)
            self.past.read_source(network.encode(source), source)
        batch = pack(prompts).to(self.device)
        hidden = network.forward_with_past(batch, self.past)
        self.positions = batch.positions[batch.last]  # of the newest tokens
        self.logits = self.head(hidden, batch, batch.last).float()
        if not bool(self.logits.isfinite().all()):
            raise WeftError("The model's logits are NaN: its weights have diverged, so it cannot generate.")

    @property
    def rows(self) -> int:
        return self.positions.shape[0]

    def step(self, tokens_R: Tensor) -> None:
        """Read one more token per row."""
        self.positions = self.positions + 1
        rows = self.rows
        batch = Packed(
            tokens=tokens_R,
            positions=self.positions,
            starts=torch.arange(rows + 1, device=self.device),
            lengths=(1,) * rows,
            runs=((rows, 1),),
        )
        if isinstance(self.past, KeyValueCache):
            self.past.open_column()
        self.logits = self.head(self.network.forward_with_past(batch, self.past), batch).float()

    def keep(self, rows: np.ndarray) -> None:
        """Keep these rows, in ascending order. A row may occur several times."""
        self._pick(rows)
        if isinstance(self.past, KeyValueCache):
            self.past.keep(rows)

    def keep_sources(self, sources: np.ndarray, per_source: int) -> None:
        """Keep the rows of these sources. Each source has `per_source` rows."""
        self._pick(rows_of(sources, per_source))
        if isinstance(self.past, KeyValueCache):
            self.past.keep_sources(sources, per_source)

    def share_source(self, per_source: int) -> None:
        """Copy each row to `per_source` neighbouring rows, which share its source."""
        self._pick(np.repeat(np.arange(self.rows), per_source))
        if isinstance(self.past, KeyValueCache):
            self.past.share_source(per_source)

    def reorder(self, parents: np.ndarray, depth: int) -> None:
        """Row r continues row parents[r] of the same prompt. Only their last `depth` tokens differ."""
        if isinstance(self.past, KeyValueCache):
            self.past.reorder(parents, depth)
        else:
            self._pick(parents)

    def _pick(self, rows: np.ndarray) -> None:
        index = torch.as_tensor(rows, device=self.device)
        self.positions, self.logits = self.positions[index], self.logits[index]
        if isinstance(self.past, RecurrentPast):
            h, c = self.past.state
            self.past.state = (h[:, index], c[:, index])
