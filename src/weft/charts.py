"""Line charts as SVG, with a label at the end of each curve and the values at the pointer."""

import json
import math
import re
from dataclasses import dataclass
from html import escape
from itertools import count
from typing import Any

_WIDTH, _HEIGHT = 860, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 96, 12, 34
_MOST_POINTS = 600
_numbers = count()
_VALUES = ("ID", "DATA", "AXIS", "WIDE", "LEFT", "END", "LOW", "HIGH")  # in the script, to be filled in
_STYLE = "<style>text{font:12px sans-serif;fill:#667085}.grid{stroke:#e4e7ec}.cursor{visibility:hidden}</style>"

_SCRIPT = """
{const svg=document.getElementById(ID),lines=DATA,cursor=svg.querySelector(".cursor"),
say=svg.querySelector(".values"),x0=LEFT,x1=END,low=LOW,high=HIGH;
svg.addEventListener("pointermove",e=>{const box=svg.getBoundingClientRect(),
x=(e.clientX-box.left)/box.width*WIDE;if(x<x0||x>x1)return;
const at=low+(x-x0)/(x1-x0)*(high-low);cursor.style.visibility="visible";
cursor.setAttribute("x1",x);cursor.setAttribute("x2",x);
say.textContent=AXIS+" "+Math.round(at).toLocaleString()+lines.map(([name,points])=>{
let best=points[0];for(const p of points)if(Math.abs(p[0]-at)<Math.abs(best[0]-at))best=p;
return "   "+name+" "+best[1].toFixed(3)}).join("")})}
"""


@dataclass(frozen=True)
class Curve:
    name: str
    colour: str
    points: list[tuple[float, float]]


def smooth(points: list[tuple[float, float]], share: float = 0.02) -> list[tuple[float, float]]:
    """A running mean over a share of the points, thinned to about `_MOST_POINTS`."""
    reach = max(0, round(len(points) * share / 2))
    means = []
    for index in range(0, len(points), max(1, len(points) // _MOST_POINTS)):
        near = [value for _, value in points[max(0, index - reach) : index + reach + 1]]
        means.append((points[index][0], sum(near) / len(near)))
    return means


def chart(lines: list[Curve], axis: str) -> str:
    lines = [Curve(line.name, line.colour, [p for p in line.points if math.isfinite(p[1])]) for line in lines]
    lines = [line for line in lines if line.points]
    if not lines:
        return "<svg></svg>"
    low, high = _range([x for line in lines for x, _ in line.points])
    bottom, top = _range([y for line in lines for _, y in line.points])
    right = _WIDTH - _RIGHT

    def place(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + (x - low) / (high - low) * (right - _LEFT)
        return across, _TOP + (top - y) / (top - bottom) * (_HEIGHT - _TOP - _BOTTOM)

    parts: list[str] = []
    for y in round_ticks(bottom, top):
        at = place(low, y)[1]
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x in round_ticks(low, high):
        at = place(x, bottom)[0]
        parts.append(f'<text x="{at:.1f}" y="{_HEIGHT - 12}" text-anchor="middle">{x:,g}</text>')
    for line, label in zip(lines, _label_places([place(*line.points[-1])[1] for line in lines]), strict=True):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line.points))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{line.colour}" stroke-width="2"/>')
        style = f'style="fill:{line.colour};font-weight:600"'
        parts.append(f'<text x="{right + 8}" y="{label + 4:.1f}" {style}>{escape(line.name)}</text>')
    parts.append(f'<line class="cursor" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>')
    parts.append(f'<text class="values" x="{right}" y="{_TOP + 12}" text-anchor="end"></text>')
    identity = f"chart-{next(_numbers)}"
    shown = [[line.name, [[round(x, 3), round(y, 5)] for x, y in line.points]] for line in lines]
    values = {"ID": identity, "DATA": shown, "AXIS": axis, "WIDE": _WIDTH, "LEFT": _LEFT, "END": right}
    script = _filled(_SCRIPT, {**values, "LOW": low, "HIGH": high})
    svg = f'<svg id="{identity}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>'
    return f"{svg}<script>{script}</script>"


def _filled(script: str, values: dict[str, Any]) -> str:
    """Fills in all values in one pass, as a value may contain another's name. `<` could end the script."""
    told = {name: json.dumps(value).replace("<", "\\u003c") for name, value in values.items()}
    return re.sub(rf"\b({'|'.join(told)})\b", lambda found: told[found[1]], script)


def is_chart_script(text: str) -> bool:
    """Whether this is the script of a chart with some values, and nothing else."""
    first, *rest = re.split(rf"\b(?:{'|'.join(_VALUES)})\b", _SCRIPT)
    if not text.startswith(first):
        return False
    place = len(first)
    try:
        for part in rest:
            _, place = json.JSONDecoder().raw_decode(text, place)
            if not text.startswith(part, place):
                return False
            place += len(part)
    except (ValueError, RecursionError):
        return False
    return place == len(text)


def standalone(lines: list[Curve], axis: str) -> str:
    """The chart as a separate SVG file, without the script."""
    drawing = chart(lines, axis).partition("<script>")[0]
    return drawing.replace('role="img">', f'role="img" xmlns="http://www.w3.org/2000/svg">{_STYLE}', 1) + "\n"


def _range(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def round_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """About five round numbers between `low` and `high`."""
    rough = (high - low) / about
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    first = math.ceil(low / step)
    return [round(index * step, 10) for index in range(first, math.floor(high / step) + 1)]


def _label_places(wanted: list[float], apart: float = 16) -> list[float]:
    """Moves labels down until none overlaps another."""
    placed: dict[int, float] = {}
    free = -math.inf
    for index in sorted(range(len(wanted)), key=wanted.__getitem__):
        placed[index] = max(wanted[index], free)
        free = placed[index] + apart
    return [placed[index] for index in range(len(wanted))]
