"""Where rows are: a file, a folder of files, an archive, or what lies beneath a name in an archive.

`data.tar.gz::data/train` is what lies beneath data/train in data.tar.gz. In a folder or an archive either every file
is one of rows, and they follow each other; or there is a folder per class with a text in each file. Which of the two
is told by the names alone, before anything is read; READMEs and licences beside the data do not count.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO, Literal, NamedTuple

from weft.errors import InputError, not_found, suggest
from weft.sources.archives import ARCHIVES, COMPRESSED, Member, Refused, inner_name, is_archive, open_members
from weft.sources.row_formats import ENDINGS, TEXT
from weft.sources.standard_input import is_standard_input, open_standard_input

NOTES = ("readme", "license", "licence")
SHOWN = 10
CONLL, DOCUMENT = ".conll", b"-DOCSTART-"


class Part(NamedTuple):
    file: Path
    member: str  # of an archive
    name: (
        str  # inside the source, without the endings of compression; of what is wrong with an archive as a whole, none
    )
    content: IO[bytes] | Refused  # to be read before the next is asked for


@dataclass(frozen=True)
class Place:
    path: Path
    beneath: str = ""  # what is wanted of an archive, if not all
    format: str | None = None  # of all files, whatever they are called

    @property
    def is_standard_input(self) -> bool:
        """Its records can be read once."""
        return is_standard_input(self.path)

    @property
    def where(self) -> str:
        if self.is_standard_input:
            return "standard input"
        return f"{self.path}::{self.beneath}" if self.beneath else str(self.path)

    @cached_property
    def is_archive(self) -> bool:
        return is_archive(self.path.name) and not self.path.is_dir()

    @property
    def is_text(self) -> bool:
        """Whether it is one file, and none of rows: lines that can run in parallel with another's."""
        if self.is_standard_input:
            return self.format == "text"
        if self.path.is_dir() or (self.is_archive and not self.beneath):
            return False
        name = inner_name(self.beneath or self.path.name)
        is_text = self.ending_of(name) in TEXT or self.ending_of(name) not in ENDINGS
        return self.names == [PurePosixPath(name).name] and is_text

    def ending_of(self, name: str) -> str:
        """How a part is read: as it was said, by its ending, or, if that is not known, by how the file begins."""
        if self.format is not None:
            return f".{self.format}"
        return ending(name) if ending(name) in ENDINGS or not self._begins_like_conll else CONLL

    @cached_property
    def _begins_like_conll(self) -> bool:
        """As the files of CoNLL-2003 do, which are called eng.train and eng.testa."""
        if (
            self.is_standard_input
            or self.path.is_dir()
            or self.is_archive
            or ending(inner_name(self.path.name)) in ENDINGS
        ):
            return False
        for part in self.parts():
            with suppress(Refused):
                return not isinstance(part.content, Refused) and part.content.read(len(DOCUMENT)) == DOCUMENT
        return False

    @cached_property
    def names(self) -> list[str]:
        """Of all parts, inside the source."""
        if not self.is_archive:
            return [name for _, name in self._files()]
        names: list[str] = []
        damage = ""
        for part in self._members():
            if not isinstance(part.content, Refused):
                names.append(part.name)
            elif not part.name:
                damage = str(part.content)
        if names:
            return names
        if damage or not self.beneath:
            raise InputError(f"{self.path} {damage or 'holds no files'}.")
        inside = sorted({PurePosixPath(name).parts[0] for name in Place(self.path).names})
        shown = ", ".join(inside[:SHOWN]) + (" …" if len(inside) > SHOWN else "")
        hint = suggest(self.beneath, inside)
        raise InputError(f"{self.path} holds nothing beneath {self.beneath}{hint}. It has: {shown}.")

    @cached_property
    def has_classes(self) -> bool:
        """Whether each text lies in the folder of its class; otherwise all are files of rows."""
        if not self.names:
            raise InputError(f"{self.path} is an empty folder.")
        if self.format is not None or self._begins_like_conll:
            return False
        names = [name for name in self.names if not _is_note(name)] or self.names
        if all(ending(name) in ENDINGS and ending(name) not in TEXT for name in names):
            return False
        folders = {PurePosixPath(name).parent for name in names}
        is_lines = len(folders) == 1 and all(ending(name) in TEXT for name in names)  # data/train.txt: no class "data"
        if not is_lines and any("/" in name for name in names):
            return True
        unknown = next((name for name in names if ending(name) not in ENDINGS), None)
        if unknown is None:
            return False
        what = self.where if not self.path.is_dir() and len(names) == 1 else f"{self.where} holds {unknown}, which"
        has = f"an ending that is not known ({ending(unknown)})" if ending(unknown) else "no ending"
        raise InputError(
            f"{what} has {has}. Rows are read from {', '.join(ENDINGS)}, also compressed ({', '.join(COMPRESSED)}) or "
            f"in an archive ({', '.join(ARCHIVES)}); from a folder per class; from two parallel text files, as a list. "
            "Or say how to read it: finetune.data.format=conll in a recipe, --format conll elsewhere."
        )

    def role_of(self, name: str) -> Literal["rows", "text", "note", "stray"]:
        """What a part is here: a file of rows, a text of a class, nothing to read, or nothing that can be read."""
        if self.has_classes and str(PurePosixPath(name).parent) not in self._outer_folders:
            return "text"
        if _is_note(name) and len(self.names) > 1:
            return "note"
        return "stray" if self.has_classes else "rows"

    @cached_property
    def _outer_folders(self) -> frozenset[str]:
        """Those with folders in them, the source itself first of all: none of them is a class."""
        folders = {PurePosixPath(name).parent for name in self.names}
        return frozenset(str(outer) for folder in folders for outer in folder.parents) | {"."}

    def parts(self) -> Iterator[Part]:
        if self.is_standard_input:
            yield Part(Path("standard input"), "", "-", open_standard_input())
            return
        if self.is_archive:
            yield from self._members()
            return
        for file, name in self._files():
            if is_archive(file.name):
                yield Part(file, "", name, Refused("is an archive in a folder; it can be read by itself"))
                continue
            try:
                for member in open_members(file):
                    yield Part(file, "", name, member.stream if isinstance(member, Member) else member[1])
            except Refused as refused:
                yield Part(file, "", name, refused)

    def _files(self) -> Iterator[tuple[Path, str]]:
        if not self.path.is_dir():
            yield self.path, inner_name(self.path.name)
            return
        for file in _files_in(self.path):
            yield file, inner_name(file.relative_to(self.path).as_posix())

    def _members(self) -> Iterator[Part]:
        beneath = PurePosixPath(inner_name(self.beneath))
        try:
            for member in open_members(self.path):
                if not isinstance(member, Member):
                    if not self.beneath or PurePosixPath(member[0]).is_relative_to(beneath):
                        yield Part(self.path, member[0], member[0], member[1])
                    continue
                path = PurePosixPath(member.name)
                if path.is_relative_to(beneath) and not _is_hidden(path):
                    name = path.name if path == beneath else path.relative_to(beneath).as_posix()
                    yield Part(self.path, str(path), name, member.stream)
        except Refused as refused:
            yield Part(self.path, "", "", refused)


