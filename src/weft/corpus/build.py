"""A corpus out of files and pages: read, clean, judge, find copies, split, write.

    fetch → inspect and cut into pieces → sift each piece → choose among copies → write each piece → report

The two passes over the pieces run on all cores, or on a cluster (`engine`); everything a piece makes stays in a folder
of the work beside the corpus, so a build that was killed goes on with the pieces that are missing. The corpus itself
appears whole, when all is done. It is the same, to the byte, at any number of workers.
"""

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from weft.corpus.choose import SiftedPiece, choose_documents
from weft.corpus.clean import Cleaning
from weft.corpus.contamination import LeakIndex
from weft.corpus.engine import work_on
from weft.corpus.language import check_languages
from weft.corpus.manifest import (
    INPUT_LIST,
    SHARD_LIST,
    changed_versions,
    library_versions,
    note_begun,
    shards_of,
    why_restarted,
    work_name,
    write_manifest,
)
from weft.corpus.plan import (
    CorpusSource,
    FilePart,
    Inspected,
    cut_into_pieces,
    files_to_inspect,
    find_corpus_sources,
    inspect,
    reading_of,
)
from weft.corpus.quality import RULES
from weft.corpus.quarantine import work_safely_on
from weft.corpus.report import CORPUS_PAGE, CORPUS_REPORT, gather_report, write_corpus_page
from weft.corpus.sift import FIGURES_FILE, PART_OF_LONGER, sift_piece, valid_unicode
from weft.corpus.split import SPLITS, Shares
from weft.corpus.write import write_piece
from weft.errors import FolderError, InputError, RecipeError
from weft.folders import (
    MANIFEST,
    check_place,
    disk_errors,
    known_facts,
    locked,
    put_in_place,
    read_json,
    sha256_of,
    to_json,
    write_file,
)
from weft.progress import Gauge, say
from weft.recipe.corpus import BuildSection, CorpusSection, DecontaminateSection
from weft.sources.documents import read_documents
from weft.sources.files import Listing, find_files, text_size
from weft.sources.formats.cut_long import LONGEST
from weft.sources.reading import Reading
from weft.sources.standard_input import copy_standard_input, is_standard_input
from weft.sources.web.fetch import failures_in, fetch_sources, is_remote, read_addresses
from weft.version import VERSION

_CHOSEN, _OUT, _FETCHED, _LOCK = "chosen.json", "out", "fetched", "lock"
_PARTS = (*SPLITS, "dropped", _FETCHED, "report.*", MANIFEST, INPUT_LIST, SHARD_LIST)


@dataclass(frozen=True)
class CorpusBuild:
    """The build that is going on: its folder, and what it is to do."""

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


def build_corpus(
    section: CorpusSection, base: Path, folder: Path, *, name: str = "corpus", workers: int | None = None
) -> dict[str, Any]:
    """`base` is what the section's paths are relative to. Returns what came out, as `weft info` shows it."""
    versions = library_versions()
    place = check_place(folder, mark=MANIFEST)
    if valid_unicode(str(place)) != str(place):
        raise FolderError(f"{valid_unicode(str(place))} has a name that is not UTF-8. Choose another folder.")
    work_folder, base = place.with_name(f".{place.name}.work"), base.absolute()
    known = _known(place)
    check_corpus(section, base, (place, work_folder))
    with disk_errors(work_folder):
        work_folder.mkdir(parents=True, exist_ok=True)
    with locked(work_folder / _LOCK, f"{folder} is being built by another process."):
        fetch = (section.build or BuildSection()).fetch
        with disk_errors(work_folder):
            fetched = fetch_sources(section.sources or [], base, work_folder / _FETCHED, fetch, place / _FETCHED)
        copied = _copy_standard_input(section, work_folder / _FETCHED)
        sources = find_corpus_sources(section, base, {**fetched, **copied}, (place, work_folder))
        for source in sources:
            Listing(list(source.files), list(source.passed_over)).say_passed_over()
        inspected = _inspect(sources, workers)
        fingerprint = _fingerprint(name, section, base, inspected)
        if known.get("fingerprint") == fingerprint and _has_all(place, known):
            made = changed_versions(known.get("versions", {}), versions)
            say(f"{folder} is up to date." + (f" It was made with {made}; delete it to make it anew." if made else ""))
        else:
            own = work_folder / work_name(fingerprint, versions)
            _build(
                CorpusBuild(own, name, section, base, sources, inspected, workers, fingerprint, versions),
                place,
                fetched,
            )
        shutil.rmtree(work_folder, ignore_errors=True)
    return {**corpus_summary(place), "corpus": str(folder), "report": str(folder / CORPUS_PAGE)}


