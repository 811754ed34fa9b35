"""Single weights set to zero. The matrices keep their shapes, so this saves neither time nor plain bytes: only a
compressed archive of the file becomes smaller. No CPU runtime multiplies faster because of scattered zeros.

The score of a weight is |w| · ‖x‖, x being what its column is multiplied with (Wanda, Sun et al. 2023). Each row keeps
the same share.
"""

import zlib
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from weft.model.network import Network
from weft.objectives.objective import Batch
from weft.progress import track


@torch.no_grad()
def zero_weights(network: Network, batches: Sequence[Batch], share: float) -> int:
    """Keeps this share of the weights of every matrix inside the layers, in place. Returns how many are zero."""
    matrices = {name: module for name, module in network.named_modules() if _is_inside(name, module)}
    squares: dict[str, Tensor] = {}

    def watch(name: str) -> object:
        def hook(module: nn.Module, given: tuple[Tensor, ...]) -> None:
            found = given[0].double().square().sum(0)
            squares[name] = squares[name] + found if name in squares else found

        return hook

    handles = [matrix.register_forward_pre_hook(watch(name)) for name, matrix in matrices.items()]
    try:
        for batch in track(batches, "Measuring activations", unit="batches"):
            network(batch.packed, batch.decoder)
    finally:
        for handle in handles:
            handle.remove()
    zeros = 0
    for name, matrix in matrices.items():
        scores = matrix.weight.abs() * squares[name].sqrt().to(matrix.weight.dtype)
        count = round((1 - share) * scores.shape[1])
        smallest = scores.argsort(dim=1, stable=True)[:, :count]
        matrix.weight.scatter_(1, smallest, 0.0)
        zeros += smallest.numel()
    return zeros


def _is_inside(name: str, module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) and ".blocks." in name


def zipped_bytes(network: Network) -> int:
    """The size of all weights in a compressed archive (deflate)."""
    return sum(
        len(zlib.compress(tensor.detach().cpu().contiguous().numpy().tobytes(), 6)) for tensor in network.parameters()
    )
