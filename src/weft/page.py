"""Pages for people: one HTML file each, no network, light and dark. The reports of all rooms look like this."""

from html import escape

STYLE = """
:root {
  --ink: #1c2330; --soft: #667085; --line: #e4e7ec; --card: #ffffff; --page: #f6f7f9; --a: #2563eb; --b: #d9730d;
}
@media (prefers-color-scheme: dark) { :root {
  --ink: #e6e9ef; --soft: #98a2b3; --line: #2b3342; --card: #171c26; --page: #0f131a; --a: #6ea8fe; --b: #f0a35e;
} }
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
.sample { white-space: pre-wrap; overflow-wrap: anywhere; font: 14px/1.5 ui-monospace, monospace }
"""


def page(title: str, parts: list[str]) -> bytes:
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} · weft</title><style>{STYLE}</style>"
    )
    body = "".join(parts)
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>\n'.encode()


def tiles(values: dict[str, str]) -> str:
    """The few figures that matter most, large."""
    shown = [f'<div class="tile"><b>{escape(v)}</b><span>{escape(title)}</span></div>' for title, v in values.items()]
    return f'<div class="tiles">{"".join(shown)}</div>'


def table(rows: list[tuple[str, str]], kind: str = "") -> str:
    cells = [f'<tr><td>{escape(key)}</td><td class="{kind}">{escape(value)}</td></tr>' for key, value in rows]
    return f"<table>{''.join(cells)}</table>"