def _build(work: CorpusBuild, place: Path, fetched: dict[str, Path]) -> None:
    _begin(work)
    tests = _look_for_tests(work)
    pieces = _pieces(work)
    sifted = _sift(work, pieces)
    chosen = _choose(work, pieces, sifted)
    written = _write(work, pieces)
    failures = {path: failures_in(pages) for path, pages in fetched.items()}
    report = gather_report(work.name, work.sources, pieces, sifted, written, chosen, tests, failures)
    with disk_errors(place):
        out = work.folder / _OUT
        _keep_only(out, written)
        for pages in fetched.values():
            shutil.copytree(pages, out / _FETCHED / pages.name, ignore=shutil.ignore_patterns(".*"))
        (out / CORPUS_REPORT).write_bytes(to_json(report))
        write_corpus_page(out)
        files = ({"file": name, **facts} for figures in written for name, facts in figures["files"].items())
        write_manifest(out, _facts(work, report), _inputs(work), files)
        put_in_place(out, place, ours=_PARTS)


def _keep_only(out: Path, written: Sequence[dict[str, Any]]) -> None:
    """Nothing but the shards: a build that was killed at the end may have left more."""
    files = {out / name for figures in written for name in figures["files"]}
    for item in out.rglob("*"):
        if item.is_file() and item not in files:
            item.unlink()
    for item in out.iterdir():
        if item.is_dir() and item.name not in (*SPLITS, "dropped"):
            shutil.rmtree(item)


def check_corpus(section: CorpusSection, base: Path, own: tuple[Path, ...] = ()) -> None:
    """All that can be known to be wrong before anything is read or written."""
    settings, entries = section.build or BuildSection(), section.sources or []
    for entry in entries:
        if is_remote(entry.path):
            read_addresses(entry.path, base)
    local = [entry for entry in entries if not is_remote(entry.path) and not is_standard_input(entry.path)]
    find_corpus_sources(section.model_copy(update={"sources": local}), base, {}, own)
    Shares(section.splits.validation, section.splits.test)
    for test in settings.decontaminate.against if settings.decontaminate else ():
        if is_remote(test.path):
            raise RecipeError(f"corpus.build.decontaminate.against: {test.path} is not a file here.")
        find_files([base / test.path], test.format)
    check_languages(settings.languages or ())


def _copy_standard_input(section: CorpusSection, folder: Path) -> dict[str, Path]:
    """By the path of its source. A build reads its sources several times."""
    entries = [entry for entry in section.sources or [] if is_standard_input(entry.path)]
    return {entry.path: copy_standard_input(folder, entry.format) for entry in entries[:1]}


def corpus_summary(folder: Path) -> dict[str, Any]:
    facts = read_json(folder / MANIFEST)
    if facts.get("kind") != "corpus":
        raise FolderError(f"{folder} holds a {facts.get('kind', 'thing')}, not a corpus.")
    if not isinstance(facts.get("counts"), dict):
        raise FolderError(f"{folder / MANIFEST} is not whole: it has no counts.")
    return {"corpus": str(folder), **facts["counts"], "report": str(folder / CORPUS_PAGE)}


def _known(place: Path) -> dict[str, Any]:
    facts = known_facts(place)
    if facts and facts.get("kind") != "corpus":
        raise FolderError(f"{place} holds a {facts.get('kind', 'thing')}, not a corpus. Choose another folder with -o.")
    return facts


