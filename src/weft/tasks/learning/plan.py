"""The settings that a fine-tuning recipe leaves open: batch, learning rates, precision, steps, validation."""

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
from weft.objectives.objective import Objective
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
from weft.train.processes import Processes, default_pieces
from weft.train.schedules import Schedule
from weft.train.spec import TrainSpec
from weft.train.validation import validate

TUNED_RATE, TUNED_WIDTH, TUNED_POWER = 5e-5, 768, 1.5  # BERT-base's; narrower models take larger steps
HIGHEST_RATE, LOWEST_RATE = 2e-3, 1e-5
FRESH_RATE, FRESH_WIDTH = 2e-3, 128
MUON_RATE, MUON_MATRIX_RATE = 5e-3, 0.02  # of AdamW's part and of Muon's, for fresh and pre-trained models
RATE_FACTORS = {"all": 1.0, "lora": 5.0, "head": 20.0}  # fewer weights tolerate a higher rate
VALIDATIONS_PER_RUN = 10
STEPS_SHARE = 0.92  # of a time budget; the rest is for validating and saving
MOST_VALIDATION_SHARE = 0.05  # of a time budget
LEAST_VALIDATIONS, LEAST_VALIDATION_EXAMPLES = 2, 32
TIMED_EXAMPLES = 64  # that show how long validation takes
TRIAL_SECONDS = 1.0
ADAM_BETAS = (0.9, 0.999)


def chosen_optimizer(section: FinetuneSection, base: Path) -> str:
    """A model is best tuned with the optimizer that pre-trained it (Liu et al. 2025, "Muon is scalable")."""
    if section.optimizer is not None or section.tune != "all":
        return section.optimizer or "adamw"
    is_fresh = isinstance(section.model, ModelSection)
    with_muon = is_fresh or _pretraining_optimizer(base / str(section.model or "")) == "muon"
    return "muon" if with_muon else "adamw"


