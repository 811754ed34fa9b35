"""Replies are judged by what the model finds likely, not by what it writes.

Many replies are right, so a likeness of letters says little: one long constant sentence had the best chrF. Two figures
do not depend on the wording: bits per byte of the reply that was given, and hits@1: of the right reply and up to 19
replies of other rows, drawn by a fixed seed, is the right one the likeliest? Candidates are ranked by log-probability
per token, so that short ones are not preferred. Those that are equally likely share the hit.
"""

from collections.abc import Sequence

import numpy as np

from weft.metrics.classes import ratio
from weft.tasks.example import Example

REPLY_CANDIDATES, MOST_RANKED, _SEED = 20, 200, 0


def with_candidates(examples: Sequence[Example]) -> list[tuple[Example, list[str]]]:
    """Examples to rank, evenly drawn, and the candidates of each, the right one first."""
    replies = list(dict.fromkeys(example.gold for example in examples))
    if len(replies) < 2:
        return []
    generator = np.random.default_rng(_SEED)
    picked = np.unique(np.linspace(0, len(examples) - 1, MOST_RANKED).astype(int))
    found = []
    for index in picked:
        example = examples[index]
        drawn = generator.choice(len(replies), min(REPLY_CANDIDATES, len(replies)), replace=False)
        others = [replies[i] for i in drawn if replies[i] != example.gold][: REPLY_CANDIDATES - 1]
        found.append((example, [example.gold, *others]))
    return found


def hits(scores: Sequence[np.ndarray]) -> np.ndarray:
    """Of each, whether the first is the best; a share of it, if others are as good."""
    return np.asarray([float(row[0] == row.max()) / (row == row.max()).sum() for row in scores])


def bits_per_byte(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Of shape (…), from sums of nats and bytes, of shape (…, 2)."""
    return {"bits_per_byte": ratio(counts[..., 0], counts[..., 1]) / np.log(2)}


def bytes_of(examples: Sequence[Example]) -> np.ndarray:
    return np.asarray([len(example.gold.encode()) for example in examples])
