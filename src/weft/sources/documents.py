"""Documents out of files, one after another: memory does not grow with the corpus.

A text file is one document (or one per line, or per block between blank lines, as `unit` says), a `.jsonl` file one
per line, a table one per row, a page its article, a crawl one per page; all of them also compressed or in archives. A
folder stands for the files in it, a pattern for those that match. In these, a file whose ending is not known is passed
over and counted; named by itself it is an error, unless it is said how to read it (`format`).

What cannot be read is handed on as `Skipped` with its reason (`scan`), or is an error (`read_documents`): a model is
not to be trained on a part of the text without anybody knowing.
"""

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from glob import glob
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from weft.errors import InputError, not_found
from weft.folders import known_facts
from weft.progress import say
from weft.recipe.corpus import Format
from weft.sources.archives import ARCHIVES, Member, Refused, inner_name, is_archive, open_members
from weft.sources.cut_long import cut_text
from weft.sources.document_formats import FORMATS, JSON, LINES, TABLES, TEXT, Found, Reading, Skipped, read_stream

SHOWN = 5  # files in a message
PLAIN = (*TEXT, *LINES, *TABLES, *JSON)  # text as it is
EXPANDS = 4  # others, when they are unpacked, to about so many times
BUFFER = 2**20
Readings = Mapping[Path, Reading]


@dataclass(frozen=True)
class Document:
    text: str
    file: Path
    number: int  # of the document in its file, or in the member of the archive, from 0
    member: str = ""  # of the archive
    address: str | None = None  # of a page in a crawl
    facts: Any = None  # what a page says about itself (`page_facts.Facts`)
    is_part: bool = False  # of a text that was cut


@dataclass
class Listing:
    """The files that some paths stand for, and those among them that are not read for their endings."""

    files: list[Path] = field(default_factory=list)
    passed_over: list[Path] = field(default_factory=list)

    def say_passed_over(self) -> None:
        if self.passed_over:
            say(f"Not read: {said_passed_over(self.passed_over)} To read them, say how with format: or --format.")


def said_passed_over(files: Sequence[Path]) -> str:
    """3 files with an ending that is not known (.epub 2, none 1): a.epub, b.epub, README."""
    endings = Counter(unknown_ending(file.name) for file in files).most_common(SHOWN)
    kinds = ", ".join(f"{ending} {count:,}" for ending, count in endings)
    shown = ", ".join(file.name for file in files[:SHOWN]) + (" …" if len(files) > SHOWN else "")
    return f"{len(files):,} file{'' if len(files) == 1 else 's'} with an ending that is not known ({kinds}): {shown}."


def unknown_ending(name: str) -> str:
    return PurePosixPath(inner_name(name)).suffix.lower()[:20] or "none"


def find_files(sources: Sequence[Path], format: Format | None = None) -> list[Path]:
    """The files that these paths stand for, in a fixed order."""
    return list_files(sources, format).files


def list_files(sources: Sequence[Path], format: Format | None = None) -> Listing:
    """With a format, files of all endings count."""
    listing = Listing()
    for source in sources:
        if is_corpus(source):  # what is held out, or was dropped, is not to be learnt from
            _add_folder(listing, source / "train", None)
        elif source.is_dir():
            _add_folder(listing, source, format)
        elif source.is_file():
            if format is None and not is_readable(source.name):
                raise InputError(
                    f"{source} has an ending that is not known ({unknown_ending(source.name)}). Say how to read it: "
                    "format: text in a recipe, --format text on the command line. Known endings: "
                    f"{', '.join((*FORMATS, *ARCHIVES))}."
                )
            listing.files.append(source)
        elif source.is_symlink() or source.exists():
            raise InputError(f"{source} is neither a file nor a folder.")
        elif matches := sorted(glob(str(source), recursive=True)):  # noqa: PTH207, Path.glob takes no absolute pattern
            _add_matches(listing, source, [Path(match) for match in matches], format)
        else:
            raise InputError(not_found(source))
    return listing


def _add_folder(listing: Listing, folder: Path, format: Format | None) -> None:
    before, passed_over = len(listing.files), len(listing.passed_over)
    for file in _files_in(folder):
        (listing.files if format or is_readable(file.name) else listing.passed_over).append(file)
    if len(listing.files) == before:
        others = listing.passed_over[passed_over:]
        said = f" It has {said_passed_over(others)} Say how to read them, such as format: text." if others else ""
        raise InputError(f"{folder} holds no text files ({', '.join((*FORMATS, *ARCHIVES))}).{said}")


def _add_matches(listing: Listing, pattern: Path, matches: Sequence[Path], format: Format | None) -> None:
    before, passed_over = len(listing.files), len(listing.passed_over)
    for match in matches:
        if match.is_dir():
            _add_folder(listing, match / "train" if is_corpus(match) else match, format)
        elif match.is_file():
            (listing.files if format or is_readable(match.name) else listing.passed_over).append(match)
    if len(listing.files) == before:
        others = listing.passed_over[passed_over:]
        said = f": {said_passed_over(others)} Say how to read them, such as format: text." if others else "."
        raise InputError(f"{pattern} stands for no file that can be read{said}")


