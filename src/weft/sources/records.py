"""A record of a file, and one that cannot be used: every format gives these two, and each knows its place."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

BadKind = Literal[
    "unreadable",
    "empty",  # nothing is wrong with it; it has no text
    "blank line",
    "unknown ending",  # a member of an archive that no format reads
    "put aside",  # workers died of it
]


class Origin(NamedTuple):
    """The stream that a record comes from."""

    file: Path
    member: str = ""  # of an archive
    unit: str = "line"  # what records are numbered by: line, row, item, part


class _Located:
    """What knows where it was read."""

    __slots__ = ()
    origin: Origin

    @property
    def file(self) -> Path:
        return self.origin.file

    @property
    def member(self) -> str:
        return self.origin.member


@dataclass(frozen=True, slots=True)
class Record(_Located):
    values: dict[str, Any]  # by column
    origin: Origin
    number: int  # of the line where it begins, or of the row, from 1; 0 if the stream is one record

    @property
    def place(self) -> str:
        """Example: `train.tsv, line 7`, or `20news.tar.gz, sci.space/59848`."""
        return _place(self.origin, self.number, "")


@dataclass(frozen=True, slots=True)
class BadRecord(_Located):
    """A record that cannot be used. If its number is 0, the rest of its stream cannot be used either."""

    reason: str  # a predicate; the subject is the place: "is not JSON"
    origin: Origin
    number: int = 0
    kind: BadKind = "unreadable"
    advice: str = ""  # a sentence
    within: str = ""  # where in the stream, if not by number: the address of a page, a range of bytes

    @property
    def place(self) -> str:
        return _place(self.origin, self.number, self.within)

    @property
    def place_in_file(self) -> str:
        """The place without the name of the file; empty if it is the whole file."""
        return self.place.removeprefix(self.file.name).removeprefix(", ")


def _place(origin: Origin, number: int, within: str) -> str:
    within = within or (f"{origin.unit} {number}" if number else "")
    return ", ".join(part for part in (origin.file.name, origin.member, within) if part)
