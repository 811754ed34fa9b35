"""Pages that would take the parser gigabytes or hours, told by their bytes before they are parsed.

Each tag is some hundred bytes in memory, and the attributes of one tag are compared each with each (libxml2), so ten
megabytes of them would take days.
"""

import re
from collections.abc import Iterator

MOST_TAGS = 150_000  # the largest honest pages have half as many
MOST_ATTRIBUTES = 500  # of a tag
SHORT = 2 * MOST_ATTRIBUTES  # a tag of so many bytes cannot have more
# What follows is libxml2's notion of a tag: a quote holds a value together only right behind its `=`, and then `>`
# and `<` are part of the value.
VALUE = re.compile(rb"=[ \t\r\n]*+(?:\"[^\"]*+\"|'[^']*+')")
TAG = re.compile(rb"</?+[A-Za-z_:.](?:[^>=]++|" + VALUE.pattern + rb"|=)*+")
RAW = re.compile(rb"<(script|style)(?![^ \t\r\n\f/>])", re.IGNORECASE)  # hold no tags
COMMENT_END = re.compile(rb"--!?>")
BETWEEN = re.compile(rb"[\s/]+")


def why_too_large(page: bytes) -> str | None:
    """The end of a sentence that begins with the page's name."""
    if page.count(b"<") > MOST_TAGS:
        return f"has more than {MOST_TAGS:,} tags"
    if any(len(tag) > SHORT and _attributes(tag) > MOST_ATTRIBUTES for tag in _tags(page)):
        return f"has a tag with more than {MOST_ATTRIBUTES:,} attributes"
    return None


def _tags(page: bytes) -> Iterator[bytes]:
    """What the parser may take for a tag. Where a comment or a script is not closed, what is in it counts, too."""
    lower = page.lower()
    last = {end: lower.rfind(end) for end in (b"</script", b"</style")}
    last_comment = max(lower.rfind(b"-->"), lower.rfind(b"--!>"))
    place = 0
    while (place := page.find(b"<", place)) >= 0:
        if page.startswith(b"<!--", place):
            found = COMMENT_END.search(page, place + 2) if place < last_comment else None
            place = found.end() if found else place + 4
        elif tag := TAG.match(page, place):
            yield tag[0]
            place = tag.end()
            raw = RAW.match(tag[0])
            if raw and not tag[0].endswith(b"/") and place <= last[end := b"</" + raw[1].lower()]:
                place = lower.find(end, place)
        else:
            place += 1


def _attributes(tag: bytes) -> int:
    """About how many, and not fewer."""
    return len(BETWEEN.split(VALUE.sub(b" ", tag)))
