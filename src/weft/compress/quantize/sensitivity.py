"""The error of each matrix alone, and which matrices stay in fp32.

If the predictions of the quantized model are too far from those of the fp32 model, each matrix is tried alone. The ones
that move the predictions most stay in fp32: as few as bring the divergence within the bound.
"""

import copy
from collections.abc import Callable, Collection, Mapping, Sequence

from torch import Tensor

from weft.compress.quantize.divergence import Reference
from weft.model.network import Network
from weft.model.quantized import QuantizedLinear, QuantizedWeight, put_quantized
from weft.progress import track


def quantized_copy(network: Network, weights: Mapping[str, QuantizedWeight], without: Collection[str] = ()) -> Network:
    """A copy of the network with the quantized matrices, except some."""
    new = copy.deepcopy(network)
    for name, weight in weights.items():
        if name not in without:
            put_quantized(new, name, weight)
    return new


def output_error(weight: Tensor, quantized: QuantizedWeight, rows: Tensor | None) -> float:
    """The relative error of a layer's output for some inputs, ‖x Ŵ − x W‖ / ‖x W‖; of the matrix itself without."""
    if rows is None:
        exact, found = weight.detach(), quantized.dequantized()
    else:
        exact, found = rows @ weight.detach().T, QuantizedLinear(quantized, None)(rows)
    return float((found - exact).norm() / exact.norm().clamp(min=1e-30))


def matrices_to_keep(
    network: Network, weights: Mapping[str, QuantizedWeight], reference: Reference, allowed: float, found: float
) -> tuple[list[str], dict[str, float], float]:
    """Names of the matrices that stay in fp32, the divergence that each causes alone, and that of the rest.

    `found`: the divergence of all matrices together, more than the `allowed` one.
    """
    alone = {
        name: reference.divergence(quantized_copy(network, {name: weight}))
        for name, weight in track(weights.items(), "Trying each matrix alone", total=len(weights), unit="matrices")
    }
    worst_first = sorted(weights, key=lambda name: -alone[name])
    measured = {0: found}

    def divergence(kept: int) -> float:
        if kept not in measured:
            measured[kept] = reference.divergence(quantized_copy(network, weights, worst_first[:kept]))
        return measured[kept]

    kept = fewest(len(weights), lambda count: divergence(count) <= allowed)
    return worst_first[:kept], alone, divergence(kept)


def fewest(most: int, is_enough: Callable[[int], bool]) -> int:
    """The smallest number from 1 to `most` that is enough, by bisection; more are better."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return low


def layer_errors(errors: Mapping[str, float], kept: Sequence[str]) -> dict[str, float]:
    """The largest error of each layer's quantized matrices, for the screen."""
    found: dict[str, float] = {}
    for name, error in errors.items():
        if name not in kept:
            layer = ".".join(name.split(".")[:3]) if ".blocks." in name else name
            found[layer] = max(found.get(layer, 0.0), error)
    return found
