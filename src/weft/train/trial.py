"""What a step costs here, found by doing some with a network that is thrown away, so that the run itself stays a
function of its seed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from weft.model.network import Network
from weft.progress import say
from weft.recipe import ModelSection, PretrainPlan
from weft.tokens.order import Order
from weft.train.loop import one_step, validate
from weft.train.machine import has_fast_bfloat16
from weft.train.materials import Materials, device
from weft.train.optimizers import make_optimizers

# A trial of torch.compile costs about a minute, and is worth it only where little of the run is lost by a "no".
COMPILE_SECONDS, COMPILE_SHARE = 60.0, 0.03
PRECISION_SECONDS = 1.0  # of trying, for each
CLEARLY = 1.2  # times as fast: the precision of a run must not hang on who else was using the machine

Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Cost:
    step: float  # seconds of a training step
    token: float  # seconds of validation, per token
    precision: Precision = "float32"


def faster_precision(seconds_per_step: Callable[[Precision], float]) -> Precision:
    """Of the products. A CPU may have bfloat16 and still be slower with it: what lies between the products has its
    kernels in fp32 only, and in a small model that is much of a step. So real steps decide.
    """
    if not has_fast_bfloat16(device()):
        return "float32"
    if device() != "cpu":
        return "bfloat16"
    return "bfloat16" if CLEARLY * seconds_per_step("bfloat16") < seconds_per_step("float32") else "float32"


def precision_for(model: ModelSection, plan: PretrainPlan, materials: Materials) -> Precision:
    def step_seconds(one: Precision) -> float:
        network = materials.build(model, plan).network.train()
        return _seconds_per_step(network, plan.model_copy(update={"precision": one}), materials, PRECISION_SECONDS)

    return faster_precision(step_seconds)


def measure_cost(
    model: ModelSection, plan: PretrainPlan, materials: Materials, seconds: float, precision: Precision | None
) -> Cost:
    """With this precision, or the faster one."""
    costs: dict[Precision, Cost] = {}

    def step_seconds(one: Precision) -> float:
        costs[one] = _cost(model, plan.model_copy(update={"precision": one}), materials, seconds)
        return costs[one].step

    precision = precision or faster_precision(step_seconds)
    if precision not in costs:
        step_seconds(precision)
    return costs[precision]


def _cost(model: ModelSection, plan: PretrainPlan, materials: Materials, seconds: float) -> Cost:
    network = materials.build(model, plan).network.train()
    step = _seconds_per_step(network, plan, materials, seconds)
    batch = materials.objectives("train", plan)[0].batch([0] * 8, [0] * 8, 0).to(torch.device(device()))
    network.eval()
    precision = materials.spec(plan).precision
    spent = _best_of(lambda: validate(network, [batch], precision), 4)  # the first allocates
    return Cost(step, spent / len(batch.packed.tokens), plan.precision)


def compiling_pays(model: ModelSection, plan: PretrainPlan, materials: Materials) -> bool:
    """Measured, if batches have one shape (others would be compiled again and again) and the run is long enough."""
    if not materials.kind.uniform or len(materials.data.weights) > 1 or model.family == "lstm":
        return False
    steps = materials.spec(plan).steps
    network = materials.build(model, plan).network.train()
    eager = _seconds_per_step(network, plan, materials, seconds=1.0)
    if eager * steps * COMPILE_SHARE < COMPILE_SECONDS:
        return False
    began = time.monotonic()
    try:
        compile_stacks(network)
        compiled = _seconds_per_step(network, plan, materials, seconds=3.0)
    except Exception as error:  # no compiler, or a compiler's fault: torch's own errors share no other class
        say(f"torch.compile does not work here ({type(error).__name__}); going on without it.")
        return False
    return (eager - compiled) * steps > time.monotonic() - began


def compile_stacks(network: Network) -> None:
    for stack in (network.encoder, network.decoder):
        if stack is not None:
            stack.forward = torch.compile(stack.forward, dynamic=False)  # type: ignore[method-assign]


def _seconds_per_step(network: Network, plan: PretrainPlan, materials: Materials, seconds: float) -> float:
    objectives, spec = materials.objectives("train", plan), materials.spec(plan)
    order = Order(tuple(map(len, objectives)), materials.data.weights, spec.seed)
    optimizers = make_optimizers(network, spec.optimizer)
    for step in range(2):  # the first allocates, and compiles
        one_step(network, objectives, order, optimizers, spec, step)
    times: list[float] = []
    while sum(times) < seconds and len(times) < 100:
        began = time.perf_counter()
        one_step(network, objectives, order, optimizers, spec, 2 + len(times))
        times.append(time.perf_counter() - began)
    return sum(times) / len(times)


def _best_of(work: Callable[[], object], times: int) -> float:
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        spent.append(time.perf_counter() - began)
    return min(spent)
