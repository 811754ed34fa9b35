"""A baseline for language models on the validation text.

For a causal model it is an n-gram model of the same tokens, for a masked model the most frequent token. At most as many
tokens are counted as the model has read, so that the baseline takes about a hundredth of the training time.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.metrics.ngram import NGram
from weft.tokens.shards import TokenShards
from weft.train.validation import figures_of

_FEWEST_COUNTED, _MOST_COUNTED, _MOST_SCORED = (
    500_000,
    8_000_000,
    100_000,
)  # tokens: to count, if there are as many; to judge by
_LARGE_VOCABULARY, _CHARACTER_ORDER, _SUBWORD_ORDER = (
    1000,
    6,
    3,
)  # n of the n-gram: less where the vocabulary is of pieces of words


def ngram_baseline(
    train: Sequence[TokenShards], validation: Sequence[TokenShards], head: str, special: frozenset[int], read: int
) -> dict[str, Any]:
    """The baseline's name and its figures, named like the model's. Empty if there is no baseline for this head.
    `special` tokens are never masked; `read` is the number of tokens that the model has read.
    """
    if head == "seq2seq" or not validation:
        return {}
    known, asked = _some(train, min(max(read, _FEWEST_COUNTED), _MOST_COUNTED)), _some(validation, _MOST_SCORED)
    if head == "masked":
        known, asked = (tokens[~np.isin(tokens, list(special))] for tokens in (known, asked))
        if min(len(known), len(asked)) == 0:
            return {}
        commonest = np.bincount(known).argmax()
        return {"name": "commonest token", "validation_masked_accuracy": float(np.mean(asked == commonest))}
    vocabulary = int(max(known.max(), asked.max())) + 1
    order = _SUBWORD_ORDER if vocabulary > _LARGE_VOCABULARY else _CHARACTER_ORDER
    if min(len(known), len(asked)) < order:
        return {}
    loss = NGram(known, vocabulary, order).loss(asked)
    figures = figures_of(validation, head)({f"validation_{head}_loss": loss})
    return {"name": f"{order}-gram", "tokens": len(known), **figures}


def _some(sources: Sequence[TokenShards], most: int) -> np.ndarray:
    """The first tokens of each source, the same share of each."""
    share = min(1.0, most / max(sum(map(len, sources)), 1))
    return np.concatenate([np.asarray(shards[: max(1, int(len(shards) * share))], np.int64) for shards in sources])
