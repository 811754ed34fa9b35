"""Which dimensions of a network matter: the mean magnitude of what its matrices read and give, on sample texts.

A matrix that reads small numbers loses little without them (Minitron, Muralidharan et al. 2024, section 2.2).
"""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from weft.devices import widest_float
from weft.model.network import Network
from weft.objectives.objective import Batch

SAMPLES = 500  # texts that are enough to rank dimensions


@dataclass
class Importance:
    """Mean magnitudes, by the name of the matrix."""

    read: dict[str, Tensor] = field(default_factory=dict)
    given: dict[str, Tensor] = field(default_factory=dict)

    def hidden(self) -> Tensor:
        """Of the hidden state's dimensions: over all matrices of the blocks that read it, each with the same weight."""
        readers = (".attention.qkv", ".cross.query", ".feedforward.up")
        parts = [values / values.sum() for name, values in self.read.items() if name.endswith(readers)]
        return torch.stack(parts).mean(0)


@torch.no_grad()
def measure_importance(network: Network, batches: Iterable[Batch]) -> Importance:
    found, device = Importance(), next(network.parameters()).device
    was_training = network.training
    network.eval()

    def watch(name: str, module: nn.Module) -> torch.utils.hooks.RemovableHandle:
        def hook(module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
            for sums, tensor in ((found.read, given[0]), (found.given, output)):
                total = tensor.abs().sum(0, dtype=widest_float(device))
                sums[name] = sums[name] + total if name in sums else total

        return module.register_forward_hook(hook)

    with ExitStack() as hooks:
        for name, module in network.named_modules():
            if name.startswith(("encoder.blocks.", "decoder.blocks.")) and hasattr(module, "in_features"):
                hooks.callback(watch(name, module).remove)
        for batch in batches:
            moved = batch.to(device)
            network(moved.packed, moved.decoder)
    network.train(was_training)
    return found
