"""The card in one sentence.

    3.9× smaller, 2.1× faster, accuracy 89.1 → 88.8 % (difference −0.3 points, −1.0 to 0.4: no loss shown)

"A loss" needs an interval of the difference that excludes zero.
"""

from weft.compress.card.measured import MeasuredModels, ModelCard
from weft.metrics.difference import PairedDifference
from weft.metrics.rounding import UP_TO_100
from weft.tasks.catalog import metric_title

_NEAR = 1.05  # ratios nearer to 1 than this are no change
_SHARES = ("accuracy", "f1", "exact", "intent", "slot_f1", "hits")  # beginnings of metrics that are told in percent
_DIGITS = {"perplexity": 2, "cosine": 4}  # where differences are small
NO_LOSS = "no loss shown"
_TITLES = {"bits_per_byte": "bits per byte", "cosine": "mean cosine"}


def card_verdict(card: MeasuredModels) -> str:
    """Of the last model. Its steps are named if there are several models."""
    before, after = card.models[0], card.models[-1]
    sentence = model_verdict(card, after)
    if len(card.models) > 2:
        chain = " → ".join(after.steps) if after.steps else " → ".join(one.name for one in card.models[1:])
        sentence = f"{before.name} → {chain}: {sentence}"
    return sentence


def model_verdict(card: MeasuredModels, model: ModelCard) -> str:
    against = model.against
    assert against is not None
    speed = against.together if card.headline == "together" else against.alone
    parts = [
        _ratio(against.smaller, "smaller", "larger", "of the same size"),
        _ratio(speed.value, "faster", "slower", "as fast"),
    ]
    return ", ".join([*parts, *_quality(card, model)])


def _ratio(value: float, more: str, less: str, same: str) -> str:
    if 1 / _NEAR < value < _NEAR:
        return same
    return f"{times(value)} {more}" if value > 1 else f"{times(1 / value)} {less}"


def times(value: float) -> str:
    return f"{value:.1f}×" if value < 9.95 else f"{value:.0f}×"


def _quality(card: MeasuredModels, model: ModelCard) -> list[str]:
    before = card.models[0].figures.get(card.metric)
    after = model.figures.get(card.metric)
    if before is None or after is None:
        return ["quality not comparable"]
    name, assess = title(card.metric, card.task), difference_text(model, card.metric)
    if card.kind == "vectors":
        low, high = model.intervals[card.metric]
        return [f"{name} with the vectors before {after:.4f} ({low:.4f} to {high:.4f})"]
    unit = " %" if is_share(card.metric) else ""
    told = f"{name} {number(card.metric, before)} → {number(card.metric, after)}{unit}"
    return [f"{told} (difference {assess})" if assess else told]


def difference_text(model: ModelCard, metric: str) -> str:
    """−0.3 points, −1.0 to 0.4: no loss shown"""
    gap = None if model.against is None else model.against.differences.get(metric)
    if gap is None:
        return ""
    unit = " points" if is_share(metric) else ""
    ends = " to ".join(signed_number(metric, end) for end in (gap.low, gap.high))
    return f"{signed_number(metric, gap.value)}{unit}, {ends}: {loss_word(gap)}"


def loss_word(gap: PairedDifference) -> str:
    return "a loss" if gap.is_behind else "a gain" if gap.is_ahead else NO_LOSS


def title(metric: str, task: str) -> str:
    return _TITLES.get(metric) or metric_title(metric, task)


def is_share(metric: str) -> bool:
    """Whether the metric is told in percent."""
    return metric.startswith(_SHARES)


def number(metric: str, value: float) -> str:
    if is_share(metric):
        return f"{100 * value:.1f}"
    if metric in _DIGITS:
        return f"{value:.{_DIGITS[metric]}f}"
    return f"{value:.1f}" if metric in UP_TO_100 else f"{value:.3f}"


def signed_number(metric: str, value: float) -> str:
    """With the minus sign of typography; a zero has no sign."""
    shown = number(metric, value)
    if not any(digit in shown for digit in "123456789"):
        return shown.removeprefix("-")
    return shown.replace("-", "−")
