"""Language models: the chain rule, the loss, its units, and n-grams."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from math import log

import numpy as np

Distribution = Callable[[Sequence[int]], np.ndarray]  # from the tokens before to the probability of every next token


def text_log_probability(p: Distribution, w: Sequence[int]) -> float:
    return sum(log(p(w[:i])[w[i]]) for i in range(1, len(w)))


def language_model_loss(p: Distribution, x: Sequence[int]) -> float:
    """x_1 … x_{n+1}: n inputs, and n targets shifted by one."""
    inputs, targets = x[:-1], x[1:]
    return -sum(log(p(inputs[: t + 1])[targets[t]]) for t in range(len(targets))) / len(targets)


def perplexity_of(L: float) -> float:
    return math.exp(L)


def bits_per_character(L: float, tokens: int, characters: int) -> float:
    return L / log(2) * tokens / characters


def witten_bell(text: Sequence[int], vocabulary: int, h: tuple[int, ...] | None, x: int) -> float:
    """p(x | h). `h` is None below the empty context, where every token is equally likely."""
    if h is None:
        return 1 / vocabulary
    n = len(h)
    followers = Counter(text[i + n] for i in range(len(text) - n) if tuple(text[i : i + n]) == h)
    shorter = witten_bell(text, vocabulary, h[1:] if h else None, x)
    if not followers:
        return shorter
    T = len(followers)
    return (followers[x] + T * shorter) / (followers.total() + T)
