"""The tokens of a GGUF file, what kind each is, and the special ones: what all of llama.cpp's tokenizers have."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import takewhile

from weft.tokenizer.tokenizer import SpecialRole, Tokenizer

SPACE = "▁"  # how SentencePiece writes a space
# Keys of tokenizer.ggml by role. BERT's first token is bos for llama.cpp.
ID_KEYS: dict[SpecialRole, str] = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "unk": "unknown_token_id",
    "sep": "seperator_token_id",  # spelt so
    "pad": "padding_token_id",
    "mask": "mask_token_id",
}


class TokenKind(IntEnum):
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class CannotExpress(Exception):
    """The sentence that says what GGUF has no place for."""


@dataclass(frozen=True)
class GgufVocabulary:
    model: str  # tokenizer.ggml.model
    tokens: list[str] = field(default_factory=list)
    kinds: list[TokenKind] = field(default_factory=list)
    scores: list[float] | None = None
    merges: list[str] | None = None
    pre: str | None = None  # the regular expressions that split a text, by name
    ids: dict[str, int] = field(default_factory=dict)  # by key, such as bos_token_id
    flags: dict[str, bool] = field(default_factory=dict)  # such as add_bos_token
    charsmap: bytes | None = None  # replacements of characters, as SentencePiece compiles them
    notes: tuple[str, ...] = ()


def list_tokens(
    tokenizer: Tokenizer, size: int, rename: Callable[[str], str] = lambda token: token
) -> tuple[list[str], list[TokenKind]]:
    """A name and a kind for each row of the embedding. `rename`: of tokens that are not special.

    llama.cpp finds tokens by their text, so a name that occurs twice (by renaming) is used once; and a row of the
    embedding without a token needs a name.
    """
    names = {number: token for token, number in tokenizer.engine.get_vocab(with_added_tokens=True).items()}
    added = tokenizer.engine.get_added_tokens_decoder()
    tokens: list[str] = []
    kinds: list[TokenKind] = []
    taken: set[str] = {token.content for token in added.values()}
    for number in range(size):
        if number in added:
            name, kind = added[number].content, TokenKind.CONTROL if added[number].special else TokenKind.USER_DEFINED
        else:
            name, kind = rename(names[number]) if number in names else "", TokenKind.NORMAL
            if not name or name in taken:
                name, kind = f"[UNUSED_{number}]", TokenKind.UNUSED
        taken.add(name)
        tokens.append(name)
        kinds.append(kind)
    unknown, end = tokenizer.id_of("unk"), tokenizer.id_of("eos")
    if unknown is not None and unknown != end:  # GPT-2's unknown token is its end token, which must end texts
        kinds[unknown] = TokenKind.UNKNOWN
    return tokens, kinds


@dataclass(frozen=True)
class TextFrame:
    """The special tokens that a tokenizer puts around a text."""

    before: int | None
    after: int | None


def frame_of(tokenizer: Tokenizer) -> TextFrame:
    """Raises CannotExpress if there are several before or after."""
    whole = tokenizer.engine.encode("a")
    marked = list(zip(whole.ids, whole.special_tokens_mask, strict=True))
    before = [token for token, _ in takewhile(lambda pair: pair[1], marked)]
    after = [token for token, _ in takewhile(lambda pair: pair[1], reversed(marked[len(before) :]))]
    if len(before) > 1 or len(after) > 1:
        raise CannotExpress(
            f"its tokenizer puts {len(before)} special tokens before a text and {len(after)} after it, llama.cpp at "
            "most one each. Use --to onnx."
        )
    return TextFrame(*(part[0] if part else None for part in (before, after)))


def special_ids(
    tokenizer: Tokenizer, frame: TextFrame, end_ids: tuple[int, ...], kinds: list[TokenKind]
) -> dict[str, int]:
    """The ids of special tokens by key. There is always an end token: llama.cpp's default fits other vocabularies."""
    found = {key: tokenizer.id_of(role) for role, key in ID_KEYS.items()}
    first = frame.before if frame.before is not None else found["bos_token_id"]
    last = frame.after if frame.after is not None else next(iter(end_ids), found["eos_token_id"])
    if last is None:  # the least likely to be written
        rare = [number for number, kind in enumerate(kinds) if kind != TokenKind.NORMAL]
        last = rare[-1] if rare else len(kinds) - 1
    found |= {"bos_token_id": last if first is None else first, "eos_token_id": last}
    if others := [one for one in end_ids if one != last]:
        found["eot_token_id"] = others[0]
    return {key: number for key, number in found.items() if number is not None}
