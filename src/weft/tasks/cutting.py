"""Cut raw text into words like those of the training data (word tokenization).

White space always cuts. Within a chunk between two spaces, a base cutter decides: `spaces` never cuts; `treebank` cuts
as the Penn Treebank (do|n't, U.S., Mr., well-known); `unicode` cuts between words, numbers and punctuation (U|.|S|.);
`characters` cuts everywhere. Rules learned from the data override the base. A rule is a context and a decision:
"between a letter and a hyphen: cut". Contexts range from general (the kind of character on either side) to specific
(the whole chunk). A rule is kept if it corrects at least two positions of the training data that more general rules get
wrong, and is right in four of five places where it applies. The most specific rule decides. A few hundred rules are
enough; they are saved in the model's weft.json.

The base cutter, and whether rules help, is chosen on held-out training sentences.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import regex

from weft.words import CHARACTER

CharSpan = tuple[int, int]  # first character, end (exclusive)
_FEWEST_CORRECTED = 2  # positions of the training data that a rule must correct
_PURITY = 0.8  # share of the places where a rule applies in which it must be right
_MOST_HELD_OUT, _MOST_TO_LEARN = 2_000, 20_000  # sentences
_FEWEST = 20  # sentences; with fewer, none is held out
_HELD_OUT_EVERY = 10  # every tenth sentence is held out
_LONGEST_CONTEXT = 24  # characters; keeps the work linear in the length of a text

_LETTER = rf"(?:(?!{CHARACTER})[\p{{L}}\p{{N}}_]\p{{M}}*)"
_NUMBER = rf"\p{{Nd}}+(?:[.,:]\p{{Nd}}+)*(?!{_LETTER})"
_WHOLE = (  # URLs, e-mail addresses, @mentions, #tags
    r"(?:https?://|ftp://|www\.)[^\s<>\"]*[^\s<>\"'.,;:!?)\]}]|[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+"
    rf"|[@#]{_LETTER}+"
)
_SIGNS = r"([^\p{L}\p{N}\s])\1*"  # repeated signs such as ... or -- are one word
_TITLES = "Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Inc|Ltd|Co|Corp|vs|etc|Gen|Gov|Sen|Rep|Lt|Col|Sgt|Jan|Feb|Aug|Sept?|Oct|Nov|Dec"
_NOT, _CLITIC = r"n['’]t\b", r"['’](?:s|m|d|ll|re|ve)\b"
_PATTERNS = {
    "unicode": rf"{_WHOLE}|{CHARACTER}|{_NUMBER}|{_LETTER}+|{_SIGNS}",
    "treebank": rf"(?i){_WHOLE}|{CHARACTER}|(?:\p{{L}}\.){{2,}}|\b(?:{_TITLES})\.|{_CLITIC}|{_NOT}|{_NUMBER}"
    rf"|(?:(?!{_NOT}){_LETTER}(?:-(?=[\p{{L}}\p{{N}}]))?)+|{_SIGNS}",
    "characters": r"\S",
}
OLD = "classes"  # the cutter of models that do not name one; uses Python's `re`
_OLD_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963"
    "\u0971-\u0dff\u0e31-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ebc\u0ec8-\u0ecd\u0f71-\u0f84\u102b-\u103e\u17b4-\u17d3"
    "\u1ab0-\u1aff\u200c\u200d\u20d0-\u20f0"
)
_CHINESE = r"\u3400-\u9fff\uf900-\ufaff"
_BASES: dict[str, Any] = {
    **{name: regex.compile(pattern) for name, pattern in _PATTERNS.items()},
    OLD: re.compile(rf"[{_CHINESE}]|(?:[^\W{_CHINESE}]+[{_OLD_MARKS}]*)+|[^\w\s]"),
}
CHOICE = ("treebank", "unicode", "spaces", "characters")  # ties go to the first: without evidence, U.S. is one word
_LEARNING = ("unicode", "treebank")  # bases for rules; rules on the others did not generalize
_RUN = regex.compile(r"[\p{L}\p{M}]+|\p{N}+|.", regex.DOTALL)
_CHUNK = regex.compile(r"\S+")
_ALONE = regex.compile(CHARACTER)


class Chunk(NamedTuple):
    text: str
    after: str  # what follows: a line break at the end of the text, or a space and the kind of the next character


@dataclass(frozen=True)
class Cutter:
    name: str = "unicode"
    rules: Mapping[str, bool] = field(default_factory=dict, hash=False)
    rebuilt: float | None = None  # share of held-out sentences that are cut exactly as in the data
    word_f1: float | None = None  # F1 of the words of held-out sentences

    def __post_init__(self) -> None:
        if self.name != "spaces" and self.name not in _BASES:
            raise TypeError(f"there is no cutter {self.name!r}")

    def places(self, text: str) -> list[CharSpan]:
        found = []
        for start, chunk in chunks(text):
            ends = [0, *sorted(self.cuts(chunk)), len(chunk.text)]
            found += [(start + first, start + end) for first, end in pairwise(ends)]
        return found

    def words(self, text: str) -> tuple[str, ...]:
        return tuple(text[start:end] for start, end in self.places(text))

    def cuts(self, chunk: Chunk) -> set[int]:
        found = set(base_cuts(self.name, chunk.text))
        for place, contexts in enumerate(contexts_of(chunk) if self.rules else (), 1):
            known = [self.rules[context] for context in contexts if context in self.rules]
            if known:
                (found.add if known[-1] else found.discard)(place)
        return found

    def in_words(self) -> str:
        """In words: "unicode and 345 learned rules"."""
        return f"{self.name} and {len(self.rules):,} learned rules" if self.rules else self.name

    def settings(self) -> dict[str, Any]:
        return {"name": self.name, "rules": dict(self.rules), "rebuilt": self.rebuilt, "word_f1": self.word_f1}

    @classmethod
    def of(cls, settings: Any) -> Self:
        """From the settings in a model folder. Raises TypeError if they are malformed."""
        if not isinstance(settings, Mapping) or not isinstance(settings.get("rules", {}), Mapping):
            raise TypeError("not a cutter")
        return cls(**{**settings, "rules": {str(key): bool(cut) for key, cut in settings.get("rules", {}).items()}})


@lru_cache(maxsize=2**16)
def base_cuts(name: str, chunk: str) -> frozenset[int]:
    if name == "spaces":
        return frozenset()
    edges = {edge for match in _BASES[name].finditer(chunk) for edge in match.span()}
    return frozenset(edges - {0, len(chunk)})


def chunks(text: str) -> Iterator[tuple[int, Chunk]]:
    """Each chunk with its first character."""
    found = [match.span() for match in _CHUNK.finditer(text)]
    follows = [f" {_kind(text[start])}" for start, _ in found[1:]] + ["\n"]
    for (start, end), after in zip(found, follows, strict=False):
        yield start, Chunk(text[start:end], after)


@lru_cache(maxsize=2**16)
def _kind(character: str) -> str:
    """a, A, 0 for letters and digits, 字 for characters that are words; punctuation stands for itself."""
    if _ALONE.match(character):
        return "字"
    if character.isupper():
        return "A"
    if character.isdigit():
        return "0"
    return "a" if character.isalpha() or regex.match(r"\p{M}", character) else character


def contexts_of(chunk: Chunk) -> Iterator[tuple[str, ...]]:
    """The contexts of every position between two characters, from general to specific.

    The first letter of a context is its level, | marks the position. Case only counts in kinds.
    """
    text, size = chunk.text.lower(), len(chunk.text)
    text = text if len(text) == size else chunk.text  # İ becomes two characters in lower case
    kinds = "   " + "".join(map(_kind, chunk.text)) + chunk.after + "  "
    padded = "   " + text + chunk.after + "  "
    runs = [match.span() for match in _RUN.finditer(text)]
    of = [run for run in runs for _ in range(run[1] - run[0])]
    for i in range(1, size):
        j = i + 3
        left, right = text[max(of[i - 1][0], i - _LONGEST_CONTEXT) : i], text[i : min(of[i][1], i + _LONGEST_CONTEXT)]
        found = [
            f"a{kinds[j - 1]}|{kinds[j]}",
            f"b{kinds[j - 2 : j]}|{kinds[j : j + 2]}",
            f"c{kinds[j - 3 : j]}|{kinds[j : j + 3]}",
            f"d{padded[j - 1]}|{padded[j : j + 2]}",
            f"e|{padded[j : j + 3]}",
        ]
        if size - i <= 5:
            found.append(f"f|{text[i:]}{chunk.after if size - i <= 2 else ''}")
        if i <= 5:
            found.append(f"g{text[:i]}|{kinds[j]}")
        found += [
            f"h{left}|{kinds[j : j + 2]}",
            f"i{kinds[j - 1]}|{right}{padded[j + len(right)]}",
            f"j{left}|{right}",
        ]
        if size <= _LONGEST_CONTEXT:
            found.append(f"k{text[:i]}|{text[i:]}")
        yield tuple(found)


_LEVELS = "abcdefghijk"


@dataclass(frozen=True)
class Cut:
    """A text, and the characters of its words."""

    text: str
    places: tuple[CharSpan, ...]

    def chunks(self) -> Iterator[tuple[Chunk, frozenset[int]]]:
        edges = {edge for place in self.places for edge in place}
        for start, chunk in chunks(self.text):
            yield chunk, frozenset(i for i in range(1, len(chunk.text)) if start + i in edges)


class CutPositions:
    """Every position within the chunks of some texts: its contexts, whether to cut there, and how often it occurs."""

    def __init__(self, cut: Sequence[Cut]) -> None:
        numbers: dict[str, int] = {"": 0}  # of contexts; 0: no context of this level
        rows, counts, right, self.chunks = [], [], [], list[Chunk]()
        for (chunk, edges), count in Counter(one for each in cut for one in each.chunks()).items():
            self.chunks.append(chunk)
            for place, contexts in enumerate(contexts_of(chunk), 1):
                by_level = {context[0]: numbers.setdefault(context, len(numbers)) for context in contexts}
                rows.append([by_level.get(level, 0) for level in _LEVELS])
                counts.append(count)
                right.append(place in edges)
        self.names = list(numbers)
        self.contexts = np.asarray(rows, np.int32).reshape(-1, len(_LEVELS))
        self.counts, self.right = np.asarray(counts, np.float64), np.asarray(right, bool)

    def rules(self, name: str) -> dict[str, bool]:
        """Level by level: rules correct what the base and the earlier levels get wrong."""
        base = [i in base_cuts(name, one.text) for one in self.chunks for i in range(1, len(one.text))]
        decided = np.asarray(base, bool)
        found: dict[str, bool] = {}
        for column in self.contexts.T:
            weights = (self.counts, self.counts * self.right, self.counts * (decided != self.right))
            total, cuts, wrong = (np.bincount(column, weight, len(self.names)) for weight in weights)
            left = np.minimum(cuts, total - cuts)
            is_rule = (wrong - left >= _FEWEST_CORRECTED) & (left <= (1 - _PURITY) * total)
            is_rule[0] = False
            decided = np.where(is_rule[column], (2 * cuts > total)[column], decided)
            found |= {self.names[i]: bool(2 * cuts[i] > total[i]) for i in np.flatnonzero(is_rule)}
        return found


def measure(cutter: Cutter, cut: Sequence[Cut]) -> tuple[float, float]:
    """The share of texts that are cut exactly as in the data, and F1 of words."""
    exact = both = of_all = 0
    for one in cut:
        found = cutter.places(one.text)
        exact += found == list(one.places)
        both += len(set(found) & set(one.places))
        of_all += len(found) + len(one.places)
    return exact / max(len(cut), 1), 2 * both / max(of_all, 1)


def choose_cutter(cut: Sequence[Cut]) -> Cutter:
    """The cutter with the best F1 of words on held-out training sentences."""
    if not cut:
        return Cutter(CHOICE[0])
    if len(cut) < _FEWEST:
        return _best([Cutter(name) for name in CHOICE], cut)
    held_out = cut[::_HELD_OUT_EVERY][:_MOST_HELD_OUT]
    best = _best([Cutter(name) for name in CHOICE], held_out)
    if best.rebuilt == 1:
        return best
    positions = CutPositions([one for number, one in enumerate(cut) if number % _HELD_OUT_EVERY][:_MOST_TO_LEARN])
    return _best([best, *(Cutter(name, positions.rules(name)) for name in _LEARNING)], held_out)


def _best(cutters: Sequence[Cutter], cut: Sequence[Cut]) -> Cutter:
    found = [Cutter(one.name, one.rules, *(round(share, 4) for share in measure(one, cut))) for one in cutters]
    return max(found, key=lambda one: one.word_f1 or 0)


def with_cutter(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Saved settings of a task, with the cutter. Models of earlier versions have `at_spaces` or nothing."""
    found = dict(settings)
    at_spaces = found.pop("at_spaces", False)
    known = found.get("cutter", {"name": "spaces" if at_spaces else OLD})
    return {**found, "cutter": Cutter.of(known)}
