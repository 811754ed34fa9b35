"""Decoding with the same weights: weft and llama.cpp, taking turns.

    python benchmarks/decode_vs_llama.py [--llama PYTHON] [--rounds 7] [--quick]

A Llama of 6 layers, 384 wide, 16,000 tokens, random weights; prompts of 32 tokens and 128 greedy tokens, for 1,
8 and 16 rows, on two threads. llama.cpp runs as a library in a process of its own (`llama_rate.py`): in the interpreter
PYTHON, whose environment has llama-cpp-python, built for this processor. weft's int8 is beside q8_0, its int4 (groups
of 32) beside q4_0. The share of the memory bandwidth counts the bytes of the weights that a step reads; it may exceed
1, since a part of them stays in the cache.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from torch import nn

import weft
from contest import race, report
from generate import bandwidth
from gguf_llama import write_gguf
from served_llama import LAYERS, POSITIONS, VOCABULARY, WIDTH
from weft.compress.quantize.rounding import round_to_nearest
from weft.generate.kernels import load_generation_kernels
from weft.model.quantized import put_quantized

PROMPT, NEW, REPEATS = 32, 128, 4
PAUSE_SECONDS = 0.1  # before a turn: threads of the one before spin for a while
PEERS = {"fp32": "fp32", "int8": "q8_0", "int4": "q4_0"}  # weft's precision -> llama.cpp's
GOALS = {("int8", 1): 1.0, ("int4", 1): 1.0, ("int8", 8): 1.2, ("int8", 16): 1.5}


class Process:
    """llama.cpp with one file and a number of rows."""

    def __init__(self, python: str, file: Path, rows: int) -> None:
        command = [python, str(Path(__file__).with_name("llama_rate.py")), str(file), str(rows)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def generate(self, prompts: list[list[int]], new: int) -> list[list[int]]:
        self.process.stdin.write(json.dumps({"prompts": prompts, "new": new}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "llama.cpp ended; does its Python have llama-cpp-python?"
        return json.loads(line)["tokens"]

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def in_four_bits(folder: Path) -> weft.Model:
    """Rounded to nearest: the weights are random, so there are no texts to calibrate on. The output matrix in int8."""
    model = weft.load(folder)
    for name, module in list(model.network.named_modules()):
        if type(module) is nn.Linear:
            bits = 8 if name.startswith("heads") else 4
            put_quantized(model.network, name, round_to_nearest(module.weight, bits, group=32))
    return model


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--llama", default=sys.executable, help="an interpreter with llama-cpp-python")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    rounds, new, batches = (1, 8, (1, 2)) if options.quick else (options.rounds, NEW, (1, 8, 16))
    assert load_generation_kernels() is not None, "there is no C compiler"
    if subprocess.run([options.llama, "-c", "import llama_cpp"], stderr=subprocess.DEVNULL).returncode:
        print(f"{options.llama} has no llama-cpp-python: nothing is measured.", file=sys.stderr)
        return
    limit = bandwidth(0.2 if options.quick else 1.0)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "fp32")
        model = weft.create(
            "llama", layers=LAYERS, width=WIDTH, heads=WIDTH // 64, positions=POSITIONS, vocabulary=VOCABULARY, seed=0
        )
        model.save(folder)
        int4 = in_four_bits(folder)
        writers = {"fp32": model.writer(), "int8": model.writer(int8=True), "int4": int4.writer()}
        weights = model.parameters_count - VOCABULARY * WIDTH * (0 if model.network.heads["causal"].spec.tied else 1)
        bytes_read = {"fp32": 4 * weights, "int8": weights, "int4": weights * 5 // 8}
        for precision, peer in PEERS.items():
            file = write_gguf(folder, Path(place, f"{peer}.gguf"), peer)
            for rows in batches:
                chance = random.Random(rows)
                prompts = [[chance.randrange(3, VOCABULARY) for _ in range(PROMPT)] for _ in range(rows)]
                llama = Process(options.llama, file, rows)
                turns: dict[str, Callable[[], object]] = {
                    "weft": lambda p=precision, t=prompts: writers[p].generate(t, max_new_tokens=new, banned=[]),
                    "llama.cpp": lambda it=llama, t=prompts: it.generate(t, new),
                }
                repeated = {name: lambda turn=turn: [turn() for _ in range(REPEATS)] for name, turn in turns.items()}
                pauses = dict.fromkeys(turns, lambda: time.sleep(PAUSE_SECONDS))
                rates = race(repeated, rounds=rounds, work=rows * new * REPEATS, prepare=pauses)
                llama.end()
                share = sorted(rates["weft"])[rounds // 2] / rows * bytes_read[precision] / limit
                report(
                    f"decoding a Llama, {precision} against {peer}, {rows} row{'s' * (rows > 1)}", rates, "llama.cpp",
                    GOALS.get((precision, rows), 1.0), share_of_bandwidth=round(share, 2),
                )  # fmt: skip


if __name__ == "__main__":
    main()
