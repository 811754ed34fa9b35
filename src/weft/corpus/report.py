"""The figures of a build (`report.json`), gathered from those of its pieces."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.corpus.first_pass import MOST_EXAMPLES, valid_unicode
from weft.corpus.plan import CorpusSource
from weft.errors import FolderError
from weft.folders import read_json
from weft.sources.files import unknown_ending

CORPUS_REPORT, CORPUS_PAGE = "report.json", "report.html"
MOST_FILES_SHOWN = 20  # names of skipped files
_READ_STEPS = ("not fetched", "unreadable", "put aside", "empty")  # reasons, in the order of the funnel
_LAST_STEPS = ("exact duplicate", "near duplicate", "contaminated")

Figures = dict[str, Any]


@dataclass(frozen=True)
class BuildResults:
    """What the steps of a build have found. `pieces`, `filtered` and `written` have one entry per piece."""

    name: str
    sources: Sequence[CorpusSource]
    pieces: Sequence[Figures]
    filtered: Sequence[Figures]
    written: Sequence[Figures]
    chosen: Figures
    tests: Figures | None
    failures: dict[str, dict[str, str]]  # by the path of a source: address -> why it was not fetched

    @property
    def documents_read(self) -> int:
        return sum(figures["documents"] for figures in self.filtered) + len(self.not_fetched)

    @property
    def not_fetched(self) -> list[str]:
        return [f"{address} {why}." for found in self.failures.values() for address, why in found.items()]


def gather_report(results: BuildResults) -> Figures:
    filtered, written, chosen = results.filtered, results.written, results.chosen
    contaminated = _sum(figures["contaminated"] for figures in written)
    reasons = _reasons(results, contaminated["dropped"])
    splits = _splits(written)
    skipped = [file for source in results.sources for file in source.passed_over]
    counts = {
        "documents_read": results.documents_read,
        "bytes_read": sum(figures["bytes"] for figures in filtered),
        "documents": sum(figures["rows"] for figures in written),
        "bytes": sum(facts["bytes"] for facts in splits.values()),
        "tokens": sum(facts["tokens"] for facts in splits.values()),
        "dropped": dict(reasons.most_common()),
        "passed_over": dict(_passed_over(results).most_common()),
        "splits": {split: facts["documents"] for split, facts in splits.items()},
    }
    tests = results.tests
    return {
        "name": results.name,
        "counts": counts,
        "funnel": _funnel(results.documents_read, reasons),
        "examples": _examples(results),
        "changes": _sum(figures["changes"] for figures in filtered),
        "languages": _before_and_after("languages", filtered, written),
        "lengths": _before_and_after("lengths", filtered, written),
        "duplicates": chosen,
        "sources": _by_source(results),
        "splits": splits,
        "passed_over": [valid_unicode(file.name) for file in skipped][:MOST_FILES_SHOWN],
        "tests": tests and {**tests, "found": contaminated.total(), **contaminated, "ignored": chosen["ignored"]},
    }


def _reasons(results: BuildResults, contaminated: int) -> Counter[str]:
    """How many documents were dropped for each reason."""
    reasons: Counter[str] = _sum(figures["reasons"] for figures in results.filtered)
    late = {
        "not fetched": len(results.not_fetched),
        "exact duplicate": results.chosen["exact"],
        "near duplicate": results.chosen["near"],
        "contaminated": contaminated,
    }
    for reason, count in late.items():
        if count:
            reasons[reason] = count
    return reasons


def _examples(results: BuildResults) -> dict[str, list[str]]:
    """A few dropped documents for each reason."""
    examples: dict[str, list[str]] = {}
    for figures in results.filtered:
        for reason, texts in figures["examples"].items():
            examples[reason] = [*examples.get(reason, []), *texts][:MOST_EXAMPLES]
    if leaks := [text for figures in results.written for text in figures["examples"]]:
        examples["contaminated"] = leaks[:MOST_EXAMPLES]
    if results.not_fetched:
        examples["not fetched"] = results.not_fetched[:MOST_EXAMPLES]
    return examples


def _splits(written: Sequence[Figures]) -> dict[str, dict[str, int]]:
    return {
        split: {fact: _sum(figures[fact] for figures in written)[split] for fact in ("documents", "bytes", "tokens")}
        for split in _sum(figures["documents"] for figures in written)
    }


def _sum(counters: Iterable[dict[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for counter in counters:
        total.update(counter)
    return total


def _passed_over(results: BuildResults) -> Counter[str]:
    """How many files in folders and archives were skipped, by their unknown file extensions."""
    found: Counter[str] = _sum(figures["passed_over"] for figures in results.filtered)
    found.update(unknown_ending(file.name) for source in results.sources for file in source.passed_over)
    return found


def _funnel(read: int, reasons: Counter[str]) -> list[list[Any]]:
    """Rows of [step, documents left, reasons for dropping the others]."""
    rules = [reason for reason in reasons if reason not in (*_READ_STEPS, *_LAST_STEPS, "language")]
    steps = {
        "readable": _READ_STEPS,
        "in a wanted language": ("language",),
        "of good quality": tuple(sorted(rules, key=lambda rule: (-reasons[rule], rule))),
        "no exact copy": ("exact duplicate",),
        "no near copy": ("near duplicate",),
        "not of a test set": ("contaminated",),
    }
    funnel: list[list[Any]] = [["read", read, []]]
    for step, taken in steps.items():
        gone = [reason for reason in taken if reasons[reason]]
        if gone:
            read -= sum(reasons[reason] for reason in gone)
            funnel.append([step, read, gone])
    return funnel


def _before_and_after(what: str, filtered: Sequence[Figures], written: Sequence[Figures]) -> dict[str, dict[str, int]]:
    return {
        "read": dict(sorted(_sum(figures[what] for figures in filtered).items())),
        "kept": dict(sorted(_sum(figures[what] for figures in written).items())),
    }


def _by_source(results: BuildResults) -> list[Figures]:
    rows = []
    for number, source in enumerate(results.sources):
        mine = [index for index, piece in enumerate(results.pieces) if piece["source_number"] == number]
        filtered, written = [results.filtered[index] for index in mine], [results.written[index] for index in mine]
        rows.append(
            {
                "name": source.name,
                "weight": source.weight,
                "documents_read": sum(figures["documents"] for figures in filtered)
                + len(results.failures.get(source.path, {})),
                "documents": sum(figures["rows"] for figures in written),
                "bytes": sum(sum(figures["bytes"].values()) for figures in written),
                "tokens": sum(sum(figures["tokens"].values()) for figures in written),
            }
        )
    weights = sum(row["weight"] for row in rows if row["documents"])  # training skips sources without documents
    return [{**row, "weight": row["weight"] / weights if row["documents"] else 0.0} for row in rows]


def read_corpus_report(folder: Path) -> Figures:
    if not (folder / CORPUS_REPORT).is_file():
        raise FolderError(f"{folder} is not a corpus: it has no {CORPUS_REPORT}.")
    report = read_json(folder / CORPUS_REPORT)
    if not {"counts", "funnel", "sources", "languages", "lengths"} <= report.keys():
        raise FolderError(f"{folder / CORPUS_REPORT} is not the report of a corpus.")
    return report
