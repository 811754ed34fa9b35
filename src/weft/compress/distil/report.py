"""The yardsticks as a table of the report's page."""

from html import escape
from typing import Any

from weft.metrics.difference import LOWER_IS_BETTER
from weft.metrics.rounding import interval_text, rounded
from weft.page import grid


def yardstick_section(
    metric: str, title: str, own: dict[str, Any], yardsticks: dict[str, Any], sentences: list[str]
) -> str:
    """`own` has the student's figures and intervals, `yardsticks` those of each other model."""
    rows = [_row(metric, "the distilled student", own)]
    rows += [_row(metric, str(facts["name"]), facts) for facts in yardsticks.values()]
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    headings = ["", title, "95 % interval", "parameters", "student minus this"]
    return f"<h2>Yardsticks</h2>{said}{grid(headings, rows)}"


def _row(metric: str, name: str, facts: dict[str, Any]) -> list[str]:
    interval, value = facts.get("intervals", {}).get(metric), facts["figures"].get(metric)
    parameters = facts.get("parameters")
    return [
        name,
        "" if value is None else rounded(metric, value),
        interval_text(metric, interval) if interval else "",
        "" if parameters is None else f"{parameters:,}",
        facts.get("difference", {}).get("verdict", ""),
    ]


def kept_share(metric: str, own: float, teacher: float) -> float | None:
    """How much of the teacher's score the student keeps. None where a smaller figure is better or it is 0."""
    return None if metric in LOWER_IS_BETTER or teacher <= 0 else own / teacher


def yardstick_sentences(metric: str, title: str, own: float, yardsticks: dict[str, Any]) -> list[str]:
    found = []
    teacher = yardsticks["teacher"]["figures"][metric]
    if (kept := kept_share(metric, own, teacher)) is not None:
        found.append(f"The student keeps {kept:.1%} of the teacher's {title} ({rounded(metric, teacher)}).")
    for name in ("alone", "untrained"):
        facts = yardsticks.get(name, {})
        if verdict := facts.get("difference", {}).get("verdict"):
            found.append(f"Against {facts['name']}: {verdict}.")
    return found
