"""From pages to tokens: what stays, what is a copy, who gets which document, in which order, in which pieces."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from math import floor

Letters = tuple[str, ...]


def digit_share(text: str) -> float:
    return sum(character.isdecimal() for character in text) / len(text)


def mean_word_length(words: Sequence[str]) -> float:
    return sum(len(word) for word in words) / len(words)


def repeated_line_shares(lines: Sequence[str], characters: int) -> tuple[float, float]:
    again = [line for place, line in enumerate(lines) if line in lines[:place]]
    return len(again) / len(lines), sum(len(line) for line in again) / characters


def jaccard(A: set[Hashable], B: set[Hashable]) -> float:
    return len(A & B) / len(A | B)


def minimum_hash(A: set[int], a: int) -> int:
    return min(a * x % 2**64 for x in A) >> 32


def agreement(s: Sequence[int], t: Sequence[int]) -> float:
    return sum(s_k == t_k for s_k, t_k in zip(s, t, strict=True)) / len(s)


def agrees_in_a_band(equal: Sequence[bool], r: int) -> bool:
    return any(all(equal[k : k + r]) for k in range(0, len(equal), r))


def chance_of_a_band(J: float, r: int, b: int) -> float:
    return 1 - (1 - J**r) ** b


def side_of(u: float, a: float, b: float) -> str:
    return "validation" if u < a else "test" if u < a + b else "train"


def slots_of(w: Sequence[float], R: int) -> list[int]:
    """By largest remainder."""
    exact = [w_k / sum(w) * R for w_k in w]
    slots = [floor(x) for x in exact]
    for k in sorted(range(len(w)), key=lambda k: slots[k] - exact[k])[: R - sum(slots)]:
        slots[k] += 1
    return slots


def mixed_number(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def feistel(x: int, keys: Sequence[int], h: int) -> int:
    L, R = divmod(x, 2**h)
    for k in keys:
        L, R = R, L ^ mixed_number((R + k) % 2**64) % 2**h
    return L * 2**h + R


def shuffled_place(x: int, keys: Sequence[int], h: int, n: int) -> int:
    y = feistel(x, keys, h)
    return y if y < n else shuffled_place(y, keys, h, n)


def pair_counts(words: Mapping[Letters, int]) -> Counter[Letters]:
    counts: Counter[Letters] = Counter()
    for word, n in words.items():
        for pair in pairwise(word):
            counts[pair] += n
    return counts


def merged(word: Letters, pair: Letters) -> Letters:
    for place in range(len(word) - 1):
        if word[place : place + 2] == pair:
            return (*word[:place], "".join(pair), *merged(word[place + 2 :], pair))
    return word


def bytes_per_token(text: str, tokens: Sequence[str]) -> float:
    return len(text.encode()) / len(tokens)


def total_variation(p: Mapping[str, float], q: Mapping[str, float]) -> float:
    return sum(abs(p.get(x, 0) / sum(p.values()) - q.get(x, 0) / sum(q.values())) for x in {*p, *q}) / 2
