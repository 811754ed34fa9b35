"""Documents out of files, one after another: memory does not grow with the corpus.

A text file is one document (or one per line, or per block between blank lines, as `unit` says), a `.jsonl` file one
per line, a table one per row, a page its article, a crawl one per page; all of them also compressed or in archives. A
folder stands for the files in it, a pattern for those that match.

What cannot be read is handed on as `Skipped` with its reason (`scan`), or is an error (`read_documents`): a model is
not to be trained on a part of the text without anybody knowing.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from glob import glob
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from weft.corpus.archives import ARCHIVES, Member, Refused, inner_name, is_archive, open_members
from weft.corpus.formats import FORMATS, LINES, TABLES, TEXT, Reading, Skipped, read_stream
from weft.errors import InputError
from weft.folders import known_facts

PLAIN, EXPANDS = (*TEXT, *LINES, *TABLES), 4  # text as it is; others, when they are unpacked, to about so many times
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


def find_files(sources: Sequence[Path]) -> list[Path]:
    """The files that these paths stand for, in a fixed order."""
    files: list[Path] = []
    for source in sources:
        if is_corpus(source):  # what is held out, or was dropped, is not to be learnt from
            files += find_files([source / "train"])
        elif source.is_dir():
            inside = list(_files_in(source))
            if not inside:
                raise InputError(f"{source} holds no text files ({', '.join((*FORMATS, *ARCHIVES))}).")
            files += inside
        elif source.is_file():
            files.append(source)
        elif source.is_symlink() or source.exists():
            raise InputError(f"{source} is neither a file nor a folder.")
        elif matches := sorted(glob(str(source), recursive=True)):  # noqa: PTH207, Path.glob takes no absolute pattern
            found = [path for match in matches if (path := Path(match)).is_file() or path.is_dir()]
            files += find_files(found)
        else:
            raise InputError(f"{source} does not exist.")
    return files


def _files_in(folder: Path) -> Iterator[Path]:
    """Hidden files are not read, nor a corpus that lies among the texts: parts of it are held out, or were dropped."""
    for item in sorted(folder.iterdir()):
        if item.name.startswith("."):
            continue
        if item.is_file():
            if is_readable(item.name):
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
    if PurePosixPath(name).name.startswith("._") or "__MACOSX/" in name:  # the Mac's notes about a file
        return False
    return is_archive(name) or PurePosixPath(inner_name(name)).suffix.lower() in FORMATS


def read_documents(sources: Sequence[Path], readings: Reading | Readings | None = None) -> Iterator[Document]:
    """Every document that has any text in it; an error if one cannot be read. All are read in one way, or each file in
    its own.
    """
    for file in find_files(sources):
        reading = readings if isinstance(readings, Reading) else (readings or {}).get(file, Reading())
        for found in scan(file, reading):
            if isinstance(found, Document):
                yield found
            elif not found.is_empty:
                raise InputError(f"{file}{found.place} {found.reason}. {found.advice}".strip())


def scan(file: Path, reading: Reading) -> Iterator[Document | Skipped]:
    """The documents of a file, and what could not be read of it. In an archive, as in a folder, only the files of a
    known format count.
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
        if not is_archive(file.name) or is_readable(name):
            empty = False
            yield from _scan_member(file, member, reading)
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
    return PurePosixPath(name).suffix.lower() in TEXT and reading.unit == "line"


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
                yield Document(found.text, file, found.number, name, found.address, found.facts)
            elif not is_lines(member.name, reading):  # a blank line is no document
                yield Skipped("is empty", within, is_empty=True)
    except Refused as refused:
        yield Skipped(str(refused), within)
    except InputError as error:  # the whole source is not as it was said to be: a column is missing
        raise InputError(f"{file}{within}: {error}") from None
