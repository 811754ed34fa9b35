"""Grammars of constrained output, in llguidance's dialect of Lark.

A grammar does not force tokens: where only one text can follow, each way of cutting it into tokens is allowed and the
model chooses.
"""

import json
import re
from collections.abc import Collection, Sequence
from typing import Any

from weft.errors import InputError, check_encodable

_MOST_SCHEMA_CHARACTERS, _MOST_SCHEMA_DEPTH = 2**18, 64
_MOST_REGEX_CHARACTERS = 10_000
_MOST_CHOICES, _MOST_CHOICE_CHARACTERS = 1000, 50_000
_OPTIONS = '%llguidance {"no_forcing": true}\n'
_PLAIN_ESCAPES, _HEX_DIGITS = 'nrbtf\\"', "0123456789abcdefABCDEF"


def json_grammar(schema: dict[str, Any] | str, *, space: bool, characters: Collection[str] | None) -> str:
    """`space`: the text begins with one. `characters`: all that the vocabulary has, if not all there are."""
    written, parsed = _read_schema(schema)
    if len(written) > _MOST_SCHEMA_CHARACTERS:
        raise InputError(f"json_schema has {len(written):,} characters; at most {_MOST_SCHEMA_CHARACTERS:,} are read.")
    options: dict[str, Any] = {"whitespace_pattern": " "}
    if characters is not None:
        # After a backslash there must be a way on.
        escapes = "".join(letter for letter in _PLAIN_ESCAPES if letter in characters)
        options["json_allowed_escapes"] = escapes + ("u" if set(characters) >= {"u", *_HEX_DIGITS} else "")
    given = parsed.get("x-guidance")
    parsed = {**parsed, "x-guidance": {**options, **given} if isinstance(given, dict) else options}
    start = '" " json' if space else "json"
    return f"{_OPTIONS}start: {start}\njson: %json {json.dumps(parsed)}"


def _read_schema(schema: dict[str, Any] | str) -> tuple[str, dict[str, Any]]:
    try:
        written = schema if isinstance(schema, str) else json.dumps(schema, allow_nan=False)
        parsed = json.loads(written) if len(written) <= _MOST_SCHEMA_CHARACTERS else {}
    except json.JSONDecodeError as error:
        raise InputError(f"json_schema is not JSON: {error.msg} at character {error.pos}.") from None
    except RecursionError:
        raise InputError(f"json_schema is nested more than {_MOST_SCHEMA_DEPTH} levels deep.") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"json_schema cannot be written as JSON: {error}.") from None
    if not isinstance(parsed, dict):
        raise InputError(f"json_schema is a JSON object, not {json.dumps(parsed)[:40]}.")
    if _depth(parsed) > _MOST_SCHEMA_DEPTH:
        raise InputError(f"json_schema is nested more than {_MOST_SCHEMA_DEPTH} levels deep.")
    check_encodable(json.dumps(parsed, ensure_ascii=False), "json_schema")
    return written, parsed


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return depth


def regex_grammar(regex: str, *, space: bool) -> str:
    if not isinstance(regex, str):
        raise InputError(f"regex is a text, not {type(regex).__name__}.")
    if not regex:
        raise InputError("regex is empty, so nothing could be written.")
    if len(regex) > _MOST_REGEX_CHARACTERS:
        raise InputError(f"regex has {len(regex):,} characters; at most {_MOST_REGEX_CHARACTERS:,} are read.")
    check_encodable(regex, "regex")
    # A slash would end the pattern in the grammar's own notation, and a new line its rule.
    quoted = re.sub(r"\\?[/\n\r]|\\[\s\S]", lambda found: _quoted(found[0]), regex)
    return f"{_OPTIONS}start: ANSWER\nANSWER: " + ('" " ' if space else "") + f"/{quoted}/"


def _quoted(found: str) -> str:
    return f"\\x{ord(found[-1]):02x}" if found[-1] in "/\n\r" else found


def choice_grammar(choices: Sequence[str], *, space: bool) -> str:
    if isinstance(choices, str) or not all(isinstance(choice, str) for choice in choices):
        raise InputError("choice is a list of texts.")
    if not choices:
        raise InputError("choice is empty, so there is nothing to choose from.")
    if any(not choice for choice in choices):
        raise InputError("A choice cannot be an empty text.")
    if len(choices) > _MOST_CHOICES or sum(map(len, choices)) > _MOST_CHOICE_CHARACTERS:
        raise InputError(
            f"choice has at most {_MOST_CHOICES:,} texts with {_MOST_CHOICE_CHARACTERS:,} characters in total."
        )
    for choice in choices:
        check_encodable(choice, "choice")
    texts = "|".join("".join(map(_literal, choice)) for choice in dict.fromkeys(choices))
    return f"{_OPTIONS}start: ANSWER\nANSWER: " + ('" " ' if space else "") + f"/{texts}/"


def _literal(character: str) -> str:
    return character if character.isascii() and character.isalnum() else f"\\x{{{ord(character):x}}}"


# What llguidance says around the cause of an error.
_FRAMES = (
    r"at \d+\(\d+\): ",
    "failed to compile JSON schema: ",
    r"invalid regex .* \(in regex\): ",
    "regex parse error: .* error: ",
    "Parser Error: ",
)


def plain_message(message: str) -> str:
    """llguidance's error as one sentence, without places in a grammar that the user has not seen."""
    lines = [line.strip() for line in message.replace("<non-verbose/>", "").splitlines()]
    text = " ".join(line for line in lines if line and not re.match(r"\d+ \||\^", line))
    for frame in _FRAMES:
        text = re.sub(f"^{frame}", "", text)
    text = re.sub("; consider making your grammar .*", "; use fewer optional parts and alternatives", text)
    text = re.sub(r"^Unimplemented keys: \[(.*)\]", r"it has keywords that are not supported, \1", text)
    return text[:400].rstrip(". ") + "."
