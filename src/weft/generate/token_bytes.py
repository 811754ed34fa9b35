"""The bytes that each token adds to a decoded text.

A constraint is on the text a reader sees, so the bytes come from the tokenizer's decoder, not from the names of its
tokens. A WordPiece token `cat` adds " cat" and `##s` adds "s". Tokens of byte-level BPE and byte fallback may hold part
of a character, which decoding alone would show as �; their bytes come from their names.
"""

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tokenizers

from weft.errors import InputError
from weft.tokenizer.tokenizer import Tokenizer

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_NEVER_UTF8 = 0xFF  # a byte that no text contains; llguidance gives it a meaning of its own
_UTF8 = frozenset([*range(0xC0), *range(0xC2, 0xF5)])  # the bytes that texts consist of
_CHECKED_TEXTS, _CHECKED_TOKENS = 20, 8


@dataclass(frozen=True)
class TokenBytes:
    tokens: list[bytes]  # by id; empty for what adds no text: special tokens, ids without a token
    starts_with_space: bool  # the first word of a text is written as if a space came before it (WordPiece, Unigram)

    @property
    def has_every_byte(self) -> bool:
        """Whether each byte of UTF-8 is a token, so that every text can be written."""
        return {token[0] for token in self.tokens if len(token) == 1} >= _UTF8


def read_token_bytes(tokenizer: Tokenizer, vocabulary: int) -> TokenBytes:
    """`vocabulary`: of the model, which may have more ids than the tokenizer."""
    engine = tokenizer.engine
    names = [engine.id_to_token(number) or "" for number in range(vocabulary)]
    ids = [number for number, name in enumerate(names) if name and number not in tokenizer.special_ids]
    found = [b""] * vocabulary
    kinds = set(_decoder_kinds(engine))
    if "ByteLevel" in kinds:
        bytes_of = _byte_alphabet()
        for number in ids:
            name = names[number]
            known = all(character in bytes_of for character in name)  # false for added tokens, which are plain text
            found[number] = bytes(bytes_of[character] for character in name) if known else name.encode()
        return TokenBytes(_usable(found), starts_with_space=False)
    context = _context(tokenizer, ids)
    alone = engine.decode_batch([[number] for number in ids])
    for number, piece in zip(ids, _pieces(engine, context, [[number] for number in ids]), strict=True):
        found[number] = (piece or "").encode()
    starts_with_space = any(
        len(found[number]) > 1 and found[number] == b" " + text.encode()
        for number, text in zip(ids, alone, strict=True)
    )
    _check(engine, context, [number for number in ids if found[number]], found)
    if "ByteFallback" in kinds:
        for number in ids:
            if byte := _BYTE_TOKEN.fullmatch(names[number]):
                found[number] = bytes([int(byte[1], 16)])
    return TokenBytes(_usable(found), starts_with_space)


def _usable(tokens: list[bytes]) -> list[bytes]:
    return [b"" if _NEVER_UTF8 in token else token for token in tokens]


def _decoder_kinds(engine: tokenizers.Tokenizer) -> Iterator[str]:
    decoder: dict[str, Any] = {} if engine.decoder is None else json.loads(engine.decoder.__getstate__())
    for part in [decoder, *decoder.get("decoders", [])]:
        yield part.get("type", "")


def _byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte in a byte-level vocabulary (Radford et al. 2019): itself if it is
    visible, otherwise the next one from 256 on.
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = sorted(set(range(256)) - set(visible))
    return {chr(byte): byte for byte in visible} | {chr(256 + place): byte for place, byte in enumerate(hidden)}


def _context(tokenizer: Tokenizer, ids: Sequence[int]) -> int:
    """A token that is a plain word or letter, after which the others are decoded."""
    texts = tokenizer.engine.decode_batch([[number] for number in ids])
    for number, text in zip(ids, texts, strict=True):
        if text.isalnum() and "�" not in text:
            return number
    raise InputError("This model's tokenizer has no token for a letter or digit, so its output cannot be constrained.")


def _pieces(engine: tokenizers.Tokenizer, context: int, rows: Sequence[Sequence[int]]) -> Iterator[str | None]:
    """What each row of tokens adds to the text of `context`; None if that text changes."""
    before = engine.decode([context])
    for text in engine.decode_batch([[context, *row] for row in rows]):
        yield text[len(before) :] if text.startswith(before) and "�" not in text else None


def _check(engine: tokenizers.Tokenizer, context: int, ids: Sequence[int], found: Sequence[bytes]) -> None:
    """Raises InputError if tokens add other texts side by side than one by one."""
    random_ids = random.Random(0)  # noqa: S311
    rows = [random_ids.choices(ids, k=_CHECKED_TOKENS) for _ in range(_CHECKED_TEXTS)]
    for row, piece in zip(rows, _pieces(engine, context, rows), strict=True):
        if piece is not None and piece.encode() != b"".join(found[number] for number in row):
            raise InputError(
                "This model's output cannot be constrained: the text of a token of its tokenizer depends on the tokens "
                "around it."
            )
