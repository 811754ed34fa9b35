"""Find pages that would take the parser gigabytes or hours, before they are parsed.

Each tag takes some hundred bytes of memory. libxml2 compares each attribute of a tag with each other: ten megabytes of
attributes would take days.
"""

import re
from collections.abc import Iterator

MOST_TAGS = 150_000  # the largest real pages have half as many
MOST_ATTRIBUTES = 500  # of a tag
_SHORT_TAG = 2 * MOST_ATTRIBUTES  # bytes; a shorter tag cannot have too many attributes
# Tags as libxml2 reads them: a quote begins a value only directly after its `=`, and then `>` and `<` are part of the
# value.
_VALUE = re.compile(rb"=[ \t\r\n]*+(?:\"[^\"]*+\"|'[^']*+')")
_TAG = re.compile(rb"</?+[A-Za-z_:.](?:[^>=]++|" + _VALUE.pattern + rb"|=)*+")
_RAW_ELEMENT = re.compile(rb"<(script|style)(?![^ \t\r\n\f/>])", re.IGNORECASE)  # there are no tags inside
_COMMENT_END = re.compile(rb"--!?>")
_BETWEEN_ATTRIBUTES = re.compile(rb"[\s/]+")


def why_too_large(page: bytes) -> str | None:
    """Returns a reason such as "has more than 150,000 tags", or None."""
    if page.count(b"<") > MOST_TAGS:
        return f"has more than {MOST_TAGS:,} tags"
    if any(len(tag) > _SHORT_TAG and _attributes(tag) > MOST_ATTRIBUTES for tag in _tags(page)):
        return f"has a tag with more than {MOST_ATTRIBUTES:,} attributes"
    return None


def _tags(page: bytes) -> Iterator[bytes]:
    """Everything that the parser may take for a tag. Tags in a comment or script that is not closed count, too."""
    lower = page.lower()
    last = {end: lower.rfind(end) for end in (b"</script", b"</style")}
    last_comment = max(lower.rfind(b"-->"), lower.rfind(b"--!>"))
    place = 0
    while (place := page.find(b"<", place)) >= 0:
        if page.startswith(b"<!--", place):
            found = _COMMENT_END.search(page, place + 2) if place < last_comment else None
            place = found.end() if found else place + 4
        elif tag := _TAG.match(page, place):
            yield tag[0]
            place = tag.end()
            raw = _RAW_ELEMENT.match(tag[0])
            if raw and not tag[0].endswith(b"/") and place <= last[end := b"</" + raw[1].lower()]:
                place = lower.find(end, place)
        else:
            place += 1


def _attributes(tag: bytes) -> int:
    """An upper bound."""
    return len(_BETWEEN_ATTRIBUTES.split(_VALUE.sub(b" ", tag)))
