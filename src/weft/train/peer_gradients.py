"""The gradients of tensor parallel peers: what each lacks of them, and the norm of all."""

from collections.abc import Mapping

import torch
from torch import Tensor

from weft.model.network import Network
from weft.train.exact_update import exact_squares
from weft.train.layout import WeightLayout
from weft.train.local import local_part
from weft.train.processes import Processes


class PeerGradients:
    def __init__(self, network: Network, processes: Processes) -> None:
        self.network, self.processes, self.layout = network, processes, WeightLayout(network)

    def whole_norm(self) -> Tensor:
        """Completes the gradients. Returns the norm of all together."""
        self._complete()
        return self._norm()

    @torch.no_grad()
    def _complete(self) -> None:
        """Add what the peers found for weights that each uses for its own heads only (QK-norm)."""
        partial = [grad for name, grad in self._found().items() if self.layout.is_partial(name)]
        if not partial:
            return
        own = [local_part(grad) for grad in partial]
        joined = torch.cat([grad.flatten() for grad in own])
        self.processes.tensor.sum_([joined])
        for grad, total in zip(own, joined.split([grad.numel() for grad in own]), strict=True):
            grad.copy_(total.view_as(grad))

    def _norm(self) -> Tensor:
        """The norm of the whole gradient, in double. A weight that every peer has counts once."""
        found = self._found()
        squares = exact_squares([grad for name, grad in found.items() if self.layout.counts(name)], self.processes.data)
        self.processes.tensor.sum_([squares])
        return squares.sqrt()

    def _found(self) -> Mapping[str, Tensor]:
        return {name: weight.grad for name, weight in self.network.named_parameters() if weight.grad is not None}
