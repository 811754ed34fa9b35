"""AdamW (Loshchilov & Hutter 2019) for everything; or Muon (Jordan et al. 2024) for the matrices inside the blocks and
AdamW for the rest. AdamW is torch's fused one, or our own where several processes must reach the same bits.

Weight decay applies to matrices only, not to norms and biases. Muon replaces a matrix's momentum by the nearest
orthogonal matrix, found by five Newton–Schulz iterations. `torch.optim.Muon` iterates in bfloat16, which is 8 × slower
than fp32 on CPUs without it; here the iteration uses the precision of the run's matrix products. Joined matrices
(query, key and value; gate and up) are orthogonalised part by part, since they are several maps stored as one.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer

from weft.model.attention import Attention, CrossAttention
from weft.model.feedforward import FeedForward
from weft.model.initialize import output_scales
from weft.model.network import Network
from weft.model.parts import Part, Slices, overlaps
from weft.train.exact_update import ExactAdamW
from weft.train.layout import WeightLayout
from weft.train.local import local_part

MOMENTUM, MOMENTUM_STEPS = 0.95, 300
_TOGETHER = 2**22  # numbers of maps that are orthogonalised together
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # Jordan's quintic: steep at 0, so that five iterations are enough


@dataclass(frozen=True)
class OptimizerSpec:
    kind: Literal["adamw", "muon"] = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = 1e-8
    matrix_rate: float = 0.02  # Muon's rate, for matrices
    layer_decay: float = 1.0  # factor on the rate from each layer to the one below (Howard & Ruder 2018)


def make_optimizers(
    network: Network, spec: OptimizerSpec, precision: torch.dtype = torch.float32, *, exact: bool = False
) -> list[Optimizer]:
    """One optimizer, or two. `precision` is that of matrix products. `exact`: the same bits for a weight and for its
    shards. Each parameter group keeps its peak rate as `peak`, which the schedule multiplies.
    """
    matrices = _matrices(network) if spec.kind == "muon" else {}
    scales = output_scales(network)
    by_rate: dict[tuple[float, float], list[Tensor]] = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad and name not in matrices:
            decay = spec.weight_decay if parameter.dim() >= 2 else 0.0
            scale = scales.get(parameter, 1.0)  # a larger rate must not mean more decay, their product
            by_rate.setdefault((decay / scale, scale * _slowed(name, network, spec)), []).append(parameter)
    groups = [
        {"params": parameters, "weight_decay": decay, "peak": spec.learning_rate * share}
        for (decay, share), parameters in sorted(by_rate.items(), key=lambda item: item[0], reverse=True)
    ]
    kind = ExactAdamW if exact else partial(AdamW, fused=True)
    adamw = kind(groups, lr=spec.learning_rate, betas=spec.betas, eps=spec.epsilon)
    if not matrices:
        return [adamw]
    parts = [
        {
            "params": [network.get_parameter(name)],
            "name": name,
            "rows": rows,
            "peak": spec.matrix_rate * _slowed(name, network, spec),
            "weight_decay": spec.weight_decay,
        }
        for name, rows in matrices.items()
    ]
    layout = WeightLayout(network)
    return [Muon(parts, layout, learning_rate=spec.matrix_rate, precision=precision), adamw]


def _slowed(name: str, network: Network, spec: OptimizerSpec) -> float:
    """The parameter's share of the rate: 1 in the head, less in each layer below, least in the embeddings."""
    if spec.layer_decay == 1.0:
        return 1.0
    side = name.partition(".")[0]
    stacks = {"encoder": network.architecture.encoder, "decoder": network.architecture.decoder}
    stack = stacks.get(side)
    layers = stack.layers if stack is not None else network.architecture.layers
    if found := re.match(r"(?:encoder|decoder)\.blocks\.(\d+)\.", name):
        return spec.layer_decay ** (layers - int(found[1]))
    return spec.layer_decay ** (layers + 1) if side in ("embed", "decoder_embed") else 1.0


