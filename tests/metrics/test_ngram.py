"""The vectorised n-gram against the formula written out with dictionaries."""

import math
from collections import Counter, defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from weft.metrics.ngram import NGram


def by_hand(train, text, vocabulary, order):
    counts, followers = Counter(), defaultdict(set)
    for length in range(order):
        for end in range(length, len(train)):
            counts[tuple(train[end - length : end]), train[end]] += 1
            followers[tuple(train[end - length : end])].add(train[end])

    def chance(context, token):
        shorter = chance(context[1:], token) if context else 1 / vocabulary
        kinds = len(followers[context])
        total = sum(counts[context, other] for other in followers[context])
        return (counts[context, token] + kinds * shorter) / (total + kinds) if total else shorter

    losses = [-math.log(chance(tuple(text[i - order + 1 : i]), text[i])) for i in range(order - 1, len(text))]
    return sum(losses) / len(losses)


@given(
    st.lists(st.integers(0, 4), min_size=6, max_size=60),
    st.lists(st.integers(0, 4), min_size=6, max_size=40),
    st.integers(1, 4),
)
def test_it_is_the_formula(train, text, order):
    found = NGram(np.array(train), 5, order).loss(np.array(text))
    assert math.isclose(found, by_hand(train, text, 5, order), rel_tol=1e-9)


def test_more_context_helps_on_text():
    text = np.frombuffer(("the cat sat on the mat and the dog sat on the log. " * 40).encode(), np.uint8)
    losses = [NGram(text[:1500], 128, order).loss(text[1500:]) for order in (1, 2, 3, 5)]
    assert losses == sorted(losses, reverse=True)
