"""What a model that was tuned to answer reads before the answer. Training and generation both use this.

    encoder–decoder   prefix source
    decoder           opening tokens, prefix source, separator

The opening tokens are those that the tokenizer puts before a text (Llama's <s>). The separator is the end token by
default (as in DialoGPT; Zhang et al. 2020). In a conversation earlier turns come first, each with its answer and an end
token. Input that is too long is truncated: a source to translate or summarize at its end, a conversation at its
beginning. The prefix stays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import tokenizers

TUNED_TO_WRITE = ("translate", "summarize", "reply")  # names of tasks in weft.json
BY_TEMPLATE = "messages"  # the form of a task whose texts are framed by the model's chat template
Turn = tuple[str, str]  # prompt and answer


@dataclass(frozen=True)
class Framing:
    prefix: str = ""
    separator: str | None = None
    is_reply: bool = False
    most_tokens: int | None = None  # of an input in training

    @classmethod
    def of(cls, task: Any) -> "Framing | None":
        """`task`: that of the model's weft.json. None if the model was not tuned to answer, or with a chat template."""
        if not isinstance(task, Mapping) or task.get("name") not in TUNED_TO_WRITE or task.get("form") == BY_TEMPLATE:
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
        """The special tokens that the tokenizer puts before a text."""
        framed = engine.encode("a")
        marks = takewhile(lambda pair: pair[1], zip(framed.ids, framed.special_tokens_mask, strict=True))
        return [token for token, _ in marks]

    def separator_ids(self, engine: tokenizers.Tokenizer, end: int) -> list[int]:
        """The tokens between the source and the answer."""
        return [end] if self.separator is None else engine.encode(self.separator, add_special_tokens=False).ids

    def truncated(self, ids: Sequence[int], room: int, engine: tokenizers.Tokenizer) -> list[int]:
        """The source, including the prefix, truncated to `room` tokens."""
        room = max(room, 1)
        if len(ids) <= room or not self.is_reply:
            return list(ids[:room])
        head = min(len(engine.encode(self.prefix, add_special_tokens=False).ids), room - 1)
        return [*ids[:head], *ids[len(ids) - (room - head) :]]

    def conversation(
        self, ids: Sequence[int], history: Sequence[Turn], room: int, engine: tokenizers.Tokenizer, end: int
    ) -> list[int]:
        """What a decoder reads: the latest turns that fit, then the source."""
        opening, separator = self.opening(engine), self.separator_ids(engine, end)
        found = [*self.truncated(ids, room - len(opening) - len(separator), engine), *separator]
        for prompt, answer in reversed(history):
            turn = [*_ids(engine, self.source(prompt)), *separator, *_ids(engine, answer), end]
            if len(opening) + len(turn) + len(found) > room:
                break
            found = turn + found
        return opening + found


def _ids(engine: tokenizers.Tokenizer, text: str) -> list[int]:
    ids: list[int] = engine.encode(text, add_special_tokens=False).ids
    return ids
