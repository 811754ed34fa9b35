"""Inputs on which an export is compared with weft: token ids of several lengths, and texts of several scripts."""

import random
from collections.abc import Sequence
from typing import Any

from weft.api.model import Model

LENGTHS = (1, 2, 3, 7, 33, 128)
MOST_LENGTH = 512
# What a greedy text is written with: runtimes do not know the penalty that a folder recommends.
PLAIN_GREEDY: dict[str, Any] = {"strategy": "greedy", "repetition_penalty": 1.0}
TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "To be, or not to be: that is the question.\nWhether 'tis nobler in the mind to suffer",
    "床前明月光，疑是地上霜。举头望明月，低头思故乡。",
    "It's 3.14159 — isn't it?  Two  spaces, a\ttab, (brackets) and e-mail: a.b@c.org!",
    "Ünïcödé, naïve café, ½ ﬁ, 😀👩‍👩‍👧, Здравствуй, мир; مرحبا بالعالم; नमस्ते; 안녕하세요; ことば",
    "HELLO hello Hello 123 1,000.50 x=y+1; // code_style CamelCase",
    "  leading and trailing  ",
)


def sample_sequences(model: Model, lengths: Sequence[int] = LENGTHS, *, longest: int | None = None) -> list[list[int]]:
    """Random ids, the same for the same model: one sequence of each length that the model can read, and one of the most
    it can, up to MOST_LENGTH. Special tokens do not occur: some runtimes treat them in their own ways.
    """
    limit = min(one for one in (model.longest, longest, MOST_LENGTH) if one is not None)
    chosen = sorted({length for length in (*lengths, limit) if length <= limit})
    vocabulary = model.network.architecture.vocabulary
    special = set() if model.own_tokenizer is None else set(model.own_tokenizer.special_ids)
    ordinary = [number for number in range(vocabulary) if number not in special] or [0]
    draw = random.Random(0)  # noqa: S311 (not for secrets)
    return [draw.choices(ordinary, k=length) for length in chosen]
