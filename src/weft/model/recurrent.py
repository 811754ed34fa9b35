"""The LSTM language model, a historical baseline (Hochreiter & Schmidhuber 1997; Zaremba et al. 2014).

c_t = σ(f_t) ⊙ c_{t−1} + σ(i_t) ⊙ tanh(g_t),   h_t = σ(o_t) ⊙ tanh(c_t),   (i, f, g, o)_t = W x_t + U h_{t−1} + b
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from weft.model.dropout import Dropout
from weft.model.packed import Packed


@dataclass
class RecurrentPast:
    """The state after the tokens read so far: h and c, (layers, sequences, W) each."""

    state: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True)
class RecurrentSpec:
    layers: int
    dropout: float = 0.0  # between layers and on the output


class Recurrent(nn.Module):
    """Takes the place of a causal `Stack`: (T, W) -> (T, W)."""

    def __init__(self, spec: RecurrentSpec, width: int) -> None:
        super().__init__()
        between = spec.dropout if spec.layers > 1 else 0.0
        self.lstm = nn.LSTM(width, width, spec.layers, batch_first=True, dropout=between)
        self.dropout = Dropout(spec.dropout)

    def forward(self, x_TW: Tensor, batch: Packed, past: RecurrentPast | None = None) -> Tensor:
        past = past or RecurrentPast()
        if len(batch.runs) == 1:
            ((count, length),) = batch.runs
            hidden, past.state = self.lstm(x_TW.unflatten(0, (count, length)), past.state)
            return self.dropout(hidden.flatten(0, 1))
        index, packed = _by_position(x_TW, batch)
        hidden, past.state = self.lstm(packed, past.state)
        return self.dropout(hidden.data[index.argsort()])


def _by_position(x_TW: Tensor, batch: Packed) -> tuple[Tensor, PackedSequence]:
    """The tokens as an LSTM reads them, and their order: the first ones of all sequences, longest sequence first, then
    the second ones, … As torch's `pack_sequence`, which makes a GPU wait for the CPU.
    """
    count, lengths = len(batch.lengths), batch.starts.diff()
    longest_first = lengths.argsort(descending=True, stable=True)
    rank = longest_first.argsort()
    place = batch.padded_rows - batch.owner * batch.longest  # in its sequence
    index = (place * count + rank[batch.owner]).argsort()
    ends = np.bincount(batch.lengths, minlength=batch.longest + 1)[:-1].cumsum()  # sequences that have ended by then
    return index, PackedSequence(x_TW[index], torch.from_numpy(count - ends), longest_first, rank)
