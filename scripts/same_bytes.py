"""One hash: the same run in 1, 2, 4 and 8 processes, data parallel and fully sharded.

40 steps of a GPT-2 and a Qwen3 with Muon, a BERT with next sentences and a T5, with dropout, clipping, accumulation and
sequences of unequal length.

    python scripts/same_bytes.py [--families gpt2 bert t5 qwen3] [--processes 1 2 4 8]

Prints the beginning of each SHA-256 of model.safetensors, and fails unless a family has one hash.
"""

import argparse
import hashlib
import tempfile
from pathlib import Path

from kill_test import RECIPES, losses, run_through, write_recipe

STEPS = 40


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--families", nargs="+", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2, 4, 8])
    options = parser.parse_args()
    layouts = [(count, sharded) for sharded in (False, True) for count in options.processes if count > 1 or not sharded]
    names = [f"{count} sharded" if sharded else str(count) for count, sharded in layouts]
    print(f"| processes | {' | '.join(names)} |\n|{'---|' * (1 + len(names))}", flush=True)
    for family in options.families:
        hashes, logs = [], []
        for count, sharded in layouts:
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder)
                run_through(write_recipe(family, place, STEPS), place / "run", count, sharded=sharded)
                hashes.append(hashlib.sha256((place / "run/model/model.safetensors").read_bytes()).hexdigest())
                logs.append(losses(place / "run"))
        print(f"| {family} | {' | '.join(found[:8] for found in hashes)} |", flush=True)
        assert len(set(hashes)) == 1, f"{family}: the weights differ"
        assert all(log == logs[0] for log in logs), f"{family}: the logged losses differ"


if __name__ == "__main__":
    main()
