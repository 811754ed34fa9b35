"""Pictures as SVG, in light and dark: a canvas, and the few kinds of chart that chapters need more than once.

Coordinates are rounded and nothing depends on time or chance, so the same numbers give the same bytes. Canvases are
at most 560 wide with text of 18 and 15, so that a phone, which shows them at two thirds, still shows text of 10.
"""

from collections.abc import Sequence
from html import escape

from weft.charts import Curve, round_ticks
from weft.page import COLOURS

STYLE = """
svg .card { fill: var(--card); stroke: var(--line) }
svg text { fill: var(--ink);
  font: 18px system-ui, -apple-system, "Segoe UI", "Noto Sans CJK SC", "PingFang SC", sans-serif }
svg text.small { font-size: 15px } svg text.strong { font-weight: 600 }
svg .soft { fill: var(--soft) } svg .a { fill: var(--a) } svg .b { fill: var(--b) }
svg .box { fill: var(--page); stroke: var(--soft) } svg .line { stroke: var(--line); fill: none }
svg .stroke { stroke: var(--soft); fill: none; stroke-width: 1.5 }
svg .stroke-a { stroke: var(--a); fill: none; stroke-width: 2.5 }
svg .stroke-b { stroke: var(--b); fill: none; stroke-width: 2.5 }
svg .stroke-soft { stroke: var(--soft); fill: none; stroke-width: 2.5 }
svg .dashed { stroke-dasharray: 5 4; stroke-width: 1.5 }
"""
WIDTH = 560
_COLOURS = ("a", "b", "soft")


