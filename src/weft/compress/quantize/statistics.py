"""What each matrix reads: statistics of its inputs over the calibration batches, from one pass of the fp32 network."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from weft.compress.quantize.divergence import predictions
from weft.model.network import Network
from weft.objectives.objective import Batch
from weft.progress import track

_ROWS, _ROWS_OF_A_BATCH = 1024, 128  # inputs that are kept, to measure errors on


@dataclass
class InputStatistics:
    """Of the inputs x (rows, inputs) of one linear layer."""

    inputs: int
    with_hessian: bool
    count: int = 0
    squares: Tensor = field(init=False)  # (inputs,) sums of x²
    largest: Tensor = field(init=False)  # (inputs,) max |x|
    hessian: Tensor | None = field(init=False, default=None)  # (inputs, inputs) sums of x xᵀ
    samples: list[Tensor] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.squares, self.largest = torch.zeros(self.inputs), torch.zeros(self.inputs)
        if self.with_hessian:
            self.hessian = torch.zeros(self.inputs, self.inputs)

    def add(self, x: Tensor) -> None:
        x = x.detach().float().flatten(0, -2)
        if not len(x):  # a head, where the batch has nothing to predict
            return
        self.count += len(x)
        self.squares += x.square().sum(0)
        self.largest = torch.maximum(self.largest, x.abs().amax(0))
        if self.hessian is not None:
            self.hessian.addmm_(x.T, x)
        if sum(map(len, self.samples)) < _ROWS:
            self.samples.append(x[:: max(1, len(x) // _ROWS_OF_A_BATCH)][:_ROWS_OF_A_BATCH].clone())

    @property
    def moments(self) -> Tensor:
        """(inputs,) means of x²"""
        return self.squares / max(self.count, 1)

    @property
    def rows(self) -> Tensor:
        return torch.cat(self.samples)

    def divided_by(self, factors: Tensor) -> "InputStatistics":
        """As if every input had been divided by its factor."""
        new = InputStatistics(self.inputs, with_hessian=False, count=self.count)
        new.with_hessian = self.with_hessian
        new.squares, new.largest = self.squares / factors.square(), self.largest / factors
        new.hessian = None if self.hessian is None else self.hessian / factors / factors[:, None]
        new.samples = [rows / factors for rows in self.samples]
        return new


@torch.inference_mode()
def input_statistics(
    network: Network, names: Sequence[str], batches: Iterable[Batch], *, hessians: bool
) -> dict[str, InputStatistics]:
    """By the name of the linear layer. A layer that read nothing is left out."""
    found = {name: InputStatistics(network.get_parameter(f"{name}.weight").shape[1], hessians) for name in names}
    with ExitStack() as hooks:
        for name, statistics in found.items():

            def read(_: nn.Module, given: tuple[Tensor, ...], kept: InputStatistics = statistics) -> None:
                kept.add(given[0])

            hooks.callback(network.get_submodule(name).register_forward_pre_hook(read).remove)
        for batch in track(list(batches), "Calibrating", unit="batches"):
            predictions(network, batch)
    return {name: statistics for name, statistics in found.items() if statistics.count}
