"""Pages that would take the parser gigabytes or hours, told by their bytes before they are parsed.

Each tag is some hundred bytes in memory, and the attributes of one tag are compared each with each (libxml2), so ten
megabytes of them would take days.
"""

import re

MOST_TAGS = 150_000  # the largest honest pages have half as many
MOST_ATTRIBUTES = 500  # of a tag
SHORT = 2 * MOST_ATTRIBUTES  # a tag of so many bytes cannot have more
QUOTED = re.compile(rb"\"[^\"]*\"|'[^']*'")
RAW = (b"script", b"style")  # hold no tags


def why_too_large(page: bytes) -> str | None:
    """The end of a sentence that begins with the page's name."""
    if page.count(b"<") > MOST_TAGS:
        return f"has more than {MOST_TAGS:,} tags"
    inside: bytes | None = None
    for tag in page.split(b"<")[1:]:
        name = tag[:8].lower()
        if inside is not None:
            inside = None if name.startswith(b"/" + inside) else inside
            continue
        if len(tag) > SHORT and not name.startswith((b"!", b"?")) and _attributes(tag) > MOST_ATTRIBUTES:
            return f"has a tag with more than {MOST_ATTRIBUTES:,} attributes"
        inside = next((kind for kind in RAW if name.startswith(kind)), None)
    return None


def _attributes(tag: bytes) -> int:
    """About how many; `tag` may go on into the text behind it."""
    head = QUOTED.sub(b"", tag).partition(b">")[0]
    return max(len(head.split()), head.count(b"="), head.count(b"/"))
