"""The card's table: a row for each measure, a column for each model."""

import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from weft.compress.card.measured import AgainstFirst, MeasuredModels, ModelCard
from weft.compress.card.timing import Ratio
from weft.compress.card.verdict import NO_LOSS, is_share, loss_word, number, signed_number, title

_MOST_NOTES = 5


@dataclass(frozen=True)
class TableRow:
    title: str
    cells: list[str]
    starts_group: bool = False
    is_main: bool = False  # what the verdict names


def table_rows(card: MeasuredModels) -> list[TableRow]:
    """Without the row of names."""
    return [*_what(card), *_quality(card), *_size(card), *_speed(card)]


def card_lines(card: MeasuredModels) -> list[str]:
    rows = [["", *(model.name for model in card.models)], *([row.title, *row.cells] for row in table_rows(card))]
    data = f"data: {card.count:,} {card.unit} of {card.where}"
    timing = (
        f"timed: {card.rounds} rounds in turns, {card.timed_alone:,} {card.unit} alone and {card.timed_together:,} "
        f"together in each"
    )
    machine = f"machine: {machine_line(card)}"
    return [*_aligned(rows), "", data, timing, machine, *(f"note: {note}" for note in card.notes[:_MOST_NOTES])]


def machine_line(card: MeasuredModels) -> str:
    machine = card.machine
    threads = f"{machine['threads']} thread{'' if machine['threads'] == 1 else 's'}"
    parts = [machine.get("gpu", machine["processor"]), " ".join(machine["instructions"]), threads]
    return ", ".join(part for part in (*parts, f"weft {machine['weft']}", f"torch {machine['torch']}") if part)


def _what(card: MeasuredModels) -> Iterator[TableRow]:
    yield TableRow("model", [model.model for model in card.models])
    if any(model.steps for model in card.models):
        yield TableRow("made by", [" → ".join(model.steps) or "–" for model in card.models])
    yield TableRow("precision", [model.precision for model in card.models])


def _quality(card: MeasuredModels) -> Iterator[TableRow]:
    names = dict.fromkeys([card.metric, *(name for model in card.models for name in model.figures)])
    begins = True
    for metric in names:
        if not any(metric in model.figures for model in card.models):
            continue
        unit = " %" if is_share(metric) else ""
        cells = [
            f"{number(metric, model.figures[metric])}{unit}" if metric in model.figures else "–"
            for model in card.models
        ]
        yield TableRow(title(metric, card.task), cells, begins, is_main=metric == card.metric)
        begins = False
        if metric == card.metric and card.kind != "vectors":
            yield TableRow("difference (95 %)", [_gap(model, metric) for model in card.models])
    yield from _agreement(card)


def _gap(model: ModelCard, metric: str) -> str:
    """−1.3 (−2.2 to −0.4), a loss"""
    gap = None if model.against is None else model.against.differences.get(metric)
    if gap is None:
        return "–"
    value, low, high = (signed_number(metric, one) for one in (gap.value, gap.low, gap.high))
    return f"{value} ({low} to {high})" + ("" if loss_word(gap) == NO_LOSS else f", {loss_word(gap)}")


def _agreement(card: MeasuredModels) -> Iterator[TableRow]:
    found = [None if model.against is None else model.against.agreement for model in card.models]
    if any(one is not None and one.equal is not None for one in found):
        yield TableRow(
            "equal answers", [f"{100 * one.equal:.1f} %" if one and one.equal is not None else "–" for one in found]
        )
    if any(one is not None and one.correlation is not None for one in found):
        cells = [f"{one.correlation:.4f}" if one and one.correlation is not None else "–" for one in found]
        yield TableRow("correlation of the answers", cells)
    for change in dict.fromkeys(
        name for one in found if one is not None for name, count in one.counts.items() if count
    ):
        yield TableRow(change, [f"{one.counts.get(change, 0):,}" if one else "–" for one in found])


def _size(card: MeasuredModels) -> Iterator[TableRow]:
    yield TableRow(
        "on disk", _with_ratio(card, lambda one: size_text(one.disk_bytes), lambda gap: gap.smaller), True, True
    )
    yield TableRow(
        "weights in memory", _with_ratio(card, lambda one: size_text(one.memory_bytes), lambda gap: gap.lighter)
    )
    yield TableRow("parameters", [_short(model.parameters) for model in card.models])
    cells = _with_ratio(card, lambda one: _short(one.flops_per_text), lambda gap: gap.fewer_flops)
    yield TableRow("FLOPs per text", cells)


def _speed(card: MeasuredModels) -> Iterator[TableRow]:
    for begins, name, share in ((True, "p50", "latency_ms_p50"), (False, "p95", "latency_ms_p95")):
        cells = [f"{getattr(model, share):,.2f} ms" for model in card.models]
        yield TableRow(f"{card.alone_title}, {name}", cells, begins)
    yield TableRow(
        f"{card.alone_title}, faster",
        [_faster(model.against.alone if model.against else None) for model in card.models],
    )
    yield TableRow("texts per second", [f"{model.texts_per_second:,.0f}" for model in card.models])
    yield TableRow("tokens per second", [f"{model.tokens_per_second:,.0f}" for model in card.models])
    yield TableRow(
        "many texts, faster", [_faster(model.against.together if model.against else None) for model in card.models]
    )
    yield TableRow("CPU s per 1,000 texts", [f"{model.cpu_seconds_per_1000:,.2f}" for model in card.models])


def _faster(ratio: Ratio | None) -> str:
    return "–" if ratio is None else f"{ratio.value:.2f}× ({ratio.low:.2f}–{ratio.high:.2f})"


def _with_ratio(
    card: MeasuredModels, tell: Callable[[ModelCard], str], ratio: Callable[[AgainstFirst], float]
) -> list[str]:
    return [tell(model) + ("" if model.against is None else change_text(ratio(model.against))) for model in card.models]


def change_text(ratio: float) -> str:
    """` (÷ 3.9)`: by what a size was divided; nothing if it stayed."""
    if round(ratio, 2) == 1:
        return ""
    return f" (÷ {ratio:.1f})" if ratio > 1 else f" (× {1 / ratio:.1f})"


def size_text(count: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _short(count: float) -> str:
    """22.7 M"""
    for unit in ("", " k", " M", " G", " T"):
        if count < 1000:
            return f"{count:.0f}{unit}" if not unit or count >= 100 else f"{count:.1f}{unit}"
        count /= 1000
    return f"{count:,.1f} P"


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _width(text: str) -> int:
    """In columns of a terminal."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
