"""card.html: the verdict, one picture, one table, the texts whose answers changed, and how it was measured."""

from html import escape

from weft.compress.card.contest import Agreement
from weft.compress.card.measured import MeasuredModels, ModelCard
from weft.compress.card.picture import picture
from weft.compress.card.table import machine_line, table_rows
from weft.compress.card.verdict import is_share, loss_word, model_verdict, number, signed_number, times, title
from weft.page import page, table, tiles

_SHOWN_CHARACTERS = 400  # of a text
_STYLE = """<style>
.verdict { color: var(--ink); font-weight: 600; font-size: 1.1rem; margin: .6rem 0 }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: .6rem; background: var(--card) }
.scroll table { border: 0; border-radius: 0; min-width: max-content }
.scroll td, .scroll th { text-align: right; white-space: nowrap }
.scroll td:first-child, .scroll th:first-child { text-align: left; position: sticky; left: 0; width: auto;
  background: var(--card) }
.scroll th { color: var(--ink); font-weight: 600; font-size: .95rem }
.scroll tr.group td { border-top: 2px solid var(--line) }
.scroll tr.main td { font-weight: 600; color: var(--ink) }
.scroll table.texts { min-width: 44rem; table-layout: fixed }
.scroll table.texts td, .scroll table.texts th { text-align: left; position: static; white-space: pre-wrap;
  overflow-wrap: anywhere; vertical-align: top; min-width: 0; color: var(--ink) }
.scroll table.texts th:first-child { width: 38% }
details .scroll { border: 0; border-top: 1px solid var(--line); border-radius: 0 }
details p { padding: 0 .9rem .5rem }
.method td { overflow-wrap: anywhere }
.scroll small { display: block; font-size: .8rem; font-weight: 400; color: var(--soft); line-height: 1.3 }
.scroll td.loss small, td.loss { color: var(--b) }
svg .level { stroke: var(--soft); stroke-dasharray: 4 4; opacity: .7 }
svg .chain { fill: none; stroke: var(--soft); stroke-width: 1.5; opacity: .6 }
svg circle { fill: color-mix(in srgb, var(--a) 55%, var(--card)); stroke: var(--a); stroke-width: 1.5 }
svg circle.loss { fill: color-mix(in srgb, var(--b) 55%, var(--card)); stroke: var(--b) }
svg circle.before { fill: color-mix(in srgb, var(--soft) 35%, var(--card)); stroke: var(--soft) }
svg .bar { fill: none; stroke: var(--ink); stroke-width: 1.5 }
svg .name, svg .size { paint-order: stroke; stroke: var(--card); stroke-width: 4px; stroke-linejoin: round }
svg text.name { fill: var(--ink); font-weight: 600 }
figcaption { color: var(--soft); font-size: .85rem; margin-top: .5rem }
figure svg.narrow { display: none }
@media (max-width: 40rem) {
  figure svg.wide { display: none } figure svg.narrow { display: block } figure { padding: .6rem }
  .method td:first-child { white-space: normal; width: 5.5rem; padding-right: 0 } td, th { padding: .4rem .6rem }
}
@media print {
  body { padding: 0; max-width: none; background: #fff }
  .scroll { overflow: visible } .scroll td, .scroll th { white-space: normal; padding: .2rem .4rem; font-size: .75rem }
  .scroll table, .scroll table.texts { min-width: 0 }
  figure, .tiles, tr { break-inside: avoid }
}
</style>"""


def card_page(card: MeasuredModels) -> bytes:
    name = " → ".join(model.name for model in card.models)
    drawing = picture(card)
    parts = [
        _STYLE,
        f"<h1>{escape(name)}</h1>",
        f'<p class="verdict">{escape(model_verdict(card, card.models[-1]))}</p>',
        f"<p>{escape(_data(card))}</p>",
        *(f"<p>{escape(note)}</p>" for note in card.notes),
        _tiles(card),
        f"<h2>Quality, speed and size</h2><figure>{drawing}{_caption(card)}</figure>" if drawing else "",
        "<h2>All figures</h2>",
        _table(card),
        _all_changes(card),
        "<h2>How it was measured</h2>",
        f'<div class="method">{table(_method(card))}</div>',
    ]
    return page(name, parts)


def _data(card: MeasuredModels) -> str:
    task = f"Task: {card.task}. " if card.task else ""
    return f"{task}Data: {card.count:,} {card.unit} of {card.where}."


