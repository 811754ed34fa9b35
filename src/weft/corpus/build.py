"""Builds a corpus from files and web pages.

    fetch → inspect → filter each piece → deduplicate and split → write each piece → report

This module prepares a build: it checks the settings, fetches pages, inspects the files, and skips a corpus that is up
to date. `passes` does the work in a folder next to the corpus. The corpus appears in one step when everything is done,
and its bytes do not depend on the number of workers.
"""

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.corpus.engine import work_on
from weft.corpus.first_pass import valid_unicode
from weft.corpus.language import check_languages
from weft.corpus.manifest import changed_versions, library_versions, shards_of, work_name
from weft.corpus.passes import FETCHED, LOCK_FILE, CorpusBuild, lineage_name, run_build
from weft.corpus.plan import CorpusSource, Inspected, files_to_inspect, find_corpus_sources, inspect
from weft.corpus.report import CORPUS_PAGE, CORPUS_REPORT
from weft.corpus.split import Shares
from weft.errors import FolderError, RecipeError
from weft.folders import MANIFEST, check_place, disk_errors, known_facts, locked, read_json, sha256_of
from weft.progress import Gauge, say
from weft.recipe.corpus import BuildSection, CorpusSection
from weft.sources.files import Listing, find_files
from weft.sources.standard_input import copy_standard_input, is_standard_input
from weft.sources.web.fetch import fetch_sources, is_remote, read_addresses
from weft.version import VERSION


def build_corpus(
    section: CorpusSection, base: Path, folder: Path, *, name: str = "corpus", workers: int | None = None
) -> dict[str, Any]:
    """Builds the corpus in `folder`, unless it is up to date. Paths of the section are relative to `base`.

    Returns the counts that `weft info` shows.
    """
    versions = library_versions()
    place = check_place(folder, mark=MANIFEST)
    if valid_unicode(str(place)) != str(place):
        raise FolderError(f"{valid_unicode(str(place))} is not valid UTF-8. Choose another folder name.")
    work_folder, base = place.with_name(f".{place.name}.work"), base.absolute()
    known = _known(place)
    check_corpus(section, base, (place, work_folder))
    with disk_errors(work_folder):
        work_folder.mkdir(parents=True, exist_ok=True)
    with locked(work_folder / LOCK_FILE, f"{folder} is being built by another process."):
        fetch = (section.build or BuildSection()).fetch
        with disk_errors(work_folder):
            fetched = fetch_sources(section.sources or [], base, work_folder / FETCHED, fetch, place / FETCHED)
        copied = _copy_standard_input(section, work_folder / FETCHED)
        sources = find_corpus_sources(section, base, {**fetched, **copied}, (place, work_folder))
        for source in sources:
            Listing(list(source.files), list(source.passed_over)).say_passed_over()
        inspected = _inspect(sources, workers)
        fingerprint = _fingerprint(name, section, base, inspected)
        if known.get("fingerprint") == fingerprint and _has_all(place, known):
            made = changed_versions(known.get("versions", {}), versions)
            say(f"{folder} is up to date." + (f" It was made with {made}; delete it to rebuild it." if made else ""))
        else:
            own = work_folder / work_name(fingerprint, versions)
            build = CorpusBuild(own, name, section, base, sources, inspected, workers, fingerprint, versions)
            run_build(build, place, fetched)
        shutil.rmtree(work_folder, ignore_errors=True)
    return {**corpus_summary(place), "corpus": str(folder), "report": str(folder / CORPUS_PAGE)}


def check_corpus(section: CorpusSection, base: Path, own: tuple[Path, ...] = ()) -> None:
    """Raises an InputError for everything that is wrong before any file is read or written."""
    settings, entries = section.build or BuildSection(), section.sources or []
    for entry in entries:
        if is_remote(entry.path):
            read_addresses(entry.path, base)
    local = [entry for entry in entries if not is_remote(entry.path) and not is_standard_input(entry.path)]
    find_corpus_sources(section.model_copy(update={"sources": local}), base, {}, own)
    Shares(section.splits.validation, section.splits.test)
    for test in settings.decontaminate.against if settings.decontaminate else ():
        if is_remote(test.path):
            raise RecipeError(
                f"corpus.build.decontaminate.against: {test.path} is an address; test sets must be local files."
            )
        find_files([base / test.path], test.format)
    check_languages(settings.languages or ())


def _copy_standard_input(section: CorpusSection, folder: Path) -> dict[str, Path]:
    """The copy of standard input, by the path of its source. A build reads its sources several times."""
    entries = [entry for entry in section.sources or [] if is_standard_input(entry.path)]
    return {entry.path: copy_standard_input(folder, entry.format) for entry in entries[:1]}


def corpus_summary(folder: Path) -> dict[str, Any]:
    facts = read_json(folder / MANIFEST)
    if facts.get("kind") != "corpus":
        raise FolderError(f"{folder} holds a {facts.get('kind', 'thing')}, not a corpus.")
    if not isinstance(facts.get("counts"), dict):
        raise FolderError(f"{folder / MANIFEST} is damaged: it has no counts.")
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
    with Gauge("Inspecting files", size, "files") as gauge:
        for facts in work_on(pieces, inspect, workers):
            found.append(Inspected(**facts))
            gauge.add(1, facts["bytes"])
    each = iter(found)
    return [[next(each) for _ in source.files] for source in sources]


def _fingerprint(name: str, section: CorpusSection, base: Path, inspected: list[list[Inspected]]) -> str:
    """A hash of everything that decides the corpus: version, settings, file names and file contents."""
    files = [[(lineage_name(file.file, base), file.sha256) for file in source] for source in inspected]
    leaks = section.build.decontaminate if section.build else None
    places = [(base / entry.path, entry.format) for entry in leaks.against] if leaks else []
    tests = [sha256_of(file) for place, format in places for file in find_files([place], format)]
    settings = json.dumps([VERSION, name, section.model_dump(exclude_unset=True), files, tests], sort_keys=True)
    return hashlib.sha256(settings.encode()).hexdigest()


def _has_all(place: Path, known: dict[str, Any]) -> bool:
    return all((place / name).is_file() for name in (CORPUS_REPORT, CORPUS_PAGE)) and all(
        (place / name).is_file() and (place / name).stat().st_size == size for name, size in shards_of(place, known)
    )
