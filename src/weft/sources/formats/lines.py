"""Lines and whole contents of a stream, decoded, within limits.

A line that is too long or not in the encoding comes with a fault, so that the reader can continue with the next line.
"""

from collections.abc import Iterator
from typing import IO, NamedTuple

from weft.sources.encoding import codec_of

MOST_LINE_BYTES = 2**26  # bytes
PIECE = 2**20


class Line(NamedTuple):
    number: int  # from 1
    text: str  # with its line ending; U+FFFD in place of bytes that are not in the encoding
    fault: str = ""  # why it cannot be used; the subject is the line: "is not UTF-8 at byte 3"

    @property
    def content(self) -> str:
        return self.text.removesuffix("\n").removesuffix("\r")


def read_lines(stream: IO[bytes], encoding: str, most: int | None = None, first: int = 1) -> Iterator[Line]:
    """`first` is the number of the line at which the stream begins; `most` limits the bytes of a line."""
    codec, most = codec_of(encoding), most or MOST_LINE_BYTES
    for number, data in raw_lines(stream, most, first):
        if data is None:
            yield Line(number, "", too_long_line(most))
        else:
            text, fault = decode_strictly(data, codec, encoding)
            yield Line(number, text, fault)
        codec = encoding


def raw_lines(stream: IO[bytes], most: int, first: int) -> Iterator[tuple[int, bytes | None]]:
    """None for a line that is too long: it is read to its end but not kept."""
    number = first
    while line := stream.readline(most + 1):
        if len(line) <= most:
            yield number, line
        else:
            while line and not line.endswith(b"\n"):
                line = stream.readline(PIECE)
            yield number, None
        number += 1


def too_long_line(most: int) -> str:
    return f"has no end in {most:,} bytes"


def read_document(stream: IO[bytes], encoding: str, most: int) -> tuple[str, str]:
    """Returns the text of the whole stream, and a fault or an empty string."""
    data = read_whole(stream, most)
    if data is None:
        return "", too_long(most)
    return decode_strictly(data, codec_of(encoding), encoding)


def too_long(most: int) -> str:
    return f"is longer than {most:,} bytes"


def read_whole(stream: IO[bytes], most: int) -> bytes | None:
    """Returns None if the stream is longer than `most`. Reads in pieces: one read would allocate `most` bytes."""
    pieces: list[bytes] = []
    size = 0
    while piece := stream.read(PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            return None
    return b"".join(pieces)


def decode_strictly(data: bytes, codec: str, encoding: str) -> tuple[str, str]:
    """Returns the text, and a fault or an empty string."""
    try:
        return data.decode(codec), ""
    except UnicodeDecodeError as error:
        return data.decode(codec, "replace"), f"is not {encoding.upper()} at byte {first_bad_byte(data, error) + 1}"


def first_bad_byte(data: bytes, error: UnicodeDecodeError) -> int:
    """From 0. The codec that removes a byte-order mark counts without it."""
    return error.start + len(data) - len(error.object)
