"""Text from outside on a terminal: what would steer it (escapes, a return to the line's beginning, letters that turn
the direction of writing) is shown as its code. File names, columns, labels and texts are anybody's.
"""

import re
import sys

# C0 but tab and newline, DEL, C1 (a terminal may take U+009B for an escape), and the overrides of direction.
CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def escape_controls(text: str) -> str:
    """\\x1b in place of an escape."""
    return CONTROL_CHARACTERS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def for_standard_output(text: str) -> str:
    """As it is where a file or a program reads it."""
    return escape_controls(text) if sys.stdout.isatty() else text
