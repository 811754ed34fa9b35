"""Sentences with a word per line and its tags beside it, blank lines between sentences.

`words` is the first column and `tags` the last; "column 0", "column 1", … are all of them, so that any can be picked.
CoNLL-U has names for its columns instead; the ranges of its multiword tokens (1-2) and its empty nodes (1.1) are not
words of the sentence and are left out. A sentence with a line that cannot be used is left out as a whole: half a
sentence teaches wrong tags.
"""

import re
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import IO, Any

from weft.sources.lines import MOST_LINE, Line, read_lines

BLANKS = " \t\r\n"  # not every space of Unicode: some corpora have those as words
BETWEEN = re.compile(rf"[{BLANKS}]*|-DOCSTART-([{BLANKS}].*)?", re.DOTALL)
COMMENT = re.compile(r"#\s*([^\t]*?\S) = ([^\t]*)")
UNIVERSAL = {"words": 1, "lemma": 2, "upos": 3, "xpos": 4, "feats": 5, "deprel": 7}
UNIVERSAL_COLUMNS = 10
WORD, NO_WORD = re.compile("[0-9]+"), re.compile("[0-9]+[-.][0-9]+")

Sentence = tuple[int, dict[str, Any] | str]  # the line where it begins; its values, or why there are none


def read_columns(stream: IO[bytes], encoding: str) -> Iterator[Sentence]:
    # Only `# key = value` is a comment: a line may begin with # because that is the word.
    return _sentences(stream, encoding, lambda text: COMMENT.match(text) is not None, _columns)


def read_universal(stream: IO[bytes], encoding: str) -> Iterator[Sentence]:
    return _sentences(stream, encoding, lambda text: text.startswith("#"), _universal)


def _sentences(
    stream: IO[bytes],
    encoding: str,
    is_comment: Callable[[str], bool],
    values_of: Callable[[list[Line]], Sentence],
) -> Iterator[Sentence]:
    for block in _blocks(stream, encoding):
        fault = next((line for line in block if line.fault), None)
        if fault:
            yield fault.number, fault.fault
            continue
        comments = list(takewhile(lambda line: is_comment(line.text), block))
        if len(comments) < len(block):
            number, values = values_of(block[len(comments) :])
            yield (number, values) if isinstance(values, str) else (block[0].number, _keys(comments) | values)


def _keys(comments: list[Line]) -> dict[str, Any]:
    found = (COMMENT.fullmatch(line.content) for line in comments)
    return {match[1]: match[2] for match in found if match}


def _blocks(stream: IO[bytes], encoding: str) -> Iterator[list[Line]]:
    block: list[Line] = []
    size = 0
    for line in read_lines(stream, encoding):
        if not line.fault and BETWEEN.fullmatch(line.text):
            if block:
                yield block
            block, size = [], 0
            continue
        size += len(line.text)
        if size <= MOST_LINE:
            block.append(line)
        elif block and not block[0].fault:
            block = [block[0]._replace(fault=f"begins a sentence without an end in {MOST_LINE:,} characters")]
    if block:
        yield block


def _columns(lines: list[Line]) -> Sentence:
    rows = [_fields(line.text) for line in lines]
    width = len(rows[0])
    for line, fields in zip(lines, rows, strict=True):
        if len(fields) != width:
            of = f"the sentence's first line, {lines[0].number},"
            return line.number, f"has {_count(len(fields))}, and {of} has {width}"
        if "" in fields:
            return line.number, "has a column with nothing in it"
    columns = [list(column) for column in zip(*rows, strict=True)]
    values = {f"column {number}": column for number, column in enumerate(columns)}
    values["words"] = columns[0]
    if width > 1:
        values["tags"] = columns[-1]
    return lines[0].number, values


def _fields(text: str) -> list[str]:
    text = text.rstrip(BLANKS)
    return text.split("\t") if "\t" in text else [field for field in text.split(" ") if field]


def _universal(lines: list[Line]) -> Sentence:
    rows: list[list[str]] = []
    for line in lines:
        fields = line.content.split("\t")
        if len(fields) != UNIVERSAL_COLUMNS:
            return line.number, f"has {_count(len(fields))}, and CoNLL-U {UNIVERSAL_COLUMNS}"
        if WORD.fullmatch(fields[0]):
            rows.append(fields)
        elif not NO_WORD.fullmatch(fields[0]):
            return line.number, f"begins with {fields[0][:20]!r}, not with the number of a word"
    return lines[0].number, {name: [fields[column] for fields in rows] for name, column in UNIVERSAL.items()}


def _count(number: int) -> str:
    return f"{number} column{'s' if number != 1 else ''}"
