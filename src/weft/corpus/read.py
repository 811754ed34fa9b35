"""Documents out of files, one after another: memory does not grow with the corpus.

A `.txt` or `.md` file is one document, a `.jsonl` file one per line (its `text`); a folder stands for the files in it.
Text must be UTF-8; what is not is refused with the file and the place, because a silent repair would train on noise.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.errors import InputError

TEXT, LINES = (".txt", ".md", ".text"), (".jsonl", ".ndjson")


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


def read_documents(sources: Sequence[Path]) -> Iterator[Document]:
    """Every document that has any text in it."""
    for file in find_files(sources):
        texts = _read_lines(file) if file.suffix in LINES else iter([(0, _read_text(file))])
        for number, text in texts:
            if text.strip():
                yield Document(text, file, number)


def _read_text(file: Path) -> str:
    return _decode(file.read_bytes(), file, 0)


def _read_lines(file: Path) -> Iterator[tuple[int, str]]:
    with file.open("rb") as stream:
        for number, line in enumerate(stream):
            if not line.strip():
                continue
            try:
                text = json.loads(_decode(line, file, number))["text"]
            except (ValueError, KeyError, TypeError) as error:
                if isinstance(error, InputError):
                    raise
                raise InputError(f'{file}, line {number + 1}: this is not a JSON object with a "text".') from None
            if not isinstance(text, str):
                raise InputError(f"{file}, line {number + 1}: its text is {type(text).__name__}, not a string.")
            yield number, _whole(text, f"{file}, line {number + 1}")


def _decode(data: bytes, file: Path, line: int) -> str:
    if b"\x00" in data[:100_000]:
        raise InputError(f"{file} is a binary file, not text.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f"byte {error.start}" + (f" of line {line + 1}" if line else "")
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
