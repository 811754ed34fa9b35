"""llama.cpp as a library: a 32-token prompt per row, then greedy tokens, all rows in one batch.

    python benchmarks/llama_rate.py MODEL.gguf ROWS      a turn per line of standard input: {"prompts": …, "new": …}

Needs `pip install llama-cpp-python`, which builds llama.cpp for the processor of this machine.
"""

import argparse
import json
import sys
import time
from typing import Any

import llama_cpp

_SILENT = llama_cpp.llama_log_callback(lambda *_: None)  # kept: C holds its address


class Llama:
    def __init__(self, file: str, rows: int, *, tokens: int = 256, threads: int = 2) -> None:
        llama_cpp.llama_log_set(_SILENT, None)
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_load_from_file(file.encode(), llama_cpp.llama_model_default_params())
        settings: Any = llama_cpp.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_ubatch = rows * tokens, 512, 512
        settings.n_seq_max, settings.n_threads, settings.n_threads_batch = rows, threads, threads
        settings.kv_unified = False
        self.context = llama_cpp.llama_init_from_model(model, settings)
        self.sampler = llama_cpp.llama_sampler_init_greedy()
        self.batch: Any = llama_cpp.llama_batch_init(512, 0, 1)

    def decode(self, entries: list[tuple[int, int, int, bool]]) -> None:
        """Entries (token, position, row, whether its logits are wanted)."""
        batch = self.batch
        batch.n_tokens = len(entries)
        for place, (token, position, row, wanted) in enumerate(entries):
            batch.token[place], batch.pos[place], batch.logits[place] = token, position, wanted
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, row
        status = llama_cpp.llama_decode(self.context, batch)
        assert status == 0, f"llama_decode gave {status}"

    def generate(self, prompts: list[list[int]], new: int) -> list[list[int]]:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        found: list[list[int]] = [[] for _ in prompts]
        for row, prompt in enumerate(prompts):
            last = len(prompt) - 1
            self.decode([(token, place, row, place == last) for place, token in enumerate(prompt)])
            found[row].append(llama_cpp.llama_sampler_sample(self.sampler, self.context, last))
        for step in range(new - 1):
            entries = [(found[row][-1], len(prompt) + step, row, True) for row, prompt in enumerate(prompts)]
            self.decode(entries)
            for row in range(len(prompts)):
                found[row].append(llama_cpp.llama_sampler_sample(self.sampler, self.context, row))
        return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("rows", type=int)
    options = parser.parse_args()
    llama = Llama(options.model, options.rows)
    for line in sys.stdin:
        turn = json.loads(line)
        began = time.perf_counter()
        found = llama.generate(turn["prompts"], turn["new"])
        print(json.dumps({"seconds": time.perf_counter() - began, "tokens": found}), flush=True)


if __name__ == "__main__":
    main()
