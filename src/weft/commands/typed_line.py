"""A line of a conversation, typed at a terminal or piped in."""

import sys

from weft.errors import InputError

_MOST_LINE = 10_000_000  # characters


def read_line(is_person: bool) -> str | None:
    """The next line of standard input. None at its end. A person gets a prompt, arrow keys and a history."""
    try:
        if is_person:
            import readline  # noqa: F401 (input() uses it)

            return input("> ")
        line = sys.stdin.readline(_MOST_LINE)
        if len(line) == _MOST_LINE:
            raise InputError(f"A line has more than {_MOST_LINE:,} characters, too many for a prompt.")
        return line.rstrip("\r\n") if line else None
    except EOFError:
        return None
    except UnicodeDecodeError:
        raise InputError("Standard input is not UTF-8.") from None
