"""The rows of an LSTM: a state each instead of pages. Prompts are read token by token, all rows together."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from weft.generate.kernels import load_generation_kernels
from weft.generate.layouts import LaidOutLinear
from weft.model.network import Network

_FEWEST_ROWS = 8


class RecurrentRows:
    def __init__(self, network: Network) -> None:
        lstm = network.recurrent.lstm
        self.width, self.cells = lstm.hidden_size, [_Cell(lstm, layer) for layer in range(lstm.num_layers)]
        parameter = next(lstm.parameters())
        self.state = torch.zeros(2, lstm.num_layers, _FEWEST_ROWS, self.width, dtype=parameter.dtype).to(
            parameter.device
        )

    def open_row(self, slot: int) -> None:
        if slot >= self.state.shape[2]:
            self.state = torch.cat([self.state, torch.zeros_like(self.state)], dim=2)
        self.state[:, :, slot] = 0

    def copy(self, slot: int, to: int) -> None:
        self.state[:, :, to] = self.state[:, :, slot]

    def read(self, x_TW: Tensor, slots: Sequence[int], counts: Sequence[int]) -> Tensor:
        """Hidden states (T, W) of the rows' tokens, which are concatenated in `x_TW`."""
        starts, lengths = np.concatenate([[0], np.cumsum(counts)[:-1]]), np.asarray(counts)
        out = torch.empty_like(x_TW)
        for step in range(int(lengths.max())):
            going_on = np.flatnonzero(lengths > step)
            rows = torch.as_tensor(np.asarray(slots)[going_on], device=x_TW.device)
            places = torch.as_tensor(starts[going_on] + step, device=x_TW.device)
            x = x_TW[places]
            for layer, cell in enumerate(self.cells):
                h, c = cell(x, self.state[0, layer, rows], self.state[1, layer, rows])
                self.state[0, layer, rows], self.state[1, layer, rows] = h, c
                x = h
            out[places] = x
        return out


class _Cell:
    """One layer: gates (i, f, g, o) = W x + U h + b."""

    def __init__(self, lstm: nn.LSTM, layer: int) -> None:
        parts = [(getattr(lstm, f"{name}_l{layer}") for name in names) for names in _NAMES]
        self.of_input, self.of_state = (LaidOutLinear(_linear(*part), int8=False) for part in parts)
        weight = getattr(lstm, f"weight_ih_l{layer}")
        plain = weight.dtype == torch.float32 and weight.device.type == "cpu"
        self.kernels = load_generation_kernels() if plain else None

    def __call__(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        gates = self.of_input(x) + self.of_state(h)
        if self.kernels is not None:
            h, c = h.contiguous(), c.contiguous()
            self.kernels.cell(gates.data_ptr(), h.data_ptr(), c.data_ptr(), *h.shape)
            return h, c
        i, f, g, o = gates.chunk(4, dim=1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


_NAMES = (("weight_ih", "bias_ih"), ("weight_hh", "bias_hh"))


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    linear.weight, linear.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
    return linear
