"""A tokenizer: the engine of the `tokenizers` library, the special tokens by role, and its original files."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import tokenizers

TEMPLATE_FILE = "chat_template.jinja"  # Hugging Face's name
PIECE_CHARACTERS = 200_000  # of a long document that are encoded as one text
_CUT = re.compile(r"(?<=\w)(?= \w)")
SpecialRole = Literal["unk", "pad", "cls", "sep", "mask", "bos", "eos"]


@dataclass(frozen=True)
class Tokenizer:
    engine: tokenizers.Tokenizer
    special: dict[SpecialRole, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict, repr=False)

    def encode(self, text: str) -> list[int]:
        """Token ids, including the special tokens around a text."""
        return self.engine.encode(text).ids

    def encode_many(self, texts: Sequence[str], most_tokens: int | None = None) -> list[list[int]]:
        """Like `encode`, for many texts. Texts are truncated to `most_tokens`; special tokens are kept."""
        if most_tokens is None:
            return [encoding.ids for encoding in self.engine.encode_batch_fast(list(texts))]
        room = max(0, most_tokens - self.engine.num_special_tokens_to_add(is_pair=False))
        encodings = self.engine.encode_batch_fast(list(texts), add_special_tokens=False)
        for encoding in encodings:
            encoding.truncate(room)
        return [self.engine.post_process(encoding).ids for encoding in encodings]

    @property
    def chat_template(self) -> str | None:
        """The Jinja program that makes a text of a conversation, if the files have one."""
        if TEMPLATE_FILE in self.files:
            return self.files[TEMPLATE_FILE].decode("utf-8", "replace")
        try:
            found = json.loads(self.files.get("tokenizer_config.json", b"{}")).get("chat_template")
        except (ValueError, AttributeError):
            return None
        if isinstance(found, list):  # several templates with names
            named = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
            found = named.get("default")
        return found if isinstance(found, str) else None

    def saved_files(self) -> dict[str, bytes]:
        """The original files, unchanged; a new tokenizer.json if there are none."""
        return self.files or {"tokenizer.json": self.engine.to_str(pretty=True).encode()}

    def decode(self, ids: Sequence[int]) -> str:
        return self.engine.decode(list(ids), skip_special_tokens=True)

    def id_of(self, role: SpecialRole) -> int | None:
        token = self.special.get(role)
        return None if token is None else self.engine.token_to_id(token)

    @cached_property
    def joins_spaces(self) -> bool:
        """Whether the space before a word is part of its first token, as in byte-level BPE."""
        apart, spaced = (self.engine.encode(words, is_pretokenized=True).ids for words in (["a", "a"], ["a", " a"]))
        return apart != spaced == self.engine.encode("a a").ids and len(apart) == len(spaced)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of all special tokens: padding, separators, sentinels …"""
        return frozenset(number for number, token in self.engine.get_added_tokens_decoder().items() if token.special)

    @property
    def vocabulary(self) -> int:
        return self.engine.get_vocab_size(with_added_tokens=True)


def cut_long(text: str, most: int = PIECE_CHARACTERS) -> list[str]:
    """Cuts a text into pieces of at most `most` characters, so that one long document occupies all threads.

    Cuts fall between a word and a space, where every tokenizer splits as well. Without such a place in the second half
    of a piece, the cut falls at `most` characters.
    """
    pieces, start = [], 0
    while len(text) - start > most:
        found = _CUT.search(text, start + most // 2, start + most)
        end = found.start() if found else start + most
        pieces.append(text[start:end])
        start = end
    return [*pieces, text[start:]]
