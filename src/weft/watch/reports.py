"""report.html of a folder, with a policy under which only what weft wrote can take effect.

The page is shown in a frame of an origin of its own (sandbox). Its style sheets and the scripts of its charts are
allowed by their hashes; nothing may be loaded or sent. A script that is not a chart's does not run: the file may have
been changed by others. Style attributes cannot be allowed by a hash, so they become rules of a style sheet.
"""

import base64
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from weft.charts import is_chart_script
from weft.errors import FolderError
from weft.watch.finding import REPORT_NAME
from weft.watch.plain_files import read_beginning

_MOST_REPORT = 8_000_000  # bytes
_MOST_HASHES = 200
_OPENING = re.compile(r"<(script|style)>")
_STYLE_ATTRIBUTE = re.compile(r'(<[a-z][^<>]*?) style="([^"<>]*)"')
_HARMLESS_STYLE = re.compile(r"(?:[\w\s:;.,%#()+-])*")
_ELSEWHERE = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"


@dataclass(frozen=True)
class SafeReport:
    content: bytes
    policy: str  # the Content-Security-Policy to send it with


def read_report(folder: Path) -> SafeReport:
    """Raises FolderError if there is none that can be shown."""
    try:
        data, size = read_beginning(folder / REPORT_NAME, _MOST_REPORT)
    except FileNotFoundError:
        raise FolderError("There is no report here yet: weft writes it at the end of a run.") from None
    except OSError as error:
        raise FolderError(f"{REPORT_NAME} cannot be read: {error.strerror}.") from None
    if size > _MOST_REPORT:
        raise FolderError(f"{REPORT_NAME} is larger than {_MOST_REPORT:,} bytes, the limit for a report.")
    return safe_report(data)


def safe_report(data: bytes) -> SafeReport:
    # As a browser's parser reads it, which is what the hashes are of.
    text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    rules: dict[str, int] = {}
    text = _outside_blocks(text, rules)
    sheet = "".join(f'[data-style="{number}"]{{{style}}}' for style, number in rules.items())
    if sheet:
        text = text.replace("</head>", f"<style>{sheet}</style></head>", 1)
    hashes: dict[str, list[str]] = {"style": [], "script": []}
    for block in _blocks(text):
        content = text[block.begin : block.end]
        if len(hashes[block.kind]) < _MOST_HASHES and (block.kind == "style" or is_chart_script(content)):
            hashes[block.kind].append(_hash(content))
    allowed = "".join(f"; {kind}-src {' '.join(dict.fromkeys(found))}" for kind, found in hashes.items() if found)
    return SafeReport(text.encode(), f"{_ELSEWHERE}{allowed}; sandbox allow-scripts")


def _outside_blocks(text: str, rules: dict[str, int]) -> str:
    """The text with its style attributes as numbers, whose rules are collected. Scripts and style sheets stay."""

    def numbered(found: re.Match[str]) -> str:
        if not _HARMLESS_STYLE.fullmatch(found[2]) or "url(" in found[2].replace(" ", "").lower():
            return found[1]
        return f'{found[1]} data-style="{rules.setdefault(found[2], len(rules))}"'

    parts, end = [], 0
    for block in _blocks(text):
        parts += [_STYLE_ATTRIBUTE.sub(numbered, text[end : block.begin]), text[block.begin : block.end]]
        end = block.end
    return "".join([*parts, _STYLE_ATTRIBUTE.sub(numbered, text[end:])])


class _Block(NamedTuple):
    kind: str  # script or style
    begin: int  # of its content
    end: int


def _blocks(text: str) -> Iterator[_Block]:
    """Scripts and style sheets. Where an end is missing it is searched for once, so that a file of nothing but
    beginnings takes no longer than another.
    """
    after, endless = 0, set()
    for opening in _OPENING.finditer(text):
        kind = opening[1]
        if opening.start() < after or kind in endless:
            continue
        end = text.find(f"</{kind}>", opening.end())
        if end < 0:
            endless.add(kind)
            continue
        after = end + len(f"</{kind}>")
        yield _Block(kind, opening.end(), end)


def _hash(content: str) -> str:
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return f"'sha256-{digest}'"
