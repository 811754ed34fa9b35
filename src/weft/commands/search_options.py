"""`weft search` on the command line: the command and its options."""

from pathlib import Path
from typing import Annotated

import typer

from weft.commands import options as opt

Queries = Annotated[list[str] | None, typer.Option("--query", "-q", help="What to look for. Repeatable.")]
PassageCount = Annotated[int, typer.Option(min=1, help="Number of passages per query.")]

IndexFolder = Annotated[
    Path | None, typer.Option("--index", help="A folder that keeps the vectors for the next search.")
]


def search(
    model: opt.ModelFolder,
    texts: opt.TextFiles,
    query: Queries = None,
    top: PassageCount = 5,
    output: opt.FoundPage = None,
    index: IndexFolder = None,
    documents: opt.DocumentUnit = None,
    text: opt.TextColumn = None,
    format: opt.TextFormat = None,
    encoding: opt.Encoding = None,
    precision: opt.PrecisionName = None,
    device: opt.DeviceName = None,
    as_json: opt.AsJson = False,
) -> None:
    """Search texts by meaning: the passages nearest to a query. Without --query, queries are read line by line."""
    from weft.commands.search import SearchedTexts, search_texts

    options = {"documents": documents, "text": text, "format": format, "encoding": encoding}
    given = SearchedTexts.by_options(texts, index, {key: value for key, value in options.items() if value is not None})
    search_texts(model, given, query or [], top=top, output=output, precision=precision, as_json=as_json)
