"""Escapes control characters in text from outside (file names, columns, labels) before a terminal shows it.

Escape sequences, carriage returns and direction overrides are shown as their codes.
"""

import re
import sys

# C0 except tab and newline, DEL, C1 (U+009B may act as an escape), and direction overrides.
CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def escape_controls(text: str) -> str:
    """Replaces control characters by their codes, such as \\x1b."""
    return CONTROL_CHARACTERS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def for_standard_output(text: str) -> str:
    """Escaped on a terminal; unchanged in a file or pipe."""
    return escape_controls(text) if sys.stdout.isatty() else text
