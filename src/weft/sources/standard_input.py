"""Standard input, written `-` where a path is expected.

It can be read once. `open_standard_input` gives it as a stream, for a command that reads its input from front to back.
A command that reads its input several times works on a copy: `copy_standard_input` writes one, `standard_input_as_file`
keeps one in a temporary folder. A file that is called `-` can be named by its absolute path.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from weft.errors import InputError
from weft.folders import disk_errors
from weft.progress import say

STANDARD_INPUT = Path("-")
MOST_COPIED = 2**33  # bytes
_PIECE = 2**20
_opened: list[IO[bytes]] = []


def is_standard_input(path: Path | str) -> bool:
    return str(path) == str(STANDARD_INPUT)


def texts_or_file(texts: Sequence[str] | None, file: Path | None) -> tuple[list[str], Path | None]:
    """What a command is given. A single text `-` stands for standard input, as `--file -` does."""
    if file is None and list(texts or ()) == [str(STANDARD_INPUT)]:
        return [], STANDARD_INPUT
    return list(texts or ()), file


def open_standard_input() -> IO[bytes]:
    """Raises InputError if it was opened before."""
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None or stream.closed:
        raise InputError("There is no standard input to read (-). Give the name of a file.")
    if any(stream is one for one in _opened):
        raise InputError("Standard input (-) can be read only once. Save it to a file and give its name.")
    _opened[:] = [stream]
    if stream.isatty():
        say("Reading standard input; Ctrl-D ends it.")
    return stream


def copy_standard_input(folder: Path, format: str | None = None) -> Path:
    """Write standard input to a file in the folder. Its ending says the format; text if there is none."""
    stream, size = open_standard_input(), 0
    file = folder / f"standard-input.{format or 'txt'}"
    say("Copying standard input to a temporary file: it is read more than once.")
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as target:
            while piece := stream.read(_PIECE):
                size += len(piece)
                if size > MOST_COPIED:
                    raise InputError(
                        f"Standard input is longer than {MOST_COPIED:,} bytes. Save it to a file and give its name."
                    )
                target.write(piece)
    return file


@contextmanager
def standard_input_as_file(paths: Sequence[Path], format: str | None = None) -> Iterator[list[Path]]:
    """The same paths, with a copy of standard input in place of `-`. The copy is deleted at the end."""
    if not any(map(is_standard_input, paths)):
        yield list(paths)
        return
    if sum(map(is_standard_input, paths)) > 1:
        raise InputError("Standard input (-) can be read only once; it is given several times.")
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        copy = copy_standard_input(Path(folder), format)
        yield [copy if is_standard_input(path) else path for path in paths]
