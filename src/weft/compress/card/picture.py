"""The card's picture: quality against speed, a circle for each model whose area is its size on disk.

Up is better and right is faster, whatever the metric. The chain runs from circle to circle. There are two drawings of
the same, one of which is narrow enough for a phone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from weft.charts import round_ticks
from weft.compress.card.measured import MeasuredModels, ModelCard
from weft.compress.card.table import size_text
from weft.compress.card.verdict import is_share, number, title
from weft.metrics.difference import LOWER_IS_BETTER

_SIZES = {"wide": (860, 400), "narrow": (360, 340)}
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 20, 20, 46
_SPEEDS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 100, 200)
_LETTER, _LINE = 6.6, 15  # width and height of the labels' letters, about
_LEAST_RANGE = 0.02  # of the first model's value: smaller differences are not magnified further
_LARGEST = {"wide": 30.0, "narrow": 22.0}  # radius


@dataclass(frozen=True)
class _Point:
    model: ModelCard
    speed: float
    value: float
    low: float
    high: float
    is_loss: bool


@dataclass(frozen=True)
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "_Box") -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def picture(card: MeasuredModels) -> str:
    """Both drawings, of the models whose quality can be compared; nothing if there are none but the first."""
    points = [_point(card, model) for model in card.models if card.metric in model.figures]
    if len(points) < 2:
        return ""
    return "".join(_Drawing(card, points, kind).svg() for kind in _SIZES)


def _point(card: MeasuredModels, model: ModelCard) -> _Point:
    value, against = model.figures[card.metric], model.against
    if against is None:
        return _Point(model, 1.0, value, value, value, False)
    speed = against.together if card.headline == "together" else against.alone
    gap, before = against.differences.get(card.metric), card.models[0].figures[card.metric]
    low, high = (value, value) if gap is None else (before + gap.low, before + gap.high)
    return _Point(model, speed.value, value, low, high, gap is not None and gap.is_behind)


class _Drawing:
    def __init__(self, card: MeasuredModels, points: Sequence[_Point], kind: str) -> None:
        self.card, self.points, self.kind = card, points, kind
        self.width, self.height = _SIZES[kind]
        self.is_reversed = card.metric in LOWER_IS_BETTER
        ends = [end for point in points for end in (point.low, point.high)]
        least = _LEAST_RANGE * abs(points[0].value) or 1e-6
        room = max(least - (max(ends) - min(ends)), 0) / 2 + 0.18 * max(max(ends) - min(ends), least)
        self.low, self.high = min(ends) - room, max(ends) + room
        speeds = [math.log(point.speed) for point in points]
        room = max(0.1, 0.16 * (max(speeds) - min(speeds)))
        self.slow, self.fast = min(speeds) - room, max(speeds) + room
        self.largest = max(point.model.disk_bytes for point in points)

    def x(self, speed: float) -> float:
        share = (math.log(speed) - self.slow) / (self.fast - self.slow)
        return _LEFT + share * (self.width - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return _TOP + (share if self.is_reversed else 1 - share) * (self.height - _TOP - _BOTTOM)

    def radius(self, point: _Point) -> float:
        return max(4.0, _LARGEST[self.kind] * math.sqrt(point.model.disk_bytes / self.largest))

    def svg(self) -> str:
        told = f"{title(self.card.metric, self.card.task)} against speed"
        parts = [*self._axes(), *self._chain(), *(part for point in self.points for part in self._circle(point))]
        parts += self._labels()
        size = f'viewBox="0 0 {self.width} {self.height}"'
        return f'<svg class="{self.kind}" {size} role="img" aria-label="{escape(told)}">{"".join(parts)}</svg>'

    def _axes(self) -> list[str]:
        right, bottom = self.width - _RIGHT, self.height - _BOTTOM
        parts = []
        for value in round_ticks(self.low, self.high):
            at = self.y(value)
            parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
            shown = f"{100 * value:g}" if is_share(self.card.metric) else f"{value:g}"
            parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{shown}</text>')
        for speed in self._speed_ticks():
            at = self.x(speed)
            parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{bottom}"/>')
            parts.append(f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle">{speed:g}×</text>')
        level = self.y(self.points[0].value)
        parts.append(f'<line class="level" x1="{_LEFT}" x2="{right}" y1="{level:.1f}" y2="{level:.1f}"/>')
        unit = ", %" if is_share(self.card.metric) else ", lower is better" if self.is_reversed else ""
        name = escape(title(self.card.metric, self.card.task) + unit)
        parts.append(f'<text x="{_LEFT}" y="{_TOP - 8}">{name}</text>')
        parts.append(f'<text x="{right}" y="{bottom + 36}" text-anchor="end">times as fast as before →</text>')
        return parts

    def _speed_ticks(self) -> list[float]:
        """As many as fit side by side."""
        found: list[float] = []
        for speed in [one for one in _SPEEDS if self.slow < math.log(one) < self.fast]:
            if not found or self.x(speed) - self.x(found[-1]) > 40:
                found.append(speed)
        return found

    def _chain(self) -> list[str]:
        path = " ".join(f"{self.x(point.speed):.1f},{self.y(point.value):.1f}" for point in self.points)
        return [f'<polyline class="chain" points="{path}"/>']

    def _circle(self, point: _Point) -> list[str]:
        x, y, radius = self.x(point.speed), self.y(point.value), self.radius(point)
        kind = "before" if point.model.against is None else "loss" if point.is_loss else "after"
        hint = f"{point.model.name}: {number(self.card.metric, point.value)}, {point.speed:.2f}×"
        circle = (
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"><title>{escape(hint)}</title></circle>'
        )
        if point.low == point.high:
            return [circle]
        top, bottom = sorted((self.y(point.low), self.y(point.high)))
        ends = "".join(f"M{x - 5:.1f} {end:.1f}h10" for end in (top, bottom))
        return [circle, f'<path class="bar {kind}" d="M{x:.1f} {top:.1f}V{bottom:.1f}{ends}"/>']

    def _labels(self) -> list[str]:
        taken: list[tuple[_Point | None, _Box]] = [(one, box) for one in self.points for box in self._boxes(one)]
        parts, most = [], 18 if self.kind == "narrow" else 32
        for point in self.points:
            lines = [_shortened(point.model.name, most), size_text(point.model.disk_bytes)]
            others = [box for owner, box in taken if owner is not point]
            box = self._free_place(point, max(map(len, lines)) * _LETTER, others)
            taken.append((None, box))
            middle = (box.left + box.right) / 2
            for row, (kind, line) in enumerate(zip(("name", "size"), lines, strict=True)):
                place = f'x="{middle:.1f}" y="{box.top + (row + 0.8) * _LINE:.1f}"'
                parts.append(f'<text class="{kind}" {place} text-anchor="middle">{escape(line)}</text>')
        return parts

    def _boxes(self, point: _Point) -> list[_Box]:
        """The circle and the bar."""
        x, y, radius = self.x(point.speed), self.y(point.value), self.radius(point)
        top, bottom = sorted((self.y(point.low), self.y(point.high)))
        return [_Box(x - radius, y - radius, x + radius, y + radius), _Box(x - 6, top, x + 6, bottom)]

    def _free_place(self, point: _Point, wide: float, taken: Sequence[_Box]) -> _Box:
        """Beside the circle, where nothing else is; if there is no such place, above it."""
        x, y, radius, tall = self.x(point.speed), self.y(point.value), self.radius(point) + 6, 2 * _LINE
        corner = radius * 0.75
        places = [
            (x + corner, y - corner - tall), (x + radius, y - tall / 2), (x - corner - wide, y + corner),
            (x - radius - wide, y - tall / 2), (x + corner, y + corner), (x - corner - wide, y - corner - tall),
            (x - wide / 2, y - radius - tall), (x - wide / 2, y + radius),
        ]  # fmt: skip
        boxes = [_Box(left, top, left + wide, top + tall) for left, top in places]
        inside = [
            one
            for one in boxes
            if one.left > _LEFT and one.right < self.width and one.top > _TOP and one.bottom < self.height - _BOTTOM
        ]
        free = [one for one in inside if not any(one.overlaps(other) for other in taken)]
        return (free or inside or boxes)[0]


def _shortened(name: str, most: int) -> str:
    return name if len(name) <= most else f"…{name[1 - most :]}"
