"""A chapter as a Jupyter notebook, from the same text as the page.

Code cells and as-written formulas become cells that run in order. Pictures are drawn anew by the code that made them.
The cells need weft and the guide's small models, which are part of it; to try another model, such as one of the
quickstart's, put `weft.load("runs/austen/model")` in the place of `guide_model()`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weft.errors import refuse_address
from weft.folders import to_json, write_file
from weft.theory.chapters import CHAPTER_TITLES, read_chapter, written_chapters
from weft.theory.entry import LANGUAGES, Language
from weft.theory.excerpt import excerpt, source_of
from weft.theory.filling import WORDS, ChapterPiece, chapter_pieces
from weft.theory.places import read_guide_text

_IMAGE = re.compile(r"^!\[[^\]]*\]\(\.\./pictures/([\w-]+)\.\w+\.svg\)$", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"\]\(([\w-]+)\.md")
_OTHER_LINK = re.compile(r"\[([^\]]+)\]\(\.\./[^)]*\)")


class Picture:
    """What a notebook shows as an image."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg


def show(chapter: str, picture: str, language: Language = "en") -> Picture:
    """Draws one of the guide's pictures: `show("attention", "attention-map")`."""
    return Picture(read_chapter(chapter).pictures[picture](language))


def write_notebooks(folder: Path) -> list[Path]:
    """Writes every chapter with code as en/<chapter>.ipynb and zh/<chapter>.ipynb."""
    refuse_address(folder)
    files = []
    for language in LANGUAGES:
        (folder / language).mkdir(parents=True, exist_ok=True)
        for slug in written_chapters():
            if read_chapter(slug).entries:
                files.append(folder / language / f"{slug}.ipynb")
                write_file(files[-1], to_json(notebook(slug, language)))
    return files


def notebook(slug: str, language: Language) -> dict[str, Any]:
    cells: list[dict[str, Any]] = [
        {"cell_type": kind, "id": f"{slug}-{number}", "metadata": {}, "source": source.splitlines(keepends=True)}
        | ({"execution_count": None, "outputs": []} if kind == "code" else {})
        for number, (kind, source) in enumerate(_cells(slug, language))
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    facts = {"kernelspec": kernel, "language_info": {"name": "python"}, "title": CHAPTER_TITLES[slug].of(language)}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": facts, "cells": cells}


def _cells(slug: str, language: Language) -> Iterator[tuple[str, str]]:
    """(markdown or code, source); neighbouring Markdown is one cell."""
    module = read_chapter(slug).entries[0].written[0].__module__
    text = ""
    for kind, source in _parts(slug, language):
        if kind == "markdown":
            text += source
            continue
        if text.strip():
            yield "markdown", text.strip()
        text = ""
        yield kind, source.strip()
        if module:  # after the first cell, which imports what the chapter needs
            yield "code", f"from {module} import *\nfrom weft.theory.notebooks import show"
            module = ""
    if text.strip():
        yield "markdown", text.strip()


def _parts(slug: str, language: Language) -> Iterator[tuple[str, str]]:
    for piece in chapter_pieces(read_guide_text(slug, language)):
        match piece.kind:
            case "text":
                yield from _text(piece.text, slug, language)
            case "cell":
                yield "code", piece.text
            case "formula" | "code" | "written":
                yield from _entry(piece, slug, language)


def _text(text: str, slug: str, language: Language) -> Iterator[tuple[str, str]]:
    text = _LINK.sub(r"](\1.ipynb", _COMMENT.sub("", text))
    end = 0
    for image in _IMAGE.finditer(text):
        yield "markdown", _OTHER_LINK.sub(r"\1", text[end : image.start()])
        yield "code", f'show("{slug}", "{image[1]}", "{language}")'
        end = image.end()
    yield "markdown", _OTHER_LINK.sub(r"\1", text[end:])


def _entry(piece: ChapterPiece, slug: str, language: Language) -> Iterator[tuple[str, str]]:
    entry = read_chapter(slug).entry(piece.name)
    if piece.kind == "formula":
        yield "markdown", f"\n\n$$\n{entry.formula.strip()}\n$$\n\n"
    elif piece.kind == "written":
        yield "code", "\n\n\n".join(source_of(function) for function in entry.written)
    else:
        for part in entry.production:
            found = excerpt(part)
            caption = f"{WORDS[language]['production']}: `{found.path}`, `{found.name}`"
            yield "markdown", f"\n\n{caption}\n\n```python\n{found.text}\n```\n\n"
