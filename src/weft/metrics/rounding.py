"""How many digits of a metric are worth printing."""

from collections.abc import Sequence

UP_TO_100 = {"bleu", "chrf", "perplexity"}  # scales on which one decimal is enough; the others take three


def rounded(metric: str, value: float) -> str:
    return f"{value:.1f}" if metric in UP_TO_100 else f"{value:.3f}"


def interval_text(metric: str, ends: Sequence[float]) -> str:
    """0.950–0.987"""
    return "–".join(rounded(metric, end) for end in ends)


def gap_text(metric: str, ends: Sequence[float]) -> str:
    """−0.008 … 0.027: the interval of a difference, whose ends may be negative."""
    return " … ".join(signed(metric, end) for end in ends)


def signed(metric: str, value: float) -> str:
    """With the minus sign of typography, which does not look like a dash between two numbers."""
    return rounded(metric, value).replace("-", "−")
