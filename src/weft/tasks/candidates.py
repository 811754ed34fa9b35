"""Metrics of replies from the model's probabilities, not from the texts it writes.

Many replies to a prompt are good, so overlap with the gold reply says little: one long constant sentence had the best
chrF. Two metrics do not depend on the wording. Bits per byte measure the probability of the gold reply. hits@1 is the
share of prompts for which the gold reply is more probable than up to 19 replies of other rows, drawn with a fixed seed.
Candidates are ranked by log-probability per token, so that short ones are not preferred; ties share the hit.
"""

from collections.abc import Sequence

import numpy as np

from weft.metrics.classes import ratio
from weft.tasks.example import Example

REPLY_CANDIDATES = 20  # of each prompt, the gold reply included
MOST_RANKED = 200  # prompts
_SEED = 0


def with_candidates(examples: Sequence[Example]) -> list[tuple[Example, list[str]]]:
    """Evenly spaced examples with their candidates; the gold reply is the first."""
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
    """1 for each row whose first score is the highest, less if others tie with it, else 0."""
    return np.asarray([float(row[0] == row.max()) / (row == row.max()).sum() for row in scores])


def bits_per_byte(counts: np.ndarray) -> dict[str, np.ndarray]:
    """From sums of nats and bytes, of shape (…, 2)."""
    return {"bits_per_byte": ratio(counts[..., 0], counts[..., 1]) / np.log(2)}


def bytes_of(examples: Sequence[Example]) -> np.ndarray:
    return np.asarray([len(example.gold.encode()) for example in examples])
