"""The first five minutes: three language models out of public-domain text, trained here and now.

A GPT learns Shakespeare letter by letter, another Jane Austen's novels by pieces of words, and both write; a BERT
learns the novels, too, and fills in missing words. Each is put beside what counting alone can do.
"""

import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

import weft
from weft.progress import say
from weft.recipe_file import read_recipe
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
    return weft.load(RUNS / name / "model"), results


def show_writing(screen: Console, title: str, model: weft.Model, prompt: str, length: int) -> None:
    written = model.generate(prompt, max_new_tokens=length, temperature=0.8, top_k=40, seed=7, slide=True)
    screen.print(Panel(f"[bold]{prompt}[/]{escape(written)}", title=title, title_align="left"))


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
    for what, results in (("letters", letters), ("pieces of words", pieces)):
        bits, counted = (f"{results[by]['bits_per_character']:.2f}" for by in ("validation", "by_counting"))
        name = results["by_counting"]["name"]
        table.add_row(f"GPT of {what}: bits per character, less is better", bits, f"{counted} ({name})")
    share, counted = (f"{words[by]['validation_masked_accuracy']:.0%}" for by in ("validation", "by_counting"))
    table.add_row("BERT: hidden words found", share, f"{counted} ({words['by_counting']['name']})")
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
