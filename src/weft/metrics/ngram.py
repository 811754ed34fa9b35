"""The n-gram language model, the classical baseline of language modelling.

It predicts the next token from counts of the n − 1 tokens before it. The rarer a context, the more weight has the
shorter context (Witten & Bell 1991, interpolated as in Chen & Goodman 1999):

    p(x | h) = (count(h x) + T(h) · p(x | h')) / (count(h) + T(h)),    T(h): how many different tokens followed h

with h' = h without its first token, down to the uniform distribution. A context is encoded as a number in base V, so
counts are sorted arrays.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class _Counts:
    """A vectorized table from codes to counts."""

    codes: np.ndarray  # sorted
    counts: np.ndarray

    def of(self, codes: np.ndarray) -> np.ndarray:
        places = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        return np.where(self.codes[places] == codes, self.counts[places], 0)


class NGram:
    def __init__(self, tokens: np.ndarray, vocabulary: int, order: int = 6) -> None:
        if vocabulary**order >= 2**63:
            raise ValueError(f"a {order}-gram over {vocabulary} tokens does not fit into 64 bits")
        self.vocabulary, self.order = vocabulary, order
        self._seen: list[_Counts] = []  # by context length: counts of context + token
        self._contexts: list[tuple[_Counts, _Counts]] = []  # counts of the context, and of its different followers
        for length in range(order):
            codes, counts = np.unique(_codes(tokens, length + 1, vocabulary), return_counts=True)
            contexts, first, followers = np.unique(codes // vocabulary, return_index=True, return_counts=True)
            self._seen.append(_Counts(codes, counts))
            totals = np.add.reduceat(counts, first)
            self._contexts.append((_Counts(contexts, totals), _Counts(contexts, followers)))

    def loss(self, tokens: np.ndarray) -> float:
        """Mean −ln p per token, without the first `order` − 1 tokens, which lack a full context."""
        return float(self.losses(tokens).mean())

    def losses(self, tokens: np.ndarray) -> np.ndarray:
        """−ln p of each token, without the first `order` − 1."""
        start = self.order - 1
        chance = np.full(len(tokens) - start, 1 / self.vocabulary)
        for length in range(self.order):
            codes = _codes(tokens, length + 1, self.vocabulary)[start - length :]
            contexts = codes // self.vocabulary
            total, followers = (table.of(contexts) for table in self._contexts[length])
            seen = self._seen[length].of(codes)
            known = total > 0  # an unseen context keeps the shorter context's estimate
            chance[known] = ((seen + followers * chance) / np.maximum(total + followers, 1))[known]
        losses: np.ndarray = -np.log(chance)
        return losses


def _codes(tokens: np.ndarray, length: int, vocabulary: int) -> np.ndarray:
    """Each n-gram of `length` tokens as a number in base `vocabulary`; the last token is the last digit."""
    tokens = tokens.astype(np.int64)
    count = len(tokens) - length + 1
    codes = np.zeros(count, np.int64)
    for place in range(length):
        codes *= vocabulary
        codes += tokens[place : place + count]
    return codes
