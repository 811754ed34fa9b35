"""What the guide knows about a formula, and about a chapter.

A `GuideEntry` ties five things together: the formula in LaTeX, the production lines that compute it, the same formula
as a few plain lines of Python (*as written*), a picture, and the rows of the checklist that it answers. Its property
test is the function `test_<id>` in tests/theory; the chapter's text is in docs/theory, once per language.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Vector = np.ndarray
Matrix = np.ndarray
Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
Drawing = Callable[[Language], str]  # an SVG file


@dataclass(frozen=True)
class SourceLines:
    """A function or class of weft, or some lines of it: `SourceLines("weft.train.engine:Engine.take_step")`.

    `first` and `last` are the beginnings of the first and the last statement to show, each unique in the function.
    Only `first`: that one statement. Neither: the whole function.
    """

    where: str
    first: str = ""
    last: str = ""


@dataclass(frozen=True)
class GuideEntry:
    """`equivalent`: wrong-looking changes of the production lines that compute the same, each with the reason; see
    scripts/theory_mutants.py, which prints the keys.
    """

    id: str
    formula: str
    production: tuple[SourceLines, ...]
    written: tuple[Callable[..., Any], ...]
    picture: str
    rows: tuple[int, ...] = ()
    equivalent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Chapter:
    slug: str
    entries: tuple[GuideEntry, ...]
    pictures: Mapping[str, Drawing]

    def entry(self, name: str) -> GuideEntry:
        found = next((entry for entry in self.entries if entry.id == name), None)
        if found is None:
            raise KeyError(f"chapter {self.slug} has no entry {name}; it has {', '.join(e.id for e in self.entries)}")
        return found