class Canvas:
    """`title` is read out by screen readers."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "middle", turn: float = 0) -> None:
        if not text:
            return
        place = f'x="{_n(x)}" y="{_n(y)}"' + (f' transform="rotate({_n(turn)} {_n(x)} {_n(y)})"' if turn else "")
        self.parts.append(f'<text {place} text-anchor="{anchor}"{_class(kind)}>{escape(text)}</text>')

    def rect(self, x: float, y: float, width: float, height: float, kind: str, opacity: float = 1) -> None:
        size = f'x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="3"'
        self.parts.append(f"<rect {size}{_class(kind)}{_opacity(opacity)}/>")

    def circle(self, x: float, y: float, radius: float, kind: str, opacity: float = 1) -> None:
        place = f'cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}"'
        self.parts.append(f"<circle {place}{_class(kind)}{_opacity(opacity)}/>")

    def line(self, points: Sequence[tuple[float, float]], kind: str = "stroke", opacity: float = 1) -> None:
        path = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self.parts.append(f'<polyline points="{path}"{_class(kind)}{_opacity(opacity)}/>')

    def arrow(self, x: float, y: float, to_x: float, to_y: float, kind: str = "stroke") -> None:
        """A line with a head at its end."""
        length = max(((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5, 1e-9)
        dx, dy = 6 * (to_x - x) / length, 6 * (to_y - y) / length
        head = [(to_x - 1.2 * dx + 0.7 * dy, to_y - 1.2 * dy - 0.7 * dx), (to_x, to_y)]
        head += [(to_x - 1.2 * dx - 0.7 * dy, to_y - 1.2 * dy + 0.7 * dx)]
        self.line([(x, y), (to_x, to_y)], kind)
        self.line(head, kind)

    def svg(self) -> str:
        size = f'viewBox="0 0 {_n(self.width)} {_n(self.height)}" width="{_n(self.width)}"'
        style = f"<style>{COLOURS}{STYLE}</style>"
        back = f'<rect class="card" x=".5" y=".5" width="{_n(self.width - 1)}" height="{_n(self.height - 1)}" rx="8"/>'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>{escape(self.title)}</title>'
        return "\n".join([head, style, back, *self.parts, "</svg>"]) + "\n"


def heatmap(
    title: str,
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    note: str = "",
    digits: int = 2,
    hidden_above: bool = False,
) -> str:
    """Shares between 0 and 1 as a table of shades. `hidden_above`: the cells right of the diagonal are crossed out."""
    left, top = 14 + 10 * max(map(_width, rows)), 26 + 8.5 * max(map(_width, columns))
    cell = min(44.0, (WIDTH - left - 14) / len(columns))
    canvas = Canvas(WIDTH, top + cell * len(rows) + (40 if note else 16), title)
    for place, name in enumerate(columns):
        canvas.text(left + cell * (place + 0.5) + 5, top - 8, name, anchor="start", turn=-50)
    for line, (name, numbers) in enumerate(zip(rows, values, strict=True)):
        y = top + cell * line
        canvas.text(left - 8, y + cell / 2 + 6, name, anchor="end")
        for place, value in enumerate(numbers):
            x = left + cell * place
            if hidden_above and place > line:
                canvas.line([(x + 6, y + cell - 6), (x + cell - 6, y + 6)], "line")
                continue
            canvas.rect(x + 1, y + 1, cell - 2, cell - 2, "a", 0.06 + 0.7 * value)
            if cell >= 32:
                canvas.text(x + cell / 2, y + cell / 2 + 5, f"{value:.{digits}f}".lstrip("0") or "0", "small")
    if note:
        canvas.text(WIDTH / 2, canvas.height - 14, note, "soft small")
    return canvas.svg()


def bar_chart(title: str, names: Sequence[str], values: Sequence[float], *, digits: int = 3, note: str = "") -> str:
    """Horizontal bars, with the value at the end of each."""
    left, row = 18 + 10 * max(map(_width, names)), 34
    canvas = Canvas(WIDTH, 16 + row * len(names) + (36 if note else 8), title)
    scale = (WIDTH - left - 84) / max(*values, 1e-9)
    for line, (name, value) in enumerate(zip(names, values, strict=True)):
        y = 12 + row * line
        canvas.text(left - 8, y + 23, name, anchor="end")
        canvas.rect(left, y + 4, max(scale * value, 1), row - 9, "a", 0.75)
        canvas.text(left + scale * value + 8, y + 23, f"{value:.{digits}f}", "soft", anchor="start")
    if note:
        canvas.text(WIDTH / 2, canvas.height - 12, note, "soft small")
    return canvas.svg()


def curve_chart(title: str, curves: Sequence[Curve], x_axis: str, y_axis: str, height: float = 320) -> str:
    """Lines with a legend above. `Curve.colour` is a, b or soft."""
    canvas = Canvas(WIDTH, height, title)
    left, right, top, bottom = 66, WIDTH - 22, 72, height - 58
    xs, ys = ([point[axis] for curve in curves for point in curve.points] for axis in (0, 1))
    low, high, least, most = min(xs), max(xs), min([*ys, 0.0]), max(ys)

    def place(x: float, y: float) -> tuple[float, float]:
        return left + (x - low) / (high - low) * (right - left), bottom - (y - least) / (most - least) * (bottom - top)

    for y in round_ticks(least, most):
        at = place(low, y)[1]
        canvas.line([(left, at), (right, at)], "line")
        canvas.text(left - 8, at + 5, f"{y:g}", "soft small", anchor="end")
    for x in round_ticks(low, high):
        canvas.text(place(x, least)[0], bottom + 23, f"{x:,g}", "soft small")
    canvas.text((left + right) / 2, height - 12, x_axis, "soft small")
    canvas.text(14, top - 18, y_axis, "soft small", anchor="start")
    at = left
    for curve in curves:
        assert curve.colour in _COLOURS
        canvas.line([place(*point) for point in curve.points], f"stroke-{curve.colour}")
        canvas.line([(at, 24), (at + 24, 24)], f"stroke-{curve.colour}")
        canvas.text(at + 30, 30, curve.name, anchor="start")
        at += 52 + 10.5 * _width(curve.name)
    return canvas.svg()


def _width(text: str) -> int:
    """In letters; a Chinese character is two wide."""
    return sum(2 if ord(letter) > 0x2E7F else 1 for letter in text)


def _n(number: float) -> str:
    """Rounded before it is printed, and without a negative zero."""
    return f"{round(float(number), 1) + 0.0:g}"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _opacity(value: float) -> str:
    return "" if value == 1 else f' opacity="{value:.2f}"'
