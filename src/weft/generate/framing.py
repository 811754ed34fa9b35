"""What a model that was tuned to write an answer reads before it: one place for training and for writing.

A `prefix` stands before the source. A decoder reads the source as its tokenizer begins a text (Llama's with <s>) and
then the separator, its end token if none is said; after it the answer begins (as in DialoGPT; Zhang et al. 2020). In a
conversation earlier turns come before, each with its answer and the end token that closes it. What is too long is cut:
a text to translate or to summarize loses its end, a conversation its beginning, for what was said last is answered. The
prefix stays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import tokenizers

TUNED_TO_WRITE = ("translate", "summarize", "reply")  # tasks, as weft.json names them
Turn = tuple[str, str]  # what was said, and the answer


@dataclass(frozen=True)
class Framing:
    prefix: str = ""
    separator: str | None = None
    is_reply: bool = False
    most_tokens: int | None = None  # that were read in training

    @classmethod
    def of(cls, task: Any) -> "Framing | None":
        """Of a model whose weft.json names such a task."""
        if not isinstance(task, Mapping) or task.get("name") not in TUNED_TO_WRITE:
            return None
        prefix, separator, length = (task.get(name) for name in ("prefix", "separator", "sequence_length"))
        return cls(
            prefix if isinstance(prefix, str) else "",
            separator if isinstance(separator, str) else None,
            task["name"] == "reply",
            length if isinstance(length, int) and length > 0 else None,
        )

    def source(self, text: str) -> str:
        return self.prefix + text

    def opening(self, engine: tokenizers.Tokenizer) -> list[int]:
        """The special tokens that come before a text."""
        framed = engine.encode("a")
        marks = takewhile(lambda pair: pair[1], zip(framed.ids, framed.special_tokens_mask, strict=True))
        return [token for token, _ in marks]

    def between(self, engine: tokenizers.Tokenizer, end: int) -> list[int]:
        return [end] if self.separator is None else engine.encode(self.separator, add_special_tokens=False).ids

    def kept(self, ids: Sequence[int], room: int, engine: tokenizers.Tokenizer) -> list[int]:
        """As much of a source, prefix included, as there is room for."""
        room = max(room, 1)
        if len(ids) <= room or not self.is_reply:
            return list(ids[:room])
        head = min(len(engine.encode(self.prefix, add_special_tokens=False).ids), room - 1)
        return [*ids[:head], *ids[len(ids) - (room - head) :]]

    def conversation(
        self, ids: Sequence[int], history: Sequence[Turn], room: int, engine: tokenizers.Tokenizer, end: int
    ) -> list[int]:
        """What a decoder reads: the last turns that fit before the source, and the source."""
        before, between = self.opening(engine), self.between(engine, end)
        found = [*self.kept(ids, room - len(before) - len(between), engine), *between]
        for said, answer in reversed(history):
            turn = [*_ids(engine, self.source(said)), *between, *_ids(engine, answer), end]
            if len(before) + len(turn) + len(found) > room:
                break
            found = turn + found
        return before + found


def _ids(engine: tokenizers.Tokenizer, text: str) -> list[int]:
    ids: list[int] = engine.encode(text, add_special_tokens=False).ids
    return ids
