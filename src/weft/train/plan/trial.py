"""What a step costs here, found by doing some with a network that is thrown away, so that the run itself stays a
function of its seed.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Literal

import torch

from weft.model.network import Network
from weft.objectives.objective import Objective
from weft.progress import say
from weft.recipe.model import ModelSection
from weft.recipe.pretrain import PretrainPlan
from weft.tokens.order import Order
from weft.train.loop import TrainSpec, one_step, validate
from weft.train.optimizers import make_optimizers
from weft.train.plan.machine import has_fast_bfloat16
from weft.train.pretrain_inputs import PretrainInputs, device

# A trial of torch.compile costs about a minute, and is worth it only where little of the run is lost by a "no".
COMPILE_SECONDS, COMPILE_SHARE = 60.0, 0.03
EXPECTING_SECONDS = 4.0  # of trying steps, to say how long a run takes
PRECISION_SECONDS = 1.0  # of trying, for each
CLEARLY = 1.2  # times as fast: the precision of a run must not hang on who else was using the machine

Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Cost:
    step: float  # seconds of a training step
    token: float  # seconds of validation, per token
    precision: Precision


def faster_precision(step_times: Callable[[Precision], list[float]]) -> Precision:
    """Of the products. A CPU may have bfloat16 and still be slower with it: what lies between the products is done in
    fp32, and in a small model that is much of a step. So real steps decide, the fastest of each.
    """
    if not has_fast_bfloat16(device()):
        return "float32"
    if device() != "cpu":
        return "bfloat16"
    return "bfloat16" if CLEARLY * min(step_times("bfloat16")) < min(step_times("float32")) else "float32"


def precision_for(model: ModelSection, plan: PretrainPlan, inputs: PretrainInputs) -> Precision:
    def times(one: Precision) -> list[float]:
        return _times(model, plan.model_copy(update={"precision": one}), inputs, PRECISION_SECONDS)

    return faster_precision(times)


def measure_cost(
    model: ModelSection, plan: PretrainPlan, inputs: PretrainInputs, seconds: float, precision: Precision | None
) -> Cost:
    """With this precision, or the faster one."""
    times: dict[Precision, list[float]] = {}

    def try_with(one: Precision) -> list[float]:
        times[one] = _times(model, plan.model_copy(update={"precision": one}), inputs, seconds / 2)
        return times[one]

    precision = precision or faster_precision(try_with)
    known = times.get(precision) or try_with(precision)
    plan = plan.model_copy(update={"precision": precision})
    network, of_tensors = inputs.build(model, plan).network, inputs.spec(plan).precision
    batch = inputs.objectives("train", plan)[0].batch([0] * 8, [0] * 8, 0)
    spent = _best_of(lambda: validate(network, [batch], of_tensors), 4)  # the first allocates
    return Cost(mean(known), spent / len(batch.packed.tokens), precision)


def expected_seconds(model: ModelSection, plan: PretrainPlan, inputs: PretrainInputs) -> float:
    """Of the whole run, at the speed of some steps here and now."""
    cost = measure_cost(model, plan, inputs, EXPECTING_SECONDS, plan.precision)
    steps = inputs.spec(plan).steps
    validated = min(sum(map(len, inputs.data.splits["validation"])), plan.validation_tokens)
    validations = steps // plan.validate_every + 2  # one at the end, one of the best weights
    return steps * cost.step + validations * validated * cost.token


def compiling_pays(model: ModelSection, plan: PretrainPlan, inputs: PretrainInputs) -> bool:
    """Measured, if batches have one shape (others would be compiled again and again) and the run is long enough."""
    if not inputs.kind.uniform or len(inputs.data.weights) > 1 or model.family == "lstm":
        return False
    steps = inputs.spec(plan).steps
    network = inputs.build(model, plan).network
    eager = mean(_times_of(network, plan, inputs, seconds=1.0))
    if eager * steps * COMPILE_SHARE < COMPILE_SECONDS:
        return False
    began = time.monotonic()
    try:
        compile_stacks(network)
        compiled = mean(_times_of(network, plan, inputs, seconds=3.0))
    except Exception as error:  # no compiler, or a compiler's fault: torch's own errors share no other class
        say(f"torch.compile does not work here ({type(error).__name__}); going on without it.")
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
    return step_times(network, objectives, order, spec, seconds)


def step_times(
    network: Network, objectives: Sequence[Objective], order: Order, spec: TrainSpec, seconds: float
) -> list[float]:
    """Of some training steps, with a network that is for nothing else."""
    optimizers = make_optimizers(network.train(), spec.optimizer, spec.precision)
    for step in range(2):  # the first allocates, and compiles
        one_step(network, objectives, order, optimizers, spec, step)
    times: list[float] = []
    while sum(times) < seconds and len(times) < 100:
        began = time.perf_counter()
        one_step(network, objectives, order, optimizers, spec, 2 + len(times))
        times.append(time.perf_counter() - began)
    return times


def _best_of(work: Callable[[], object], times: int) -> float:
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        spent.append(time.perf_counter() - began)
    return min(spent)
