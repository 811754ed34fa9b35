"""Sentences with a word and its tags per line, and blank lines between sentences: CoNLL and CoNLL-U.

In CoNLL `words` is the first column and `tags` the last. "column 0", "column 1", … are all of them, so that any can be
picked. In CoNLL-U the columns have names; ranges of multiword tokens (1-2) and empty nodes (1.1) are left out: they are
not words of the sentence. A sentence with a bad line is left out as a whole: half a sentence teaches wrong tags.
"""

import re
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import IO, Any

from weft.sources.formats.lines import Line, read_lines
from weft.sources.reading import Reading
from weft.sources.records import BadRecord, Origin, Record

FIRST_WORD = "-DOCSTART-"  # of a file of CoNLL-2003, and of each document in it
_BLANKS = " \t\r\n"  # not every space of Unicode: in some corpora those are words
_BETWEEN_SENTENCES = re.compile(rf"[{_BLANKS}]*|{FIRST_WORD}([{_BLANKS}].*)?", re.DOTALL)
_COMMENT = re.compile(r"#\s*([^\t]*?\S) = ([^\t]*)")
_UNIVERSAL = {"words": 1, "lemma": 2, "upos": 3, "xpos": 4, "feats": 5, "deprel": 7}
_UNIVERSAL_COLUMNS = 10
_WORD_ID, _OTHER_ID = re.compile("[0-9]+"), re.compile("[0-9]+[-.][0-9]+")

_Numbered = tuple[int, dict[str, Any] | str]  # the line; its values, or why there are none


def read_conll(stream: IO[bytes], reading: Reading, origin: Origin) -> Iterator[Record | BadRecord]:
    # Only `# key = value` is a comment: a line may begin with # because that is the word.
    return _sentences(stream, reading, origin, lambda text: _COMMENT.match(text) is not None, _columns)


def read_conllu(stream: IO[bytes], reading: Reading, origin: Origin) -> Iterator[Record | BadRecord]:
    return _sentences(stream, reading, origin, lambda text: text.startswith("#"), _universal)


def _sentences(
    stream: IO[bytes],
    reading: Reading,
    origin: Origin,
    is_comment: Callable[[str], bool],
    values_of: Callable[[list[Line]], _Numbered],
) -> Iterator[Record | BadRecord]:
    for block in _blocks(stream, reading):
        fault = next((line for line in block if line.fault), None)
        if fault:
            yield BadRecord(fault.fault, origin, fault.number)
            continue
        comments = list(takewhile(lambda line: is_comment(line.text), block))
        if len(comments) < len(block):
            number, values = values_of(block[len(comments) :])
            if isinstance(values, str):
                yield BadRecord(values, origin, number)
            else:
                yield Record(_keys(comments) | values, origin, block[0].number)


def _keys(comments: list[Line]) -> dict[str, Any]:
    found = (_COMMENT.fullmatch(line.content) for line in comments)
    return {match[1]: match[2] for match in found if match}


def _blocks(stream: IO[bytes], reading: Reading) -> Iterator[list[Line]]:
    block: list[Line] = []
    size = 0
    for line in read_lines(stream, reading.encoding, reading.most_line):
        if not line.fault and _BETWEEN_SENTENCES.fullmatch(line.text):
            if block:
                yield block
            block, size = [], 0
            continue
        size += len(line.text)
        if size <= reading.most_line:
            block.append(line)
        elif block and not block[0].fault:
            block = [block[0]._replace(fault=f"begins a sentence without an end in {reading.most_line:,} characters")]
    if block:
        yield block


def _columns(lines: list[Line]) -> _Numbered:
    rows = [_fields(line.text) for line in lines]
    width = len(rows[0])
    for line, fields in zip(lines, rows, strict=True):
        if len(fields) != width:
            first = f"the sentence's first line, {lines[0].number},"
            return line.number, f"has {_count(len(fields))}, and {first} has {width}"
        if "" in fields:
            return line.number, "has a column with nothing in it"
    columns = [list(column) for column in zip(*rows, strict=True)]
    values = {f"column {number}": column for number, column in enumerate(columns)}
    values["words"] = columns[0]
    if width > 1:
        values["tags"] = columns[-1]
    return lines[0].number, values


def _fields(text: str) -> list[str]:
    text = text.rstrip(_BLANKS)
    return text.split("\t") if "\t" in text else [field for field in text.split(" ") if field]


def _universal(lines: list[Line]) -> _Numbered:
    rows: list[list[str]] = []
    for line in lines:
        fields = line.content.split("\t")
        if len(fields) != _UNIVERSAL_COLUMNS:
            return line.number, f"has {_count(len(fields))}, and CoNLL-U {_UNIVERSAL_COLUMNS}"
        if _WORD_ID.fullmatch(fields[0]):
            rows.append(fields)
        elif not _OTHER_ID.fullmatch(fields[0]):
            return line.number, f"begins with {fields[0][:20]!r}, not with the number of a word"
    return lines[0].number, {name: [fields[column] for fields in rows] for name, column in _UNIVERSAL.items()}


def _count(number: int) -> str:
    return f"{number} column{'s' if number != 1 else ''}"
