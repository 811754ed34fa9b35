"""Kill a training run many times, at random moments and during saves, and resume it each time.

    python scripts/kill_test.py --kills 50
    python scripts/kill_test.py --kills 30 --processes 1 2 4 8

With --processes, each start has one of these numbers of processes, at random, with whole or (in pre-training) sharded
weights; one of them, or all, are killed. At the end the weights must have the same bytes, and the metrics the same
numbers, as those of an unbroken run in one process.
Pre-training: a GPT, a BERT with next-sentence prediction, a T5 and a Qwen3, with dropout, accumulation and several
epochs.
Fine-tuning: a BERT with LoRA and a CRF that tags words, a Transformer that translates.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

BOOK = Path(__file__).parent.parent / "examples" / "alice.txt"
SHAPE = "layers: 2, width: 32, heads: 2, dropout: 0.1"
RECIPES = {
    "gpt2": ("causal", "kind: bpe, vocab_size: 400", "muon"),
    "bert": ("masked+next-sentence", "kind: wordpiece, vocab_size: 400", "adamw"),
    "t5": ("span", "kind: char", "adamw"),
    "transformer": ("denoise", "kind: char", "muon"),
    "qwen3": ("causal", "kind: bpe, vocab_size: 400", "muon"),
}
TASKS = {
    "tag": (f"family: bert, {SHAPE}", "kind: wordpiece, vocab_size: 400", "crf: true, tune: lora"),
    "translate": (f"family: transformer, {SHAPE}", "kind: bpe, vocab_size: 400", "max_new_tokens: 4, beams: 1"),
}
TIMES = ("seconds", "tokens_per_second")


def write_task_recipe(task: str, folder: Path, steps: int) -> Path:
    """Made-up tasks on lines of the book: tag capitalized words, or translate a line into its words reversed."""
    lines = [line.split() for line in BOOK.read_text("utf-8").splitlines()[50:] if len(line.split()) > 4][:200]
    with (folder / "lines.jsonl").open("w") as file:
        for words in lines:
            row = {"words": words, "tags": ["B-CAPITAL" if word[0].isupper() else "O" for word in words]}
            if task == "translate":
                row = {"source": " ".join(words), "target": " ".join(reversed(words))}
            file.write(json.dumps(row) + "\n")
    model, tokenizer, more = TASKS[task]
    recipe = folder / f"{task}.yml"
    recipe.write_text(
        f"""
name: {task}
tokenizer: {{{tokenizer}}}
finetune:
  {{model: {{{model}}}, task: {task}, data: {{train: lines.jsonl}}, budget: {steps} steps, batch: 16, accumulation: 2,
   sequence_length: 32, log_every: 1, validate_every: 7, checkpoint_every: 3, baseline: false, seed: 3,
   precision: float32, {more}}}
"""
    )
    return recipe


def write_recipe(family: str, folder: Path, steps: int) -> Path:
    """A few epochs over a part of the book, with a save at every third step. Nothing is left to be chosen by measuring,
    because two runs could choose differently.
    """
    if family in TASKS:
        return write_task_recipe(family, folder, steps)
    objective, tokenizer, optimizer = RECIPES[family]
    (folder / "book.txt").write_text(BOOK.read_text("utf-8")[:30_000])
    recipe = folder / f"{family}.yml"
    recipe.write_text(
        f"""
name: {family}
corpus: {{sources: [{{path: book.txt}}], splits: {{validation: 0.1}}, documents: block}}
tokenizer: {{{tokenizer}}}
model: {{family: {family}, {SHAPE}}}
pretrain:
  {{objective: {objective}, budget: {steps} steps, sequence_length: 32, batch_tokens: 1024, accumulation: 2,
   optimizer: {optimizer}, log_every: 1, validate_every: 7, checkpoint_every: 3, dropout: 0.1, seed: 3,
   precision: float32, compile: false}}
