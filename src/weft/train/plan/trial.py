"""Measure what a step costs on this machine by taking a few. The network of a trial is thrown away, so that the run
itself stays a function of its seed.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Literal

import torch

from weft.model.network import Network
from weft.objectives.objective import Objective
from weft.progress import say
from weft.recipe.model import ModelSection
from weft.recipe.pretrain import PretrainPlan
from weft.tokens.order import Order
from weft.train.batches import StepBatches
from weft.train.engine import Engine
from weft.train.plan.machine import has_fast_bfloat16
from weft.train.pretrain_inputs import PretrainInputs
from weft.train.spec import TrainSpec
from weft.train.step import Step
from weft.train.validation import validate

# A trial of torch.compile costs about a minute. It is made if that is at most this share of the run.
_COMPILE_SECONDS, _COMPILE_SHARE = 60.0, 0.03
_ESTIMATE_SECONDS = 4.0  # of steps, to estimate how long a run takes
_PRECISION_SECONDS = 1.0  # of steps, for each precision
_CLEARLY_FASTER = 1.2  # times; the choice of precision must not depend on the load of the machine

Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Cost:
    step: float  # seconds of a training step
    token: float  # seconds of validation, per token
    precision: Precision


def faster_precision(step_times: Callable[[Precision], list[float]], device: str) -> Precision:
    """The faster precision for matrix products. A CPU may have bfloat16 and still be slower with it: everything between
    the products is fp32, and in a small model that is much of a step. So real steps decide, the fastest of each.
    """
    if not has_fast_bfloat16(device):
        return "float32"
    if device != "cpu":
        return "bfloat16"
    return "bfloat16" if _CLEARLY_FASTER * min(step_times("bfloat16")) < min(step_times("float32")) else "float32"


def precision_for(model: ModelSection, plan: PretrainPlan, inputs: PretrainInputs) -> Precision:
    def times(one: Precision) -> list[float]:
        return _times(model, plan.model_copy(update={"precision": one}), inputs, _PRECISION_SECONDS)

    return faster_precision(times, inputs.device)


def measure_cost(
    model: ModelSection, plan: PretrainPlan, inputs: PretrainInputs, seconds: float, precision: Precision | None
) -> Cost:
    """The cost with this precision. Default: the faster one."""
    times: dict[Precision, list[float]] = {}

    def try_with(one: Precision) -> list[float]:
        times[one] = _times(model, plan.model_copy(update={"precision": one}), inputs, seconds / 2)
        return times[one]

    precision = precision or faster_precision(try_with, inputs.device)
    known = times.get(precision) or try_with(precision)
    plan = plan.model_copy(update={"precision": precision})
    network, dtype = inputs.build(model, plan).network, inputs.spec(plan).precision
    objective = inputs.objectives("train", plan)[0]
    batch = objective.batch([0] * 8, [0] * 8, 0)
    spent = _least_seconds(lambda: validate(network, [batch], dtype, scores=objective.scores), 4)
    return Cost(mean(known), spent / len(batch.packed.tokens), precision)


def expected_seconds(model: ModelSection, plan: PretrainPlan, inputs: PretrainInputs) -> float:
    """An estimate for the whole run, at the current speed of this machine."""
    cost = measure_cost(model, plan, inputs, _ESTIMATE_SECONDS, plan.precision)
    steps = inputs.spec(plan).steps
    validated = min(sum(map(len, inputs.data.splits["validation"])), plan.validation_tokens)
    validations = steps // plan.validate_every + 2  # one at the end, one of the best weights
    return steps * cost.step + validations * validated * cost.token


def compiling_pays(model: ModelSection, plan: PretrainPlan, inputs: PretrainInputs) -> bool:
    """Measured, if the run is long enough and all batches have one shape (each new shape would be compiled again)."""
    if not inputs.kind.uniform or len(inputs.data.weights) > 1 or model.family == "lstm":
        return False
    steps = inputs.spec(plan).steps
    network = inputs.build(model, plan).network
    eager = mean(_times_of(network, plan, inputs, seconds=1.0))
    if eager * steps * _COMPILE_SHARE < _COMPILE_SECONDS:
        return False
    began = time.monotonic()
    try:
        compile_stacks(network)
        compiled = mean(_times_of(network, plan, inputs, seconds=3.0))
    except Exception as error:  # torch's compile errors share no narrower class
        say(f"torch.compile does not work here ({type(error).__name__}); training runs without it.")
        return False
    return (eager - compiled) * steps > time.monotonic() - began


def compile_stacks(network: Network) -> None:
    for stack in (network.encoder, network.decoder):
        if stack is not None:
            stack.forward = torch.compile(stack.forward, dynamic=False)  # type: ignore[method-assign]


def _times(model: ModelSection, plan: PretrainPlan, inputs: PretrainInputs, seconds: float) -> list[float]:
    return _times_of(inputs.build(model, plan).network, plan, inputs, seconds)


def _times_of(network: Network, plan: PretrainPlan, inputs: PretrainInputs, seconds: float) -> list[float]:
    objectives, spec = inputs.objectives("train", plan), inputs.spec(plan)
    order = Order(tuple(map(len, objectives)), inputs.data.weights, spec.seed)
    return step_times(network, objectives, order, spec, seconds, inputs.world)


def step_times(
    network: Network, objectives: Sequence[Objective], order: Order, spec: TrainSpec, seconds: float, world: int = 1
) -> list[float]:
    """Seconds of each of some training steps. They change the network. With several processes, only the share of one
    is computed; what they send each other is not measured.
    """
    samples = max(1, spec.samples // world)
    spec = replace(spec, samples=samples, pieces=min(max(1, spec.pieces // world), samples))
    step_of_network = Step(network.train(), objectives[0], spec.precision)
    engine = Engine(step_of_network, spec.optimizer, clip=spec.clip, seed=spec.seed, pieces=spec.pieces)
    pieces_of = StepBatches(objectives, order, spec)

    def take_step(step: int) -> float:
        began = time.perf_counter()
        engine.take_step(pieces_of(step), step, spec.schedule(step))
        return time.perf_counter() - began

    for step in range(2):  # the first steps allocate and compile
        take_step(step)
    times: list[float] = []
    while sum(times) < seconds and len(times) < 100:
        times.append(take_step(2 + len(times)))
    return times


def _least_seconds(work: Callable[[], object], times: int) -> float:
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        spent.append(time.perf_counter() - began)
    return min(spent)
