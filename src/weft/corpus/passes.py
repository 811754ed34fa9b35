"""The steps of a build, in a work folder that survives a kill.

Two passes over the pieces run on all cores or on a cluster (`engine`): `filter_piece` reads and cleans, `write_piece`
writes the shards. Between them `choose_documents` looks at all pieces together. Each piece leaves its results in the
work folder, so a build that was killed continues with the missing pieces.
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from weft.corpus.clean import Cleaning
from weft.corpus.contamination import LeakIndex
from weft.corpus.deduplicate import FilteredPiece, choose_documents
from weft.corpus.engine import Piece, work_on
from weft.corpus.first_pass import FIGURES_FILE, PART_OF_LONGER, filter_piece, valid_unicode
from weft.corpus.manifest import INPUT_LIST, SHARD_LIST, note_begun, why_restarted, write_manifest
from weft.corpus.plan import CorpusSource, FilePart, Inspected, cut_into_pieces, reading_of
from weft.corpus.quality import RULES
from weft.corpus.quarantine import work_safely_on
from weft.corpus.report import CORPUS_REPORT, BuildResults, gather_report
from weft.corpus.report_page import write_corpus_page
from weft.corpus.second_pass import write_piece
from weft.corpus.split import SPLITS, Shares
from weft.errors import InputError
from weft.folders import MANIFEST, disk_errors, put_in_place, read_json, to_json, write_file
from weft.progress import Gauge, say
from weft.recipe.corpus import BuildSection, CorpusSection, DecontaminateSection
from weft.sources.documents import read_documents
from weft.sources.files import text_size
from weft.sources.formats.cut_long import LONGEST
from weft.sources.reading import Reading
from weft.sources.web.fetch import failures_in
from weft.version import VERSION

FETCHED, LOCK_FILE = "fetched", "lock"
_CHOSEN, _OUT = "chosen.json", "out"
_OWN_FILES = (*SPLITS, "dropped", FETCHED, "report.*", MANIFEST, INPUT_LIST, SHARD_LIST)


@dataclass(frozen=True)
class CorpusBuild:
    """A build in progress: its work folder and everything it depends on."""

    folder: Path
    name: str
    section: CorpusSection
    base: Path
    sources: list[CorpusSource]
    inspected: list[list[Inspected]]  # for each source
    workers: int | None
    fingerprint: str
    versions: dict[str, str]

    @property
    def settings(self) -> BuildSection:
        return self.section.build or BuildSection()

    @property
    def shares(self) -> Shares:
        return Shares(self.section.splits.validation, self.section.splits.test)


def run_build(build: CorpusBuild, place: Path, fetched: dict[str, Path]) -> None:
    """Runs all steps and puts the corpus at `place`. `fetched`: folders of fetched pages, by the path of the source."""
    _resume_or_restart(build)
    tests = _index_test_sets(build)
    pieces = _pieces(build)
    filtered = _filter(build, pieces)
    chosen = _deduplicate(build, pieces, filtered)
    written = _write(build, pieces)
    failures = {path: failures_in(pages) for path, pages in fetched.items()}
    report = gather_report(BuildResults(build.name, build.sources, pieces, filtered, written, chosen, tests, failures))
    with disk_errors(place):
        out = build.folder / _OUT
        _remove_all_but_shards(out, written)
        for pages in fetched.values():
            shutil.copytree(pages, out / FETCHED / pages.name, ignore=shutil.ignore_patterns(".*"))
        (out / CORPUS_REPORT).write_bytes(to_json(report))
        write_corpus_page(out)
        files = ({"file": name, **facts} for figures in written for name, facts in figures["files"].items())
        write_manifest(out, _facts(build, report), _inputs(build), files)
        put_in_place(out, place, ours=_OWN_FILES)


def _resume_or_restart(build: CorpusBuild) -> None:
    """Keeps the work folder of the same build; deletes those of others."""
    for other in build.folder.parent.iterdir():
        if other.name not in (FETCHED, LOCK_FILE, build.folder.name):
            if _pieces_done(other):
                why = why_restarted(other, build.fingerprint, build.versions)
                say(f"An interrupted build cannot be resumed: {why}. The build starts from the beginning.")
            shutil.rmtree(other, ignore_errors=True)
    if done := _pieces_done(build.folder):
        say(f"Resuming an interrupted build: {done} pieces are done.")
    with disk_errors(build.folder):
        build.folder.mkdir(exist_ok=True)
    note_begun(build.folder, build.fingerprint, build.versions)


def _pieces_done(folder: Path) -> int:
    return sum((item / FIGURES_FILE).is_file() for item in folder.iterdir()) if folder.is_dir() else 0


def _index_test_sets(build: CorpusBuild) -> dict[str, Any] | None:
    """Saves the n-grams of the test sets for the workers. Returns their figures; None without test sets."""
    section: DecontaminateSection | None = build.settings.decontaminate
    if section is None:
        return None

    def texts() -> Iterator[str]:
        for entry in section.against:
            reading = Reading(**reading_of(entry, build.section.documents))
            yield from (document.text for document in read_documents([build.base / entry.path], reading))

    cleaning = Cleaning(build.settings.clean.repair, build.settings.clean.form, build.settings.clean.mask)
    index = LeakIndex.of(texts(), section.words, section.least_words, cleaning)
    with disk_errors(build.folder):
        index.save(build.folder)
    if index.short:
        say(
            f"{index.short:,} of {index.texts:,} test texts have fewer than {section.least_words} words and are not "
            "searched for: they would match everywhere."
        )
    facts = {"texts": index.texts, "short": index.short, "whole": index.whole}
    return {**facts, "words": section.words, "action": section.action}


def _pieces(build: CorpusBuild) -> list[Piece]:
    """The pieces of work, as JSON objects for the workers."""
    pieces: list[Piece] = []
    settings = build.settings.model_dump(exclude_unset=True)
    for number, (source, inspected) in enumerate(zip(build.sources, build.inspected, strict=True)):
        for parts in cut_into_pieces(inspected):
            pieces.append(
                {
                    "number": len(pieces),
                    "folder": str(build.folder / f"{len(pieces):05}"),
                    "out": str(build.folder / _OUT),
                    "source": source.name,
                    "source_number": number,
                    "read": source.read,
                    "settings": settings,
                    "parts": [{**asdict(part), "shown": lineage_name(part.file, build.base)} for part in parts],
                    "bytes": sum(map(_size, parts)),
                    "shares": [build.shares.validation, build.shares.test],
                }
            )
    return pieces


def _size(part: FilePart) -> int:
    return text_size([Path(part.file)]) if part.end is None else part.end - part.begin


def lineage_name(file: str, base: Path) -> str:
    """The name of a file in the corpus: relative to the recipe, not to this machine's root."""
    if f".work{os.sep}{FETCHED}{os.sep}" in file:
        return Path(file).name
    return valid_unicode(Path(os.path.relpath(file, base)).as_posix()) or file


