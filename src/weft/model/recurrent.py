"""The LSTM language model, a historical baseline (Hochreiter & Schmidhuber 1997; Zaremba et al. 2014).

c_t = σ(f_t) ⊙ c_{t−1} + σ(i_t) ⊙ tanh(g_t),   h_t = σ(o_t) ⊙ tanh(c_t),   (i, f, g, o)_t = W x_t + U h_{t−1} + b
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

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
        hidden, past.state = self.lstm(pack_sequence(list(batch.split(x_TW)), enforce_sorted=False), past.state)
        return self.dropout(torch.cat(unpack_sequence(hidden)))
