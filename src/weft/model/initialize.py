"""Initial weights: each parameter's values depend only on the seed and the parameter's own full name.

So a model with another head or another number of layers starts with the same values everywhere else, and each process
of a sharded model can draw its own parameters.

| parameter | distribution |
|---|---|
| matrices, embeddings | N(0, std²) |
| with `depth_scaled`, matrices that write to the residual stream | N(0, std² / (2 · layers)) (GPT-2, section 2.3) |
| LSTM | uniform in ±1/√width |
| norms, biases | 1, 0 |
| `t5`: query matrices | divided by √D, because T5's attention does not divide by √D |
| `t5`: the vocabulary matrix (which may be the token embedding) | times √W, because T5's head divides by √W |
"""

import hashlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from weft.model.attention import Attention, CrossAttention
from weft.model.feedforward import FeedForward
from weft.model.heads import Head


@dataclass(frozen=True)
class InitSpec:
    kind: Literal["normal", "t5"] = "normal"
    std: float = 0.02
    depth_scaled: bool = False


@torch.no_grad()
def initialize(
    network: nn.Module, spec: InitSpec, *, layers: int, seed: int, only: Callable[[str], bool] = lambda path: True
) -> None:
    """`only`: the modules to initialize, by their paths."""
    scaled = _residual_writers(network) if spec.depth_scaled and spec.kind == "normal" else []
    scaled_ids = {id(layer.weight) for layer in scaled}
    done: set[int] = set()  # a tied parameter takes its values from the first of its names
    chosen = {path: module for path, module in network.named_modules() if only(path)}
    for path, module in chosen.items():
        for name, parameter in module.named_parameters(path, recurse=False):
            if id(parameter) in done:
                continue
            done.add(id(parameter))
            if isinstance(module, nn.LSTM):
                reach = module.hidden_size**-0.5
                parameter.copy_((draw_uniform(seed, name, parameter.shape) * 2 - 1) * reach)
            elif name.endswith("bias"):
                parameter.zero_()
            elif isinstance(module, nn.Linear | nn.Embedding):
                std = spec.std * (2 * layers) ** -0.5 if id(parameter) in scaled_ids else spec.std
                parameter.copy_(draw_normal(seed, name, parameter.shape) * std)
            elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
                parameter.fill_(1.0)
    if spec.kind == "t5":
        _rescale_t5(chosen.values())


def draw_normal(seed: int, name: str, shape: torch.Size) -> Tensor:
    """N(0, 1) in fp32 on CPU."""
    return torch.from_numpy(_generator(seed, name).standard_normal(tuple(shape), dtype=np.float32))


def draw_uniform(seed: int, name: str, shape: torch.Size) -> Tensor:
    """Uniform in [0, 1), in fp32 on CPU."""
    return torch.from_numpy(_generator(seed, name).random(tuple(shape), dtype=np.float32))


def _generator(seed: int, name: str) -> np.random.Generator:
    # torch's CPU generator keeps only 32 bits of its seed, so two of many names could share a stream. SFC64 takes 128
    # and is as fast.
    digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.SFC64(int.from_bytes(digest, "little")))


@torch.no_grad()
def zero_residual_writers(part: nn.Module) -> None:
    """Zero the matrices that write to the residual stream: at first every block is the identity. Of a network, or of
    one of its blocks.
    """
    for out in _residual_writers(part):
        out.weight.zero_()


def _residual_writers(network: nn.Module) -> list[nn.Linear]:
    attention = [m.out for m in network.modules() if isinstance(m, Attention | CrossAttention)]
    return attention + [m.down for m in network.modules() if isinstance(m, FeedForward)]


def _rescale_t5(modules: Collection[nn.Module]) -> None:
    for module in modules:
        if isinstance(module, Attention | CrossAttention) and not module.spec.scaled:
            query = module.qkv if isinstance(module, Attention) else module.query
            query.weight[: module.spec.heads * module.spec.head_width] *= module.spec.head_width**-0.5
    for matrix, scale in _scales_of(modules).items():
        matrix *= scale


def output_scales(network: nn.Module) -> dict[Tensor, float]:
    """The output matrices whose head multiplies its input by `scale`, each with 1 / scale.

    Starting values and learning rate of such a matrix are multiplied by that factor. It then trains exactly like the
    matrix of a head without a scale.
    """
    return _scales_of(network.modules())


def _scales_of(modules: Iterable[nn.Module]) -> dict[Tensor, float]:
    heads = [module for module in modules if isinstance(module, Head)]
    return {head.out.weight: 1 / head.spec.scale for head in heads if head.out is not None and head.spec.scale}