def _inspect(sources: Sequence[CorpusSource], workers: int | None) -> list[list[Inspected]]:
    pieces = files_to_inspect(sources)
    size = sum(file.stat().st_size for source in sources for file in source.files)
    found = []
    with Gauge("Looking at the files", size, "files") as gauge:
        for facts in work_on(pieces, inspect, workers):
            found.append(Inspected(**facts))
            gauge.add(1, facts["bytes"])
    each = iter(found)
    return [[next(each) for _ in source.files] for source in sources]


def _fingerprint(name: str, section: CorpusSection, base: Path, inspected: list[list[Inspected]]) -> str:
    """Of everything that the corpus follows from: settings, names, bytes, and the code."""
    files = [[(lineage_name(file.file, base), file.sha256) for file in source] for source in inspected]
    asked = section.build.decontaminate if section.build else None
    places = [(base / entry.path, entry.format) for entry in asked.against] if asked else []
    tests = [sha256_of(file) for place, format in places for file in find_files([place], format)]
    said = json.dumps([VERSION, name, section.model_dump(exclude_unset=True), files, tests], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()


def lineage_name(file: str, base: Path) -> str:
    """A file as the lineage names it: from where the recipe lies, not from the root of this machine."""
    if f".work{os.sep}{_FETCHED}{os.sep}" in file:
        return Path(file).name
    return valid_unicode(Path(os.path.relpath(file, base)).as_posix()) or file


def _has_all(place: Path, known: dict[str, Any]) -> bool:
    return all((place / name).is_file() for name in (CORPUS_REPORT, CORPUS_PAGE)) and all(
        (place / name).is_file() and (place / name).stat().st_size == size for name, size in shards_of(place, known)
    )


def _begin(work: CorpusBuild) -> None:
    """Go on with what is there, if it is of the same build."""
    for other in work.folder.parent.iterdir():
        if other.name not in (_FETCHED, _LOCK, work.folder.name):
            if _pieces_done(other):
                why = why_restarted(other, work.fingerprint, work.versions)
                say(f"A build that was stopped is of no use: {why}. Everything is done anew.")
            shutil.rmtree(other, ignore_errors=True)
    if done := _pieces_done(work.folder):
        say(f"Going on with a build that was stopped: {done} pieces are done.")
    with disk_errors(work.folder):
        work.folder.mkdir(exist_ok=True)
    note_begun(work.folder, work.fingerprint, work.versions)


def _pieces_done(folder: Path) -> int:
    return sum((item / FIGURES_FILE).is_file() for item in folder.iterdir()) if folder.is_dir() else 0


def _look_for_tests(work: CorpusBuild) -> dict[str, Any] | None:
    """The n-grams of the test sets, for the workers to look for."""
    asked: DecontaminateSection | None = work.settings.decontaminate
    if asked is None:
        return None

    def texts() -> Any:
        for entry in asked.against:
            reading = Reading(**reading_of(entry, work.section.documents))
            yield from (document.text for document in read_documents([work.base / entry.path], reading))

    cleaning = Cleaning(work.settings.clean.repair, work.settings.clean.form, work.settings.clean.mask)
    wanted = LeakIndex.of(texts(), asked.words, asked.least_words, cleaning)
    with disk_errors(work.folder):
        wanted.save(work.folder)
    if wanted.short:
        said = f"{wanted.short:,} of {wanted.texts:,} test texts have fewer than {asked.least_words} words"
        say(f"{said} and are not looked for: they would be found everywhere.")
    facts = {"texts": wanted.texts, "short": wanted.short, "whole": wanted.whole}
    return {**facts, "words": asked.words, "action": asked.action}


def _pieces(work: CorpusBuild) -> list[dict[str, Any]]:
    pieces: list[dict[str, Any]] = []
    settings = work.settings.model_dump(exclude_unset=True)
    for number, (source, inspected) in enumerate(zip(work.sources, work.inspected, strict=True)):
        for parts in cut_into_pieces(inspected):
            pieces.append(
                {
                    "number": len(pieces),
                    "folder": str(work.folder / f"{len(pieces):05}"),
                    "out": str(work.folder / _OUT),
                    "source": source.name,
                    "source_number": number,
                    "read": source.read,
                    "settings": settings,
                    "parts": [{**asdict(part), "shown": lineage_name(part.file, work.base)} for part in parts],
                    "bytes": sum(map(_size, parts)),
                    "shares": [work.shares.validation, work.shares.test],
                }
            )
    return pieces


def _size(part: FilePart) -> int:
    return text_size([Path(part.file)]) if part.end is None else part.end - part.begin


def _sift(work: CorpusBuild, pieces: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    sifted = []
    with Gauge("Reading and cleaning", sum(piece["bytes"] for piece in pieces)) as gauge:
        for piece, figures in zip(pieces, work_safely_on(pieces, sift_piece, work.workers), strict=True):
            sifted.append(figures)
            gauge.add(figures["documents"], piece["bytes"])
    if not sum(figures["kept"] for figures in sifted):
        reasons: Counter[str] = sum((Counter(figures["reasons"]) for figures in sifted), Counter())
        said = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common(5))
        examples = [text for figures in sifted for text in figures["examples"].get("unreadable", ())]
        hint = " Looser rules are set in corpus.build.filter." if set(reasons) & set(RULES) else ""
        raise InputError(
            f"No document is left of {sum(figures['documents'] for figures in sifted):,}"
            + (f" ({said})" if said else "")
            + (f"; for example: {examples[0]}" if examples else f".{hint}")
        )
    if parts := sum(figures["changes"].get(PART_OF_LONGER, 0) for figures in sifted):
        say(
            f"{parts:,} documents are parts: texts longer than {LONGEST / 1e6:.1f} MB were cut where a paragraph, line "
            "or word ends, pages where they are nested too deeply to be read on. To cut texts into smaller documents, "
            "set documents: block or documents: line."
        )
    return sifted


def _choose(work: CorpusBuild, pieces: Sequence[dict[str, Any]], sifted: Sequence[dict[str, Any]]) -> dict[str, Any]:
    if not (work.folder / _CHOSEN).is_file():
        say("Finding copies ...")
        done = [
            SiftedPiece(Path(piece["folder"]), piece["source_number"], figures["kept"])
            for piece, figures in zip(pieces, sifted, strict=True)
        ]
        settings = work.settings
        with disk_errors(work.folder):
            chosen = choose_documents(done, settings.deduplicate, work.shares, settings.seed, settings.decontaminate)
        write_file(work.folder / _CHOSEN, to_json(chosen))
    return read_json(work.folder / _CHOSEN)


def _write(work: CorpusBuild, pieces: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    with disk_errors(work.folder):
        (work.folder / _OUT).mkdir(exist_ok=True)
    written = []
    with Gauge("Writing", sum(piece["bytes"] for piece in pieces)) as gauge:
        for piece, figures in zip(pieces, work_on(pieces, write_piece, work.workers), strict=True):
            written.append(figures)
            gauge.add(figures["rows"], piece["bytes"])
    splits = sum((Counter(figures["documents"]) for figures in written), Counter[str]())
    if not splits["train"]:
        raise InputError("All documents would be held out, and none is left to train on: see corpus.splits.")
    for split in ("validation", "test"):
        if work.shares.of(split) and not splits[split]:
            say(f"There are too few documents to hold any out for {split}.")
    return written


def _facts(work: CorpusBuild, report: dict[str, Any]) -> dict[str, Any]:
    return {
        "weft": VERSION,
        "kind": "corpus",
        "name": work.name,
        "fingerprint": work.fingerprint,
        "settings": work.section.model_dump(exclude_unset=True),
        "versions": work.versions,
        "sources": [{"name": source.name, "weight": source.weight} for source in work.sources],
        "counts": report["counts"],
    }


def _inputs(work: CorpusBuild) -> Iterator[dict[str, Any]]:
    for source, inspected in zip(work.sources, work.inspected, strict=True):
        for file in inspected:
            yield {
                "source": source.name,
                "file": lineage_name(file.file, work.base),
                "bytes": file.bytes,
                "sha256": file.sha256,
            }
