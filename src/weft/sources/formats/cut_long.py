"""Cut long texts into documents that fit into a worker's memory: after a paragraph, or else a line, or else a word.

Cleaning, filtering and deduplicating a text takes about thirty times its size in memory. The parts of a stream are the
same if reading begins at the end of any part.
"""

import codecs
from collections.abc import Iterator, Sequence
from typing import IO, AnyStr

from weft.sources.formats.lines import PIECE

LONGEST = 2**21  # bytes or characters of a document; only the longest novels have more
_BYTE_BREAKS = (b"\n\n", b"\n\r\n", b"\n", b" ")
_TEXT_BREAKS = ("\n\n", "\n", "。", " ")


def cut_stream(stream: IO[bytes], most: int, encoding: str = "utf-8") -> Iterator[bytes]:
    """Parts of at most `most` bytes. Joined, they are the stream."""
    held = b""
    while True:
        pieces, size = [held], len(held)
        while size <= most and (piece := stream.read(PIECE)):
            pieces.append(piece)
            size += len(piece)
        held = b"".join(pieces)
        if size <= most:
            break
        end = _cut_after(held, most, _BYTE_BREAKS)
        if end == most:
            end -= _unfinished(held[:end], encoding)
        yield held[:end]
        held = held[end:]
    if held:
        yield held


def _unfinished(data: bytes, encoding: str) -> int:
    """The number of bytes at the end that begin a character without ending it."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    decoder.decode(data)
    return len(decoder.getstate()[0])


def cut_text(text: str, most: int) -> Iterator[str]:
    begin = 0
    while len(text) - begin > most:
        part = text[begin : begin + most]
        end = _cut_after(part, most, _TEXT_BREAKS)
        yield part[:end]
        begin += end
    yield text[begin:]


def _cut_after(data: AnyStr, most: int, breaks: Sequence[AnyStr]) -> int:
    """Where to cut: after the best break in the second half."""
    for one in breaks:
        if (place := data.rfind(one, most // 2, most)) >= 0:
            return place + len(one)
    return most
