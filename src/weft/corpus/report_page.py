"""The corpus report as a page (`report.html`)."""

from html import escape
from pathlib import Path

from weft.corpus.drift import Drift, find_drift
from weft.corpus.report import CORPUS_PAGE, Figures, read_corpus_report
from weft.errors import FolderError
from weft.folders import write_file
from weft.page import bars, grid, page, tiles, unfold

_MOST_LANGUAGES = 12


def write_corpus_page(folder: Path, earlier: Path | None = None, *, examples: bool = True) -> list[Drift]:
    """Writes the page and returns the drift against an earlier corpus, if one is given.

    Without `examples` the page contains no text of the corpus.
    """
    report = read_corpus_report(folder)
    try:
        if not examples:
            report |= {"examples": {}, "duplicates": {**report["duplicates"], "largest": []}}
        found = find_drift(read_corpus_report(earlier), report) if earlier is not None else []
        shown = _page(report, found, str(earlier))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise FolderError(
            f"The report of {folder} or the earlier report is damaged ({type(error).__name__})."
        ) from None
    write_file(folder / CORPUS_PAGE, shown)
    return found


def _page(report: Figures, differences: list[Drift], earlier: str) -> bytes:
    counts = report["counts"]
    kept = counts["documents"] / max(counts["documents_read"], 1)
    parts = [
        f"<h1>{escape(report['name'])}</h1><p>What was read, what was kept, and why the rest was dropped.</p>",
        tiles(
            {
                "documents": f"{counts['documents']:,}",
                "of the documents read": f"{kept:.0%}",
                "of text": _megabytes(counts["bytes"]),
                "tokens (estimate)": _short(counts["tokens"]),
                "duplicates": f"{report['duplicates']['exact'] + report['duplicates']['near']:,}",
            }
        ),
    ]
    if differences:
        parts.append(_differences(differences, earlier))
    parts += [_funnel_part(report), _dropped(report), _sources(report), _lengths(report), _languages(report)]
    parts += [_duplicates(report), _rest(report)]
    return page(report["name"], parts)


def _funnel_part(report: Figures) -> str:
    read = max(report["counts"]["documents_read"], 1)
    rows = [(step, left, read, f"{left:,} ({left / read:.0%})") for step, left, _ in report["funnel"]]
    return "<h2>Documents left after each step</h2>" + bars(rows)


def _dropped(report: Figures) -> str:
    counts, examples = report["counts"]["dropped"], report["examples"]
    read = max(report["counts"]["documents_read"], 1)
    if not examples:
        rows = [(reason, count, count, f"{count:,} ({count / read:.1%})") for reason, count in counts.items()]
        return "<h2>Dropped documents by reason</h2>" + bars(rows) if rows else ""
    shown = [
        unfold(f"{reason} — {count:,} document{'s'[: count > 1]} ({count / read:.1%})", examples.get(reason, []))
        for reason, count in counts.items()
    ]
    return f"<h2>Dropped documents by reason</h2><p>Open a reason for examples.</p>{''.join(shown)}"


def _sources(report: Figures) -> str:
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
    headings = ["source", "read", "kept", "text", "tokens", "share of text", "share of training", "epochs"]
    note = "<p>Epochs: how often training reads the source while it reads as much text as the corpus holds.</p>"
    return "<h2>Sources</h2>" + grid(headings, rows) + note + _not_read(report)


def _not_read(report: Figures) -> str:
    counts = report["counts"].get("passed_over", {})
    if not counts:
        return ""
    kinds = ", ".join(f"{escape(ending)} {count:,}" for ending, count in counts.items())
    names = ", ".join(map(escape, report.get("passed_over", [])))
    total = sum(counts.values())
    files = "1 file was" if total == 1 else f"{total:,} files were"
    return f"<p>{files} not read: unknown file extension ({kinds}){': ' + names if names else ''}.</p>"


def _lengths(report: Figures) -> str:
    read, kept = ({int(power): count for power, count in report["lengths"][when].items()} for when in ("read", "kept"))
    powers = range(min([*read, *kept], default=0), max([*read, *kept], default=-1) + 1)
    rows = []
    for power in powers:
        whole, part = max(read.get(power, 0), kept.get(power, 0)), kept.get(power, 0)
        name = "0" if power == 0 else f"{2 ** (power - 1):,} – {2**power - 1:,}"
        rows.append((name, part, whole, f"{part:,} of {read.get(power, 0):,}"))
    return "<h2>Document length in characters</h2><p>Light: read. Dark: kept.</p>" + bars(rows)


def _languages(report: Figures) -> str:
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


def _duplicates(report: Figures) -> str:
    found = report["duplicates"]
    if not found["groups"]:
        return "<h2>Duplicates</h2><p>None were found.</p>"
    rows = [(f"groups of {size}", count, count, f"{count:,}") for size, count in found["sizes"].items()]
    note = (
        f"<p>{found['exact']:,} exact and {found['near']:,} near duplicates were dropped; "
        f"{found['across']:,} of them duplicate a document of another source.</p>"
    )
    if found.get("beyond"):
        note += f"<p>{found['beyond']:,} documents were kept because their group was too large to compare them all.</p>"
    largest = [unfold(f"{one['documents']:,} copies of one text", [one["text"]]) for one in found["largest"]]
    return "<h2>Duplicates</h2>" + note + bars(rows) + "".join(largest)


def _rest(report: Figures) -> str:
    rows = [
        [split, f"{facts['documents']:,}", _megabytes(facts["bytes"]), _short(facts["tokens"])]
        for split, facts in report["splits"].items()
    ]
    html = "<h2>Splits</h2>" + grid(["split", "documents", "text", "tokens"], rows)
    if sum(facts["documents"] for facts in report["splits"].values()) > report["counts"]["documents"]:
        html += (
            "<p>Some documents are cut into parts. In a source of few long documents, the beginning of each is for "
            "training and its end is held out. Where text shared with a test set was removed, the document is cut.</p>"
        )
    if report["changes"]:
        changed = [[change, f"{count:,}"] for change, count in sorted(report["changes"].items())]
        html += "<h2>Cleaning</h2>" + grid(["change", "documents"], changed)
    return html + (_tests(report["tests"]) if report["tests"] else "")


def _tests(tests: Figures) -> str:
    done = {what: tests.get(what, 0) for what in ("cut", "dropped", "flagged", "whole", "ignored")}
    return (
        f"<h2>Test sets</h2><p>{tests['found']:,} documents share a {tests['words']}-gram with one of "
        f"{tests['texts']:,} test texts: {done['cut']:,} were cut, {done['dropped']:,} dropped, {done['flagged']:,} "
        f"flagged. {done['whole']:,} test texts are shorter than an n-gram and were searched for as a whole; "
        f"{tests['short']:,} were too short to search for. {done['ignored']:,} n-grams were ignored because they occur "
        "in too many documents.</p>"
    )


def _differences(differences: list[Drift], earlier: str) -> str:
    rows = "".join(
        f"<tr><td>{escape(d.what)}</td><td>{d.before:.3g}</td><td>{d.now:.3g}</td>"
        f"<td>{'<span class=flag>drift</span>' if d.drifts else 'no drift'}</td></tr>"
        for d in differences
    )
    head = "<tr><th>figure</th><th>before</th><th>now</th><th></th></tr>"
    return f"<h2>Drift against {escape(earlier)}</h2><table>{head}{rows}</table>"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.2f} GB"


def _short(count: int) -> str:
    for unit, scale in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return str(count)