def set_rate(optimizers: Iterable[Optimizer], share: float, step: int) -> None:
    """Set the rates of this step, and Muon's momentum. It grows from 0.85, since early gradients soon go stale."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * share
            if isinstance(optimizer, Muon):
                group["momentum"] = min(MOMENTUM, 0.85 + (MOMENTUM - 0.85) * step / MOMENTUM_STEPS)


def _matrices(network: Network) -> dict[str, tuple[int, ...]]:
    """The weight matrices inside the blocks, each with the row counts of the maps that it joins."""
    found: dict[str, tuple[int, ...]] = {}
    for name, module in network.named_modules():
        match module:
            case Attention():
                spec = module.spec
                key = spec.key_value_heads * spec.head_width
                found[f"{name}.qkv.weight"] = (spec.heads * spec.head_width, key, key)
                found[f"{name}.out.weight"] = (module.out.out_features,)
            case CrossAttention():
                found[f"{name}.query.weight"] = (module.query.out_features,)
                found[f"{name}.key_value.weight"] = (module.key_value.out_features // 2,) * 2
                found[f"{name}.out.weight"] = (module.out.out_features,)
            case FeedForward():
                count = 2 if module.spec.gated else 1
                found[f"{name}.up.weight"] = (module.spec.inner,) * count
                found[f"{name}.down.weight"] = (module.down.out_features,)
    if (shared := network.tensor_parallel) is not None:  # its modules have some rows of each map
        found |= {name: cut.parts for name, cut in shared.cuts.items() if name in found and cut.dimension == 0}
    return found


class Muon(Optimizer):
    """momentum ← μ · momentum + gradient;   weight ← weight − rate · orthogonal(gradient + μ · momentum).

    Maps of one shape are orthogonalised together: in small models the calls cost more than the arithmetic. But not too
    many: where weights are shared, this stack is the largest thing that is whole. If processes share a weight, each
    gathers the direction, orthogonalises the whole matrix, and updates its own part.
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], layout: WeightLayout, *, learning_rate: float, precision: torch.dtype
    ) -> None:
        super().__init__(groups, {"lr": learning_rate, "momentum": MOMENTUM, "weight_decay": 0.0})
        self.layout, self.precision = layout, precision
        for group in self.param_groups:
            (weight,) = group["params"]
            group["places"] = _places(layout.part(group["name"], weight), group["rows"])

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        maps: dict[torch.Size, list[_Map]] = {}  # by shape
        for group in self.param_groups:
            (weight,) = group["params"]
            if weight.grad is None:
                continue
            state = self.state[weight]
            if not state:
                state["momentum"] = torch.zeros_like(weight)
            momentum = state["momentum"].mul_(group["momentum"]).add_(weight.grad)
            direction = weight.grad.add(momentum, alpha=group["momentum"])  # Nesterov momentum
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            parts = self.layout.whole(group["name"], direction).split(group["rows"])
            for part, places in zip(parts, group["places"], strict=True):
                alike = maps.setdefault(part.shape, [])
                alike.append(_Map(part, local_part(weight), places, group["lr"]))
                if len(alike) * part.numel() >= _TOGETHER:
                    self._update(maps.pop(part.shape))
        for alike in maps.values():
            self._update(alike)

    def _update(self, alike: Sequence["_Map"]) -> None:
        updates = orthogonal(torch.stack([one.direction for one in alike]).to(self.precision))
        for update, one in zip(updates, alike, strict=True):
            for here, there in one.places:
                one.weight[here].add_(update[there].to(one.weight.dtype), alpha=-one.rate)


_Places = list[tuple[Slices, Slices]]


def _places(own: Part, rows: Iterable[int]) -> list[_Places]:
    """For each map that a matrix joins, what this process has of it: slices of its part, and slices of the map."""
    found, begin = [], 0
    for count in rows:
        one = Part(own.whole, ((range(begin, begin + count),), (range(own.whole[1]),)))
        found.append(list(overlaps(own, one)))
        begin += count
    return found


class _Map(NamedTuple):
    """One of the maps that a matrix joins."""

    direction: Tensor  # whole
    weight: Tensor  # of the matrix, what this process has
    places: _Places
    rate: float


def orthogonal(matrices: Tensor, rounds: int = 5) -> Tensor:
    """Approximately U Vᵀ of each matrix U S Vᵀ (…, rows, columns), scaled so that an update changes the output equally
    for every shape.
    """
    a, b, c = NEWTON_SCHULZ
    rows, columns = matrices.shape[-2:]
    x = matrices.mT if rows > columns else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    x = x.flatten(0, -3) if x.dim() > 2 else x[None]
    for _ in range(rounds):  # x ← a x + (b s + c s²) x,   s = x xᵀ
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    x = x.view(*matrices.shape[:-2], *x.shape[-2:])
    return (x.mT if rows > columns else x) * max(1.0, rows / columns) ** 0.5