"""
    )
    return recipe


def start(recipe: Path, output: Path, processes: int | None = None, *, sharded: bool = False) -> subprocess.Popen:
    """`processes`: default: one, whose steps are not cut into pieces."""
    stage = "finetune" if recipe.stem in TASKS else "pretrain"
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)] if (processes or 1) > 1 else []
    settings = [f"{stage}.pieces=8", f"{stage}.threads=1", f"{stage}.clip=0.3"] if processes else []
    settings += ["processes.sharded=true"] if sharded and stage == "pretrain" else []
    command = [sys.executable, *launcher, "-m", "weft", stage, str(recipe), *settings, "-o", str(output), "--resume"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def run_through(recipe: Path, output: Path, processes: int | None = None, *, sharded: bool = False) -> None:
    process = start(recipe, output, processes, sharded=sharded)
    _, said = process.communicate()
    assert process.returncode == 0, said


def kill_once(recipe: Path, output: Path, chance: random.Random, processes: Sequence[int | None]) -> bool:
    """Start or resume, then kill early, during a save, or later. Returns False if the run ended first."""
    count = chance.choice(processes)
    process = start(recipe, output, count, sharded=count is not None and chance.random() < 0.5)
    moment = chance.choice(["early", "save", "later", "later"])
    if moment == "early":
        wait(process, lambda: False, chance.uniform(0.5, 6.0))
    else:
        known = {item.name for item in (output / "checkpoints").glob("step-*")}
        wait(process, lambda: _has_new_checkpoint(output, known), 120)
        if moment == "save":
            wait(process, lambda: any((output / "checkpoints").glob(".step-*")), 20)
        else:
            wait(process, lambda: False, chance.uniform(0.0, 0.5))
    kill(process, one=count is not None and chance.random() < 0.5, chance=chance)
    _, said = process.communicate(timeout=120)
    assert process.returncode in (0, -signal.SIGKILL) or count is not None, said
    return process.returncode != 0


def kill(process: subprocess.Popen, *, one: bool, chance: random.Random) -> None:
    """All processes, or one that torchrun has started; torchrun then ends the others."""
    with suppress(psutil.NoSuchProcess):
        launcher = psutil.Process(process.pid)
        workers = launcher.children(recursive=True)
        for target in [chance.choice(workers)] if one and workers else [launcher, *workers]:
            target.kill()


def wait(process: subprocess.Popen, reached, seconds: float) -> None:
    end = time.monotonic() + seconds
    while process.poll() is None and not reached() and time.monotonic() < end:
        time.sleep(0.0005)  # saving so small a model takes milliseconds


def _has_new_checkpoint(output: Path, known: set[str]) -> bool:
    return any(item.name not in known for item in (output / "checkpoints").glob("step-*"))


def losses(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]


def compare(unbroken: Path, broken: Path) -> None:
    weights = [(folder / "model/model.safetensors").read_bytes() for folder in (unbroken, broken)]
    assert weights[0] == weights[1], "the weights differ"
    assert losses(unbroken) == losses(broken), "the losses differ"


def kill_and_compare(
    family: str, kills: int, steps: int, place: Path, seed: int = 0, processes: Sequence[int | None] = (None,)
) -> int:
    """Returns the number of kills that hit a running process."""
    recipe = write_recipe(family, place, steps)
    run_through(recipe, place / "unbroken", processes[0])
    chance, hits = random.Random(seed), 0
    while hits < kills and kill_once(recipe, place / "broken", chance, processes):
        hits += 1
    run_through(recipe, place / "broken", processes[-1])
    compare(place / "unbroken", place / "broken")
    return hits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, nargs="+", default=[None], help="numbers of processes to choose from")
    options = parser.parse_args()
    families = [*RECIPES, *TASKS]
    for number, family in enumerate(families):
        kills = options.kills // len(families) + (number < options.kills % len(families))
        with tempfile.TemporaryDirectory() as place:
            hits = kill_and_compare(
                family, kills, 60 + 12 * kills, Path(place), options.seed + number, options.processes
            )
        print(f"{family}: {hits} kills, same bytes at the end", flush=True)
        assert hits == kills, f"the run ended after {hits} kills of {kills}: give it more steps"


if __name__ == "__main__":
    main()
