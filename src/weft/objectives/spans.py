"""Span corruption (Raffel et al. 2020, section 3.1.4): cut random spans out of a text and predict them.

    text     Thank you for inviting me to your party last week
    source   Thank you <0> me to your party <1> week
    target   <0> for inviting <1> last <2>

15 % of the tokens are cut out, in spans of three on average. One sentinel replaces each span. The target has each
sentinel followed by its span, and ends with the next, unused sentinel.
"""

from collections.abc import Sequence

import numpy as np


def corrupt_spans(
    ids: np.ndarray,
    sentinels: Sequence[int],
    rng: np.random.Generator,
    *,
    share: float = 0.15,
    mean_length: float = 3.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns source and target."""
    noise = _noise(len(ids), share, mean_length, rng, most_spans=len(sentinels) - 1)
    starts = noise & ~np.concatenate([[False], noise[:-1]])
    return _with_sentinels(ids, noise, starts, sentinels), _target(ids, noise, starts, sentinels)


def restore_spans(source: np.ndarray, target: np.ndarray, sentinels: Sequence[int]) -> np.ndarray:
    """The original text: each sentinel of the source is replaced by its span in the target."""
    order = {token: number for number, token in enumerate(sentinels)}
    spans: list[list[int]] = []
    for token in target.tolist():
        if token in order:
            spans.append([])
        else:
            spans[-1].append(token)
    whole: list[int] = []
    for token in source.tolist():
        whole += spans[order[token]] if token in order else [token]
    return np.asarray(whole, dtype=source.dtype)


def _noise(length: int, share: float, mean_length: float, rng: np.random.Generator, most_spans: int) -> np.ndarray:
    """(length,) true where a span is cut out. Spans never touch. Unlike in T5, the text need not end with a span, so
    that all tokens but those at the edges are cut equally often.
    """
    if length < 2:
        return np.zeros(length, bool)
    cut = min(max(round(length * share), 1), length - 1)
    spans = min(max(round(cut / mean_length), 1), cut, length - cut, most_spans)
    kept = _parts(length - cut + 2, spans + 1, rng)
    kept[[0, -1]] -= 1  # there may be nothing before the first span and after the last
    pieces = np.zeros(2 * spans + 1, np.int64)
    pieces[0::2], pieces[1::2] = kept, _parts(cut, spans, rng)
    return np.repeat(np.arange(len(pieces)) % 2 == 1, pieces)


def _parts(total: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """`total` as a sum of `count` positive integers, drawn uniformly from all such sums."""
    cuts = np.sort(rng.permutation(total - 1)[: count - 1]) + 1
    return np.diff(cuts, prepend=0, append=total)


def _with_sentinels(ids: np.ndarray, noise: np.ndarray, starts: np.ndarray, sentinels: Sequence[int]) -> np.ndarray:
    marked = ids.copy()
    marked[starts] = np.asarray(sentinels, ids.dtype)[: starts.sum()]
    return marked[~noise | starts]


def _target(ids: np.ndarray, noise: np.ndarray, starts: np.ndarray, sentinels: Sequence[int]) -> np.ndarray:
    parts: list[np.ndarray] = []
    used = int(starts.sum())
    for number, span in enumerate(np.split(ids[noise], np.flatnonzero(starts[noise])[1:])[:used]):
        parts += [np.asarray(sentinels[number : number + 1]), span]
    return np.concatenate([*parts, np.asarray(sentinels[used : used + 1])]).astype(ids.dtype)