def _filter(build: CorpusBuild, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    filtered = []
    with Gauge("Reading and cleaning", sum(piece["bytes"] for piece in pieces)) as gauge:
        for piece, figures in zip(pieces, work_safely_on(pieces, filter_piece, build.workers), strict=True):
            filtered.append(figures)
            gauge.add(figures["documents"], piece["bytes"])
    _check_any_left(filtered)
    if parts := sum(figures["changes"].get(PART_OF_LONGER, 0) for figures in filtered):
        say(
            f"{parts:,} documents are parts of longer texts. Texts longer than {LONGEST / 1e6:.1f} MB are cut at the "
            "end of a paragraph, line or word; pages are cut where they are nested too deeply. For smaller "
            "documents set documents: block or documents: line."
        )
    return filtered


def _check_any_left(filtered: Sequence[dict[str, Any]]) -> None:
    """Raises InputError, with the most frequent reasons, if every document was dropped."""
    if sum(figures["kept"] for figures in filtered):
        return
    reasons: Counter[str] = sum((Counter(figures["reasons"]) for figures in filtered), Counter())
    counts = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common(5))
    examples = [text for figures in filtered for text in figures["examples"].get("unreadable", ())]
    hint = " Loosen the rules in corpus.build.filter." if set(reasons) & set(RULES) else ""
    raise InputError(
        f"No document is left of {sum(figures['documents'] for figures in filtered):,}"
        + (f" ({counts})" if counts else "")
        + (f"; for example: {examples[0]}" if examples else f".{hint}")
    )


def _deduplicate(build: CorpusBuild, pieces: Sequence[Piece], filtered: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if not (build.folder / _CHOSEN).is_file():
        say("Finding duplicates ...")
        done = [
            FilteredPiece(Path(piece["folder"]), piece["source_number"], figures["kept"])
            for piece, figures in zip(pieces, filtered, strict=True)
        ]
        settings = build.settings
        with disk_errors(build.folder):
            chosen = choose_documents(done, settings.deduplicate, build.shares, settings.seed, settings.decontaminate)
        write_file(build.folder / _CHOSEN, to_json(chosen))
    return read_json(build.folder / _CHOSEN)


def _write(build: CorpusBuild, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    with disk_errors(build.folder):
        (build.folder / _OUT).mkdir(exist_ok=True)
    written = []
    with Gauge("Writing", sum(piece["bytes"] for piece in pieces)) as gauge:
        for piece, figures in zip(pieces, work_on(pieces, write_piece, build.workers), strict=True):
            written.append(figures)
            gauge.add(figures["rows"], piece["bytes"])
    splits = sum((Counter(figures["documents"]) for figures in written), Counter[str]())
    if not splits["train"]:
        raise InputError("corpus.splits holds out all documents; none is left to train on. Hold out less.")
    for split in ("validation", "test"):
        if build.shares.of(split) and not splits[split]:
            say(f"There are too few documents to hold any out for {split}.")
    return written


def _remove_all_but_shards(out: Path, written: Sequence[dict[str, Any]]) -> None:
    """A build that was killed while finishing may have left other files."""
    files = {out / name for figures in written for name in figures["files"]}
    for item in out.rglob("*"):
        if item.is_file() and item not in files:
            item.unlink()
    for item in out.iterdir():
        if item.is_dir() and item.name not in (*SPLITS, "dropped"):
            shutil.rmtree(item)


def _facts(build: CorpusBuild, report: dict[str, Any]) -> dict[str, Any]:
    return {
        "weft": VERSION,
        "kind": "corpus",
        "name": build.name,
        "fingerprint": build.fingerprint,
        "settings": build.section.model_dump(exclude_unset=True),
        "versions": build.versions,
        "sources": [{"name": source.name, "weight": source.weight} for source in build.sources],
        "counts": report["counts"],
    }


def _inputs(build: CorpusBuild) -> Iterator[dict[str, Any]]:
    for source, inspected in zip(build.sources, build.inspected, strict=True):
        for file in inspected:
            name = lineage_name(file.file, build.base)
            yield {"source": source.name, "file": name, "bytes": file.bytes, "sha256": file.sha256}
