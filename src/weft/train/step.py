"""The computation of a training step as one module: `forward(batch, totals)` is the batch's share of the loss.

This is the unit to wrap: DistributedDataParallel, `fully_shard`, DeepSpeed and `torch.compile` each take a module whose
forward gives the loss.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from weft.model.network import Network
from weft.objectives.objective import Batch, Objective


class Step(nn.Module):
    """Holds the parameters of `network` only. A teacher inside the objective is not trained, moved or saved."""

    def __init__(self, network: Network, objective: Objective, precision: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.network, self.precision = network, precision
        self._objective = (objective,)  # in a tuple: nn.Module would register an objective that is a module

    @property
    def objective(self) -> Objective:
        return self._objective[0]

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def forward(self, batch: Batch, totals: Mapping[str, int]) -> Tensor:
        """`totals` are the counts of the whole step, over all pieces and processes."""
        with matmul_precision(self.device, self.precision):
            return self.objective.loss(self.network, batch, totals)


def matmul_precision(device: torch.device, precision: torch.dtype) -> torch.autocast:
    """Matrix products in `precision`; weights stay fp32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == torch.bfloat16)
