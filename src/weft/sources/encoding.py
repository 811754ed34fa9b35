"""Check the name of an encoding before anything is read with it."""

import codecs

from weft.errors import InputError

_NOT_OF_TEXT = frozenset(("utf-7", "idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined"))


def codec_of(encoding: str) -> str:
    """The codec for the beginning of a file: for UTF-8 the one that removes a byte-order mark.

    Raises InputError if there is no such encoding, or if it cannot be read in lines.
    """
    try:
        name = codecs.lookup(encoding).name
        lines = "a\nb".encode(name)
        is_plain = lines == b"a\nb" and lines.decode(name) == "a\nb"
    except (LookupError, UnicodeError, ValueError, TypeError):
        raise InputError(f"There is no encoding {encoding!r}. Examples: utf-8, latin-1, gbk.") from None
    if not is_plain or name in _NOT_OF_TEXT:
        raise InputError(f"{encoding} cannot be read in lines. Convert it first: iconv -f {encoding} -t utf-8.")
    return "utf-8-sig" if name == "utf-8" else encoding
