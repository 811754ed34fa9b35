"""Decode a page: by its byte-order mark, as UTF-8 if it is valid, as the page declares, or by a guess.

UTF-8 comes before the declaration: bytes that are valid UTF-8 and not ASCII are hardly ever anything else, while
declarations are often wrong. A declared name means what browsers read it as (WHATWG Encoding, 2023): Latin-1 is
Windows-1252 and GB 2312 is GB 18030. Names that browsers do not know are ignored.
"""

import codecs
import re

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_AS_BROWSERS_READ = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
_KNOWN_TO_BROWSERS = frozenset(
    "utf-8 utf-16-le utf-16-be gb18030 big5hkscs euc_jp cp932 iso2022_jp hz cp949 cp866 cp874 koi8-r koi8-u mac-roman "
    "mac-cyrillic cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 iso8859-2 iso8859-3 iso8859-4 "
    "iso8859-5 iso8859-6 iso8859-7 iso8859-8 iso8859-10 iso8859-13 iso8859-14 iso8859-15 iso8859-16".split()
)
_SEVEN_BIT = frozenset(("iso2022_jp", "hz"))  # Chinese and Japanese in ASCII bytes: valid as UTF-8, but nonsense
_DECLARATION = re.compile(
    rb"<(?:meta|\?xml)[^>]{0,500}?(?:charset|encoding)\s*=\s*[\"']?\s*([\w.:-]{2,40})", re.IGNORECASE
)
_HEAD_BYTES, _GUESS_BYTES = 4096, 50_000
_MOST_DAMAGE = 0.005  # share of undecodable characters up to which a declaration is believed


def decode_page(data: bytes, declared: str | None = None) -> str:
    """`declared` is the charset of the HTTP header. It comes before the one that is declared in the page."""
    for mark, name in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    if wide := _utf_16(data):
        return data.decode(wide, "replace")
    names = [known for name in (declared, _declared_inside(data)) if name and (known := _known(name))]
    if data.isascii():
        seven_bit = next((name for name in names if name in _SEVEN_BIT), "ascii")
        return data.decode(seven_bit, "replace")
    text = data.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    beyond_ascii = len(text) - len(text.encode("ascii", "ignore"))
    if 20 * broken <= beyond_ascii - broken:  # also if it is cut, or has a few foreign bytes
        return text
    for name in names:
        read = data.decode(name, "replace")
        if read.count("\ufffd") <= _MOST_DAMAGE * len(read):
            return read
    return data.decode(_guess(data), "replace")


def is_binary(text: str) -> bool:
    """Whether the decoded page cannot be text."""
    start = text[:_HEAD_BYTES]
    return sum(character < "\t" or character == "\ufffd" for character in start) > 0.05 * len(start)


def _utf_16(data: bytes) -> str | None:
    """The UTF-16 codec of a page without a byte-order mark: in markup every second byte is zero."""
    start = data[:_HEAD_BYTES]
    for first, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        if len(start) >= 20 and start[first::2].count(0) > 0.3 * len(start) / 2 and not start[1 - first :: 2].count(0):
            return name
    return None


def _declared_inside(data: bytes) -> str | None:
    found = _DECLARATION.search(data[:_HEAD_BYTES])
    return found.group(1).decode("ascii", "replace") if found else None


def _known(name: str) -> str | None:
    try:
        found = codecs.lookup(name.strip().lower()).name
    except (LookupError, ValueError):
        return None
    found = _AS_BROWSERS_READ.get(found, found)
    return found if found in _KNOWN_TO_BROWSERS else None


def _guess(data: bytes) -> str:
    from charset_normalizer import from_bytes

    best = from_bytes(data[:_GUESS_BYTES]).best()
    return best.encoding if best is not None else "cp1252"
