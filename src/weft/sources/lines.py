"""Lines and whole contents of a stream, decoded, within limits.

What is not in the encoding or has no end is a fault of that line, told along with it, so that the reader can go on
with the next and still knows where it is.
"""

from collections.abc import Iterator
from typing import IO, NamedTuple

from weft.sources.encoding import codec_of

MOST_LINE, MOST_DOCUMENT = 2**26, 2**30  # bytes
PIECE = 2**20


class Line(NamedTuple):
    number: int  # from 1
    text: str  # with its end; with marks in place of bytes that are not in the encoding
    fault: str = ""  # why it cannot be used: the end of a sentence that begins with its place

    @property
    def content(self) -> str:
        return self.text.removesuffix("\n").removesuffix("\r")


def read_lines(stream: IO[bytes], encoding: str, most: int | None = None, first: int = 1) -> Iterator[Line]:
    """`first` is the number of the line at which the stream begins."""
    codec, most = codec_of(encoding), most or MOST_LINE
    for number, data in raw_lines(stream, most, first):
        if data is None:
            yield Line(number, "", f"has no end in {most:,} bytes")
        else:
            text, fault = decode(data, codec, encoding)
            yield Line(number, text, fault)
        codec = encoding


def raw_lines(stream: IO[bytes], most: int, first: int) -> Iterator[tuple[int, bytes | None]]:
    """None for a line that is too long; the rest of it is passed over without being kept."""
    number = first
    while line := stream.readline(most + 1):
        if len(line) <= most:
            yield number, line
        else:
            while line and not line.endswith(b"\n"):
                line = stream.readline(PIECE)
            yield number, None
        number += 1


def read_document(stream: IO[bytes], encoding: str, most: int) -> tuple[str, str]:
    """The text of the whole stream, and what is wrong with it or nothing."""
    data = read_whole(stream, most)
    if data is None:
        return "", f"is longer than {most:,} bytes"
    return decode(data, codec_of(encoding), encoding)


def read_whole(stream: IO[bytes], most: int) -> bytes | None:
    """All there is, if it is not too much; in pieces, as a buffer of `most` would be allocated at once."""
    pieces: list[bytes] = []
    size = 0
    while piece := stream.read(PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            return None
    return b"".join(pieces)


def decode(data: bytes, codec: str, encoding: str) -> tuple[str, str]:
    """The text, and what is wrong with it or nothing."""
    try:
        return data.decode(codec), ""
    except UnicodeDecodeError as error:
        return data.decode(codec, "replace"), f"is not {encoding.upper()} at byte {error.start + 1}"
