"""Quantization-aware tuning: the network is trained with rounded weights and inputs, its fp32 self as the teacher.

Forward, every matrix is what its quantized version would be; backward, rounding counts as the identity (Bengio et al.
2013). The loss is the divergence from the fp32 model's predictions, so labels are not used. The loop is the one of
all training.
"""

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from weft.compress.quantize.divergence import distance, predictions
from weft.compress.quantize.rounding import round_with
from weft.errors import InputError
from weft.model.network import Network
from weft.model.quantized import QuantizedWeight, quantize_rows
from weft.objectives.objective import Batch, Objective, head_scores
from weft.tokens.order import Order
from weft.train.batches import StepPiece
from weft.train.budget import Budget, steps_of
from weft.train.engine import Engine
from weft.train.loop import train
from weft.train.optimizers import OptimizerSpec
from weft.train.schedules import Schedule
from weft.train.spec import TrainSpec
from weft.train.step import Step

_RATE = 1e-4
_TRIAL_STEPS = 2
_FEWEST_STEPS = 10


@dataclass(frozen=True)
class SelfDistillation:
    """Another objective's batches; the loss is the distance from a teacher's predictions."""

    base: Objective
    teacher: Network

    def __len__(self) -> int:
        return len(self.base)

    def batch(self, samples: list[int], epochs: list[int], seed: int) -> Batch:
        return self.base.batch(samples, epochs, seed)

    def loss(self, network: Network, batch: Batch, totals: Mapping[str, int]) -> Tensor:
        with torch.no_grad():
            teacher = predictions(self.teacher, batch)
        found = predictions(network.eval(), batch)  # dropout would move predictions more than rounding does
        return torch.stack(
            [distance(batch, kind, ours, teacher[kind]) / max(totals[kind], 1) for kind, ours in found.items()]
        ).sum()

    def scores(self, network: Network, batch: Batch) -> dict[str, Tensor]:
        return head_scores(network, batch)


class _RoundedLinear(nn.Module):
    """Computes as `QuantizedLinear` does, with gradients. Parameters keep their names."""

    def __init__(self, layer: nn.Linear, scales: Tensor, bits: int) -> None:
        super().__init__()
        self.weight, self.bias, self.scales, self.bits = layer.weight, layer.bias, scales, bits

    def forward(self, x: Tensor) -> Tensor:
        weight = _straight_through(self.weight, _rounded(self.weight, self.scales, self.bits).dequantized())
        if self.bits == 8:
            with torch.no_grad():
                q, row_scales = quantize_rows(x)
            x = _straight_through(x, q * row_scales)
        return nn.functional.linear(x, weight, self.bias)


class _RoundedEmbedding(nn.Module):
    def __init__(self, layer: nn.Embedding, scales: Tensor) -> None:
        super().__init__()
        self.weight, self.scales = layer.weight, scales

    def forward(self, tokens: Tensor) -> Tensor:
        rounded = _rounded(self.weight, self.scales, 8).dequantized()
        return nn.functional.embedding(tokens, _straight_through(self.weight, rounded))


def tune(
    network: Network,
    weights: Mapping[str, QuantizedWeight],
    objective: Objective,
    budget: Budget,
    folder: Path,
    *,
    samples: int,
    seed: int = 0,
) -> tuple[Network, dict[str, QuantizedWeight], int]:
    """The tuned network in fp32, its matrices rounded as in training, and the number of steps.

    `weights`: the quantized matrices, whose scales are kept. With 4 bits training begins at their values, which are
    better than those to nearest. `folder` takes the log and the last checkpoint. `samples`: of a step.
    """
    teacher, student = copy.deepcopy(network).eval(), copy.deepcopy(network)
    for name, weight in weights.items():
        if weight.bits == 4:
            student.get_parameter(f"{name}.weight").data.copy_(weight.dequantized())
    before = _put_rounded(student, weights)
    goal, order = SelfDistillation(objective, teacher), Order((len(objective),), (1.0,), seed)
    samples = min(len(objective), samples)
    steps = _steps(student, goal, order, budget, samples)
    schedule, optimizer = Schedule(steps, "linear", warmup=max(1, steps // 20)), OptimizerSpec("adamw", _RATE, 0.0)
    spec = TrainSpec(steps, samples, schedule, optimizer, seed=seed, checkpoint_every=steps, keep=1)
    train(student, [goal], order, spec, folder)
    for name, module in before.items():
        student.set_submodule(name, module)
    rounded = {
        name: _rounded(student.get_parameter(f"{name}.weight"), weight.scales, weight.bits)
        for name, weight in weights.items()
    }
    return student.eval(), rounded, steps


def _steps(network: Network, goal: SelfDistillation, order: Order, budget: Budget, samples: int) -> int:
    """For a budget in time, measured on a copy: a step of the run itself would change the weights."""
    if budget.kind != "seconds":
        if budget.kind == "tokens":
            raise InputError("--tune takes a time, steps or epochs: 5m, 200 steps, 1 epochs.")
        return steps_of(budget, batch_tokens=1, samples=samples, epoch_samples=len(goal), key="--tune")
    engine = Engine(Step(copy.deepcopy(network).train(), goal), OptimizerSpec(learning_rate=_RATE))
    began = time.monotonic()
    for number in range(_TRIAL_STEPS):
        picked = order.batch(number, samples)
        batch = goal.batch([one.sample for one in picked], [one.epoch for one in picked], 0)
        engine.take_step([StepPiece(0, [batch])], number)
    return max(_FEWEST_STEPS, int(budget.amount * _TRIAL_STEPS / (time.monotonic() - began)))


def _straight_through(exact: Tensor, rounded: Tensor) -> Tensor:
    return exact + (rounded - exact).detach()


@torch.no_grad()
def _rounded(weight: Tensor, scales: Tensor, bits: int) -> QuantizedWeight:
    values = round_with(weight.unflatten(1, (scales.shape[1], -1)), scales[..., None], bits)
    return QuantizedWeight(values.flatten(1).to(torch.int8), scales, bits)


def _put_rounded(network: Network, weights: Mapping[str, QuantizedWeight]) -> dict[str, nn.Module]:
    """Replace the layers with these matrices, and what is tied to them. Returns the former ones by name."""
    matrices = {id(network.get_parameter(f"{name}.weight")): weight for name, weight in weights.items()}
    before: dict[str, nn.Module] = {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear | nn.Embedding) and id(module.weight) in matrices
    }
    for name, module in before.items():
        weight = matrices[id(module.weight)]
        if isinstance(module, nn.Linear):
            network.set_submodule(name, _RoundedLinear(module, weight.scales, weight.bits))
        elif isinstance(module, nn.Embedding):
            network.set_submodule(name, _RoundedEmbedding(module, weight.scales))
    return before
