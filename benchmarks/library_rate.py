"""The rate of the library itself: the engine, driven in this process with so many jobs at a time.

python benchmarks/library_rate.py MODEL [--int8]      a turn per line of standard input, as load_client.py
"""

import argparse
import json
import sys
import time
from typing import Any

import weft


def measure(writer: Any, engine: Any, bodies: list[dict[str, Any]], clients: int) -> dict[str, Any]:
    ends = list(writer.reader.start_end.end_ids)
    waiting = iter(bodies)
    began, tokens = time.perf_counter(), 0

    def submit_next() -> None:
        if (body := next(waiting, None)) is not None:
            job = writer.job(
                body["prompt"], strategy="greedy", max_new_tokens=body["max_tokens"], banned=ends, streams=False
            )
            engine.submit(job)

    for _ in range(clients):
        submit_next()
    while engine.has_work:
        for job, news in engine.step():
            for answer in job.found if any(one.finish for one in news) else ():
                tokens += len(answer.tokens)
                submit_next()
    seconds = time.perf_counter() - began
    assert tokens == sum(body["max_tokens"] for body in bodies)
    return {"seconds": seconds, "tokens": tokens}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--int8", action="store_true")
    options = parser.parse_args()
    writer = weft.load(options.model).writer(int8=options.int8)
    engine = writer.engine(memory=2**31)
    for line in sys.stdin:
        turn = json.loads(line)
        print(json.dumps(measure(writer, engine, turn["bodies"], turn["clients"])), flush=True)


if __name__ == "__main__":
    main()
