"""Lines and whole contents of a stream, decoded, within limits.

What is not in the encoding or has no end is a fault of that line, told along with it, so that the reader can go on
with the next and still knows where it is.
"""

from collections.abc import Iterator
from typing import IO, NamedTuple

from weft.corpus.formats import Reading, read_whole

MOST_LINE, MOST_DOCUMENT = 2**26, 2**30  # bytes
PIECE = 2**20


class Line(NamedTuple):
    number: int  # from 1
    text: str  # with its end; with marks in place of bytes that are not in the encoding
    fault: str = ""  # why it cannot be used: the end of a sentence that begins with its place

    @property
    def content(self) -> str:
        return self.text.removesuffix("\n").removesuffix("\r")


def read_lines(stream: IO[bytes], encoding: str) -> Iterator[Line]:
    codec, number = Reading(encoding=encoding).codec, 0  # the codec drops a byte-order mark
    while data := stream.readline(MOST_LINE + 1):
        number += 1
        if len(data) > MOST_LINE:
            while data and not data.endswith(b"\n"):
                data = stream.readline(PIECE)
            yield Line(number, "", f"has no end in {MOST_LINE:,} bytes")
        else:
            text, fault = decode(data, codec, encoding)
            yield Line(number, text, fault)
        codec = encoding


def read_document(stream: IO[bytes], encoding: str, most: int) -> tuple[str, str]:
    """The text of the whole stream, and what is wrong with it or nothing."""
    data = read_whole(stream, most)
    if data is None:
        return "", f"is longer than {most:,} bytes"
    return decode(data, Reading(encoding=encoding).codec, encoding)


def decode(data: bytes, codec: str, encoding: str) -> tuple[str, str]:
    """The text, and what is wrong with it or nothing."""
    try:
        return data.decode(codec), ""
    except UnicodeDecodeError as error:
        return data.decode(codec, "replace"), f"is not {encoding.upper()} at byte {error.start + 1}"
