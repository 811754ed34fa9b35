"""How good a model is, in one line: its metric with an interval, and how it compares.

    accuracy 0.970 (0.950–0.987) on 300 texts; better than TF-IDF + logistic regression (0.950) by 0.020 (0.004 … 0.037)

"Better" and "worse" need an interval of the difference that excludes zero; otherwise there is no clear difference.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from weft.metrics.difference import PairedDifference
from weft.metrics.rounding import interval_text, rounded
from weft.tasks.catalog import TASKS, metric_title

COMPARED = ("baseline", "untuned")  # the keys of results that the model is compared with


def verdict_line(results: Mapping[str, Any]) -> str:
    """Of results as weft.json has them; results of earlier versions have no differences."""
    metric, value = next(iter(results["figures"].items()))
    line = f"{metric_title(metric, results['task'])} {rounded(metric, value)}"
    if interval := results["intervals"].get(metric):
        line += f" ({interval_text(metric, interval)})"
    line += f" on {results['examples']:,} {TASKS[results['task']].counted_as}"
    return "; ".join([line, *_comparisons(metric, results)])


def _comparisons(metric: str, results: Mapping[str, Any]) -> Iterator[str]:
    for key in COMPARED:
        other = results.get(key)
        if other is None or metric not in other["figures"]:
            continue
        name = f"{other['name']} ({rounded(metric, other['figures'][metric])})"
        gap = _difference(other)
        yield name if gap is None else gap.verdict_against(name)


def tuning_warning(results: Mapping[str, Any]) -> str:
    """A sentence if the tuned model is not clearly better than the untuned one; otherwise nothing."""
    gap = _difference(results.get("untuned", {}))
    return "" if gap is None or gap.is_ahead else "Tuning does not beat the untuned model."


def _difference(other: Mapping[str, Any]) -> PairedDifference | None:
    facts = other.get("difference")
    return (
        None if facts is None else PairedDifference(**{key: facts[key] for key in ("figure", "value", "low", "high")})
    )
