"""`weft theory`: the guide as pages or notebooks."""

import os
import tempfile
import webbrowser
from pathlib import Path
from typing import Annotated, Literal

import typer

from weft.commands import options as opt
from weft.commands.printing import print_facts
from weft.errors import InputError

PageFolder = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Folder for the pages en.html and zh.html. Default: a temporary one, opened."),
]
NotebookFolder = Annotated[
    Path | None, typer.Option("--notebooks", help="Write the chapters as Jupyter notebooks into this folder instead.")
]
GuideLanguage = Annotated[
    str | None, typer.Option("--language", help="The page to open: en or zh. Default: that of your system.")
]


def theory(
    output: PageFolder = None,
    notebooks: NotebookFolder = None,
    language: GuideLanguage = None,
    as_json: opt.AsJson = False,
) -> None:
    """Open the theory guide: every formula beside the code that computes it, in English and Chinese."""
    from weft.theory.book import write_guide
    from weft.theory.entry import LANGUAGES
    from weft.theory.notebooks import write_notebooks

    if language is not None and language not in LANGUAGES:
        raise InputError(f"The guide is in {' and '.join(LANGUAGES)}, not in {language}.")
    if notebooks is not None:
        files = write_notebooks(notebooks)
        print_facts({"notebooks": str(notebooks), "count": len(files)}, as_json)
        return
    files = write_guide(output or Path(tempfile.mkdtemp(prefix="weft-theory-")))
    page = next(file for file in files if file.stem == (language or _language_of_system()))
    opened = output is None and not as_json and webbrowser.open(page.absolute().as_uri())
    print_facts({"page": str(page), "opened": opened}, as_json)


def _language_of_system() -> Literal["en", "zh"]:
    names = (os.environ.get(name, "") for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return "zh" if next(filter(None, names), "").lower().startswith("zh") else "en"
