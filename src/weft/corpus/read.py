"""Documents out of files, one after another: memory does not grow with the corpus.

A `.txt` or `.md` file is one document (or one per line, or per block between blank lines, as `unit` says), a `.jsonl`
file one per line (its `text`); a folder stands for the files in it. Text must be UTF-8; what is not is refused with the
file and the place, because a silent repair would train on noise.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from weft.errors import InputError

TEXT, LINES = (".txt", ".md", ".text"), (".jsonl", ".ndjson")
MOST_LINE = 2**28  # bytes in a line that is read as a document of its own
SPACES = [chr(number) for number in range(0x3001) if chr(number).isspace()]
BLANK = re.compile(b"(?:" + b"|".join(re.escape(space.encode()) for space in [*SPACES, "\ufeff"]) + b")*")
Unit = Literal["file", "line", "block"]


@dataclass(frozen=True)
class Document:
    text: str
    file: Path
    number: int  # of the document in its file, from 0


def find_files(sources: Sequence[Path]) -> list[Path]:
    """The text files that these paths stand for, in a fixed order."""
    files: list[Path] = []
    for source in sources:
        if source.is_dir():
            inside = sorted(file for file in source.rglob("*") if file.suffix in (*TEXT, *LINES) and file.is_file())
            if not inside:
                raise InputError(f"{source} holds no text files ({', '.join((*TEXT, *LINES))}).")
            files += inside
        elif source.is_file():
            files.append(source)
        else:
            raise InputError(f"{source} does not exist.")
    return files


def read_documents(sources: Sequence[Path], unit: Unit = "file") -> Iterator[Document]:
    """Every document that has any text in it. `unit` is what a document of a text file is."""
    for file in find_files(sources):
        for number, text in enumerate(_texts(file, unit)):
            if text.strip():
                yield Document(text, file, number)


def _texts(file: Path, unit: Unit) -> Iterator[str]:
    if file.suffix in LINES:
        return _read_json_lines(file)
    match unit:
        case "file":
            return iter([_decode(file.read_bytes(), file, 0)])
        case "line":
            return (_decode(line, file, number).rstrip("\r\n") for number, line in _lines(file))
        case "block":
            return _read_blocks(file)


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    with file.open("rb") as stream:
        number = 0
        while line := stream.readline(MOST_LINE + 1):
            if len(line) > MOST_LINE:
                raise InputError(f"{file}, line {number + 1} has no end in {MOST_LINE:,} bytes.")
            yield number, line
            number += 1


def _read_blocks(file: Path) -> Iterator[str]:
    block: list[bytes] = []  # decoded as one, which is several times faster than line by line
    number = 0
    for number, line in _lines(file):
        if BLANK.fullmatch(line):
            if block:
                yield _decode(b"".join(block), file, number - len(block)).rstrip("\r\n")
                block = []
        else:
            block.append(line)
    yield _decode(b"".join(block), file, number + 1 - len(block)).rstrip("\r\n")


def _read_json_lines(file: Path) -> Iterator[str]:
    for number, line in _lines(file):
        if not line.strip():
            continue
        try:
            text = json.loads(_decode(line, file, number))["text"]
        except InputError:
            raise
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(f'{file}, line {number + 1}: this is not a JSON object with a "text".') from None
        if not isinstance(text, str):
            raise InputError(f"{file}, line {number + 1}: its text is {type(text).__name__}, not a string.")
        yield _whole(text, f"{file}, line {number + 1}")


def _decode(data: bytes, file: Path, line: int) -> str:
    """`line` is where the data begins in the file, from 0."""
    if b"\x00" in data[:100_000]:
        raise InputError(f"{file} is a binary file, not text.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        above = error.object[: error.start].split(b"\n")
        place = f"line {line + len(above)}, byte {len(above[-1])}"
        raise InputError(
            f"{file} is not UTF-8 at {place}. Convert it first, for example: iconv -f latin1 -t utf-8."
        ) from None


def _whole(text: str, where: str) -> str:
    """JSON can hold half of a character (a lone surrogate), which no encoding can write."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where}: character {error.start} is half of a surrogate pair, which is no text.") from None
    return text