def _pretraining_optimizer(folder: Path) -> str | None:
    """The optimizer that pre-trained the model, from its weft.json. None if weft did not pre-train it."""
    found: Any = known_facts(folder)
    for key in ("recipe", "pretrain", "optimizer"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else None


def make_finetune_plan(
    section: FinetuneSection,
    base: Path,
    task: Task,
    network: Network,
    inputs: Sequence[Input],
    length: int,
    held_out: Sequence[Input],
    objective: Objective | None = None,
    processes: Processes | None = None,
) -> FinetunePlan:
    """`inputs`, `held_out`: what the network reads in training and in validation. `length`: most tokens of an input.
    `objective`: whose steps are timed. Default: the task's.
    """
    processes = processes or Processes()
    plan = _with_defaults(section, base, task, network, len(inputs), length)
    if plan.pieces is None:
        plan = plan.model_copy(update={"pieces": default_pieces(processes.world, plan.batch)})
    times: dict[Precision, list[float]] = {}

    def time_steps(precision: Precision) -> list[float]:
        trial = plan.model_copy(update={"precision": precision})
        learned = TaskObjective(task, inputs, smoothing=plan.label_smoothing) if objective is None else objective
        times[precision] = _step_times(trial, network, learned, processes.world)
        return times[precision]

    if section.precision is None:
        plan = plan.model_copy(update={"precision": faster_precision(time_steps, processes.device)})
    budget = read_budget(plan.budget, "finetune.budget")
    validations = VALIDATIONS_PER_RUN
    if budget.kind == "seconds":
        seconds = budget.amount / plan.seeds
        steps = _steps_in(seconds, median(times.get(plan.precision) or time_steps(plan.precision)))
        given = None if section.validate_every is None else math.ceil(steps / section.validate_every)
        plan, validations = _with_short_validations(plan, seconds, given, task, network, held_out)
    else:
        steps = _steps_of(budget, plan, inputs)
    interval = max(1, math.ceil(steps / validations))
    chosen = {"log_every": max(1, min(10, steps // 100)), "validate_every": interval, "checkpoint_every": interval}
    chosen = {key: value for key, value in chosen.items() if getattr(section, key) is None}
    return plan.model_copy(update={**chosen, "budget": f"{steps} steps"})


def _with_defaults(
    section: FinetuneSection, base: Path, task: Task, network: Network, count: int, length: int
) -> FinetunePlan:
    """The section's settings, and defaults for the others. The intervals are set later, once the steps are known."""
    width, optimizer = network.architecture.width, chosen_optimizer(section, base)
    if optimizer == "muon" or isinstance(section.model, ModelSection):
        rate = (MUON_RATE if optimizer == "muon" else FRESH_RATE) * math.sqrt(FRESH_WIDTH / width)
    else:
        rate = TUNED_RATE * (TUNED_WIDTH / width) ** TUNED_POWER * RATE_FACTORS[section.tune]
        rate = min(max(rate, LOWEST_RATE), HIGHEST_RATE)
    defaults: dict[str, Any] = {
        "sequence_length": length,
        "batch": min(task.default_batch, count),
        "optimizer": optimizer,
        "learning_rate": float(f"{rate:.2g}"),
        "matrix_rate": MUON_MATRIX_RATE if optimizer == "muon" else None,
        "precision": "float32",
        "threads": use_threads(None),
        "log_every": 1,
        "validate_every": 1,
        "checkpoint_every": 1,
    }
    given = {key: getattr(section, key) for key in type(section).model_fields if getattr(section, key) is not None}
    return FinetunePlan(**{**defaults, **given})


def train_spec(plan: FinetunePlan, seed: int) -> TrainSpec:
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
            ADAM_BETAS,
            matrix_rate=plan.matrix_rate or 0.0,
            layer_decay=plan.layer_decay,
        ),
        seed=seed,
        **loop_settings(plan),
    )


def _with_short_validations(
    plan: FinetunePlan, seconds: float, given: int | None, task: Task, network: Network, held_out: Sequence[Input]
) -> tuple[FinetunePlan, int]:
    """The plan with the number of validation examples, and how many validations to make. Together they take a small
    share of the `seconds`. `given`: the number of validations if the recipe sets it.
    """
    examples = len({one.example for one in held_out})
    wanted = min(plan.validation_examples or examples, examples)
    each = _validation_seconds(task, network, held_out) / examples
    affordable = MOST_VALIDATION_SHARE * seconds / max(each, 1e-9)  # examples, over all validations
    validations = given or min(VALIDATIONS_PER_RUN, max(LEAST_VALIDATIONS, int(affordable / wanted)))
    most = max(LEAST_VALIDATION_EXAMPLES, int(affordable / validations))
    if plan.validation_examples is not None or most >= examples:
        return plan, validations
    say(f"Validating on {most:,} of {examples:,} examples, to spend at most about 5 % of the time on it.")
    return plan.model_copy(update={"validation_examples": most}), validations


def _validation_seconds(task: Task, network: Network, inputs: Sequence[Input]) -> float:
    """An estimate from a few of the inputs."""
    some = [inputs[i] for i in np.unique(np.linspace(0, len(inputs) - 1, TIMED_EXAMPLES).astype(int))]
    batches = [batch_of(task, [some[i] for i in part]) for part in groups(some)]
    validate(network, batches[:1])  # warm-up
    began = time.perf_counter()
    validate(network, batches)
    return (time.perf_counter() - began) * sum(len(one.ids) for one in inputs) / sum(len(one.ids) for one in some)


def _steps_in(seconds: float, step: float) -> int:
    steps = int(seconds * STEPS_SHARE / step)
    if steps < 1:
        raise RecipeError(f"finetune.budget is too short: one step takes {step:.1f} s. Give it more time.")
    say(f"A step takes {step:.2f} s here: the budget is enough for {steps:,} steps.")
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


def _step_times(plan: FinetunePlan, network: Network, objective: Objective, world: int) -> list[float]:
    """On a copy of the network: a run depends on its seed alone."""
    spec = train_spec(plan.model_copy(update={"budget": "1 steps"}), plan.seed)
    order = Order((len(objective),), (1.0,), plan.seed)
    return step_times(copy.deepcopy(network), [objective], order, spec, TRIAL_SECONDS, world)
