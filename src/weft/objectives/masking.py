"""Which tokens are masked, and what replaces them (Devlin et al. 2019, section 3.1).

Masked are single tokens, whole words, or spans (Joshi et al. 2020), never special tokens. The cover schedule has k
disjoint masks of a sequence for k successive epochs, which together mask every token exactly once.
Of the masked tokens 80 % become the mask token and 10 % a random token. 10 % stay, so that the model cannot trust any.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

SPAN_CHANCE, LONGEST_SPAN = 0.2, 10  # SpanBERT: p of the geometric distribution of lengths, and its cut-off


@dataclass(frozen=True)
class MaskSpec:
    share: float = 0.15
    unit: Literal["token", "word", "span", "cover"] = "token"
    hidden: float = 0.8  # share of the masked that become the mask token
    random: float = 0.1  # share that become a random token; the rest stay


DEFAULT_MASKING = MaskSpec()


@dataclass(frozen=True)
class Vocabulary:
    """What masking needs to know of a tokenizer."""

    size: int
    mask: int
    special: frozenset[int]
    continues: np.ndarray | None = None  # (size,) true for pieces that continue a word


def mask_tokens(
    ids: np.ndarray, spec: MaskSpec, vocabulary: Vocabulary, rng: np.random.Generator, *, epoch: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Returns what the model reads, and the masked positions in rising order.

    With the cover schedule, `rng` must have the same seed in `1 / share` successive epochs (see `cover_round`).
    """
    free = np.flatnonzero(~np.isin(ids, list(vocabulary.special)))
    places = np.sort(_choose(ids, free, spec, vocabulary, rng, epoch))
    return _replace(ids, places, spec, vocabulary, rng), places


def cover_round(spec: MaskSpec, epoch: int) -> int:
    """A number that epochs with the same partition share. Seed the generator with it instead of the epoch."""
    return epoch // _parts(spec)


def _parts(spec: MaskSpec) -> int:
    return max(1, round(1 / spec.share))


def _choose(
    ids: np.ndarray, free: np.ndarray, spec: MaskSpec, vocabulary: Vocabulary, rng: np.random.Generator, epoch: int
) -> np.ndarray:
    if len(free) == 0:
        return free
    if spec.unit == "cover":
        return np.array_split(rng.permutation(free), _parts(spec))[epoch % _parts(spec)]
    wanted = _round_fairly(len(free) * spec.share, rng)
    match spec.unit:
        case "token":
            return rng.permutation(free)[:wanted]
        case "word":
            return _take_groups(_words(ids, free, vocabulary), wanted, rng)
        case "span":
            return _take_spans(_words(ids, free, vocabulary), wanted, rng)
    raise AssertionError(spec.unit)


def _round_fairly(number: float, rng: np.random.Generator) -> int:
    """Rounded up or down at random, so that the mean is exact for short sequences too; at least 1."""
    return max(1, int(number + rng.random()))


def _words(ids: np.ndarray, free: np.ndarray, vocabulary: Vocabulary) -> list[np.ndarray]:
    """The maskable positions, grouped into words: a piece that continues a word joins its left neighbour."""
    if vocabulary.continues is None:
        return np.split(free, len(free))
    starts = ~vocabulary.continues[ids[free]]
    starts |= np.diff(free, prepend=-2) != 1  # a special token ends a word
    return np.split(free, np.flatnonzero(starts)[1:])


def _take_groups(groups: list[np.ndarray], wanted: int, rng: np.random.Generator) -> np.ndarray:
    """Groups in random order, each if it still fits; the first in any case."""
    taken: list[np.ndarray] = []
    for index in rng.permutation(len(groups)):
        room = wanted - sum(map(len, taken))
        if room <= 0:
            break
        if not taken or len(groups[index]) <= room:
            taken.append(groups[index])
    return np.concatenate(taken)


def _take_spans(words: list[np.ndarray], wanted: int, rng: np.random.Generator) -> np.ndarray:
    """Spans of words with lengths from a geometric distribution, until enough tokens are masked."""
    chosen: set[int] = set()
    for _ in range(10 * len(words)):
        if len(chosen) >= wanted:
            break
        length = min(int(rng.geometric(SPAN_CHANCE)), LONGEST_SPAN)
        start = int(rng.integers(len(words)))
        for word in words[start : start + length]:
            if chosen and len(chosen) + len(set(word.tolist()) - chosen) > wanted:
                break
            chosen |= set(word.tolist())
    return np.fromiter(chosen, np.int64)


def _replace(
    ids: np.ndarray, places: np.ndarray, spec: MaskSpec, vocabulary: Vocabulary, rng: np.random.Generator
) -> np.ndarray:
    ids = ids.copy()
    dice = rng.random(len(places))
    ids[places[dice < spec.hidden]] = vocabulary.mask
    swapped = places[(dice >= spec.hidden) & (dice < spec.hidden + spec.random)]
    ids[swapped] = rng.integers(vocabulary.size, size=len(swapped))
    return ids
