"""Rules from the literature for the size of the model, the batch and the sequence.

A model of N weights that has seen D tokens reaches about the loss
    L(N, D) = E + A / N^α + B / D^β                                   (Hoffmann et al. 2022, eq. 2)
In a given time a small model sees many tokens, a large one few. From a ladder of sizes the one with the lowest L is
chosen; D is the number of tokens that this machine processes in the time, measured with real steps. Repeated tokens
count less, and so do weights beyond what the text can fill (Muennighoff et al. 2023). D is in Hoffmann's tokens; a
character is a part of one. docs/budget.md explains it.
"""

import math
from collections.abc import Callable
from typing import Any

from weft.model.families import design
from weft.model.flops import stack_weights
from weft.model.network import Architecture, outline
from weft.recipe.model import ModelSection
from weft.train.plan.trial import Cost
from weft.words import TOKEN_BYTES

A, ALPHA, B, BETA = 482.0, 0.348, 2085.0, 0.366  # Besiroglu et al. 2024, a new fit of Hoffmann's runs
TOKENS_PER_WEIGHT = 20  # Hoffmann et al. 2022, whose vocabulary has 32,000 tokens
REPEATS, EXCESS = 15.4, 5.3  # Muennighoff et al. 2023, R*_D and R*_N
WIDTHS = (64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024, 1280, 1536, 2048)
NEIGHBOUR_SECONDS = 60.0  # left, to also measure the neighbours; a trial takes up to 3 % of the time
_SIZE_SETTINGS = ("size", "layers", "width", "heads")
_USUAL_LENGTH, USUAL_FLOPS = 256, 1.2e15  # tokens of a sequence, in a run of so many FLOPs


def expected_loss(weights: float, tokens: float, unique: float) -> float:
    """L(N, D) without the constant E, for comparisons."""
    filled = _useful(weights, unique / TOKENS_PER_WEIGHT, EXCESS)
    return A / filled**ALPHA + B / _useful(tokens, unique, REPEATS) ** BETA


def _useful(amount: float, unique: float, fades: float) -> float:
    """Muennighoff's U + U · R · (1 − e^(−r / R)), for r repetitions of the unique amount U."""
    more = max(amount / unique - 1, 0.0)
    return min(amount, unique) + unique * fades * (1 - math.exp(-more / fades))


def batch_for(flops: float, length: int) -> int:
    """Tokens in a step for a run of so many FLOPs, in whole sequences: half of the value that Bi et al. 2024 (DeepSeek
    LLM, section 3.1) found for AdamW.
    """
    return max(8, round(0.146 * flops**0.3271 / length)) * length


def length_for(flops: float) -> int:
    """Tokens in a sequence. A short run has no time to learn long-range dependencies."""
    wanted = _USUAL_LENGTH * (flops / USUAL_FLOPS) ** (1 / 3)
    return 2 ** min(max(round(math.log2(wanted)), 6), 10)


def ladder(model: ModelSection) -> list[ModelSection]:
    """The sizes to choose from, rising. Only one if the recipe sets the size."""
    if model.path is not None or any(getattr(model, knob) is not None for knob in _SIZE_SETTINGS):
        return [model]
    return [ModelSection(**{**model.settings(), **_shape(model.family or "", width)}) for width in WIDTHS]


def _shape(family: str, width: int) -> dict[str, Any]:
    layers = max(3, round(width / 48))
    heads = width // (64 if width % 64 == 0 and width >= 256 else 32)
    if family == "lstm":
        return {"layers": 2, "width": width}
    if family in ("t5", "transformer"):  # layers per side
        own = {"head_width": width // heads} if family == "t5" else {}  # T5's default head width is 64 at any width
        return {"layers": max(2, layers // 2), "width": width, "heads": heads, **own}
    return {"layers": layers, "width": width, "heads": heads}


def best_size(sizes: list[ModelSection], vocabulary: int, tokens: float) -> ModelSection:
    """The size for a budget in tokens: the one with about twenty tokens per weight (Hoffmann)."""
    if len(sizes) == 1:
        return sizes[0]
    distances = [abs(math.log(weights_of(size, vocabulary) * TOKENS_PER_WEIGHT / tokens)) for size in sizes]
    return sizes[distances.index(min(distances))]


def choose_size(
    sizes: list[ModelSection],
    vocabulary: int,
    time_left: Callable[[], float],
    batch_tokens: int,
    unique: float,
    measure: Callable[[ModelSection], Cost],
    peak: float,
    worth: float = 1.0,
    fewest: int = 1,
) -> tuple[ModelSection, Cost]:
    """The size with the lowest expected loss, and its cost. The best guess is measured, which corrects the next guess.
    If there is time, its neighbours are measured too: the cost of small models is hard to predict from their size.

    `worth` is the value of one of our tokens in tokens of the law (see `worth_of`). Sizes without time for `fewest`
    steps are skipped if there is a smaller one.
    """
    if len(sizes) == 1:
        return sizes[0], measure(sizes[0])
    weights = [weights_of(size, vocabulary) for size in sizes]
    costs: dict[int, Cost] = {}

    def step_seconds(index: int) -> float:
        if not costs:
            return 6 * weights[index] * batch_tokens / (0.5 * peak)
        near = min(costs, key=lambda known: abs(known - index))
        return costs[near].step * (weights[index] / weights[near]) ** 0.9  # larger products are faster

    while True:
        seconds = time_left()
        losses = [
            expected_loss(weights[index], worth * max(seconds / step_seconds(index), 1) * batch_tokens, worth * unique)
            for index in range(len(sizes))
        ]
        in_time = [index for index in range(len(sizes)) if seconds / step_seconds(index) >= fewest] or [0]
        best = min(in_time, key=lambda index: losses[index])
        wanted = [best, best + 1, best - 1] if seconds > NEIGHBOUR_SECONDS else [best]
        unknown = [index for index in wanted if 0 <= index < len(sizes) and index not in costs]
        if not unknown:
            return sizes[best], costs[best]
        costs[unknown[0]] = measure(sizes[unknown[0]])


def worth_of(size: int, tokens: int) -> float:
    """The value of one of our tokens in tokens of the law, by bytes: `tokens` tokens hold `size` bytes of text."""
    return size / max(tokens, 1) / TOKEN_BYTES


def weights_of(size: ModelSection, vocabulary: int) -> int:
    """The number of weights that every token is multiplied with."""
    return stack_weights(outline(design_of(size, vocabulary)))


def design_of(model: ModelSection, vocabulary: int | None) -> Architecture:
    settings = {key: value for key, value in model.settings().items() if key not in ("head", "labels")}
    return design(**{**({} if vocabulary is None else {"vocabulary": vocabulary}), **settings})[1]
