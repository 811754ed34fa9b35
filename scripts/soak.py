"""A quarter of an hour among vandals: does a service keep its promises to those who behave?

    python scripts/soak.py [--seconds 900] [--cases 10000]

Good clients ask all the time and know the right answers. Beside them run the vandals of vandals.py, and
fuzz_service.py with wrong types in every field and random bodies. Claims: no 500, no wrong answer, no request that
gets none; afterwards no row, page or connection is in use, and neither memory nor open files have grown. Ends with 1 if
a claim does not hold.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

import weft
from small_service import (
    BOOK,
    Case,
    Server,
    Verdict,
    answered_alone,
    ask_again,
    bodies,
    connect,
    count_right,
    is_at_rest,
    metrics_of,
    start_weft,
    statuses_of,
    tells_of_errors,
    write_story,
)
from task_models import make, save
from vandals import VANDALS, Vandal
from weft.tasks.answer import Answer
from weft.tasks.classify import Classify
from weft.tasks.intent import Intent
from weft.tasks.pair import Pair
from weft.tasks.reply import Reply
from weft.tasks.rewrite import Summarize, Translate
from weft.tasks.similarity import Similarity
from weft.tasks.tag import Tag
from weft.tokenizer.train import train_tokenizer

TAGS = ("O", "B-PER", "I-PER")
TASKS: dict[str, tuple[Any, str]] = {
    "classify": (Classify(("bad", "good")), "bert"),
    "pair": (Pair(("no", "yes")), "bert"),
    "similarity": (Similarity(("score",)), "bert"),
    "tag": (Tag(TAGS, entities=True), "bert"),
    "answer": (Answer(), "bert"),
    "intent": (Intent((*TAGS, "intent:light", "intent:music")), "bert"),
    "translate": (Translate(head="seq2seq", beams=2, most_new=8), "t5"),
    "summarize": (Summarize(head="seq2seq", beams=1, most_new=8), "t5"),
    "reply": (Reply(head="causal", sample=True, most_new=8), "gpt2"),
}
GOOD_CLIENTS = 4
ANSWER_SECONDS = 180  # after which a request counts as stuck
REST_SECONDS = 90  # for a service to come to rest
MOST_GROWTH = 50 * 2**20
HEADER_SECONDS = 20  # a client that sends its headers so slowly must be gone


def write_models(place: Path) -> list[str]:
    """A small model for every task, with random weights."""
    found = [write_story(place / "story", layers=2, width=128)]
    found += [save(task, *make(task, family, 64), place / name) for name, (task, family) in TASKS.items()]
    tokenizer = train_tokenizer([BOOK], "wordpiece", 500, family="bert")
    weft.create("bert", layers=2, width=32, heads=2, tokenizer=tokenizer, positions=128).save(place / "mask")
    return [str(folder) for folder in (*found, place / "mask")]


class Soak:
    def __init__(self, server: Server, cases: list[Case], seconds: float) -> None:
        self.server, self.cases, self.end = server, cases, time.monotonic() + seconds
        self.answered = self.wrong = self.refused = 0
        self.longest = 0.0  # seconds for an answer to a good client
        self.visits: Counter[str] = Counter()
        self.oddities: list[str] = []
        self.slow_headers: list[float] = []
        self.megabytes: list[int] = []  # of memory, in the course of time
        self.is_fuzzing = True

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.end and not self.is_fuzzing

    async def good_client(self, number: int) -> None:
        chance, connection = random.Random(number), await connect(self.server.port)
        while not self.is_over:
            case = chance.choice(self.cases)
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    connection, answer = await ask_again(self.server.port, connection, case.request)
            except OSError as error:
                self.oddities.append(f"a good client: {error!r}")
                connection = await connect(self.server.port)
                continue
            if answer.status in (429, 503):
                self.refused += 1
                await asyncio.sleep(min(5, int(answer.header("retry-after") or 1)))
                continue
            self.answered += 1
            self.wrong += not case.is_answered_by(answer)
            self.longest = max(self.longest, answer.ended - answer.began)

    async def vandal(self, visit: Vandal, pause: float, seed: int) -> None:
        chance, name = random.Random(seed), visit.__name__
        while not self.is_over:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    seen = await visit(self.server.port, chance)
            except TimeoutError:
                seen = {"status": "stuck", "allowed": []}
            except OSError:  # the service hung up, which it may
                seen = {}
            self.visits[name] += 1
            if "allowed" in seen and seen["status"] not in (*seen["allowed"], 429, 503):
                self.oddities.append(f"{name}: {seen}")
            if "closed_after" in seen:
                self.slow_headers.append(seen["closed_after"])
            await asyncio.sleep(chance.uniform(0.5, 1.5) * pause)

    async def fuzz(self, cases: int) -> dict[str, Any]:
        command = [sys.executable, str(Path(__file__).with_name("fuzz_service.py")), str(self.server.port)]
        process = await asyncio.create_subprocess_exec(
            *command, "--cases", str(cases), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        said, complaint = await process.communicate()
        self.is_fuzzing = False
        assert process.returncode == 0, complaint.decode()[-4000:]
        found: dict[str, Any] = json.loads(said.splitlines()[-1])
        return found

    async def watch_memory(self, seconds: float) -> None:
        while not self.is_over:
            self.megabytes.append(self.server.memory >> 20)
            await asyncio.sleep(seconds)

    async def run(self, cases: int) -> dict[str, Any]:
        watch = asyncio.create_task(self.watch_memory(max(1.0, (self.end - time.monotonic()) / 20)))
        fuzz = asyncio.create_task(self.fuzz(cases))
        tasks = [asyncio.create_task(self.good_client(number)) for number in range(GOOD_CLIENTS)]
        tasks += [
            asyncio.create_task(self.vandal(visit, pause, seed)) for seed, (visit, pause) in enumerate(VANDALS.items())
        ]
        await asyncio.gather(*tasks, fuzz)
        watch.cancel()
        return fuzz.result()


async def come_to_rest(port: int) -> bool:
    end = time.monotonic() + REST_SECONDS
    while not is_at_rest(await metrics_of(port)):
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.5)
    return True


async def judge(server: Server, options: argparse.Namespace, verdict: Verdict) -> None:
    process = psutil.Process(server.process.pid)
    cases = await answered_alone(server.port, bodies(60, 0))
    warm_up = Soak(server, cases, options.warm_up)
    await warm_up.run(min(options.cases, 500))
    await come_to_rest(server.port)
    memory, files, threads = server.memory, process.num_fds(), process.num_threads()

    soak = Soak(server, cases, options.seconds)
    fuzzed = await soak.run(options.cases)
    sent = sum(fuzzed["statuses"].values())
    verdict.claim("Wrong types and random bodies: no 500", not fuzzed["faults"], requests=sent, **fuzzed)
    odd = soak.oddities + warm_up.oddities
    verdict.claim("Vandals are refused as they should be", not odd, visits=dict(soak.visits), odd=odd[:10])
    slowest = max(soak.slow_headers, default=0)
    verdict.claim("Slow headers are ended", slowest < HEADER_SECONDS, slowest_headers=slowest)
    verdict.claim(
        "Good clients get right answers throughout",
        soak.answered > 0 and not soak.wrong,
        answered=soak.answered,
        wrong=soak.wrong,
        refused_for_now=soak.refused,
        longest=round(soak.longest, 2),
    )
    verdict.claim("No row, request or page is stuck", await come_to_rest(server.port))
    grown = server.memory - memory
    facts: dict[str, Any] = {"grown_mb": round(grown / 2**20, 1), "megabytes": soak.megabytes}
    verdict.claim("The memory has not grown", grown < MOST_GROWTH, **facts)
    facts = {"files": [files, process.num_fds()], "threads": [threads, process.num_threads()]}
    verdict.claim("Neither open files nor threads have grown", process.num_fds() <= files + 5, **facts)
    statuses = await statuses_of(server.port)
    verdict.claim("The service itself counted no 500", not statuses.get("500"), counted=statuses)
    right = await count_right(server.port, cases)
    verdict.claim("Afterwards, all answers are right", right == len(cases))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--cases", type=int, default=10_000, help="requests of fuzz_service.py")
    parser.add_argument("--warm-up", type=float, default=60, help="seconds before memory is measured")
    options = parser.parse_args()
    verdict = Verdict()
    # Little memory for pages, so that it is all in use before it is measured.
    with (
        tempfile.TemporaryDirectory() as place,
        start_weft(*write_models(Path(place)), "--memory", "40MB") as server,
    ):
        asyncio.run(judge(server, options, verdict))
        said = server.said
    verdict.claim("The service told of no error", not tells_of_errors(said), said=said[-1000:])
    verdict.exit()


if __name__ == "__main__":
    main()
