"""Small models of tasks with random weights and vocabularies of their own, saved as `weft finetune` saves them."""

from functools import cache
from pathlib import Path
from typing import Any

import torch

from weft.model.network import Network
from weft.recipe.model import ModelSection
from weft.recipe.recipe import Recipe
from weft.tasks.example import Example
from weft.tasks.input_spec import InputSpec, input_spec_for
from weft.tasks.learning.build import from_family
from weft.tasks.learning.saving import write_task_model
from weft.tasks.task import Task
from weft.tokenizer.tokenizer import Tokenizer
from weft.tokenizer.train import train_tokenizer
from weft.train.build import Built

ALICE = Path(__file__).parents[1] / "examples/alice.txt"
ENCODERS, DECODERS, WITH_SOURCE = (
    ("bert", "roberta", "distilbert", "modernbert"),
    ("gpt2", "llama", "qwen3"),
    ("t5", "transformer"),
)
KINDS = {"bert": "wordpiece", "distilbert": "wordpiece", "modernbert": "wordpiece", "t5": "unigram"}  # others: bpe
LIMIT = 40  # tokens

TEXTS = [
    "The rabbit-hole went straight on like a tunnel for some way.",
    "Curiouser!",
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: " * 3,
    "爱丽丝 and the 🐇, naïve as ever",
    "Down, down, down.",
    "So she sat on, with closed eyes.",
]
PAIRS = [
    (TEXTS[0], TEXTS[1]),
    (TEXTS[1], TEXTS[0]),
    (TEXTS[2], TEXTS[4]),  # the first too long, the second, both
    (TEXTS[4], TEXTS[2]),
    (TEXTS[2], TEXTS[2][7:]),
    (TEXTS[3], TEXTS[5]),
]
WORDS = [tuple(text.split()) for text in (TEXTS[0], TEXTS[1], TEXTS[3], TEXTS[4], TEXTS[5])]


@cache
def tokenizer_of(family: str) -> Tokenizer:
    return train_tokenizer([ALICE], KINDS.get(family, "bpe"), 500, family=family)  # type: ignore[arg-type]


def make(task: Task, family: str, length: int = LIMIT, seed: int = 0, **more: Any) -> tuple[Built, InputSpec]:
    tokenizer = tokenizer_of(family)
    section = ModelSection(family=family, **{"layers": 2, "width": 32, "heads": 4, **more})
    built = from_family(section, task, tokenizer, length, None, seed)
    scatter(built.network, seed)
    built.network.eval()
    return built, input_spec_for(built.saved, built.description, tokenizer, length)


@torch.no_grad()
def scatter(network: Network, seed: int) -> None:
    """Random weights with which every word of a text counts: embeddings of size 1, attention that picks."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in network.named_parameters():
        is_table, is_norm = name.startswith(("embed.", "decoder_embed.")), "norm" in name and name.endswith("weight")
        scale = 0.1 if parameter.dim() == 1 else 1.0 if is_table else 1.3 * parameter.shape[-1] ** -0.5
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale + is_norm)


def save(task: Task, built: Built, reader: InputSpec, folder: Path) -> Path:
    write_task_model(task, built, reader, folder, Recipe(), {})
    return folder


def asked(given: Any) -> list[Example]:
    """Examples without a right answer."""
    return [Example(one, None) for one in given]


def in_text(tokenizer: Any, words: Any) -> list[str]:
    """The words as transformers' byte-level tokenizers meet them in a text; others do not care."""
    is_byte_level = any(piece.startswith("Ġ") for piece in tokenizer.tokenize("so so"))
    return [words[0], *(" " * is_byte_level * ("爱丽丝" not in words) + word for word in words[1:])]
