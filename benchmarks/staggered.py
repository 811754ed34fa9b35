"""What it costs that texts of a batch do not end together: 32 rows in the engine, two ways against ending together.

    python benchmarks/staggered.py [--rounds 7] [--new 128] [--quick]

One by one, others join: a row ends every few steps and the next prompt takes its place, so the batch stays full. It is
compared with batches that begin and end together; both write as many tokens and read as many prompts.

One by one, nobody joins: the batch becomes smaller and smaller. It is compared with the sum of its steps' times, each
measured in a batch of that size which has not changed since its beginning.
"""

import argparse
import random
import time
from collections.abc import Sequence

import weft
from contest import report
from served_llama import LAYERS, POSITIONS, VOCABULARY, WIDTH
from weft.generate.writer import Writer

ROWS, PROMPT = 32, 16


class Batches:
    """Jobs with prompts that nobody had before: a prompt that is known is not read again."""

    def __init__(self, writer: Writer) -> None:
        self.writer, self.engine = writer, writer.engine(rows=ROWS)
        self.chance = random.Random(0)

    def submit(self, new_tokens: int) -> None:
        prompt = [self.chance.randrange(1, VOCABULARY) for _ in range(PROMPT)]
        ends = list(self.writer.reader.start_end.end_ids)
        self.engine.submit(
            self.writer.job(prompt, strategy="greedy", max_new_tokens=new_tokens, banned=ends, streams=False)
        )

    def drop_all(self) -> None:
        """Cancels what runs and waits."""
        engine = self.engine
        for job in {answer.job for answer in engine._running}:
            engine.cancel(job)
        while engine.has_work:
            engine.step()


def together(batches: Batches, new: int, waves: int) -> float:
    """Tokens per second."""
    began = time.perf_counter()
    for _ in range(waves):
        for _ in range(ROWS):
            batches.submit(new)
        while batches.engine.has_work:
            batches.engine.step()
    return waves * ROWS * new / (time.perf_counter() - began)


def joined(batches: Batches, new: int, waves: int) -> float:
    """Rows in every stage of their text, from the beginning; measured until as many tokens are written."""
    engine, wanted = batches.engine, waves * ROWS * new
    for row in range(ROWS):
        batches.submit((row + 1) * new // ROWS)
    before = engine.load.generated_tokens
    began = time.perf_counter()
    while (written := engine.load.generated_tokens - before) < wanted:
        for _, news in engine.step():
            for _ in [one for one in news if one.finish is not None]:
                batches.submit(new)
    rate = written / (time.perf_counter() - began)
    batches.drop_all()
    return rate


def step_times(batches: Batches, lengths: Sequence[int]) -> list[float]:
    """Seconds of each step that writes. The first, which reads the prompts, is left out."""
    for length in lengths:
        batches.submit(length)
    engine, times = batches.engine, []
    while engine.has_work:
        began = time.perf_counter()
        engine.step()
        times.append(time.perf_counter() - began)
    return times[-(max(lengths) - 1) :]


def shrinking(batches: Batches, new: int) -> tuple[float, float]:
    """Tokens per second of a batch that shrinks, and at the times of unchanged batches of the same sizes."""
    lengths = [(row + 1) * new // ROWS for row in range(ROWS)]
    tokens = sum(lengths) - ROWS
    expected, known = 0.0, {}
    for step in range(1, new):  # step 0 is that of the prompts
        size = sum(length > step for length in lengths)
        if size not in known:
            last = max(length for length in lengths if sum(other >= length for other in lengths) >= size)
            known[size] = step_times(batches, [last] * size)
        expected += known[size][step - 1]
    took = sum(step_times(batches, lengths))
    return tokens / took, tokens / expected


def compare(writer: Writer, kind: str, rounds: int, new: int, waves: int) -> None:
    batches = Batches(writer)
    together(batches, min(new, 32), 1)
    rates: dict[str, list[float]] = {name: [] for name in ("together", "joined", "shrinking", "unchanged")}
    for turn in range(rounds):
        contests = [("together", together), ("joined", joined)]
        for name, run in contests if turn % 2 else reversed(contests):
            rates[name].append(run(batches, new, waves))
        shrunk, unchanged = shrinking(batches, new)
        rates["shrinking"].append(shrunk)
        rates["unchanged"].append(unchanged)
    what = f"{ROWS} rows that end one by one{kind}"
    both = {"weft": rates["joined"], "ending together": rates["together"]}
    report(f"{what}, others join", both, "ending together", 0.9)
    both = {"weft": rates["shrinking"], "unchanged batches": rates["unchanged"]}
    report(f"{what}, nobody joins", both, "unchanged batches", 0.9)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--new", type=int, default=128, help="tokens of the longest text; a multiple of 32")
    parser.add_argument("--data", help="ignored; all benchmarks accept it")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    rounds, new, waves = (1, 64, 2) if options.quick else (options.rounds, options.new, 4)
    model = weft.create(
        "llama", layers=LAYERS, width=WIDTH, heads=WIDTH // 64, vocabulary=VOCABULARY, positions=POSITIONS, seed=0
    )
    for kind, int8 in (("", False), (", int8", True)):
        compare(model.writer(int8=int8), kind, rounds, new, waves)


if __name__ == "__main__":
    main()
