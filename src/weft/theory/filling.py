"""A chapter's text: Markdown in which a few blocks are filled in by the build.

    <!-- formula ID --> … <!-- end -->      the formula of an entry
    <!-- code ID --> … <!-- end -->         its production lines
    <!-- written ID --> … <!-- end -->      its as-written form
    <!-- output --> … <!-- end -->          what the code cell before it prints
    <!-- head --> … <!-- end -->            links to the neighbours and to the other language
    <!--= p:.3f -->0.113<!--/-->            a value of the cells, inside a sentence

A code cell is a fence ```python. Its code runs; a fence ```py is only shown. The filled text is committed, so that a
code host shows all of it, and a test compares it with a new filling.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from weft.theory.cells import Run, run_cells, without_comments
from weft.theory.chapters import CHAPTER_TITLES, read_chapter, written_chapters
from weft.theory.entry import LANGUAGES, GuideEntry, Language
from weft.theory.excerpt import excerpt, source_of
from weft.theory.glossary import glossary_table
from weft.theory.places import read_guide_text

_PIECE = re.compile(
    r"^<!-- (?P<block>head|formula|code|written|output|glossary)(?: (?P<name>[\w-]+))? -->\n.*?^<!-- end -->$"
    r"|^```python\n(?P<cell>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_VALUE = re.compile(r"<!--=\s*(.+?)\s*-->.*?<!--/-->", re.DOTALL)
WORDS = {
    "en": {"written": "As written:", "production": "In weft", "guide": "Contents", "other": "中文"},
    "zh": {"written": "照公式写：", "production": "weft 中的代码", "guide": "目录", "other": "English"},
}


@dataclass(frozen=True)
class ChapterPiece:
    """`kind`: text, cell, or the name of a block. `text`: as it stands in the file."""

    kind: str
    text: str
    name: str = ""


def chapter_pieces(text: str) -> list[ChapterPiece]:
    pieces, end = list[ChapterPiece](), 0
    for found in _PIECE.finditer(text):
        pieces.append(ChapterPiece("text", text[end : found.start()]))
        kind = found["block"] or "cell"
        pieces.append(ChapterPiece(kind, found["cell"] or found[0], found["name"] or ""))
        end = found.end()
    return [*pieces, ChapterPiece("text", text[end:])]


def cells_of(text: str) -> list[str]:
    return [piece.text for piece in chapter_pieces(text) if piece.kind == "cell"]


def filled(slug: str, language: Language) -> str:
    """The chapter with all blocks filled in anew."""
    text = read_guide_text(slug, language)
    run = _run(tuple(without_comments(cell) for cell in cells_of(text)))
    done, cell = [], 0
    for piece in chapter_pieces(text):
        if piece.kind == "text":
            done.append(_VALUE.sub(lambda found: f"<!--= {found[1]} -->{run.value(found[1])}<!--/-->", piece.text))
        elif piece.kind == "cell":
            done.append(f"```python\n{piece.text}```")
            cell += 1
        elif piece.kind == "output":
            done.append(_block("output", "", f"```text\n{run.outputs[cell - 1]}\n```"))
        else:
            done.append(_block(piece.kind, piece.name, _content(piece, slug, language)))
    return "".join(done)


@cache  # both languages have the same cells
def _run(cells: Sequence[str]) -> Run:
    return run_cells(cells)


def _block(kind: str, name: str, content: str) -> str:
    return f"<!-- {kind}{' ' * bool(name)}{name} -->\n{content}\n<!-- end -->"


def _content(piece: ChapterPiece, slug: str, language: Language) -> str:
    if piece.kind == "head":
        return _head(slug, language)
    if piece.kind == "glossary":
        return glossary_table(language)
    make: Callable[[GuideEntry, Language], str] = {"formula": _formula, "code": _code, "written": _written}[piece.kind]
    return make(read_chapter(slug).entry(piece.name), language)


def _formula(entry: GuideEntry, language: Language) -> str:
    return f"$$\n{entry.formula.strip()}\n$$"


def _code(entry: GuideEntry, language: Language) -> str:
    shown = []
    for part in entry.production:
        found = excerpt(part)
        caption = f"{WORDS[language]['production']} · [`{found.path}`](../../../src/weft/{found.path}) · `{found.name}`"
        shown.append(f"{caption}\n\n```py\n{found.text}\n```")
    return "\n\n".join(shown)


def _written(entry: GuideEntry, language: Language) -> str:
    code = "\n\n\n".join(source_of(function) for function in entry.written)
    return f"{WORDS[language]['written']}\n\n```py\n{code}\n```"


def _head(slug: str, language: Language) -> str:
    """← before · contents · other language · after →"""
    (other,) = set(LANGUAGES) - {language}
    chapters, words = written_chapters(), WORDS[language]
    place = chapters.index(slug)
    before, after = chapters[max(0, place - 1) : place], chapters[place + 1 : place + 2]
    links = [f"[← {CHAPTER_TITLES[one].of(language)}]({one}.md)" for one in before]
    links += [f"[{words['guide']}](../README.md)", f"[{words['other']}](../{other}/{slug}.md)"]
    links += [f"[{CHAPTER_TITLES[one].of(language)} →]({one}.md)" for one in after]
    return " · ".join(links)
