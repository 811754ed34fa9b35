"""What a recipe leaves open is chosen here, by rules; with a budget in time, by rules and a measurement.

The rule for the size (docs/budget.md explains it): a model of N weights that has seen D tokens reaches about the loss
    L(N, D) = E + A / N^α + B / D^β                                   (Hoffmann et al. 2022, eq. 2)
In a given time a small model sees many tokens, a large one few. Of a ladder of sizes, the one with the lowest L is
taken, where D is what this machine, measured with real steps, gets through in the time. Tokens seen again and again
count for less: D = U + U · R · (1 − exp(−r / R)) for U different tokens and r repetitions (Muennighoff et al. 2023).
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.errors import RecipeError
from weft.model.families import design
from weft.model.flops import stack_weights
from weft.model.network import outline
from weft.model.positions import longest
from weft.progress import say
from weft.recipe import ModelSection, PretrainPlan, PretrainSection
from weft.train.budget import Budget, steps_of
from weft.train.machine import has_fast_bfloat16, matmul_peak
from weft.train.materials import Materials, device
from weft.train.trial import Cost, compiling_pays, measure_cost

A, ALPHA, B, BETA = 482.0, 0.348, 2085.0, 0.366  # Besiroglu et al. 2024, who fitted Hoffmann's runs again
TOKENS_PER_WEIGHT = 20  # Hoffmann et al. 2022
REPEATS = 15.4  # Muennighoff et al. 2023, R*
WIDTHS = (64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024, 1280, 1536, 2048)
SIZE_KNOBS = ("size", "layers", "width", "heads")
LENGTH, LENGTH_FLOPS = 256, 1.5e14  # tokens of a sequence; in a run of so much arithmetic
VALIDATIONS, VALIDATION_TOKENS = 20, 100_000  # over a run, and in each; at most
VALIDATION_SHARE = 0.05  # of the time, at most
RATES = {"adamw": (2e-3, None), "muon": (0.02, 0.03), "lstm": (0.01, None)}  # AdamW's and Muon's own, at width 128
FURTHER_RATE = 1e-4
END_SECONDS = 1.0  # for writing the model down
_BATCH_TOKENS = 4096


@dataclass(frozen=True)
class Planned:
    model: ModelSection
    settings: PretrainPlan
    ends: float | None = None  # when training must end (of `time.monotonic`), if the budget is in time


def make_plan(
    model: ModelSection, settings: PretrainSection, materials: Materials, budget: Budget, deadline: float | None
) -> Planned:
    """Everything chosen. With a `deadline` (of `time.monotonic`), the size as well, and as many steps as fit."""
    ends = None
    if deadline is not None and deadline <= time.monotonic():
        raise RecipeError("pretrain.budget: the time was up when the corpus was tokens. Give it longer.")
    flops = LENGTH_FLOPS if deadline is None else (deadline - time.monotonic()) * matmul_peak(device()) / 2
    length = settings.sequence_length or _length(model, materials, length_for(flops))
    if model.path is not None:
        settings = _gently(settings)
    if deadline is None:
        tokens = _tokens_of(budget, settings.batch_tokens or _BATCH_TOKENS, materials)
        model = best_size(ladder(model), materials.tokenizer.vocabulary, tokens)
        plan = _chosen(settings, length, model, _width(model, materials))
        samples = max(1, plan.batch_tokens // length)
        epoch = sum(map(len, materials.objectives("train", plan)))
        steps = steps_of(budget, batch_tokens=samples * length, samples=samples, epoch_samples=epoch)
        plan = _scheduled(settings, plan, steps)
    else:
        model, plan, ends = _fit_into(deadline, model, settings, materials, length)
    if settings.compile is None:
        plan = plan.model_copy(update={"compile": compiling_pays(model, plan, materials)})
    return Planned(model, plan, ends)


def _gently(settings: PretrainSection) -> PretrainSection:
    """For a model that has learnt already: the rates of fine-tuning, or it would forget everything in the warm-up."""
    if settings.learning_rate is not None:
        return settings
    return settings.model_copy(update={"optimizer": "adamw", "learning_rate": FURTHER_RATE})


def _tokens_of(budget: Budget, batch_tokens: int, materials: Materials) -> float:
    unique = sum(map(len, materials.data.splits["train"]))
    return budget.amount * {"steps": batch_tokens, "tokens": 1, "epochs": unique}[budget.kind]


def _fit_into(
    deadline: float, model: ModelSection, settings: PretrainSection, materials: Materials, length: int
) -> tuple[ModelSection, PretrainPlan, float]:
    peak = matmul_peak(device())
    say(f"Measuring this machine: {peak / 1e9:,.0f} GFLOP/s in matrix products ...")
    if settings.batch_tokens is None:
        tokens = batch_for(max(deadline - time.monotonic(), 1.0) * peak / 2, length)
        settings = settings.model_copy(update={"batch_tokens": tokens})

    def chosen_for(size: ModelSection) -> PretrainPlan:
        return _chosen(settings, length, size, _width(size, materials))

    def measure(size: ModelSection) -> Cost:
        return measure_cost(size, chosen_for(size), materials, min(5.0, 0.03 * (deadline - time.monotonic())))

    vocabulary, train = materials.tokenizer.vocabulary, materials.data.splits["train"]
    unique = sum(map(len, train))
    batch = settings.batch_tokens or 1
    model, cost = choose_size(ladder(model), vocabulary, deadline, batch, unique, measure, peak)
    plan = chosen_for(model)
    test = sum(map(len, materials.data.splits["test"]))
    validation = min(sum(map(len, materials.data.splits["validation"])), plan.validation_tokens)
    ends = deadline - test * cost.token - END_SECONDS
    left = ends - time.monotonic()
    if left < 5 * cost.step:
        raise RecipeError(
            f"pretrain.budget: the time is up before training begins: a step takes {cost.step:.1f} s. Give it longer, "
            "or take a smaller model or batch."
        )
    spent = validation * cost.token
    validations = min(VALIDATIONS, max(2, int(VALIDATION_SHARE * left / max(spent, 1e-9))))
    steps = max(1, int((left - validations * spent) / cost.step))
    return model, _scheduled(settings, plan, steps, validations), ends


def _chosen(settings: PretrainSection, length: int, model: ModelSection, width: int) -> PretrainPlan:
    """Sequence length, batch and learning rates; the steps come later."""
    if model.family == "lstm" and settings.optimizer == "muon":  # there is nothing in it for Muon
        settings = settings.model_copy(update={"optimizer": "adamw"})
    rate, matrix_rate = RATES["lstm" if model.family == "lstm" else settings.optimizer]
    values: dict[str, Any] = {
        "sequence_length": length,
        "batch_tokens": max(_BATCH_TOKENS, 16 * length),
        # The best rate of AdamW falls with the width; Muon's update is of one size in all directions, so its does not.
        "learning_rate": float(f"{rate * (128 / width) ** 0.5:.2g}"),
        "matrix_rate": matrix_rate,
        "precision": "bfloat16" if has_fast_bfloat16(device()) else "float32",
        "compile": False,
        "log_every": 1,
        "validate_every": 1,
        "checkpoint_every": 1,
        "validation_tokens": VALIDATION_TOKENS,
    }
    said = {key: value for key, value in settings.model_dump().items() if value is not None}
    return PretrainPlan(**{**values, **said, "budget": "1 steps"})


def _scheduled(
    settings: PretrainSection, plan: PretrainPlan, steps: int, validations: int = VALIDATIONS
) -> PretrainPlan:
    """The plan for so many steps, and how often to log, validate and save."""
    interval = max(1, math.ceil(steps / validations))
    values = {
        "log_every": max(1, min(10, steps // 100)),
        "validate_every": interval,
        "checkpoint_every": interval,
        "validation_tokens": int(min(VALIDATION_TOKENS, max(0.3 * interval * plan.batch_tokens, 8192))),
    }
    chosen = {key: value for key, value in values.items() if getattr(settings, key) is None}
    # In steps, as the budget: should the number of steps be corrected, what has happened already must stay as it was.
    warmup = float(round(plan.warmup if plan.warmup >= 1 else plan.warmup * steps))
    return plan.model_copy(update={**chosen, "budget": f"{steps} steps", "warmup": warmup})


def _length(model: ModelSection, materials: Materials, wanted: int) -> int:
    """As wanted, if the model reads that much and the text is long enough, held-out parts included."""
    limits = [wanted, min(map(len, materials.data.splits["train"])) // 8]
    limits += [len(shards) - 1 for split in ("validation", "test") for shards in materials.data.splits[split]]
    if isinstance(model.positions, int):
        limits.append(model.positions)
    if model.path is not None or model.size is not None:
        limit = longest(_architecture(model, materials).embedding.positions)
        limits.append(wanted if limit is None else limit)
    return max(4, min(limits))


def _width(model: ModelSection, materials: Materials) -> int:
    return model.width if model.width is not None else _architecture(model, materials).width


def _architecture(model: ModelSection, materials: Materials) -> Any:
    if model.path is not None:
        from weft.interchange.folder import read_outline

        return read_outline(materials.base / model.path)[0].architecture
    return design_of(model, materials.tokenizer.vocabulary)


def design_of(model: ModelSection, vocabulary: int) -> Any:
    settings = {key: value for key, value in model.settings().items() if key not in ("head", "labels")}
    return design(**{"vocabulary": vocabulary, **settings})[1]


# ---- the rule -------------------------------------------------------------------------------------------------------


def expected_loss(weights: float, tokens: float, unique: float) -> float:
    """L(N, D) without its constant E; only comparisons matter."""
    repeats = max(tokens / unique - 1, 0.0)
    useful = min(tokens, unique) + unique * REPEATS * (1 - math.exp(-repeats / REPEATS))
    return A / weights**ALPHA + B / useful**BETA


def batch_for(flops: float, length: int) -> int:
    """Tokens in a step for a run of so much arithmetic, in whole sequences: half of what Bi et al. 2024 (DeepSeek LLM,
    section 3.1) found for AdamW.
    """
    return max(8, round(0.146 * flops**0.3271 / length)) * length


def length_for(flops: float) -> int:
    """Tokens in a sequence: a short run has no time to learn what far tokens are good for."""
    wanted = LENGTH * (flops / LENGTH_FLOPS) ** (1 / 3)
    return 2 ** min(max(round(math.log2(wanted)), 6), 10)


def ladder(model: ModelSection) -> list[ModelSection]:
    """The sizes to choose from, rising; one, if the recipe says which."""
    if model.path is not None or any(getattr(model, knob) is not None for knob in SIZE_KNOBS):
        return [model]
    return [ModelSection(**{**model.settings(), **_shape(model.family or "", width)}) for width in WIDTHS]


def _shape(family: str, width: int) -> dict[str, Any]:
    layers = max(3, round(width / 48))
    heads = width // (64 if width % 64 == 0 and width >= 256 else 32)
    if family == "lstm":
        return {"layers": 2, "width": width}
    if family in ("t5", "transformer"):  # as many on each side
        own = {"head_width": width // heads} if family == "t5" else {}  # T5's heads are 64 wide at any width
        return {"layers": max(2, layers // 2), "width": width, "heads": heads, **own}
    return {"layers": layers, "width": width, "heads": heads}


def best_size(sizes: list[ModelSection], vocabulary: int, tokens: float) -> ModelSection:
    """Where the tokens are given and not the time: the size for which they are Hoffmann's twenty per weight."""
    weights = [stack_weights(outline(design_of(size, vocabulary))) for size in sizes] if len(sizes) > 1 else [1]
    return min(zip(weights, sizes, strict=True), key=lambda pair: abs(math.log(pair[0] * TOKENS_PER_WEIGHT / tokens)))[
        1
    ]


def choose_size(
    sizes: list[ModelSection],
    vocabulary: int,
    deadline: float,
    batch_tokens: int,
    unique: float,
    measure: Callable[[ModelSection], Cost],
    peak: float,
) -> tuple[ModelSection, Cost]:
    """The size with the lowest expected loss, and what it costs: a guess is measured, and corrects the next guess."""
    if len(sizes) == 1:
        return sizes[0], measure(sizes[0])
    weights = [stack_weights(outline(design_of(size, vocabulary))) for size in sizes]
    costs: dict[int, Cost] = {}

    def step_seconds(index: int) -> float:
        if not costs:
            return 6 * weights[index] * batch_tokens / (0.5 * peak)
        near = min(costs, key=lambda known: abs(known - index))
        return costs[near].step * (weights[index] / weights[near]) ** 0.9  # larger products run a little faster

    while True:
        seconds = deadline - time.monotonic()
        losses = [
            expected_loss(weights[index], max(seconds / step_seconds(index), 1) * batch_tokens, unique)
            for index in range(len(sizes))
        ]
        best = losses.index(min(losses))
        if best in costs:
            return sizes[best], costs[best]
        costs[best] = measure(sizes[best])
