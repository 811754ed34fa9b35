"""What can go wrong, said to the person it happens to: what was wrong, where, and what to do.

`InputError` and its kinds are what the user can put right (exit code 2); any other `WeftError` is 1. Messages are
whole sentences without a traceback; `--debug` shows the traceback all the same.
"""

import difflib
import importlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class WeftError(Exception):
    exit_code = 1


class InputError(WeftError):
    """Something the user gave cannot be used."""

    exit_code = 2


class RecipeError(InputError):
    """A setting is unknown, of the wrong type or impossible together with another."""


class FolderError(InputError):
    """A model, corpus or run folder is missing, broken or not what it should be."""


def suggest(name: str, valid: Iterable[str]) -> str:
    """A hint to put behind an unknown name: ` (did you mean objective?)`, or nothing if none is near."""
    near = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


def address_in(path: Path | str) -> str | None:
    """s3://bucket/x, though it was taken for a path; None for a path. A single letter is a drive of Windows."""
    found = re.search(r"(?:^|/)([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", str(path))
    return f"{found[1]}://{found[2]}" if found else None


def refuse_address(path: Path) -> Path:
    """Where something is to be written. A folder called s3: is nobody's wish."""
    if address := address_in(path):
        raise FolderError(f"{address} is not a place on this machine. Write to a folder here, and copy it from there.")
    return path


def not_found(path: Path, hint: str = "") -> str:
    """The sentence for an input that is not there."""
    if address := address_in(path):
        return f"{address} is not on this machine. Copy it here first (weft corpus fetches http and https addresses)."
    return f"{path} does not exist{hint}."


def needs(module: str, extra: str, purpose: str) -> Any:
    """An optional package, or a sentence that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise InputError(f'{package} is needed {purpose}: pip install "weft[{extra}]".') from None