def locate(path: Path, format: str | None = None) -> Place:
    if is_standard_input(path):
        return Place(path, format=format or "text")
    outer, _, beneath = str(path).partition("::")
    source = Place(path, format=format)
    if beneath and not path.exists():
        source = Place(Path(outer), str(PurePosixPath(beneath)), format)
    if source.path.is_file() or source.path.is_dir():
        if source.beneath and not source.is_archive:
            raise InputError(f"{source.path} is not an archive ({', '.join(ARCHIVES)}): nothing is beneath it.")
        return source
    if source.path.exists():
        raise InputError(f"{source.path} is neither a file nor a folder.")
    folder = source.path.parent
    near = [item.name for item in folder.iterdir()] if folder.is_dir() else []
    raise InputError(not_found(source.path, suggest(source.path.name, near)))


def ending(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _files_in(folder: Path) -> Iterator[Path]:
    for item in sorted(folder.iterdir()):
        if item.name.startswith("."):
            continue
        if item.is_file():
            yield item
        elif item.is_dir() and not item.is_symlink():
            yield from _files_in(item)


def _is_hidden(path: PurePosixPath) -> bool:
    """Also the Mac's notes about a file."""
    return any(part.startswith(".") for part in path.parts) or "__MACOSX" in path.parts


def _is_note(name: str) -> bool:
    return PurePosixPath(name).stem.lower() in NOTES
