"""The first five minutes: three language models out of public-domain text, trained here and now.

A GPT learns Shakespeare letter by letter, another Jane Austen's novels by pieces of words, and both write; a BERT
learns the novels, too, and fills in missing words. Each is put beside what counting alone can do.
"""

import math
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

import weft
from weft.evaluate.ngram import NGram
from weft.progress import say
from weft.recipe_file import read_recipe
from weft.tokens.shards import open_shards
from weft.train.pretrain import pretrain

ROOT = Path(__file__).parent.parent
RECIPES, RUNS = ROOT / "recipes", ROOT / "runs"
PROMPT, SECOND_PROMPT = "To be, or not to be", "She was"
GAPS = [
    "Mr. [MASK] was a very good man.",
    "She could not [MASK] it.",
    "He had been in love with [MASK] for three years.",
    "I am very [MASK] to see you.",
]


def train(name: str) -> tuple[weft.Model, dict]:
    recipe = RECIPES / f"{name}.yml"
    shutil.rmtree(RUNS / name, ignore_errors=True)  # of an earlier quickstart
    results = pretrain(read_recipe(recipe), RECIPES, RUNS / name)
    return weft.load(RUNS / name / "model"), {"name": name, **results}


def by_counting(run: Path, order: int) -> float:
    """Bits per character of an n-gram of the same tokens on the same validation text."""
    shards = open_shards(run / "tokens/validation/0")
    train, held_out = open_shards(run / "tokens/train/0")[:-1], shards[:-1]
    loss = NGram(train, int(max(train.max(), held_out.max())) + 1, order).loss(held_out)
    return loss / math.log(2) * len(shards) / shards.characters


def show_writing(screen: Console, title: str, model: weft.Model, prompt: str, length: int) -> None:
    written = model.generate(prompt, max_new_tokens=length, temperature=0.8, top_k=40, seed=7, slide=True)
    screen.print(Panel(f"[bold]{prompt}[/]{escape(written)}", title=title, title_align="left"))


def commonest_share(run: Path) -> float:
    """How often a hidden word is guessed by always saying the commonest one."""
    ((word, _),) = Counter(open_shards(run / "tokens/train/0")[:].tolist()).most_common(1)
    return float(np.mean(open_shards(run / "tokens/validation/0")[:] == word))


def main() -> None:
    screen = Console()
    say("1. A GPT learns three plays of Shakespeare, letter by letter.\n")
    gpt, letters = train("quickstart")
    say("\n2. Another GPT learns three novels by Jane Austen, by pieces of words.\n")
    novelist, pieces = train("austen")
    say("\n3. A BERT learns the novels: some words are hidden, it guesses them.\n")
    bert, words = train("quickstart-bert")

    show_writing(screen, "The GPT of letters writes", gpt, PROMPT, 400)
    show_writing(screen, "The GPT of pieces of words writes", novelist, SECOND_PROMPT, 120)
    table = Table(title="The BERT fills in", title_justify="left", title_style="bold")
    for column in ("sentence", "its best words"):
        table.add_column(column)
    for gap in GAPS:
        table.add_row(gap.replace("[MASK]", "\\[MASK]"), ", ".join(filled.word for filled in bert.fill(gap, top=5)))
    screen.print(table)

    table = Table(title="How good, next to counting", title_justify="left", title_style="bold")
    for column in ("", "weft", "by counting"):
        table.add_column(column)
    for what, results, order in (("letters", letters, 6), ("pieces of words", pieces, 3)):
        counted = f"{by_counting(RUNS / results['name'], order):.2f} ({order}-gram)"
        bits = f"{results['validation']['bits_per_character']:.2f}"
        table.add_row(f"GPT of {what}: bits per character, less is better", bits, counted)
    share = words["validation"]["validation_masked_accuracy"]
    counted = f"{commonest_share(RUNS / 'quickstart-bert'):.0%} (commonest word)"
    table.add_row("BERT: hidden words found", f"{share:.0%}", counted)
    screen.print(table)

    screen.print("\nLook at the curves: runs/quickstart/report.html, runs/quickstart-bert/report.html")
    screen.print("Next, with .venv/bin/weft:")
    screen.print(
        '  weft generate runs/quickstart/model "To be" --stream --temperature 0.8 --max-new-tokens 1000 --slide'
    )
    screen.print("  weft info runs/quickstart-bert/model                  what was built; transformers opens it, too")
    screen.print("  weft pretrain recipes/quickstart.yml pretrain.budget=10m -o runs/longer")
    screen.print("  weft pretrain recipes/quickstart-zh.yml               唐诗")


if __name__ == "__main__":
    sys.exit(main())
