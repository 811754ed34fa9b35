"""Is the theory guide whole? Lists every formula and procedure of the checklist with the chapter, production lines,
test and picture that answer it, and says what is missing or differs between the languages.

    python scripts/theory_check.py

Exits with 1 if anything is wrong or not yet written.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from weft.errors import WeftError
from weft.theory.cells import without_comments
from weft.theory.chapters import CHAPTER_TITLES, read_chapter, written_chapters
from weft.theory.checklist import CHECKLIST
from weft.theory.entry import LANGUAGES, Chapter, GuideEntry, Language
from weft.theory.excerpt import excerpt
from weft.theory.filling import chapter_pieces
from weft.theory.formulas import unknown_characters
from weft.theory.glossary import glossary
from weft.theory.places import guide_folder, read_guide_text
from weft.theory.render import render_chapter

TESTS = Path(__file__).parents[1] / "tests/theory"
_CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_PICTURE = re.compile(r"!\[(.*?)\]\(\.\./pictures/([\w-]+)\.(\w+)\.svg\)")
_CHINESE = "[\u3400-\u9fff\u3000-\u303f\uff00-\uffef]"


def main() -> int:
    print("\n".join(table()))
    wrong = problems()
    missing = rows_to_write()
    print("\n".join(["", *wrong]))
    if missing:
        print(f"{len(missing)} rows are still to be written: {', '.join(map(str, missing))}")
    return int(bool(wrong or missing))


def table() -> Iterator[str]:
    """Row, what it is, and for every entry: chapter, entry, production lines, test, picture."""
    for number, row in CHECKLIST.items():
        yield f"{number:2} {'✗' if row.wrong else ' '} {row.title}"
        for slug, entry in answers_to(number):
            shown = ", ".join(f"{found.path}:{found.first}" for found in map(excerpt, entry.production))
            yield f"       {slug}#{entry.id} · {shown} · {test_name(entry)} · {entry.picture}.svg"
        for slug in row.chapters:
            if slug not in written_chapters():
                yield f"       {slug}: to be written"


def answers_to(number: int) -> list[tuple[str, GuideEntry]]:
    return [
        (slug, entry) for slug in written_chapters() for entry in read_chapter(slug).entries if number in entry.rows
    ]


def rows_to_write() -> list[int]:
    """Rows with a chapter that does not exist yet."""
    written = set(written_chapters())
    return [number for number, row in CHECKLIST.items() if not set(row.chapters) <= written]


def problems() -> list[str]:
    found: list[str] = []
    for slug in written_chapters():
        try:
            found += [f"{slug}: {problem}" for problem in _chapter_problems(read_chapter(slug))]
        except WeftError as error:
            found.append(f"{slug}: {error}")
    return found + _glossary_problems()


def _chapter_problems(chapter: Chapter) -> Iterator[str]:
    yield from _row_problems(chapter)
    yield from _entry_problems(chapter)
    texts = {language: read_guide_text(chapter.slug, language) for language in LANGUAGES}
    for language, text in texts.items():
        yield from (f"{language}: {problem}" for problem in _text_problems(chapter, text, language))
    english, chinese = ({what: read(text) for what, read in _COMPARED.items()} for text in texts.values())
    for what in _COMPARED:
        if english[what] != chinese[what]:
            yield f"the languages differ in {what}: {english[what]} and {chinese[what]}"
    for broken in re.findall(rf"{_CHINESE}\n{_CHINESE}.*", _CODE.sub("", texts["zh"])):
        yield f"zh: a code host shows a space where a Chinese line is broken: {broken.strip()[:30]}"


def _row_problems(chapter: Chapter) -> Iterator[str]:
    covered = {number for entry in chapter.entries for number in entry.rows}
    wanted = {number for number, row in CHECKLIST.items() if chapter.slug in row.chapters}
    yield from (f"no entry answers row {number}: {CHECKLIST[number].title}" for number in sorted(wanted - covered))
    yield from (f"row {number} is not one of this chapter" for number in sorted(covered - wanted))


def _entry_problems(chapter: Chapter) -> Iterator[str]:
    names = Counter(entry.id for entry in chapter.entries)
    yield from (f"two entries are called {name}" for name, count in names.items() if count > 1)
    tests = _functions_in(TESTS / f"test_{chapter.slug.replace('-', '_')}_formulas.py") if chapter.entries else set()
    for entry in chapter.entries:
        for part in entry.production:
            excerpt(part)  # raises if the function or statement has gone
        if not (entry.production and entry.written):
            yield f"{entry.id} has no production lines or no as-written form"
        if test_name(entry) not in tests:
            yield f"{entry.id} has no test {test_name(entry)}"
        if entry.picture not in chapter.pictures:
            yield f"{entry.id}: there is no picture {entry.picture}"


def _text_problems(chapter: Chapter, text: str, language: Language) -> Iterator[str]:
    blocks = Counter((piece.kind, piece.name) for piece in chapter_pieces(text))
    for entry in chapter.entries:
        for kind in ("formula", "code", "written"):
            if blocks[kind, entry.id] != 1:
                yield f"the block <!-- {kind} {entry.id} --> stands there {blocks[kind, entry.id]} times"
    for shown in re.findall(r"<math.*?</math>", render_chapter(chapter.slug, language).body, re.DOTALL):
        if unknown := unknown_characters(shown):
            yield f"a formula has {''.join(sorted(unknown))}, which math-characters.txt does not list"
    if blocks["head", ""] != 1:
        yield "the block <!-- head --> is missing"
    shown = _PICTURE.findall(text)
    if sorted(name for _, name, _ in shown) != sorted(chapter.pictures):
        yield f"shows the pictures {[name for _, name, _ in shown]}, not {list(chapter.pictures)}"
    yield from (f"picture {name} is that of {other}" for _, name, other in shown if other != language)
    yield from (f"picture {name} has no description" for description, name, _ in shown if not description.strip())
    wrong = sum(bool(row.wrong) for row in CHECKLIST.values() if chapter.slug in row.chapters)
    marked = len(re.findall(r"^#+ ✗ ", text, re.MULTILINE))
    if marked < wrong:
        yield f"{wrong} rows are wrong in print, but only {marked} headings begin with ✗"
    if chapter.entries and "<details>" not in text:
        yield "has no exercises with answers"


def _functions_in(file: Path) -> set[str]:
    if not file.is_file():
        return set()
    return {node.name for node in ast.parse(file.read_text("utf-8")).body if isinstance(node, ast.FunctionDef)}


def test_name(entry: GuideEntry) -> str:
    return f"test_{entry.id.replace('-', '_')}"


_COMPARED = {
    "blocks": lambda text: [(piece.kind, piece.name) for piece in chapter_pieces(text) if piece.kind != "text"],
    "cells": lambda text: [without_comments(piece.text) for piece in chapter_pieces(text) if piece.kind == "cell"],
    "displayed formulas": lambda text: re.findall(r"^\$\$\n(.*?)\n\$\$$", text, re.DOTALL | re.MULTILINE),
    "pictures": lambda text: [name for _, name, _ in _PICTURE.findall(text)],
    "values": lambda text: sorted(re.findall(r"<!--= (.+?) -->", text)),
    "levels of headings": lambda text: re.findall(r"^#+(?: ✗)?(?= )", _CODE.sub("", text), re.MULTILINE),
    "number of answers": lambda text: text.count("<details>"),
}


def _glossary_problems() -> list[str]:
    terms = glossary()
    found = [f"glossary: {term.en} has an empty field" for term in terms if not all(field.strip() for field in term)]
    found += [
        f"glossary: {term.en}: there is no chapter {term.chapter}"
        for term in terms
        if term.chapter not in CHAPTER_TITLES
    ]
    for language, names in (("en", [term.en for term in terms]), ("zh", [term.zh for term in terms])):
        found += [f"glossary: {name} stands twice in {language}" for name, count in Counter(names).items() if count > 1]
    stray = {file.name for file in (guide_folder() / "pictures").glob("*.svg")} - {
        f"{name}.{language}.svg"
        for slug in written_chapters()
        for name in read_chapter(slug).pictures
        for language in LANGUAGES
    }
    return found + [f"pictures/{name} belongs to no chapter: delete it" for name in sorted(stray)]


if __name__ == "__main__":
    sys.exit(main())
