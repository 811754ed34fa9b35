"""The tokenizer of a fine-tuning run: the model's own; for a fresh model the recipe's, or one trained on its texts."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from weft.folders import write_file
from weft.recipe.finetune import FinetuneSection
from weft.recipe.model import TokenizerSection
from weft.recipe.recipe import Recipe
from weft.tasks.catalog import TASKS
from weft.tasks.learning.splits import Splits
from weft.tasks.turns import Said
from weft.tokenizer.build import build_tokenizer
from weft.tokenizer.read import load_tokenizer
from weft.tokenizer.tokenizer import Tokenizer

DEFAULT_KINDS = {"bert": "wordpiece", "distilbert": "wordpiece", "modernbert": "wordpiece"}  # others: byte-level BPE


def prepare_tokenizer(recipe: Recipe, section: FinetuneSection, splits: Splits, base: Path, folder: Path) -> Tokenizer:
    if isinstance(section.model, str):
        return load_tokenizer(base / section.model)
    said = recipe.tokenizer
    if said is not None and said.path is not None:
        return load_tokenizer(base / said.path)
    assert section.model is not None and section.model.family is not None
    family = section.model.family
    said = said or TokenizerSection(kind=DEFAULT_KINDS.get(family, "bpe"))  # type: ignore[arg-type]
    place = folder / "tokenizer"
    if not (place / "tokenizer.json").is_file():
        texts = folder / "texts.txt"
        write_file(texts, "\n".join(_texts(splits, section.task)).encode())
        options: dict[str, Any] = {"vocabulary": said.vocab_size, "family": family, "lowercase": not said.cased}
        assert said.kind is not None
        build_tokenizer([texts], place, said.kind, **options)
        texts.unlink()
    return load_tokenizer(place)


def _texts(splits: Splits, task: str) -> Iterable[str]:
    """All texts that training reads or writes."""
    writes = TASKS[task].writes
    for example in splits.train.examples:
        parts = [example.given] if isinstance(example.given, str) else list(example.given)
        parts = [part.content if isinstance(part, Said) else part for part in parts]
        yield " ".join(parts).replace("\n", " ")
        if writes:
            yield example.gold.replace("\n", " ")
