"""The first five minutes: trains three language models on public-domain text and shows what they can do.

1. A character-level GPT reads three plays of Shakespeare and writes.
2. A subword GPT reads three novels by Jane Austen and writes.
3. A BERT reads the same novels and fills in masked words.

Each is compared with a baseline (an n-gram model, the most frequent token). The number of steps is the same on every
machine, so the models are equally good on a slow or busy one. The time is estimated first, and again after each model.
"""

import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

import weft
from weft.progress import say
from weft.recipe.file import read_recipe
from weft.train.pretrain import prepare, pretrain

ROOT = Path(__file__).parent.parent
RECIPES, RUNS = ROOT / "recipes", ROOT / "runs"
STEPS = {
    "quickstart": "A GPT learns three plays of Shakespeare, character by character.",
    "austen": "Another GPT learns three novels by Jane Austen, in subwords.",
    "quickstart-bert": "A BERT learns the novels by guessing masked words.",
}
ENDING_SECONDS = 15  # for the n-gram models, saving and writing
LEAST_MASKED_ACCURACY = 0.2  # below it, a BERT only predicts the most frequent words
PROMPT, SECOND_PROMPT = "To be, or not to be", "She was"
# Run, title, metric, format.
FIGURES = [
    ("quickstart", "Character-level GPT: bits per character (lower is better)", "bits_per_character", ".2f"),
    ("austen", "Subword GPT: bits per character (lower is better)", "bits_per_character", ".2f"),
    ("quickstart-bert", "BERT: masked words predicted correctly", "validation_masked_accuracy", ".0%"),
]
GAPS = [
    "Mr. [MASK] was a very good man.",
    "She could not [MASK] it.",
    "He had been in love with [MASK] for three years.",
    "I am very [MASK] to see you.",
]


@dataclass(frozen=True)
class Trained:
    model: weft.Model
    results: dict[str, Any]
    seconds: float


def main() -> None:
    screen = Console()
    say("Preparing the texts and measuring the speed of this machine ...\n")
    expected = {name: prepare_afresh(name) for name in STEPS}
    began, first_estimate = time.monotonic(), seconds_left(expected, {})
    say(f"\nTraining will take about {in_minutes(first_estimate)} if the machine stays as busy as it is now.")
    made: dict[str, Trained] = {}
    for number, (name, what) in enumerate(STEPS.items(), 1):
        if made:
            left = seconds_left(expected, {name: done.seconds for name, done in made.items()})
            say(f"\nAt the speed so far, about {in_minutes(left)} more.")
        say(f"\n{number}. {what}\n")
        made[name] = train(name)

    show_writing(screen, "The character-level GPT writes", made["quickstart"].model, PROMPT, 400)
    show_writing(screen, "The subword GPT writes", made["austen"].model, SECOND_PROMPT, 120)
    table = Table(title="The BERT fills in", title_justify="left", title_style="bold")
    for column in ("sentence", "most likely words"):
        table.add_column(column)
    for gap in GAPS:
        words = ", ".join(filled.word for filled in made["quickstart-bert"].model.fill(gap, top=5))
        table.add_row(gap.replace("[MASK]", "\\[MASK]"), words)
    screen.print(table)
    show_figures(screen, made)
    spent = time.monotonic() - began
    screen.print(f"\nThis took {in_minutes(spent)}; the estimate was {in_minutes(first_estimate)}.")
    screen.print("Training curves: runs/quickstart/report.html, runs/quickstart-bert/report.html")
    screen.print("Next, with .venv/bin/weft:")
    screen.print(
        '  weft generate runs/quickstart/model "To be" --stream --temperature 0.8 --max-new-tokens 1000 --slide'
    )
    screen.print("  weft info runs/quickstart-bert/model                  the model; transformers can open it, too")
    screen.print("  weft pretrain recipes/quickstart.yml model.width=192 pretrain.budget=10m -o runs/wider")
    screen.print("  weft pretrain recipes/quickstart-zh.yml               唐诗")
    screen.print("Try these models and watch these runs in a browser, at http://127.0.0.1:8000:")
    screen.print(f"  weft serve {' '.join(f'runs/{name}/model' for name in STEPS)} --runs runs")


def prepare_afresh(name: str) -> float:
    shutil.rmtree(RUNS / name, ignore_errors=True)  # of an earlier quickstart
    return prepare(read_recipe(RECIPES / f"{name}.yml"), RECIPES, RUNS / name)


def seconds_left(expected: dict[str, float], spent: dict[str, float]) -> float:
    """Estimate for the models that are not in `spent`, scaled by how much slower than expected the others were."""
    slower = sum(spent.values()) / sum(expected[name] for name in spent) if spent else 1.0
    return slower * sum(seconds for name, seconds in expected.items() if name not in spent) + ENDING_SECONDS


def train(name: str) -> Trained:
    began = time.monotonic()
    results = pretrain(read_recipe(RECIPES / f"{name}.yml"), RECIPES, RUNS / name, resume=True)
    return Trained(weft.load(RUNS / name / "model"), results, time.monotonic() - began)


def show_writing(screen: Console, title: str, model: weft.Model, prompt: str, length: int) -> None:
    written = model.generate(prompt, max_new_tokens=length, temperature=0.8, top_k=40, seed=7, slide=True)
    screen.print(Panel(f"[bold]{prompt}[/]{escape(written)}", title=title, title_align="left"))


def show_figures(screen: Console, made: dict[str, Trained]) -> None:
    table = Table(title="Compared with a baseline", title_justify="left", title_style="bold")
    for column in ("", "weft", "baseline", "time"):
        table.add_column(column)
    notes = []
    for name, title, key, style in FIGURES:
        results = made[name].results
        ours, baseline = (f"{results[by][key]:{style}}" for by in ("validation", "by_counting"))
        table.add_row(title, ours, f"{baseline} ({results['by_counting']['name']})", f"{made[name].seconds:.0f} s")
        notes += [f"{title.partition(':')[0]}: {reason}" for reason in [shortfall(name, results)] if reason]
    screen.print(table)
    for note in notes:
        screen.print(note, style="bold red")


def shortfall(name: str, results: dict[str, Any]) -> str | None:
    """Why this model is not good enough, and what to try. None if it is."""
    validation, baseline = results["validation"], results["by_counting"]
    steps = results["steps"]
    more = f"{steps:,} steps were too few. Try: "
    more += f"weft pretrain recipes/{name}.yml pretrain.budget='{2 * steps} steps' -o runs/longer"
    if "bits_per_character" in baseline:
        is_worse = validation["bits_per_character"] >= baseline["bits_per_character"]
        return f"is not better than the {baseline['name']} model. {more}" if is_worse else None
    if validation["validation_masked_accuracy"] < LEAST_MASKED_ACCURACY:
        return f"has only learnt which words are frequent. {more}"
    return None


def in_minutes(seconds: float) -> str:
    halves = max(1, round(seconds / 30))
    return f"{halves / 2:g} minute{'s' if halves != 2 else ''}"


if __name__ == "__main__":
    sys.exit(main())
