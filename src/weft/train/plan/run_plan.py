"""The plan of a run: what a recipe leaves open, filled in by rules (scaling.py) and by trials."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import RecipeError
from weft.interchange.folder import read_outline
from weft.model.network import Architecture
from weft.model.positions import longest
from weft.model.tensor_parallel import check_can_be_cut
from weft.progress import say
from weft.recipe.model import ModelSection
from weft.recipe.pretrain import PretrainPlan, PretrainSection
from weft.threads import use_threads
from weft.train.budget import Budget, steps_of
from weft.train.plan.machine import matmul_peak
from weft.train.plan.scaling import (
    USUAL_FLOPS,
    batch_for,
    best_size,
    choose_size,
    design_of,
    ladder,
    length_for,
    worth_of,
)
from weft.train.plan.trial import Cost, compiling_pays, measure_cost, precision_for
from weft.train.pretrain_inputs import PretrainInputs
from weft.train.processes import default_pieces
from weft.train.validation import tokens_read

_MOST_VALIDATIONS, VALIDATION_TOKENS = 20, 100_000  # in a run, and tokens in each; at most
_VALIDATION_TIME_SHARE = 0.05  # of the time, at most
RATES = {"adamw": (2e-3, None), "muon": (0.02, 0.03), "lstm": (0.01, None)}  # AdamW's and Muon's rates at width 128
_DECAY = 0.5  # share of the steps
# Runs of at least so many steps do better with a lower rate of Muon and a longer decay.
_MANY_STEPS, _LONG_RUN_MATRIX_RATE, _LONG_RUN_DECAY = 500, 0.02, 0.7
_FURTHER_RATE = 1e-4  # for a model that is trained further
END_SECONDS, END_SHARE = 1.0, 0.01  # reserved for saving the model and for the baseline
_BATCH_TOKENS = 4096
# At first a masked model predicts only the most frequent words; a run that ends there is useless. Models of one book,
# 64 to 128 wide, get past that after 130 to 330 steps of 1,024 to 2,432 tokens. With 576 tokens, a slow machine's
# choice, they have hardly done so after 850 (12 % of the words found).
MASKED_STEPS, MASKED_BATCH = 800, 1024  # at least; the batch is in tokens


@dataclass(frozen=True)
class RunPlan:
    model: ModelSection
    settings: PretrainPlan
    ends: float | None = None  # when training must end, by `time.monotonic`. None: the budget is not in time


def make_run_plan(
    model: ModelSection, settings: PretrainSection, inputs: PretrainInputs, budget: Budget, deadline: float | None
) -> RunPlan:
    """Fill in all settings. With a `deadline` (by `time.monotonic`), choose the size and as many steps as fit."""
    ends = None
    if deadline is not None and deadline <= time.monotonic():
        raise RecipeError("pretrain.budget: the time was up before the corpus was tokenized. Raise it.")
    flops = USUAL_FLOPS if deadline is None else (deadline - time.monotonic()) * matmul_peak(inputs.device) / 2
    length = settings.sequence_length or _length(model, inputs, length_for(flops))
    if model.path is not None:
        settings = _with_low_rate(settings)
    if deadline is None:
        tokens = _tokens_of(budget, settings.batch_tokens or _BATCH_TOKENS, inputs)
        model = best_size(_sizes(model, inputs), inputs.tokenizer.vocabulary, tokens * _token_worth(inputs))
        plan = _with_rates(settings, length, model, inputs)
        samples = max(1, plan.batch_tokens // length)
        epoch = sum(map(len, inputs.objectives("train", plan)))
        steps = steps_of(budget, batch_tokens=samples * length, samples=samples, epoch_samples=epoch)
        plan = _scheduled(settings, plan, steps)
        if settings.precision is None:
            plan = plan.model_copy(update={"precision": precision_for(model, plan, inputs)})
    else:
        model, plan, ends = _plan_for_time(deadline, budget.amount, model, settings, inputs, length)
    if settings.compile is None:
        plan = plan.model_copy(update={"compile": compiling_pays(model, plan, inputs)})
    return RunPlan(model, plan, ends)


def check_can_be_shared(model: ModelSection, base: Path, tensor: int) -> None:
    """Raises RecipeError if so many tensor parallel processes can share no size of the model."""
    if tensor > 1:
        _that_can_be_cut(ladder(model), tensor, lambda size: _architecture(size, base, None))


def _sizes(model: ModelSection, inputs: PretrainInputs) -> list[ModelSection]:
    if inputs.tensor == 1:
        return ladder(model)
    return _that_can_be_cut(
        ladder(model), inputs.tensor, lambda size: _architecture(size, inputs.base, inputs.tokenizer.vocabulary)
    )


def _that_can_be_cut(
    sizes: list[ModelSection], tensor: int, architecture_of: Callable[[ModelSection], Architecture]
) -> list[ModelSection]:
    found, problems = [], []
    for size in sizes:
        try:
            check_can_be_cut(architecture_of(size), tensor)
            found.append(size)
        except RecipeError as error:
            problems.append(error)
    if not found:
        raise problems[-1]
    return found


def _with_low_rate(settings: PretrainSection) -> PretrainSection:
    """Lower rates for a model that is trained already, which would forget everything at the usual ones."""
    if settings.learning_rate is not None:
        return settings
    return settings.model_copy(update={"optimizer": "adamw", "learning_rate": _FURTHER_RATE})


def _tokens_of(budget: Budget, batch_tokens: int, inputs: PretrainInputs) -> float:
    unique = sum(map(len, inputs.data.splits["train"]))
    return budget.amount * {"steps": batch_tokens, "tokens": 1, "epochs": unique}[budget.kind]


def _token_worth(inputs: PretrainInputs) -> float:
    train = inputs.data.splits["train"]
    return worth_of(sum(part.bytes for part in train), sum(map(len, train)))


def _plan_for_time(
    deadline: float, budget: float, model: ModelSection, settings: PretrainSection, inputs: PretrainInputs, length: int
) -> tuple[ModelSection, PretrainPlan, float]:
    peak = matmul_peak(inputs.device)
    say(f"Measuring this machine: {peak / 1e9:,.0f} GFLOP/s in matrix products ...")
    fewest = fewest_steps(settings, model)
    batch = settings.batch_tokens or batch_for(max(deadline - time.monotonic(), 1.0) * peak / 2, length)
    if fewest > 1 and settings.batch_tokens is None:
        batch = max(batch, math.ceil(MASKED_BATCH / length) * length)
    settings = settings.model_copy(update={"batch_tokens": batch})

    def chosen_for(size: ModelSection) -> PretrainPlan:
        return _with_rates(settings, length, size, inputs)

    def measure(size: ModelSection) -> Cost:
        seconds = min(5.0, 0.03 * (deadline - time.monotonic()))
        return measure_cost(size, chosen_for(size), inputs, seconds, settings.precision)

    vocabulary, train = inputs.tokenizer.vocabulary, inputs.data.splits["train"]
    unique = sum(map(len, train))
    model, cost = choose_size(
        _sizes(model, inputs),
        vocabulary,
        lambda: deadline - time.monotonic(),
        batch,
        unique,
        measure,
        peak,
        _token_worth(inputs),
        math.ceil(fewest / (1 - _VALIDATION_TIME_SHARE - END_SHARE)),
    )
    plan = chosen_for(model).model_copy(update={"precision": cost.precision})
    test = tokens_read(inputs.objectives("test", plan), plan.sequence_length)
    validation = min(sum(map(len, inputs.data.splits["validation"])), plan.validation_tokens)
    ends = deadline - test * cost.token - END_SECONDS - END_SHARE * (deadline - time.monotonic())
    left = ends - time.monotonic()
    if left < 5 * cost.step:
        raise RecipeError(
            f"pretrain.budget: the time is up before training begins: a step takes {cost.step:.1f} s. Raise it, or "
            "choose a smaller model or batch."
        )
    spent = validation * cost.token
    validations = min(_MOST_VALIDATIONS, max(2, int(_VALIDATION_TIME_SHARE * left / max(spent, 1e-9))))
    steps = max(1, int((left - validations * spent) / cost.step))
    if steps < fewest:
        say(
            f"Warning: there is time for {steps:,} steps. A masked model needs about {fewest:,} to learn more than "
            f"which words are frequent: about {minutes_for(fewest, steps, budget)}m on this machine."
        )
    return model, _scheduled(settings, plan, steps, validations), ends


def minutes_for(wanted: int, steps: int, budget: float) -> int:
    """The budget for `wanted` steps, if one of `budget` seconds is enough for `steps`."""
    return math.ceil(budget * wanted / steps / 60)


def fewest_steps(settings: PretrainSection, model: ModelSection) -> int:
    """The least number of steps of a useful run."""
    is_masked = (settings.objective or "").startswith("masked")
    return MASKED_STEPS if is_masked and model.path is None else 1


def _with_rates(settings: PretrainSection, length: int, model: ModelSection, inputs: PretrainInputs) -> PretrainPlan:
    """The plan with sequence length, batch and learning rates, but not yet the steps."""
    if model.family == "lstm" and settings.optimizer == "muon":  # it has no matrices for Muon
        settings = settings.model_copy(update={"optimizer": "adamw"})
    rate, matrix_rate = RATES["lstm" if model.family == "lstm" else settings.optimizer]
    batch = settings.batch_tokens or max(_BATCH_TOKENS, 16 * length)
    values: dict[str, Any] = {
        "sequence_length": length,
        "batch_tokens": batch,
        "pieces": default_pieces(inputs.world, batch // length),
        # AdamW's best rate falls with the width. Muon's does not: its update has the same size in all directions.
        "learning_rate": float(f"{rate * (128 / _width(model, inputs)) ** 0.5:.2g}"),
        "matrix_rate": matrix_rate,
        "decay": _DECAY if settings.schedule == "wsd" else None,
        "precision": "float32",
        "threads": use_threads(None),
        "compile": False,
        "log_every": 1,
        "validate_every": 1,
        "checkpoint_every": 1,
        "validation_tokens": VALIDATION_TOKENS,
    }
    said = {key: value for key, value in settings.model_dump().items() if value is not None}
    return PretrainPlan(**{**values, **said, "budget": "1 steps"})


def _scheduled(
    settings: PretrainSection, plan: PretrainPlan, steps: int, validations: int = _MOST_VALIDATIONS
) -> PretrainPlan:
    """The plan for this number of steps: rates, and how often to log, validate and save."""
    interval = max(1, math.ceil(steps / validations))
    values: dict[str, Any] = {
        "log_every": max(1, min(10, steps // 100)),
        "validate_every": interval,
        "checkpoint_every": interval,
        "validation_tokens": int(min(VALIDATION_TOKENS, max(0.3 * interval * plan.batch_tokens, 8192))),
    }
    if steps >= _MANY_STEPS:
        values |= {"matrix_rate": plan.matrix_rate and _LONG_RUN_MATRIX_RATE, "decay": plan.decay and _LONG_RUN_DECAY}
    chosen = {key: value for key, value in values.items() if getattr(settings, key) is None}
    # In steps, not as a share: if the number of steps is corrected later, past steps must not change.
    warmup = float(round(plan.warmup if plan.warmup >= 1 else plan.warmup * steps))
    return plan.model_copy(update={**chosen, "budget": f"{steps} steps", "warmup": warmup})


def _length(model: ModelSection, inputs: PretrainInputs, wanted: int) -> int:
    """The wanted length, or less if the model reads less or a part of the text is shorter."""
    limits = [wanted, min(map(len, inputs.data.splits["train"])) // 8]
    limits += [len(shards) - 1 for split in ("validation", "test") for shards in inputs.data.splits[split]]
    if model.path is not None or model.size is not None or isinstance(model.positions, int):
        limit = longest(_architecture(model, inputs.base, inputs.tokenizer.vocabulary).embedding.positions)
        limits.append(wanted if limit is None else limit)
    return max(4, min(limits))


def _width(model: ModelSection, inputs: PretrainInputs) -> int:
    if model.width is not None:
        return model.width
    return _architecture(model, inputs.base, inputs.tokenizer.vocabulary).width


def _architecture(model: ModelSection, base: Path, vocabulary: int | None) -> Architecture:
    """Without a vocabulary, that of the family."""
    return read_outline(base / model.path)[0].architecture if model.path is not None else design_of(model, vocabulary)
