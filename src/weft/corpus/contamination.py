"""Documents that hold a part of a test set: who has read the answers needs no understanding.

A text is contaminated if it shares a row of 13 words with a text of the test sets (Brown et al. 2020, appendix C);
where words are not written apart, of 26 characters. A test text that is shorter than such a row cannot be looked for.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from weft.corpus.clean import Cleaning, clean
from weft.corpus.ngrams import NGrams, Numbers
from weft.words import folded, words_of


def rows_to_look_for(texts: Iterable[str], length: int) -> tuple[Numbers, int, int]:
    """A sorted number for each row of the test texts; how many texts there were, and how many were too short."""
    found: list[Numbers] = []
    count = short = 0
    for text in texts:
        rows = _rows(clean(text, Cleaning()).text, length)  # as the documents are
        found.append(np.unique(rows))
        count += 1
        short += len(rows) == 0
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.uint64), count, short


def is_contaminated(text: str, wanted: Numbers, length: int) -> bool:
    rows = _rows(text, length)
    if len(rows) == 0 or len(wanted) == 0:
        return False
    places = np.minimum(np.searchsorted(wanted, rows), len(wanted) - 1)
    return bool((wanted[places] == rows).any())


def _rows(text: str, length: int) -> Numbers:
    grams = NGrams.of(words_of(folded(text)))
    return grams.numbers(*grams.spans((length, 2 * length, 4 * length)))


def load_rows(file: Path) -> Numbers:
    """Not read into memory: every worker looks at the same pages of the file."""
    return np.load(file, mmap_mode="r", allow_pickle=False)
