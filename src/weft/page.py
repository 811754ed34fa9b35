"""HTML for reports: self-contained pages without network access, in light and dark."""

from html import escape

COLOURS = """
:root {
  --ink: #1c2330; --soft: #667085; --line: #e4e7ec; --card: #ffffff; --page: #f6f7f9; --a: #2563eb; --b: #d9730d;
}
@media (prefers-color-scheme: dark) { :root {
  --ink: #e6e9ef; --soft: #98a2b3; --line: #2b3342; --card: #171c26; --page: #0f131a; --a: #6ea8fe; --b: #f0a35e;
} }
"""
_STYLE = """
* { box-sizing: border-box }
body { margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 60rem; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "Noto Sans CJK SC", sans-serif }
h1 { font-size: 1.7rem; margin: 0 }
h2 { font-size: 1.05rem; margin: 2.2rem 0 .7rem }
p { color: var(--soft); margin: .3rem 0 }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .8rem; margin-top: 1.5rem }
.tile, figure, table { background: var(--card); border: 1px solid var(--line); border-radius: .6rem }
.tile { padding: .8rem 1rem }
.tile b { display: block; font-size: 1.5rem; font-variant-numeric: tabular-nums }
.tile span { color: var(--soft); font-size: .85rem }
figure { margin: 0; padding: 1rem }
figure svg { width: 100%; height: auto; display: block }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft) }
svg .grid { stroke: var(--line) }
svg .cursor { stroke: var(--soft); stroke-dasharray: 3 3; visibility: hidden }
table { width: 100%; border-collapse: collapse; overflow: hidden }
td { padding: .45rem .9rem; border-top: 1px solid var(--line); vertical-align: top; font-variant-numeric: tabular-nums }
tr:first-child td { border-top: 0 }
td:first-child { color: var(--soft); white-space: nowrap; width: 1% }
table.texts td { white-space: pre-wrap; overflow-wrap: anywhere; width: auto; min-width: 8rem }
th { padding: .45rem .9rem; text-align: left; font-weight: 500; font-size: .85rem; color: var(--soft);
  white-space: nowrap }
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: .35rem .9rem; align-items: center }
.bars span { color: var(--soft); font-variant-numeric: tabular-nums; font-size: .9rem }
.bars i { display: block; height: .9rem; border-radius: .25rem; position: relative;
  background: color-mix(in srgb, var(--a) 22%, transparent) }
.bars i b { position: absolute; inset: 0 auto 0 0; background: var(--a); border-radius: inherit }
details { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; margin: .4rem 0 }
summary { padding: .5rem .9rem; cursor: pointer; font-variant-numeric: tabular-nums }
details .sample { border-top: 1px solid var(--line); margin: 0; padding: .6rem .9rem; color: var(--soft) }
.flag { color: var(--b); font-weight: 600 }
.sample { white-space: pre-wrap; overflow-wrap: anywhere; font: 14px/1.5 ui-monospace, monospace }
"""


def page(title: str, parts: list[str], language: str = "en") -> bytes:
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} · weft</title><style>{COLOURS}{_STYLE}</style>"
    )
    body = "".join(parts)
    return f'<!doctype html><html lang="{language}"><head>{head}</head><body>{body}</body></html>\n'.encode()


def tiles(values: dict[str, str]) -> str:
    """The most important figures, large."""
    shown = [f'<div class="tile"><b>{escape(v)}</b><span>{escape(title)}</span></div>' for title, v in values.items()]
    return f'<div class="tiles">{"".join(shown)}</div>'


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def table(rows: list[tuple[str, str]], kind: str = "") -> str:
    cells = [f"<tr><td>{escape(key)}</td><td{_class(kind)}>{escape(value)}</td></tr>" for key, value in rows]
    return f"<table>{''.join(cells)}</table>"


def grid(headings: list[str], rows: list[list[str]], kind: str = "") -> str:
    """A table with headings. `kind="texts"` wraps long text in all columns."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    cells = ["".join(f"<td>{escape(value)}</td>" for value in row) for row in rows]
    shown = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<table{_class(kind)}><tr>{head}</tr>{shown}</table>"


def bars(rows: list[tuple[str, float, float, str]]) -> str:
    """A bar chart. Each row: name, part (dark), whole (light), and the note at the end."""
    longest = max((whole for _, _, whole, _ in rows), default=0) or 1
    shown = [
        f"<span>{escape(name)}</span>"
        f'<i style="width:{max(100 * whole / longest, 0.3):.2f}%">'
        f'<b style="width:{100 * part / max(whole, 1e-9):.2f}%"></b></i>'
        f"<span>{escape(note)}</span>"
        for name, part, whole, note in rows
    ]
    return f'<figure class="bars">{"".join(shown)}</figure>'


def unfold(title: str, samples: list[str]) -> str:
    """A title that opens to show samples."""
    inside = "".join(f'<p class="sample">{escape(sample)}</p>' for sample in samples)
    return f"<details><summary>{escape(title)}</summary>{inside}</details>"
