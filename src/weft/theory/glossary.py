"""The terms of the guide in English and Chinese: docs/theory/glossary.tsv, a line per term."""

import csv
from typing import NamedTuple

from weft.theory.chapters import CHAPTER_TITLES, written_chapters
from weft.theory.entry import Language
from weft.theory.places import guide_folder


class Term(NamedTuple):
    en: str
    zh: str
    chapter: str
    meaning_en: str
    meaning_zh: str


def glossary() -> list[Term]:
    with (guide_folder() / "glossary.tsv").open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    return [Term(*row) for row in rows]


def glossary_table(language: Language) -> str:
    """Sorted by the English term in the English guide; by the Chinese one, in Unicode's order, in the Chinese guide."""
    here = set(written_chapters())
    lines = ["| English | 中文 | |", "|---|---|---|"] if language == "en" else ["| 中文 | English | |", "|---|---|---|"]
    for term in sorted(glossary(), key=lambda term: term.en.lower() if language == "en" else term.zh):
        terms = (term.en, term.zh) if language == "en" else (term.zh, term.en)
        meaning = term.meaning_en if language == "en" else term.meaning_zh
        if term.chapter in here:
            title = CHAPTER_TITLES[term.chapter].of(language)
            meaning += f" → [{title}]({term.chapter}.md)"
        lines.append(f"| {' | '.join(terms)} | {meaning} |")
    return "\n".join(lines)
