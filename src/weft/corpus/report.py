"""What came out of a build: figures (`report.json`), and a page to look at (`report.html`)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from weft.corpus.drift import Drift, find_drift
from weft.corpus.plan import CorpusSource
from weft.corpus.sift import MOST_EXAMPLES, valid_unicode
from weft.errors import FolderError
from weft.folders import read_json, write_file
from weft.page import bars, grid, page, tiles, unfold
from weft.sources.files import unknown_ending

CORPUS_REPORT, CORPUS_PAGE = "report.json", "report.html"
_READ_STEPS = ("not fetched", "unreadable", "put aside", "empty")  # the steps of the funnel: what each takes away
_LAST_STEPS = ("exact duplicate", "near duplicate", "contaminated")
_MOST_LANGUAGES = 12
MOST_FILES_SHOWN = 20  # files that were passed over, by name

_Figures = dict[str, Any]


def gather_report(
    name: str,
    sources: Sequence[CorpusSource],
    pieces: Sequence[_Figures],
    sifted: Sequence[_Figures],
    written: Sequence[_Figures],
    chosen: _Figures,
    tests: _Figures | None,
    failures: dict[str, dict[str, str]],
) -> _Figures:
    """The figures of all pieces in one."""
    reasons: Counter[str] = _sum(figures["reasons"] for figures in sifted)
    contaminated = _sum(figures["contaminated"] for figures in written)
    examples: dict[str, list[str]] = {}
    for figures in sifted:
        for reason, texts in figures["examples"].items():
            examples[reason] = [*examples.get(reason, []), *texts][:MOST_EXAMPLES]
    missing = [f"{address} {why}." for found in failures.values() for address, why in found.items()]
    for reason, count in (
        ("not fetched", len(missing)),
        ("exact duplicate", chosen["exact"]),
        ("near duplicate", chosen["near"]),
        ("contaminated", contaminated["dropped"]),
    ):
        if count:
            reasons[reason] = count
    if leaks := [text for figures in written for text in figures["examples"]]:
        examples["contaminated"] = leaks[:MOST_EXAMPLES]
    examples |= {"not fetched": missing[:MOST_EXAMPLES]} if missing else {}
    splits = {
        split: {fact: _sum(figures[fact] for figures in written)[split] for fact in ("documents", "bytes", "tokens")}
        for split in _sum(figures["documents"] for figures in written)
    }
    read = sum(figures["documents"] for figures in sifted) + len(missing)
    counts = {
        "documents_read": read,
        "bytes_read": sum(figures["bytes"] for figures in sifted),
        "documents": sum(figures["rows"] for figures in written),
        "bytes": sum(facts["bytes"] for facts in splits.values()),
        "tokens": sum(facts["tokens"] for facts in splits.values()),
        "dropped": dict(reasons.most_common()),
        "passed_over": dict(_passed_over(sources, sifted).most_common()),
        "splits": {split: facts["documents"] for split, facts in splits.items()},
    }
    return {
        "name": name,
        "counts": counts,
        "funnel": _funnel(read, reasons),
        "examples": examples,
        "changes": _sum(figures["changes"] for figures in sifted),
        "languages": _before_and_after("languages", sifted, written),
        "lengths": _before_and_after("lengths", sifted, written),
        "duplicates": chosen,
        "sources": _by_source(sources, pieces, sifted, written, failures),
        "splits": splits,
        "passed_over": [valid_unicode(file.name) for source in sources for file in source.passed_over][
            :MOST_FILES_SHOWN
        ],
        "tests": tests and {**tests, "found": contaminated.total(), **contaminated, "ignored": chosen["ignored"]},
    }


def _sum(counters: Iterable[dict[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for counter in counters:
        total.update(counter)
    return total


def _passed_over(sources: Sequence[CorpusSource], sifted: Sequence[_Figures]) -> Counter[str]:
    """Files that were not read for their endings, in folders and in archives."""
    found: Counter[str] = _sum(figures["passed_over"] for figures in sifted)
    found.update(unknown_ending(file.name) for source in sources for file in source.passed_over)
    return found


def _funnel(read: int, reasons: Counter[str]) -> list[list[Any]]:
    """[step, documents left, reasons that took some away]"""
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


def _before_and_after(what: str, sifted: Sequence[_Figures], written: Sequence[_Figures]) -> dict[str, dict[str, int]]:
    return {
        "read": dict(sorted(_sum(figures[what] for figures in sifted).items())),
        "kept": dict(sorted(_sum(figures[what] for figures in written).items())),
    }


def _by_source(
    sources: Sequence[CorpusSource],
    pieces: Sequence[_Figures],
    sifted: Sequence[_Figures],
    written: Sequence[_Figures],
    failures: dict[str, dict[str, str]],
) -> list[_Figures]:
    rows = []
    for number, source in enumerate(sources):
        mine = [index for index, piece in enumerate(pieces) if piece["source_number"] == number]
        rows.append(
            {
                "name": source.name,
                "weight": source.weight,
                "documents_read": sum(sifted[index]["documents"] for index in mine)
                + len(failures.get(source.path, {})),
                "documents": sum(written[index]["rows"] for index in mine),
                "bytes": sum(_sum([written[index]["bytes"]]).total() for index in mine),
                "tokens": sum(_sum([written[index]["tokens"]]).total() for index in mine),
            }
        )
    weights = sum(row["weight"] for row in rows if row["documents"])  # training reads what there is
    return [{**row, "weight": row["weight"] / weights if row["documents"] else 0.0} for row in rows]


def read_corpus_report(folder: Path) -> _Figures:
    if not (folder / CORPUS_REPORT).is_file():
        raise FolderError(f"{folder} is not a corpus: it has no {CORPUS_REPORT}.")
    report = read_json(folder / CORPUS_REPORT)
    if not {"counts", "funnel", "sources", "languages", "lengths"} <= report.keys():
        raise FolderError(f"{folder / CORPUS_REPORT} is not the report of a corpus.")
    return report


def write_corpus_page(folder: Path, earlier: Path | None = None, *, examples: bool = True) -> list[Drift]:
    """The page, with what has changed since an earlier corpus. Without examples it can be passed on."""
    report = read_corpus_report(folder)
    try:
        if not examples:
            report |= {"examples": {}, "duplicates": {**report["duplicates"], "largest": []}}
        found = find_drift(read_corpus_report(earlier), report) if earlier is not None else []
        shown = _page(report, found, str(earlier))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise FolderError(f"The report of {folder}, or the earlier one, is damaged ({type(error).__name__}).") from None
    write_file(folder / CORPUS_PAGE, shown)
    return found


def _page(report: _Figures, differences: list[Drift], earlier: str) -> bytes:
    counts = report["counts"]
    kept = counts["documents"] / max(counts["documents_read"], 1)
    parts = [
        f"<h1>{escape(report['name'])}</h1><p>A corpus: what was read, what was kept, and why the rest was not.</p>",
        tiles(
            {
                "documents": f"{counts['documents']:,}",
                "of those read": f"{kept:.0%}",
                "of text": _megabytes(counts["bytes"]),
                "tokens, about": _short(counts["tokens"]),
                "copies": f"{report['duplicates']['exact'] + report['duplicates']['near']:,}",
            }
        ),
    ]
    if differences:
        parts.append(_differences(differences, earlier))
    parts += [_funnel_part(report), _dropped(report), _sources(report), _lengths(report), _languages(report)]
    parts += [_duplicates(report), _rest(report)]
    return page(report["name"], parts)


def _funnel_part(report: _Figures) -> str:
    read = max(report["counts"]["documents_read"], 1)
    rows = [(step, left, read, f"{left:,} ({left / read:.0%})") for step, left, _ in report["funnel"]]
    return "<h2>From reading to keeping</h2>" + bars(rows)


def _dropped(report: _Figures) -> str:
    counts, examples = report["counts"]["dropped"], report["examples"]
    read = max(report["counts"]["documents_read"], 1)
    if not examples:
        rows = [(reason, count, count, f"{count:,} ({count / read:.1%})") for reason, count in counts.items()]
        return "<h2>Dropped, and why</h2>" + bars(rows) if rows else ""
    shown = [
        unfold(f"{reason} — {count:,} document{'s'[: count > 1]} ({count / read:.1%})", examples.get(reason, []))
        for reason, count in counts.items()
    ]
    return f"<h2>Dropped, and why</h2><p>Open a reason for examples.</p>{''.join(shown)}"


def _sources(report: _Figures) -> str:
    total = max(sum(source["bytes"] for source in report["sources"]), 1)
    rows = []
    for source in report["sources"]:
        share = source["bytes"] / total
        rows.append(
            [
                source["name"],
                f"{source['documents_read']:,}",
                f"{source['documents']:,}",
                _megabytes(source["bytes"]),
                _short(source["tokens"]),
                f"{share:.1%}",
                f"{source['weight']:.1%}",
                f"{source['weight'] / share:.2f}×" if share else "–",
            ]
        )
    headings = ["source", "read", "kept", "text", "tokens", "of the text", "of training", "seen"]
    note = "<p>“Seen” is how often training reads a source while it reads as much as the whole corpus.</p>"
    return "<h2>Sources</h2>" + grid(headings, rows) + note + _not_read(report)


def _not_read(report: _Figures) -> str:
    counts = report["counts"].get("passed_over", {})
    if not counts:
        return ""
    kinds = ", ".join(f"{escape(ending)} {count:,}" for ending, count in counts.items())
    names = ", ".join(map(escape, report.get("passed_over", [])))
    total = sum(counts.values())
    whose = (
        "1 file was not read, as its ending is"
        if total == 1
        else f"{total:,} files were not read, as their endings are"
    )
    shown = f"{whose} not known ({kinds})"
    return f"<p>{shown}{': ' + names if names else ''}.</p>"


def _lengths(report: _Figures) -> str:
    read, kept = ({int(power): count for power, count in report["lengths"][when].items()} for when in ("read", "kept"))
    powers = range(min([*read, *kept], default=0), max([*read, *kept], default=-1) + 1)
    rows = []
    for power in powers:
        whole, part = max(read.get(power, 0), kept.get(power, 0)), kept.get(power, 0)
        name = "0" if power == 0 else f"{2 ** (power - 1):,} – {2**power - 1:,}"
        rows.append((name, part, whole, f"{part:,} of {read.get(power, 0):,}"))
    return "<h2>Length, in characters</h2><p>Light: read. Dark: kept.</p>" + bars(rows)


def _languages(report: _Figures) -> str:
    read, kept = report["languages"]["read"], report["languages"]["kept"]
    order = sorted({**read, **kept}, key=lambda language: (-read.get(language, 0), language))
    rows = [
        (
            language,
            kept.get(language, 0),
            max(read.get(language, 0), kept.get(language, 0)),
            f"{kept.get(language, 0):,} of {read.get(language, 0):,}",
        )
        for language in order[:_MOST_LANGUAGES]
    ]
    more = f"<p>And {len(order) - _MOST_LANGUAGES} more.</p>" if len(order) > _MOST_LANGUAGES else ""
    return "<h2>Languages</h2>" + bars(rows) + more


def _duplicates(report: _Figures) -> str:
    found = report["duplicates"]
    if not found["groups"]:
        return "<h2>Copies</h2><p>None were found.</p>"
    rows = [(f"groups of {size}", count, count, f"{count:,}") for size, count in found["sizes"].items()]
    note = (
        f"<p>{found['exact']:,} documents have the same text as another, {found['near']:,} nearly the same; "
        f"{found['across']:,} of these are copies of a document of another source.</p>"
    )
    if found.get("beyond"):
        note += f"<p>{found['beyond']:,} documents stay because their group was too large to compare all.</p>"
    largest = [unfold(f"{one['documents']:,} copies of one text", [one["text"]]) for one in found["largest"]]
    return "<h2>Copies</h2>" + note + bars(rows) + "".join(largest)


def _rest(report: _Figures) -> str:
    rows = [
        [split, f"{facts['documents']:,}", _megabytes(facts["bytes"]), _short(facts["tokens"])]
        for split, facts in report["splits"].items()
    ]
    html = "<h2>Splits</h2>" + grid(["split", "documents", "text", "tokens"], rows)
    if sum(facts["documents"] for facts in report["splits"].values()) > report["counts"]["documents"]:
        html += (
            "<p>Some documents are in several parts. In a source of few long documents each of them is cut: its "
            "beginning is for training, its end is held out. A document that shares text with a test set is cut where "
            "that text was taken out.</p>"
        )
    if report["changes"]:
        changed = [[change, f"{count:,}"] for change, count in sorted(report["changes"].items())]
        html += "<h2>Cleaning</h2>" + grid(["what was changed", "documents"], changed)
    return html + (_tests(report["tests"]) if report["tests"] else "")


def _tests(tests: _Figures) -> str:
    done = {what: tests.get(what, 0) for what in ("cut", "dropped", "flagged", "whole", "ignored")}
    return (
        f"<h2>Test sets</h2><p>{tests['found']:,} documents share an n-gram of {tests['words']} words with one of "
        f"{tests['texts']:,} test texts: {done['cut']:,} were cut there, {done['dropped']:,} dropped, "
        f"{done['flagged']:,} flagged. {done['whole']:,} test texts are shorter than an n-gram and were looked for as "
        f"a whole; {tests['short']:,} are too short for that. {done['ignored']:,} n-grams are in so many documents "
        "that they were ignored.</p>"
    )


def _differences(differences: list[Drift], earlier: str) -> str:
    rows = "".join(
        f"<tr><td>{escape(d.what)}</td><td>{d.before:.3g}</td><td>{d.now:.3g}</td>"
        f"<td>{'<span class=flag>drift</span>' if d.drifts else 'as before'}</td></tr>"
        for d in differences
    )
    head = "<tr><th>what</th><th>before</th><th>now</th><th></th></tr>"
    return f"<h2>Against {escape(earlier)}</h2><table>{head}{rows}</table>"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.2f} GB"


def _short(count: int) -> str:
    for unit, scale in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return str(count)
