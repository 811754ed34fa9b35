"""What a fine-tuning recipe leaves open is chosen here: the batch, the rates, the steps."""

import copy
import math
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from weft.errors import RecipeError
from weft.folders import known_facts
from weft.model.network import Network
from weft.progress import say
from weft.recipe.finetune import FinetunePlan, FinetuneSection
from weft.recipe.model import ModelSection
from weft.tasks.batches import groups
from weft.tasks.example import Input
from weft.tasks.task import Task, TaskObjective, batch_of
from weft.threads import use_threads
from weft.tokens.order import Order
from weft.train.budget import Budget, read_budget, steps_of
from weft.train.optimizers import OptimizerSpec
from weft.train.plan.trial import Precision, faster_precision, step_times
from weft.train.pretrain_inputs import loop_settings
from weft.train.schedules import Schedule
from weft.train.spec import TrainSpec
from weft.train.validation import validate

BATCH, WRITING_BATCH = 32, 64  # examples in a step
TUNED_RATE, TUNED_WIDTH, TUNED_POWER = 5e-5, 768, 1.5  # BERT-base's; narrower models take larger steps
FASTEST, SLOWEST = 2e-3, 1e-5
FRESH_RATE, FRESH_WIDTH = 2e-3, 128
MUON_RATE, MUON_MATRICES = 5e-3, 0.02  # AdamW's part, and Muon's; also of a model that Muon has pre-trained
EASIER = {"all": 1.0, "lora": 5.0, "head": 20.0}  # what learns less can learn faster
VALIDATIONS = 10
TIME_SHARE = 0.92  # of a budget in time that goes to steps: the rest validates and saves
VALIDATION_SHARE = 0.05  # of a budget in time, at most
FEWEST_VALIDATIONS, FEWEST_EXAMPLES = 2, 32
TRIED = 64  # examples that say how long validation takes
TRIAL_SECONDS = 1.0
BETAS = (0.9, 0.999)


def chosen_optimizer(section: FinetuneSection, base: Path) -> str:
    """What a model was pre-trained with is also what it is best tuned with (Liu et al. 2025, "Muon is scalable")."""
    if section.optimizer is not None or section.tune != "all":
        return section.optimizer or "adamw"
    with_muon = isinstance(section.model, ModelSection) or _optimizer_of(base / (section.model or "")) == "muon"
    return "muon" if with_muon else "adamw"


def _optimizer_of(folder: Path) -> str | None:
    """That pre-trained it, as its weft.json says; none if it is not weft's."""
    found: Any = known_facts(folder)
    for key in ("recipe", "pretrain", "optimizer"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else None


def choose(
    section: FinetuneSection,
    base: Path,
    task: Task,
    network: Network,
    inputs: Sequence[Input],
    length: int,
    held_out: Sequence[Input],
) -> FinetunePlan:
    width, optimizer = network.architecture.width, chosen_optimizer(section, base)
    if optimizer == "muon" or isinstance(section.model, ModelSection):
        rate = (MUON_RATE if optimizer == "muon" else FRESH_RATE) * math.sqrt(FRESH_WIDTH / width)
    else:
        rate = TUNED_RATE * (TUNED_WIDTH / width) ** TUNED_POWER * EASIER[section.tune]
        rate = min(max(rate, SLOWEST), FASTEST)
    values: dict[str, Any] = {
        "sequence_length": length,
        "batch": min(task.default_batch, len(inputs)),
        "optimizer": optimizer,
        "learning_rate": float(f"{rate:.2g}"),
        "matrix_rate": MUON_MATRICES if optimizer == "muon" else None,
        "precision": "float32",
        "threads": use_threads(None),
        "log_every": 1,
        "validate_every": 1,
        "checkpoint_every": 1,
    }
    said = {key: getattr(section, key) for key in type(section).model_fields if getattr(section, key) is not None}
    plan = FinetunePlan(**{**values, **said})

    times: dict[Precision, list[float]] = {}

    def try_with(precision: Precision) -> list[float]:
        times[precision] = _step_times(plan.model_copy(update={"precision": precision}), task, network, inputs)
        return times[precision]

    if section.precision is None:
        plan = plan.model_copy(update={"precision": faster_precision(try_with)})
    budget = read_budget(plan.budget, "finetune.budget")
    validations = VALIDATIONS
    if budget.kind == "seconds":
        seconds = budget.amount / plan.seeds
        steps = _steps_in(seconds, median(times.get(plan.precision) or try_with(plan.precision)))
        asked = None if section.validate_every is None else math.ceil(steps / section.validate_every)
        plan, validations = _quickly_validated(plan, seconds, asked, task, network, held_out)
    else:
        steps = _steps_of(budget, plan, inputs)
    interval = max(1, math.ceil(steps / validations))
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
        **loop_settings(plan),
    )


def _quickly_validated(
    plan: FinetunePlan, seconds: float, asked: int | None, task: Task, network: Network, held_out: Sequence[Input]
) -> tuple[FinetunePlan, int]:
    """How often to validate (unless it was `asked` for), and on how many examples, so that it takes a small share of
    the time at most.
    """
    examples = len({one.example for one in held_out})
    wanted = min(plan.validation_examples or examples, examples)
    each = _validation_seconds(task, network, held_out) / examples
    allowed = VALIDATION_SHARE * seconds / max(each, 1e-9)  # examples, over all validations
    validations = asked or min(VALIDATIONS, max(FEWEST_VALIDATIONS, int(allowed / wanted)))
    most = max(FEWEST_EXAMPLES, int(allowed / validations))
    if plan.validation_examples is not None or most >= examples:
        return plan, validations
    say(f"Validation is on {most:,} of {examples:,} examples, so that it takes about 5 % of the time at most.")
    return plan.model_copy(update={"validation_examples": most}), validations


def _validation_seconds(task: Task, network: Network, inputs: Sequence[Input]) -> float:
    """By a few of the inputs."""
    some = [inputs[i] for i in np.unique(np.linspace(0, len(inputs) - 1, TRIED).astype(int))]
    batches = [batch_of(task, [some[i] for i in part]) for part in groups(some)]
    validate(network, batches[:1])  # the first makes things ready
    began = time.perf_counter()
    validate(network, batches)
    return (time.perf_counter() - began) * sum(len(one.ids) for one in inputs) / sum(len(one.ids) for one in some)


def _steps_in(seconds: float, step: float) -> int:
    steps = int(seconds * TIME_SHARE / step)
    if steps < 1:
        raise RecipeError(f"finetune.budget is too short: a step takes {step:.1f} s.")
    say(f"A step takes {step:.2f} s here, so there is time for {steps:,}.")
    return steps


def _steps_of(budget: Budget, plan: FinetunePlan, inputs: Sequence[Input]) -> int:
    tokens = sum(len(one.ids) for one in inputs) / len(inputs) * plan.batch
    return steps_of(
        budget,
        batch_tokens=max(1, round(tokens)),
        samples=plan.batch,
        epoch_samples=len(inputs),
        key="finetune.budget",
    )


def _step_times(plan: FinetunePlan, task: Task, network: Network, inputs: Sequence[Input]) -> list[float]:
    """With a copy of the network, so that the run stays a function of its seed."""
    spec = spec_of(plan.model_copy(update={"budget": "1 steps"}), plan.seed)
    order = Order((len(inputs),), (1.0,), plan.seed)
    objective = TaskObjective(task, inputs, smoothing=plan.label_smoothing)
    return step_times(copy.deepcopy(network), [objective], order, spec, TRIAL_SECONDS)
