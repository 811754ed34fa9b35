"""Held-out text as batches, and what a loss on it means.

Validation batches are the same all through a run: the same samples, spread evenly, with the same masks.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from weft.objectives.causal import Causal
from weft.objectives.objective import Batch, Objective
from weft.tokens.shards import TokenShards

_BATCH_TOKENS = 4096
_MASK_SEED = 0  # of the masks; the run's own must not change what it is measured by


def some_batches(objectives: Sequence[Objective], most_tokens: int, length: int) -> list[Batch]:
    """About `most_tokens` tokens in all, evenly from everywhere."""
    total = sum(map(len, objectives))
    share = min(1.0, most_tokens / length / max(total, 1))
    batches: list[Batch] = []
    for objective in objectives:
        count = max(1, round(len(objective) * share))
        samples = np.unique(np.linspace(0, len(objective) - 1, count).round().astype(int))
        batches += _batches(objective, samples.tolist(), length)
    return batches


def all_batches(objectives: Sequence[Objective], length: int) -> Iterator[Batch]:
    """Everything, once. A causal model reads on from sample to sample."""
    for objective in map(_reading_on, objectives):
        yield from _batches(objective, list(range(len(objective))), length)


def tokens_read(objectives: Sequence[Objective], length: int) -> int:
    """By a model that goes through `all_batches`; some tokens twice."""
    return sum(len(objective) * length for objective in map(_reading_on, objectives))


def _reading_on(objective: Objective) -> Objective:
    return objective.reading_on() if isinstance(objective, Causal) else objective


def _batches(objective: Objective, samples: list[int], length: int) -> Iterator[Batch]:
    size = max(1, _BATCH_TOKENS // length)
    for start in range(0, len(samples), size):
        part = samples[start : start + size]
        yield objective.batch(part, [0] * len(part), _MASK_SEED)


def figures_of(shards: Sequence[TokenShards], head: str) -> Callable[[dict[str, float]], dict[str, float]]:
    """What the loss of the head that guesses tokens is in other words.

    perplexity = e^loss; for a causal model also bits per character and per byte, which do not depend on the tokenizer:
    loss / ln 2 × tokens / characters (the end of each document counts as a token to be guessed, too).
    """
    tokens = sum(map(len, shards))
    characters, size = sum(part.characters for part in shards), sum(part.bytes for part in shards)

    def figures(facts: dict[str, float]) -> dict[str, float]:
        loss = facts[f"validation_{head}_loss"]
        found = {"perplexity": math.exp(min(loss, 700.0))}
        if head == "causal":
            bits = loss / math.log(2) * tokens
            found |= {"bits_per_character": bits / characters, "bits_per_byte": bits / size}
        return found

    return figures
