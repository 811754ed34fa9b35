"""The errors of weft. A message says what was wrong, where, and what to do.

`InputError` and its subclasses are errors that the user can fix (exit code 2); any other `WeftError` has exit code 1.
The command line prints the message without a traceback; `--debug` shows the traceback.
"""

import difflib
import importlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class WeftError(Exception):
    exit_code = 1


class InputError(WeftError):
    """The user's input cannot be used."""

    exit_code = 2


class RecipeError(InputError):
    """A setting is unknown, has the wrong type or conflicts with another."""


class FolderError(InputError):
    """A model, corpus or run folder is missing, damaged or of another kind."""


def suggest(name: Any, valid: Iterable[str]) -> str:
    """A hint for an unknown name, such as ` (did you mean objective?)`; empty if no valid name is similar."""
    near = difflib.get_close_matches(str(name), list(valid), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


def as_path(given: Any, what: str) -> Path:
    """Raises InputError if a Python caller gave something else than a path."""
    if not isinstance(given, str | os.PathLike):
        raise InputError(f"{what} is a path, not {type(given).__name__}.")
    return Path(given)


def as_items(given: Any, what: str) -> list[Any]:
    """Raises InputError if a Python caller gave something else than several values."""
    if not isinstance(given, Iterable):
        raise InputError(f"{what} is a list, not {type(given).__name__}.")
    return list(given)


def check_encodable(text: str, what: str) -> None:
    """Raises InputError for half of a surrogate pair, which no tokenizer reads. Bytes of a command line that are not
    UTF-8 become such.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what} is not valid text: {text[error.start]!r} at {error.start} is half of a surrogate pair."
        ) from None


def address_in(path: Path | str) -> str | None:
    """The address in a path such as s3:/bucket/x; None for a local path. A single letter is a Windows drive."""
    found = re.search(r"(?:^|/)([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", str(path))
    return f"{found[1]}://{found[2]}" if found else None


def refuse_address(path: Path) -> Path:
    """Returns an output path. Raises FolderError for an address: otherwise a folder named s3: would be created."""
    if address := address_in(path):
        raise FolderError(f"{address} is not on this machine. Write to a local folder and copy it afterwards.")
    return path


def not_found(path: Path, hint: str = "") -> str:
    """The message for a missing input."""
    if address := address_in(path):
        return f"{address} is not on this machine. Copy it here first (weft corpus fetches http and https addresses)."
    return f"{path} does not exist{hint}."


def needs(module: str, extra: str, purpose: str) -> Any:
    """Imports an optional package. Raises InputError with the pip command if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise InputError(f'{package} is needed {purpose}: pip install "weft[{extra}]".') from None
