"""Text infilling (Lewis et al. 2020, section 2.2): one mask token for each span, however long the span is.

    text     Thank you for inviting me to your party last week
    source   Thank you <mask> me to your <mask> party <mask> week

Lengths of spans are drawn from a Poisson distribution. A span of no tokens inserts a mask. Unlike in span corruption,
all masks are the same token and spans may touch: the decoder writes the whole text, so nothing has to tell them apart.
"""

import numpy as np


def infill_spans(
    ids: np.ndarray, mask: int, rng: np.random.Generator, *, share: float = 0.3, mean_length: float = 3.0
) -> np.ndarray:
    """The text with masks in the place of its spans, never longer than the text."""
    if len(ids) < 2:
        return ids.copy()
    hidden = min(max(round(len(ids) * share), 1), len(ids) - 1)
    lengths = _span_lengths(hidden, mean_length, rng)
    slots = len(ids) - hidden + len(lengths)  # each holds a token that is kept, or a span
    is_span = np.zeros(slots, bool)
    is_span[rng.permutation(slots)[: len(lengths)]] = True
    tokens_in = np.ones(slots, np.int64)
    tokens_in[is_span] = lengths
    source = np.full(slots, mask, ids.dtype)
    source[~is_span] = ids[np.repeat(~is_span, tokens_in)]
    return source


def _span_lengths(hidden: int, mean_length: float, rng: np.random.Generator) -> np.ndarray:
    """Lengths with the sum `hidden`: the last span is cut short. There are at most `hidden` spans, so that inserted
    masks cannot make a short text longer than the model reads.
    """
    ends = np.minimum(np.cumsum(rng.poisson(mean_length, hidden)), hidden)
    ends[-1] = hidden
    return np.diff(ends, prepend=0)[: np.searchsorted(ends, hidden) + 1]
