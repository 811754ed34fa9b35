"""`weft compare`, also `weft.compare(...)` in Python: the command and its options."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.commands import options as opt
from weft.commands.printing import as_json_line, print_next
from weft.errors import InputError, as_items, as_path, refuse_address
from weft.terminal import escape_controls

if TYPE_CHECKING:
    from weft.compress.card.card import Card

_ROUNDS = 7

ComparedModels = Annotated[
    list[Path],
    typer.Argument(help="Model folders: the one before, then one or more after, in order.", metavar="BEFORE AFTER..."),
]
ComparedData = Annotated[
    list[Path],
    typer.Option(
        "--data", help="Labelled test data; for language models and encoders text. Repeatable.", show_default=False
    ),
]
CardFolder = Annotated[Path | None, typer.Option("-o", "--output", help="A folder for card.html and card.json.")]
ComparedTexts = Annotated[
    int | None,
    typer.Option("--limit", help="Use at most this many texts, drawn at random. Default: all that are labelled."),
]
Rounds = Annotated[int, typer.Option(help="How often each model is timed, in turns.")]
KeepCard = Annotated[bool, typer.Option("--keep", help="Also write the card into the last model's weft.json.")]


def compare(
    models: ComparedModels,
    data: ComparedData,
    task: opt.TaskOption = None,
    column: opt.ColumnNames = None,
    encoding: opt.Encoding = None,
    format: opt.RowFileFormat = None,
    limit: ComparedTexts = None,
    rounds: Rounds = _ROUNDS,
    keep: KeepCard = False,
    output: CardFolder = None,
    as_json: opt.AsJson = False,
) -> None:
    """Compare a model with smaller ones made from it: size, speed on this machine, quality, changed answers."""
    _check_writable(models, keep, output)
    card = compare_folders(
        models, data, task=task, columns=column or [], encoding=encoding, format=format, limit=limit, rounds=rounds
    )
    print(as_json_line(card.facts()) if as_json else escape_controls("\n".join(card.lines())))
    _write(card, models, keep, output)
    if output is not None:
        print_next(f"open {output / 'card.html'}", quiet=as_json)


def compare_folders(
    models: Sequence[str | Path],
    data: str | Path | Sequence[str | Path],
    *,
    task: str | None = None,
    columns: Sequence[str] | Mapping[str, str] = (),
    encoding: str | None = None,
    format: str | None = None,
    limit: int | None = None,
    rounds: int = _ROUNDS,
    keep: bool = False,
    output: str | Path | None = None,
) -> "Card":
    """What compression cost: a card with size, speed and quality of a model before and of those after.

        card = weft.compare(["runs/sst2/model", "sst2-int8"], data="test.tsv")
        print(card.verdict)

    `models`: the one before, then those after, in order. `data`: labelled examples for models with a task, otherwise
    text. `columns`: {"text": "sentence"}. `limit`: use at most this many texts. `rounds`: how often each is timed.
    `keep` writes the card into the last model's weft.json, `output` card.html and card.json into a folder. The card has
    `verdict`, `facts()`, `lines()` and `write(folder)`.
    """
    from weft.compress.card.compare import compare_models

    folders = [as_path(one, "A model's folder") for one in as_items(models, "models")]
    places = [as_path(one, "data") for one in ([data] if isinstance(data, str | Path) else as_items(data, "data"))]
    named = [f"{role}={column}" for role, column in columns.items()] if isinstance(columns, Mapping) else columns
    where = None if output is None else as_path(output, "output")
    _check_writable(folders, keep, where)
    card = compare_models(
        folders, places, task=task, columns=as_items(named, "columns"), encoding=encoding, format=format, limit=limit,
        rounds=rounds,
    )  # fmt: skip
    _write(card, folders, keep, where)
    return card


def _check_writable(models: Sequence[Path], keep: bool, output: Path | None) -> None:
    """Raises InputError before the work."""
    from weft.compress.card.card import check_card_place
    from weft.folders import check_writable

    for model in models[-1:] if keep else ():
        check_writable(model)
    if output is None:
        return
    if refuse_address(output).exists() and not output.is_dir():
        raise InputError(f"{output} is a file; the card needs a folder.")
    check_card_place(output)
    check_writable(output)


def _write(card: "Card", models: Sequence[Path], keep: bool, output: Path | None) -> None:
    if keep:
        card.keep(models[-1])
    if output is not None:
        card.write(output)
