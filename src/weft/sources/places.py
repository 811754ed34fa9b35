"""Where rows are: a file, a folder, a pattern, an archive, a part of an archive, or standard input.

`data.tar.gz::data/train` is what lies under data/train in data.tar.gz; `-` is standard input. The files of a folder or
an archive either hold rows, and follow each other, or are texts in a folder per class. The names alone decide which;
READMEs and licences do not count.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, Literal, NamedTuple

from weft.errors import InputError, suggest
from weft.sources.archives import ARCHIVES, COMPRESSED, Refused, inner_name, is_archive, is_hidden, open_members
from weft.sources.files import expand
from weft.sources.formats.catalog import CONLL, ROW_FORMATS, TEXT, FileFormat, ending_of, format_named
from weft.sources.formats.conll import FIRST_WORD
from weft.sources.standard_input import is_standard_input, open_standard_input

_NOTES = ("readme", "license", "licence")
_MOST_SHOWN = 10


class PlaceStream(NamedTuple):
    """A stream of a place, to be read before the next is asked for."""

    file: Path
    member: str  # of an archive
    name: str  # in the place, without the ending of compression; empty if the archive as a whole is damaged
    content: IO[bytes] | Refused


@dataclass(frozen=True)
class Place:
    path: Path
    beneath: str = ""  # the part of an archive that is wanted; empty: all
    format: str | None = None  # of all files; None: by their endings

    @property
    def is_standard_input(self) -> bool:
        """Whether its records can be read only once."""
        return is_standard_input(self.path)

    @property
    def where(self) -> str:
        """For messages."""
        if self.is_standard_input:
            return "standard input"
        return f"{self.path}::{self.beneath}" if self.beneath else str(self.path)

    @cached_property
    def is_archive(self) -> bool:
        return is_archive(self.path.name) and not self.path.is_dir()

    @property
    def plain_bytes(self) -> int:
        """The size of its content; 0 if it is not known without reading it."""
        is_packed = self.is_archive or self.path.suffix.lower() in COMPRESSED
        return self.path.stat().st_size if self.path.is_file() and not is_packed else 0

    @cached_property
    def is_single(self) -> bool:
        """Whether it is one file, outside or inside an archive."""
        if self.is_standard_input:
            return True
        if self.is_archive:
            return bool(self.beneath) and self.names == [PurePosixPath(inner_name(self.beneath)).name]
        return self.path.is_file()

    @property
    def is_text(self) -> bool:
        """Whether it is one file of lines, which can be parallel to the lines of another."""
        if not self.is_single:
            return False
        (name,) = self.names
        return self._known_format(name) in (None, TEXT)

    def format_of(self, name: str) -> FileFormat:
        return self._known_format(name) or TEXT

    def _known_format(self, name: str) -> FileFormat | None:
        """The format that was given; that of the ending; or, if that is not known, CoNLL by how the file begins."""
        if self.format is not None:
            return format_named(self.format)
        return ROW_FORMATS.get(ending_of(name), CONLL if self._begins_like_conll else None)

    @cached_property
    def _begins_like_conll(self) -> bool:
        """The files of CoNLL-2003 are called eng.train and eng.testa."""
        if self.is_standard_input or self.is_archive or not self.path.is_file():
            return False
        if ending_of(self.path.name) in ROW_FORMATS:
            return False
        for stream in self.streams():
            with suppress(Refused):
                first = FIRST_WORD.encode()
                return not isinstance(stream.content, Refused) and stream.content.read(len(first)) == first
        return False

    @cached_property
    def names(self) -> list[str]:
        """Of all streams, in the place. Raises InputError if there are none."""
        if not self.is_archive:
            return [name for _, name in self._files()]
        names: list[str] = []
        damage = ""
        for stream in self._members():
            if not isinstance(stream.content, Refused):
                names.append(stream.name)
            elif not stream.name:
                damage = str(stream.content)
        if names:
            return names
        if damage or not self.beneath:
            raise InputError(f"{self.path} {damage or 'holds no files'}.")
        inside = sorted({PurePosixPath(name).parts[0] for name in Place(self.path).names})
        shown = ", ".join(inside[:_MOST_SHOWN]) + (" …" if len(inside) > _MOST_SHOWN else "")
        hint = suggest(self.beneath, inside)
        raise InputError(f"{self.path} holds nothing beneath {self.beneath}{hint}. It has: {shown}.")

    @cached_property
    def has_classes(self) -> bool:
        """Whether each text lies in the folder of its class; otherwise all files hold rows. Raises InputError if the
        names do not tell.
        """
        if not self.names:
            raise InputError(f"{self.path} is an empty folder.")
        if self.format is not None or self._begins_like_conll:
            return False
        names = [name for name in self.names if not _is_note(name)] or self.names
        formats = [ROW_FORMATS.get(ending_of(name)) for name in names]
        if all(form not in (None, TEXT) for form in formats):
            return False
        folders = {PurePosixPath(name).parent for name in names}
        is_lines = len(folders) == 1 and all(form is TEXT for form in formats)  # data/train.txt: "data" is no class
        if not is_lines and any("/" in name for name in names):
            return True
        unknown = next((name for name, form in zip(names, formats, strict=True) if form is None), None)
        if unknown is not None:
            raise InputError(self._unknown_ending(unknown, is_only=len(names) == 1))
        return False

    def _unknown_ending(self, name: str, *, is_only: bool) -> str:
        what = self.where if not self.path.is_dir() and is_only else f"{self.where} holds {name}, which"
        has = f"an ending that is not known ({ending_of(name)})" if ending_of(name) else "no ending"
        return (
            f"{what} has {has}. Rows are read from {', '.join(ROW_FORMATS)}, also compressed ({', '.join(COMPRESSED)}) "
            f"or in an archive ({', '.join(ARCHIVES)}); from a folder per class; from two parallel text files, as a "
            "list. Or give the format: finetune.data.format=conll in a recipe, --format conll elsewhere."
        )

    def role_of(self, name: str) -> Literal["rows", "text", "note", "stray"]:
        """A file of rows; a text of a class; a note, which is not read; or a file outside the folders of the classes,
        which cannot be used.
        """
        if self.has_classes and str(PurePosixPath(name).parent) not in self._outer_folders:
            return "text"
        if _is_note(name) and len(self.names) > 1:
            return "note"
        return "stray" if self.has_classes else "rows"

    @cached_property
    def _outer_folders(self) -> frozenset[str]:
        """Folders that hold folders, the place itself included: none of them is a class."""
        folders = {PurePosixPath(name).parent for name in self.names}
        return frozenset(str(outer) for folder in folders for outer in folder.parents) | {"."}

    def streams(self) -> Iterator[PlaceStream]:
        if self.is_standard_input:
            yield PlaceStream(Path(self.where), "", self.path.name, open_standard_input())
            return
        if self.is_archive:
            yield from self._members()
            return
        for file, name in self._files():
            if is_archive(file.name):
                yield PlaceStream(file, "", name, Refused("is an archive in a folder. Give its path by itself"))
                continue
            try:
                for member in open_members(file):
                    yield PlaceStream(file, "", name, member.content)
            except Refused as refused:
                yield PlaceStream(file, "", name, refused)

    def _files(self) -> Iterator[tuple[Path, str]]:
        if self.is_standard_input:
            yield self.path, self.path.name
            return
        for file in expand(self.path):
            name = file.relative_to(self.path).as_posix() if self.path.is_dir() else file.name
            yield file, inner_name(name)

    def _members(self) -> Iterator[PlaceStream]:
        beneath = PurePosixPath(inner_name(self.beneath))
        try:
            for member in open_members(self.path):
                path = PurePosixPath(member.name)
                if isinstance(member.content, Refused):
                    if not self.beneath or path.is_relative_to(beneath):
                        yield PlaceStream(self.path, member.name, member.name, member.content)
                elif path.is_relative_to(beneath) and not is_hidden(member.name):
                    name = path.name if path == beneath else path.relative_to(beneath).as_posix()
                    yield PlaceStream(self.path, str(path), name, member.content)
        except Refused as refused:
            yield PlaceStream(self.path, "", "", refused)


def locate(path: Path, format: str | None = None) -> Place:
    """Standard input is lines of text, unless a format is given. Raises InputError if there is nothing of this name."""
    if is_standard_input(path):
        return Place(path, format=format or "text")
    outer, _, beneath = str(path).partition("::")
    place = Place(path, format=format)
    if beneath and not path.exists():
        place = Place(Path(outer), str(PurePosixPath(beneath)), format)
    if not place.path.is_file() and not place.path.is_dir():
        expand(place.path)  # a pattern, or an error
    if place.beneath and not place.is_archive:
        raise InputError(f"{place.path} is not an archive ({', '.join(ARCHIVES)}), so {place.beneath} cannot be in it.")
    return place


def _is_note(name: str) -> bool:
    return PurePosixPath(name).stem.lower() in _NOTES
