"""What a fine-tuning recipe leaves open is chosen here: the batch, the rates, the steps."""

import copy
import math
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from weft.errors import RecipeError
from weft.model.network import Network
from weft.progress import say
from weft.recipe import FinetunePlan, FinetuneSection, ModelSection
from weft.tasks.rewrite import Rewrite
from weft.tasks.task import Input, Learnt, Task
from weft.tokens.order import Order
from weft.train.budget import Budget, read_budget, steps_of
from weft.train.loop import TrainSpec, one_step
from weft.train.materials import habits
from weft.train.optimizers import OptimizerSpec, make_optimizers
from weft.train.schedules import Schedule
from weft.train.trial import Precision, faster_precision

BATCH, WRITING_BATCH = 32, 64  # examples in a step
TUNED_RATE, TUNED_WIDTH, TUNED_POWER = 5e-5, 768, 1.5  # BERT-base's; narrower models take larger steps
FASTEST, SLOWEST = 2e-3, 1e-5
FRESH_RATE, FRESH_WIDTH = 2e-3, 128
FRESH_MUON, FRESH_MATRICES = 5e-3, 0.02  # AdamW's part, and Muon's
EASIER = {"all": 1.0, "lora": 5.0, "head": 20.0}  # what learns less can learn faster
VALIDATIONS = 10
TIME_SHARE = 0.92  # of a budget in time that goes to steps: the rest validates and saves
TRIAL_STEPS = 5
BETAS = (0.9, 0.999)


def chosen_optimizer(section: FinetuneSection) -> str:
    is_fresh = isinstance(section.model, ModelSection)
    return section.optimizer or ("muon" if is_fresh and section.tune == "all" else "adamw")


def choose(
    section: FinetuneSection, task: Task, network: Network, inputs: Sequence[Input], length: int
) -> FinetunePlan:
    width, optimizer = network.architecture.width, chosen_optimizer(section)
    if isinstance(section.model, ModelSection):
        rate = (FRESH_MUON if optimizer == "muon" else FRESH_RATE) * math.sqrt(FRESH_WIDTH / width)
    else:
        rate = TUNED_RATE * (TUNED_WIDTH / width) ** TUNED_POWER * EASIER[section.tune]
        rate = min(max(rate, SLOWEST), FASTEST)
    values: dict[str, Any] = {
        "sequence_length": length,
        "batch": min(WRITING_BATCH if isinstance(task, Rewrite) else BATCH, len(inputs)),
        "optimizer": optimizer,
        "learning_rate": float(f"{rate:.2g}"),
        "matrix_rate": FRESH_MATRICES if optimizer == "muon" else None,
        "precision": "float32",
        "log_every": 1,
        "validate_every": 1,
        "checkpoint_every": 1,
    }
    said = {key: getattr(section, key) for key in type(section).model_fields if getattr(section, key) is not None}
    plan = FinetunePlan(**{**values, **said})

    def step_seconds(precision: Precision) -> float:
        return _seconds_per_step(plan.model_copy(update={"precision": precision}), task, network, inputs)

    if section.precision is None:
        plan = plan.model_copy(update={"precision": faster_precision(step_seconds)})
    steps = _steps(read_budget(plan.budget, "finetune.budget"), plan, task, network, inputs)
    interval = max(1, math.ceil(steps / VALIDATIONS))
    chosen = {"log_every": max(1, min(10, steps // 100)), "validate_every": interval, "checkpoint_every": interval}
    chosen = {key: value for key, value in chosen.items() if getattr(section, key) is None}
    return plan.model_copy(update={**chosen, "budget": f"{steps} steps"})


def spec_of(plan: FinetunePlan, seed: int) -> TrainSpec:
    steps = int(read_budget(plan.budget, "finetune.budget").amount)
    warmup = round(plan.warmup if plan.warmup >= 1 else plan.warmup * steps)
    return TrainSpec(
        steps,
        samples=plan.batch,
        schedule=Schedule(steps, plan.schedule, min(warmup, steps)),
        optimizer=OptimizerSpec(
            plan.optimizer,
            plan.learning_rate,
            plan.weight_decay,
            BETAS,
            matrix_rate=plan.matrix_rate or 0.0,
            layer_decay=plan.layer_decay,
        ),
        seed=seed,
        **habits(plan),
    )


def _steps(budget: Budget, plan: FinetunePlan, task: Task, network: Network, inputs: Sequence[Input]) -> int:
    if budget.kind == "seconds":
        seconds = _seconds_per_step(plan, task, network, inputs)
        steps = int(budget.amount * TIME_SHARE / seconds)
        if steps < 1:
            raise RecipeError(f"finetune.budget is too short: a step takes {seconds:.1f} s.")
        say(f"A step takes {seconds:.2f} s here, so there is time for {steps:,}.")
        return steps
    tokens = sum(len(one.ids) for one in inputs) / len(inputs) * plan.batch
    return steps_of(
        budget,
        batch_tokens=max(1, round(tokens)),
        samples=plan.batch,
        epoch_samples=len(inputs),
        key="finetune.budget",
    )


def _seconds_per_step(plan: FinetunePlan, task: Task, network: Network, inputs: Sequence[Input]) -> float:
    """With a network that is thrown away, so that the run stays a function of its seed."""
    trial = copy.deepcopy(network).train()
    spec = spec_of(plan.model_copy(update={"budget": f"{TRIAL_STEPS} steps"}), plan.seed)
    optimizers, order = make_optimizers(trial, spec.optimizer), Order((len(inputs),), (1.0,), plan.seed)
    spent = []
    for step in range(TRIAL_STEPS):
        began = time.perf_counter()
        one_step(trial, [Learnt(task, inputs)], order, optimizers, spec, step)
        spent.append(time.perf_counter() - began)
    return median(spent[1:])
