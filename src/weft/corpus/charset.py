"""Bytes of a page to text: by its byte-order mark, as UTF-8 if they are, as the page declares, or guessed.

Bytes that are valid UTF-8 and not ASCII are hardly ever anything else, while declarations are often wrong; so they are
asked second. A declared name means what browsers take it for (WHATWG Encoding, 2023): Latin-1 is Windows-1252 and
GB 2312 is GB 18030.
"""

import codecs
import re

BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
WIDER = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
DECLARED = re.compile(rb"<(?:meta|\?xml)[^>]{0,500}?(?:charset|encoding)\s*=\s*[\"']?\s*([\w.:-]{2,40})", re.IGNORECASE)
HEAD_BYTES, GUESS_BYTES = 4096, 50_000
MOST_DAMAGE = 0.005  # share of characters that cannot be read before a declaration is no longer believed


def decode(data: bytes, declared: str | None = None) -> str:
    """`declared` is what came with the page, in its HTTP header; it counts before what is written in the page."""
    for mark, name in BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = None
    names = [name for name in (declared, _declared_inside(data)) if name]
    if text is not None and not any(_is_seven_bit(name) for name in names):
        return text
    for name in filter(None, map(_known, names)):
        read = data.decode(name, "replace")
        if read.count("\ufffd") <= MOST_DAMAGE * len(read):
            return read
    return text if text is not None else data.decode(_guess(data), "replace")


def _declared_inside(data: bytes) -> str | None:
    found = DECLARED.search(data[:HEAD_BYTES])
    return found.group(1).decode("ascii") if found else None


def _known(name: str) -> str | None:
    try:
        found = codecs.lookup(name.strip().lower()).name
    except (LookupError, ValueError):
        return None
    if not codecs.lookup(found)._is_text_encoding:  # "hex" and "zip" are codecs too
        return None
    return WIDER.get(found, found)


def _is_seven_bit(name: str) -> bool:
    """ISO 2022 writes Japanese in ASCII bytes; as UTF-8 they are valid and make no sense."""
    return name.strip().lower().startswith(("iso-2022", "hz-gb"))


def _guess(data: bytes) -> str:
    from charset_normalizer import from_bytes

    best = from_bytes(data[:GUESS_BYTES]).best()
    return best.encoding if best is not None else "cp1252"