def _tiles(card: MeasuredModels) -> str:
    last = card.models[-1]
    assert last.against is not None
    speed = last.against.together if card.headline == "together" else last.against.alone
    shown = {"smaller on disk": times(last.against.smaller), "faster": times(speed.value)}
    if card.metric in last.figures:
        unit = " %" if is_share(card.metric) else ""
        gap = last.against.differences.get(card.metric)
        change = (
            f", {signed_number(card.metric, gap.value)}: {loss_word(gap)}" if gap and card.kind != "vectors" else ""
        )
        shown[f"{title(card.metric, card.task)}{change}"] = f"{number(card.metric, last.figures[card.metric])}{unit}"
    agreement = last.against.agreement
    if agreement is not None and agreement.equal is not None:
        shown["equal answers"] = f"{100 * agreement.equal:.1f} %"
    if agreement is not None and agreement.correlation is not None:
        shown["correlation of the answers"] = f"{agreement.correlation:.4f}"
    return tiles(shown)


def _caption(card: MeasuredModels) -> str:
    before = escape(card.models[0].name)
    losses = any(
        (gap := model.against.differences.get(card.metric)) is not None and gap.is_behind
        for model in card.models[1:]
        if model.against is not None
    )
    text = (
        f"Up is better, right is faster. The area of a circle is the size on disk; a bar is the 95 % interval of the "
        f"difference to {before}, whose level is dashed."
    )
    return f"<figcaption>{text}{' Orange: a loss is shown.' if losses else ''}</figcaption>"


def _table(card: MeasuredModels) -> str:
    head = "".join(f"<th>{escape(model.name)}</th>" for model in card.models)
    rows = []
    for row in table_rows(card):
        kinds = " ".join(kind for kind, holds in (("group", row.starts_group), ("main", row.is_main)) if holds)
        cells = "".join(f"<td{_loss(cell)}>{_cell(cell)}</td>" for cell in row.cells)
        rows.append(f'<tr class="{kinds}"><td>{escape(row.title)}</td>{cells}</tr>')
    return f'<div class="scroll"><table><tr><th></th>{head}</tr>{"".join(rows)}</table></div>'


def _cell(text: str) -> str:
    """What is in brackets stands below, smaller: more models fit side by side."""
    first, _, rest = text.partition(" (")
    return escape(first) + (f"<small>{escape(rest.replace(')', '', 1))}</small>" if rest else "")


def _loss(cell: str) -> str:
    return ' class="loss"' if cell.endswith(", a loss") else ""


def _all_changes(card: MeasuredModels) -> str:
    found = [(model, model.against.agreement) for model in card.models[1:] if model.against is not None]
    parts = [_changes(card, model, told) for model, told in found if told is not None and told.shown]
    return f"<h2>Changed answers</h2>{''.join(parts)}" if parts else ""


def _changes(card: MeasuredModels, model: ModelCard, agreement: Agreement) -> str:
    """The texts that this model answers otherwise than the first. The last model's are unfolded."""
    counts = ", ".join(f"{name}: {count:,}" for name, count in agreement.counts.items() if count)
    names = ("text", "gold", card.models[0].name, model.name, "change", "place")
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = []
    for one in agreement.shown:
        cells = (_shown(one.given), _shown(one.gold), _shown(one.before), _shown(one.after), one.change, one.place)
        rows.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    changed = sum(agreement.counts.values())
    told = (
        f"The first {len(rows):,} of {changed:,}, the worst first." if counts else f"The {len(rows):,} that moved most."
    )
    return (
        f"<details{' open' if model is card.models[-1] else ''}>"
        f"<summary>{escape(model.name)}{escape(f': {counts}' if counts else '')}</summary><p>{told}</p>"
        f'<div class="scroll"><table class="texts"><tr>{head}</tr>{"".join(rows)}</table></div></details>'
    )


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + " …"


def _method(card: MeasuredModels) -> list[tuple[str, str]]:
    machine = card.machine
    return [
        ("machine", machine_line(card)),
        ("system", f"{machine['system']}, {machine['cores']} cores, Python {machine['python']}"),
        (
            "speed",
            f"The models took turns in {card.rounds} rounds: {card.timed_alone:,} {card.unit} alone "
            f"({card.alone_title}) and {card.timed_together:,} together, with the lengths of the data. Faster: the "
            "ratio of medians, with the lowest and the highest ratio of a round.",
        ),
        (
            "size",
            "On disk: weights, config and tokenizer. In memory: the weights as they are held, without activations.",
        ),
        ("FLOPs", "Of the matrix products that read a text once; a product of integers counts as one of floats."),
        (
            "quality",
            "The interval of a difference is the middle 95 % of a paired bootstrap: both models on the same texts in "
            "each of 1,000 draws. “No loss shown” means that it contains zero, not that nothing was lost.",
        ),
        *((f"folder of {model.name}", model.folder) for model in card.models),
    ]
