"""Measures how well a tokenizer fits a text: bytes per token (higher is better), unknown rate, rare and long tokens."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from weft.tokenizer.tokenizer import Tokenizer, cut_long

_MOST_BYTES = 10_000_000  # of text to measure; the report must not take longer than the training
_MOST_TOKENS_SHOWN = 20


@dataclass(frozen=True)
class TokenizerReport:
    vocabulary: int
    documents: int
    bytes: int
    tokens: int
    bytes_per_token: float
    unknown_rate: float
    used: int  # different tokens that occur in the text
    longest: list[str]
    rarest: list[str]  # of the tokens that occur
    commonest: list[str]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def report_on_tokenizer(tokenizer: Tokenizer, texts: Iterable[str]) -> TokenizerReport:
    counts: Counter[int] = Counter()
    documents = size = 0
    for text in texts:
        documents += 1
        for piece in cut_long(text):
            size += len(piece.encode())
            counts.update(tokenizer.engine.encode(piece, add_special_tokens=False).ids)
            if size > _MOST_BYTES:
                break
        if size > _MOST_BYTES:
            break
    tokens = counts.total()
    unknown = tokenizer.id_of("unk")
    special = tokenizer.special_ids
    ordered = [token for token, _ in counts.most_common() if token not in special]
    words = {token: number for token, number in tokenizer.engine.get_vocab().items() if number not in special}
    return TokenizerReport(
        vocabulary=tokenizer.vocabulary,
        documents=documents,
        bytes=size,
        tokens=tokens,
        bytes_per_token=round(size / max(tokens, 1), 3),
        unknown_rate=0.0 if unknown is None else counts[unknown] / max(tokens, 1),
        used=len(counts),
        longest=sorted(words, key=lambda token: (-len(token), token))[:_MOST_TOKENS_SHOWN],
        rarest=[tokenizer.engine.id_to_token(number) or "" for number in reversed(ordered[-_MOST_TOKENS_SHOWN:])],
        commonest=[tokenizer.engine.id_to_token(number) or "" for number in ordered[:_MOST_TOKENS_SHOWN]],
    )
