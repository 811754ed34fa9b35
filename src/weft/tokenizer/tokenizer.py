"""A tokenizer: the Rust engine, the special tokens by role, and the files it came from (kept to the byte for
saving).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import tokenizers

Role = Literal["unk", "pad", "cls", "sep", "mask", "bos", "eos"]


@dataclass(frozen=True)
class Tokenizer:
    engine: tokenizers.Tokenizer
    special: dict[Role, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict, repr=False)

    def encode(self, text: str) -> list[int]:
        """Token ids with the special tokens the model expects around a text."""
        return self.engine.encode(text).ids

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self.engine.encode_batch_fast(list(texts))]

    def decode(self, ids: Sequence[int]) -> str:
        return self.engine.decode(list(ids), skip_special_tokens=True)

    def id_of(self, role: Role) -> int | None:
        token = self.special.get(role)
        return None if token is None else self.engine.token_to_id(token)

    @property
    def vocabulary(self) -> int:
        return self.engine.get_vocab_size(with_added_tokens=True)