def _files_in(folder: Path) -> Iterator[Path]:
    """Hidden files are not read, nor a corpus that lies among the texts: parts of it are held out, or were dropped."""
    for item in sorted(folder.iterdir()):
        if item.name.startswith("."):
            continue
        if item.is_file():
            yield item
        elif item.is_dir() and not item.is_symlink() and not is_corpus(item):
            yield from _files_in(item)


def is_corpus(folder: Path) -> bool:
    """Whether this is what `weft corpus` writes."""
    return known_facts(folder).get("kind") == "corpus"


def text_size(files: Sequence[Path]) -> int:
    """About how many bytes of text the files hold."""
    return sum(file.stat().st_size * (1 if file.suffix.lower() in PLAIN else EXPANDS) for file in files)


def is_readable(name: str) -> bool:
    if is_hidden(name):
        return False
    return is_archive(name) or PurePosixPath(inner_name(name)).suffix.lower() in FORMATS


def is_hidden(name: str) -> bool:
    """In an archive: what a folder would not show, and the Mac's notes about a file."""
    return PurePosixPath(name).name.startswith(".") or "__MACOSX/" in name


def read_documents(sources: Sequence[Path], readings: Reading | Readings | None = None) -> Iterator[Document]:
    """Every document that has any text in it; an error if one cannot be read. All are read in one way, or each file in
    its own.
    """
    for file in files_of(sources, readings):
        reading = readings if isinstance(readings, Reading) else (readings or {}).get(file, Reading())
        passed_over: list[str] = []
        for found in scan(file, reading):
            if isinstance(found, Document):
                yield found
            elif found.is_passed_over:
                passed_over.append(found.place.removeprefix(", "))
            elif not found.is_empty:
                raise InputError(f"{file}{found.place} {found.reason}. {found.advice}".strip())
        if passed_over:
            _say_once(f"{file}: not read: {said_passed_over([Path(name) for name in passed_over])}")


def files_of(sources: Sequence[Path], readings: Reading | Readings | None) -> list[Path]:
    """A file that has its own reading was found before."""
    if isinstance(readings, Reading):
        return find_files(sources, readings.format)
    known = readings or {}
    return [file for source in sources for file in ([source] if source in known else find_files([source]))]


@cache
def _say_once(sentence: str) -> None:
    """A corpus is read several times."""
    say(sentence)


def scan(file: Path, reading: Reading) -> Iterator[Document | Skipped]:
    """The documents of a file, and what could not be read of it. In an archive, as in a folder, only the files of a
    known format count, unless a format is given.
    """
    members = open_members(file)
    empty = True
    while True:
        try:
            member = next(members, None)
        except Refused as refused:  # the archive itself is damaged: nothing comes after that
            yield Skipped(str(refused))
            return
        if member is None:
            break
        name = member.name if isinstance(member, Member) else member[0]
        if not is_archive(file.name) or is_readable(name) or (reading.format and not is_hidden(name)):
            empty = False
            yield from _scan_member(file, member, reading)
        elif not is_hidden(name):
            yield Skipped("has an ending that is not known", f", {name}", is_passed_over=True)
    if empty:
        yield Skipped(f"holds no text files ({', '.join(FORMATS)})")


def scan_range(file: Path, begin: int, end: int, reading: Reading) -> Iterator[Document | Skipped]:
    """The same of a part of a file that is neither packed nor a table; it begins and ends where documents do."""
    with file.open("rb") as stream:
        stream.seek(begin)
        part = cast("IO[bytes]", io.BufferedReader(_Part(stream, end - begin), BUFFER))
        yield from _scan_member(file, Member(file.name, part), reading)


class _Part(io.RawIOBase):
    def __init__(self, stream: IO[bytes], size: int) -> None:
        self.stream, self.left = stream, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        data = self.stream.read(min(len(buffer), self.left))
        buffer[: len(data)] = data
        self.left -= len(data)
        return len(data)


def is_lines(name: str, reading: Reading) -> bool:
    return reading.ending(name) in TEXT and reading.unit == "line"


def _scan_member(file: Path, member: Member | tuple[str, Refused], reading: Reading) -> Iterator[Document | Skipped]:
    if not isinstance(member, Member):
        yield Skipped(str(member[1]), f", {member[0]}")
        return
    name = member.name if is_archive(file.name) else ""
    within = f", {name}" if name else ""
    try:
        for found in read_stream(member.name, member.stream, reading):
            if isinstance(found, Skipped):
                yield replace(found, place=within + found.place)
            elif found.text.strip():
                yield from _documents(
                    found, Document("", file, found.number, name, found.address, found.facts), reading
                )
            elif not is_lines(member.name, reading):  # a blank line is no document
                yield Skipped("is empty", within, is_empty=True)
    except Refused as refused:
        yield Skipped(str(refused), within)
    except InputError as error:  # the whole source is not as it was said to be: a column is missing
        raise InputError(f"{file}{within}: {error}") from None


def _documents(found: Found, document: Document, reading: Reading) -> Iterator[Document]:
    """One, or the parts of one that is too long."""
    if reading.longest is None or len(found.text) <= reading.longest:
        yield replace(document, text=found.text, is_part=found.is_part)
        return
    for part in cut_text(found.text, reading.longest):
        if part.strip():
            yield replace(document, text=part, is_part=True)
