"""NFKC as SentencePiece compiles it: a trie of strings to replace, with what to replace them by.

llama.cpp replaces the longest match at each place of a text. NFKC of single characters is a table of their
replacements; it also composes a letter and the accents after it, so each decomposition of a letter is in the table too.
Korean syllables written as single Jamo are left as they are: they would double the table.

The trie is a double array (Aoe 1989) in the format of darts-clone. A node has its child for byte c at place base XOR c,
and its value at base itself. A child is recognized by its label alone, so no two nodes have the same base.
"""

import struct
import sys
import unicodedata
from functools import cache
from itertools import count

_IS_VALUE, _HAS_VALUE = 1 << 31, 1 << 8
_HANGUL = range(0xAC00, 0xD7A4)


@cache
def nfkc_charsmap() -> bytes:
    replacements = _nfkc_replacements()
    texts, places = bytearray(), dict[str, int]()
    for text in replacements.values():
        if text not in places:
            places[text] = len(texts)
            texts += text.encode() + b"\0"
    units = _double_array({key.encode(): places[text] for key, text in replacements.items()})
    trie = struct.pack(f"<{len(units)}I", *units)
    return struct.pack("<I", len(trie)) + trie + bytes(texts)


def _nfkc_replacements() -> dict[str, str]:
    found: dict[str, str] = {}
    for number in range(1, sys.maxunicode + 1):
        if 0xD800 <= number < 0xE000 or number in _HANGUL:
            continue
        character = chr(number)
        normal = unicodedata.normalize("NFKC", character)
        if normal != character:
            found[character] = normal
        parts = unicodedata.decomposition(character)
        if parts and not parts.startswith("<"):
            for key in ("".join(chr(int(part, 16)) for part in parts.split()), unicodedata.normalize("NFD", character)):
                if unicodedata.normalize("NFKC", key) != key:
                    found[key] = unicodedata.normalize("NFKC", key)
    return found


def _double_array(values: dict[bytes, int]) -> list[int]:
    """A unit per place: label (8 bits), whether there is a value, and from bit 10 on its place XOR its base."""
    children: dict[bytes, set[int]] = {b"": set()}
    for key in values:
        for length in range(len(key)):
            children.setdefault(key[:length], set()).add(key[length])
        children.setdefault(key, set()).add(0)
    bases = _choose_bases(children)
    largest = max(base ^ max(children[node]) for node, base in bases.items())
    units = [0] * ((largest | 0xFF) + 1)
    units[0] = bases[b""] << 10
    for node, base in bases.items():
        for label in children[node]:
            if label == 0:
                units[base] = values[node] | _IS_VALUE
            else:
                child, place = node + bytes([label]), base ^ label
                has_value = _HAS_VALUE if child in values else 0
                units[place] = label | has_value | (place ^ bases[child]) << 10
    return units


def _choose_bases(children: dict[bytes, set[int]]) -> dict[bytes, int]:
    """First fit, the nodes with most children first: those with one fill the gaps."""
    taken, bases = {0}, dict[bytes, int]()  # the root is at place 0
    chosen: set[int] = set()
    first = 1  # all places before it are taken
    for node in sorted(children, key=lambda node: (-len(children[node]), node)):
        labels = sorted(children[node])
        while first in taken:
            first += 1
        for place in count(first):
            base = place ^ labels[0]
            if place not in taken and base not in chosen and not any(base ^ label in taken for label in labels):
                break
        bases[node] = base
        chosen.add(base)
        taken.update(base ^ label for label in labels)
    return bases
