"""Finds the sources of a build and cuts them into pieces of work.

A piece is about `PIECE_BYTES` of text: enough to be worth distributing, little enough to repeat after a kill. Long
files are cut at the ends of lines, blocks or parts of a text; small files are grouped. Compressed files and tables are
one piece each. The pieces depend on the files alone, so the result does not depend on the number of workers.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from weft.errors import InputError, RecipeError
from weft.recipe.corpus import CorpusSection, ReadSection, SourceSection, Unit
from weft.sources.files import list_files, text_size
from weft.sources.formats.catalog import cut_unit
from weft.sources.formats.cut_long import LONGEST, cut_stream
from weft.sources.reading import Reading
from weft.sources.web.fetch import pages_in

PIECE_BYTES, _PIECE_FILES = 2**24, 1000
_CHUNK_BYTES = 2**20
_BLANK_LINES = (b"\n\n", b"\n\r\n")


@dataclass(frozen=True)
class CorpusSource:
    name: str
    path: str  # as in the recipe
    weight: float
    files: tuple[Path, ...]
    read: dict[str, Any]  # arguments of `Reading`
    passed_over: tuple[Path, ...] = ()  # files with unknown extensions in its folders


@dataclass(frozen=True)
class Inspected:
    """A file and where it can be cut: offsets, each with the number of the line or part that begins there."""

    file: str
    bytes: int
    sha256: str
    cuts: list[list[int]]


@dataclass(frozen=True)
class FilePart:
    """A file, or a range of it."""

    file: str
    begin: int = 0
    end: int | None = None  # None: the whole file
    first_number: int = 0  # of the line or part that begins at `begin`


def reading_of(section: ReadSection, unit: Unit | None) -> dict[str, Any]:
    read = {"unit": section.documents or unit or "file", "text": section.text, "encoding": section.encoding}
    return {**read, "format": section.format}


def find_corpus_sources(
    section: CorpusSection, base: Path, fetched: dict[str, Path], own: tuple[Path, ...] = ()
) -> list[CorpusSource]:
    """`fetched` are, by the path of a source, the folder with its pages, or the copy of standard input.
    Files in our `own` folders, those that are being written, are not read.
    """
    entries = section.sources or []
    # A number of characters can be held out only of a text that stays whole.
    longest = None if max(section.splits.validation, section.splits.test) >= 1 else LONGEST
    seen: dict[Path, str] = {}
    names: set[str] = set()
    sources = []
    for entry in entries:
        place = fetched.get(entry.path, base / entry.path).absolute()
        is_web = entry.path in fetched and place.is_dir()
        listing = list_files(pages_in(place)) if is_web else list_files([place], entry.format)
        if place.resolve() in seen:
            raise RecipeError(
                f"corpus.sources: {entry.path} is the same as {seen[place.resolve()]}. "
                "List it once and raise its weight instead."
            )
        found = [file for file in dict.fromkeys(listing.files) if not _is_in(file, own) or entry.path in fetched]
        files = tuple(
            file for file in found if file.resolve() not in seen
        )  # a file belongs to the first source that has it
        if not files:
            whose = "an earlier source" if found else "the corpus that is being written"
            raise RecipeError(f"corpus.sources: all files of {entry.path} belong to {whose}.")
        seen |= dict.fromkeys([place.resolve(), *(file.resolve() for file in files)], entry.path)
        read = {**reading_of(entry, section.documents), "longest": longest}
        Reading(**read)  # raises if the encoding is unknown
        others = tuple(file for file in listing.passed_over if not _is_in(file, own) or entry.path in fetched)
        sources.append(CorpusSource(_name(entry, names), entry.path, entry.weight, files, read, others))
    return sources


def _is_in(file: Path, folders: tuple[Path, ...]) -> bool:
    return any(file.resolve().is_relative_to(folder) for folder in folders)


def _name(entry: SourceSection, taken: set[str]) -> str:
    """A short unique name, which is also a folder name."""
    wanted = entry.name or "".join(c if c.isalnum() or c in "._-" else "-" for c in Path(entry.path).name).strip(".-")
    wanted = wanted[:60] or "source"
    if entry.name in taken:
        raise RecipeError(f"corpus.sources: two sources have the name {entry.name}. Rename one.")
    name = next(name for n in range(1, 10**6) if (name := wanted if n == 1 else f"{wanted}-{n}") not in taken)
    taken.add(name)
    return name


def files_to_inspect(sources: Sequence[CorpusSource]) -> list[dict[str, Any]]:
    return [
        {"file": str(file), "read": source.read, "piece": PIECE_BYTES} for source in sources for file in source.files
    ]


def inspect(piece: dict[str, Any]) -> dict[str, Any]:
    """Hashes a file and finds where it can be cut. Runs on a worker."""
    file, reading = Path(piece["file"]), Reading(**piece["read"])
    unit, digest = cut_unit(file.name, reading), hashlib.sha256()
    with _readable(file) as stream:
        if unit == "file":
            cuts, size = _part_cuts(stream, digest, reading, piece["piece"])
        else:
            cuts, size = _line_cuts(stream, digest, unit, piece["piece"])
    return asdict(
        Inspected(
            str(file),
            size,
            digest.hexdigest(),
            [cut for cut in cuts if cut[0] < size],
        )
    )


def _line_cuts(stream: IO[bytes], digest: Any, unit: Unit | None, piece: int) -> tuple[list[list[int]], int]:
    offset, lines, wanted = 0, 0, piece
    cuts: list[list[int]] = []
    while chunk := stream.read(min(_CHUNK_BYTES, piece)):
        digest.update(chunk)
        if unit is not None and offset + len(chunk) > wanted:
            end = _end(chunk, max(wanted - offset, 0), unit)  # None: no end in this chunk
            if end is not None:
                cuts.append([offset + end, lines + chunk.count(b"\n", 0, end)])
                wanted = offset + end + piece
        lines += chunk.count(b"\n")
        offset += len(chunk)
    return cuts, offset


def _part_cuts(stream: IO[bytes], digest: Any, reading: Reading, piece: int) -> tuple[list[list[int]], int]:
    """Cuts at the ends of the parts into which the text is split when it is read."""
    offset, wanted = 0, piece
    cuts: list[list[int]] = []
    for number, part in enumerate(cut_stream(stream, reading.longest or 2**62, reading.encoding), start=1):
        digest.update(part)
        offset += len(part)
        if offset >= wanted:
            cuts.append([offset, number])
            wanted = offset + piece
    return cuts, offset


@contextmanager
def _readable(file: Path) -> Iterator[IO[bytes]]:
    try:
        with file.open("rb") as stream:
            yield stream
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}.") from None


def _end(data: bytes, start: int, unit: Unit) -> int | None:
    """The end of the first line or block that ends at or after `start`."""
    ends = [b"\n"] if unit == "line" else _BLANK_LINES
    found = [place + len(end) for end in ends if (place := data.find(end, start)) >= 0]
    return min(found, default=None)


def cut_into_pieces(files: Sequence[Inspected]) -> Iterator[list[FilePart]]:
    """The pieces of a source, each a list of parts."""
    gathered: list[FilePart] = []
    size = 0
    for file in files:
        if file.cuts:
            borders = [[0, 0], *file.cuts, [file.bytes, 0]]
            for (begin, line), (end, _) in pairwise(borders):
                yield [FilePart(file.file, begin, end, line)]
            continue
        expected = text_size([Path(file.file)])
        if gathered and (size + expected > PIECE_BYTES or len(gathered) >= _PIECE_FILES):
            yield gathered
            gathered, size = [], 0
        gathered.append(FilePart(file.file))
        size += expected
    if gathered:
        yield gathered
