"""The model that the serving benchmarks serve: a Llama of 6 layers, 384 wide, 16,000 tokens, with random weights.

And the requests: prompts of 16 to 256 tokens out of books, 16 to 128 new tokens. As a text, a prompt has the very same
tokens, so that a service that takes only texts reads the same.
"""

import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import weft
from weft.tokenizer.tokenizer import Tokenizer
from weft.tokenizer.train import train_tokenizer

LAYERS, WIDTH, VOCABULARY, POSITIONS = 6, 384, 16_000, 512
PROMPT_TOKENS, NEW_TOKENS = (16, 256), (16, 128)


@dataclass(frozen=True)
class Request:
    tokens: list[int]
    text: str
    new_tokens: int


def books_of(data: Path, place: Path) -> list[Path]:
    """Copies in UTF-8."""
    found = sorted((data / "lm/gutenberg").glob("*.txt"))[:6]
    assert found, f"{data}: lm/gutenberg is missing; say where it is with --data"
    for book in found:
        (place / book.name).write_text(book.read_text("latin-1"), "utf-8")
    return [place / book.name for book in found]


def write_llama(folder: Path, books: list[Path]) -> weft.Model:
    tokenizer = train_tokenizer(books, "bpe", VOCABULARY)
    model = weft.create(
        "llama", layers=LAYERS, width=WIDTH, heads=WIDTH // 64, positions=POSITIONS, seed=0, tokenizer=tokenizer
    )
    model.save(folder)
    return weft.load(folder)


def without_end(folder: Path, copy: Path) -> Path:
    """The same model, whose texts have no end: `transformers serve` has no setting to ignore the end token."""
    shutil.copytree(folder, copy)
    for name in ("config.json", "generation_config.json"):
        (copy / name).write_text(json.dumps({**json.loads((folder / name).read_text()), "eos_token_id": None}))
    return copy


class Requests:
    """Lists of requests, each a function of its seed."""

    def __init__(self, tokenizer: Tokenizer, book: Path) -> None:
        self.engine = tokenizer.engine
        self.ids = self.engine.encode(book.read_text("utf-8"), add_special_tokens=False).ids

    def __call__(self, count: int, seed: str) -> list[Request]:
        chance = random.Random(seed)
        return [self._request(chance) for _ in range(count)]

    def _request(self, chance: random.Random) -> Request:
        size = chance.randint(*PROMPT_TOKENS)
        while True:
            begin = chance.randrange(len(self.ids) - size)
            tokens = self.ids[begin : begin + size]
            text = self.engine.decode(tokens)
            if self.engine.encode(text, add_special_tokens=False).ids == tokens:
                return Request(tokens, text, chance.randint(*NEW_TOKENS))
