"""Long texts cut into documents that a worker can hold: where a paragraph ends, or else a line, or else a word.

A text takes about thirty times its size in memory while it is cleaned, judged and compared. What is read is the same
wherever reading begins, if it begins at the end of a part.
"""

import codecs
from collections.abc import Iterator, Sequence
from typing import IO, AnyStr

from weft.sources.formats.lines import PIECE

LONGEST = 2**21  # bytes, or characters, of a document; all but the longest novels are shorter
ENDS = (b"\n\n", b"\n\r\n", b"\n", b" ")
TEXT_ENDS = ("\n\n", "\n", "。", " ")


def cut_stream(stream: IO[bytes], most: int, encoding: str = "utf-8") -> Iterator[bytes]:
    """Parts that are `most` bytes long at the most; together, the stream."""
    held = b""
    while True:
        pieces, size = [held], len(held)
        while size <= most and (piece := stream.read(PIECE)):
            pieces.append(piece)
            size += len(piece)
        held = b"".join(pieces)
        if size <= most:
            break
        end = _end(held, most, ENDS)
        if end == most:
            end -= _unfinished(held[:end], encoding)
        yield held[:end]
        held = held[end:]
    if held:
        yield held


def _unfinished(data: bytes, encoding: str) -> int:
    """How many bytes at the end are the beginning of a character."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    decoder.decode(data)
    return len(decoder.getstate()[0])


def cut_text(text: str, most: int) -> Iterator[str]:
    begin = 0
    while len(text) - begin > most:
        part = text[begin : begin + most]
        end = _end(part, most, TEXT_ENDS)
        yield part[:end]
        begin += end
    yield text[begin:]


def _end(data: AnyStr, most: int, ends: Sequence[AnyStr]) -> int:
    """Where to cut: behind the best end there is in the second half."""
    for end in ends:
        if (place := data.rfind(end, most // 2, most)) >= 0:
            return place + len(end)
    return most
