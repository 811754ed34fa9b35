"""Drift between two corpora: their reports are compared figure by figure, each with a threshold.

Shares are compared by their difference. Distributions (lengths, languages, sources) are compared by total variation
distance: the share of documents that would have to change class to make them equal.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_SHARE_THRESHOLD, _DISTRIBUTION_THRESHOLD, _RATIO_THRESHOLD = 0.05, 0.1, 0.2  # larger changes are drift


@dataclass(frozen=True)
class Drift:
    what: str
    before: float
    now: float
    change: float
    threshold: float

    @property
    def drifts(self) -> bool:
        return self.change > self.threshold

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "drifts": self.drifts}


def find_drift(before: dict[str, Any], now: dict[str, Any]) -> list[Drift]:
    """All figures; those beyond their threshold first, then by size of the change."""
    found = [
        _share("share of documents kept", _kept(before), _kept(now)),
        _ratio("bytes of an average document", _mean_bytes(before), _mean_bytes(now)),
    ]
    reasons = sorted({*before["counts"]["dropped"], *now["counts"]["dropped"]})
    found += [_share(f"share dropped: {reason}", _dropped(before, reason), _dropped(now, reason)) for reason in reasons]
    for what in ("lengths", "languages"):
        found.append(_distribution(what, before[what]["kept"], now[what]["kept"]))
    found.append(_distribution("sources", _sources(before), _sources(now)))
    languages = sorted({*before["languages"]["kept"], *now["languages"]["kept"]})
    for language in languages:
        shares = [_part(report["languages"]["kept"], language) for report in (before, now)]
        if max(shares) >= _SHARE_THRESHOLD:
            found.append(_share(f"share of {language}", *shares))
    return sorted(found, key=lambda drift: (not drift.drifts, -drift.change / drift.threshold))


def _share(what: str, before: float, now: float) -> Drift:
    return Drift(what, before, now, abs(now - before), _SHARE_THRESHOLD)


def _ratio(what: str, before: float, now: float) -> Drift:
    change = max(now, before) / max(min(now, before), 1e-9) - 1 if max(now, before) > 0 else 0.0
    return Drift(what, before, now, change, _RATIO_THRESHOLD)


def _distribution(what: str, before: Mapping[str, float], now: Mapping[str, float]) -> Drift:
    moved = sum(abs(_part(before, key) - _part(now, key)) for key in {*before, *now}) / 2
    return Drift(f"{what}, all together", 0.0, moved, moved, _DISTRIBUTION_THRESHOLD)


def _part(counts: Mapping[str, float], key: str) -> float:
    return counts.get(key, 0) / max(sum(counts.values()), 1e-9)


def _kept(report: dict[str, Any]) -> float:
    return report["counts"]["documents"] / max(report["counts"]["documents_read"], 1)


def _dropped(report: dict[str, Any], reason: str) -> float:
    return report["counts"]["dropped"].get(reason, 0) / max(report["counts"]["documents_read"], 1)


def _mean_bytes(report: dict[str, Any]) -> float:
    return report["counts"]["bytes"] / max(report["counts"]["documents"], 1)


def _sources(report: dict[str, Any]) -> dict[str, float]:
    return {source["name"]: source["bytes"] for source in report["sources"]}
