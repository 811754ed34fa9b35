"""Four times as many requests as a service can answer, for two minutes.

    python scripts/overload.py [--seconds 120] [--times 4] [--int8]

First its capacity: as many clients as the engine has rows, each with its next request when it has an answer. Then
requests come at a fixed rate, whether or not earlier ones are answered. Claims: every answer is 200 or 429 with
Retry-After; the 99th percentile of the admitted ones is at most three times that at capacity; the memory of 10,000
requests grows by less than 50 MB; every single answer, before, during and after, is that of the same request asked
alone.
Ends with 1 if a claim does not hold.
"""

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from small_service import (
    Answer,
    Case,
    Connection,
    Server,
    Verdict,
    answered_alone,
    ask_again,
    bodies,
    closed_loop,
    connect,
    count_right,
    is_at_rest,
    metrics_of,
    quantile,
    start_weft,
    tells_of_errors,
    write_story,
)

ROWS = 64  # of the engine
MOST_GROWTH = 50 * 2**20
ENOUGH_REQUESTS = 10_000
ANSWER_SECONDS = 120  # after which a request counts as stuck


class OpenLoop:
    """Requests at a fixed rate, each over a connection that is free, or a new one."""

    def __init__(self, port: int, cases: Iterator[Case]) -> None:
        self.port, self.cases = port, cases
        self.free: list[Connection] = []
        self.statuses: Counter[int | str] = Counter()
        self.latencies: list[float] = []  # of admitted requests, from the moment they were due
        self.lateness: list[float] = []  # of sending
        self.wrong = self.without_retry_after = 0

    async def run(self, rate: float, seconds: float) -> None:
        tasks, began = set(), time.perf_counter()
        for number in range(int(rate * seconds)):
            due = began + number / rate
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            task = asyncio.create_task(self._ask(next(self.cases), due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
        for connection in self.free:
            connection.transport.close()

    async def _ask(self, case: Case, due: float) -> None:
        connection = self.free.pop() if self.free else await connect(self.port)
        self.lateness.append(time.perf_counter() - due)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                connection, answer = await ask_again(self.port, connection, case.request)
        except OSError as error:  # also the timeout
            self.statuses[type(error).__name__] += 1
            return
        self._judge(case, answer, due)
        if connection.is_open:
            self.free.append(connection)

    def _judge(self, case: Case, answer: Answer, due: float) -> None:
        self.statuses[answer.status] += 1
        if answer.status == 200:
            self.latencies.append(answer.ended - due)
            self.wrong += not case.is_answered_by(answer)
        elif answer.status == 429:
            self.without_retry_after += not (answer.header("retry-after") or "").isdigit()


async def watch_memory(server: Server, seen: list[int]) -> None:
    while True:
        seen.append(server.memory)
        await asyncio.sleep(0.5)


async def judge(server: Server, options: argparse.Namespace, verdict: Verdict) -> None:
    cases = await answered_alone(server.port, bodies(options.cases, 0))
    endless = cycle(cases)
    await closed_loop(server.port, [next(endless).request for _ in range(4 * ROWS)], ROWS)  # warm-up

    began, asked = time.perf_counter(), [next(endless) for _ in range(options.capacity_requests)]
    answers = await closed_loop(server.port, [case.request for case in asked], ROWS)
    capacity = len(answers) / (time.perf_counter() - began)
    usual = quantile((answer.ended - answer.began for answer in answers), 0.99)
    right = sum(case.is_answered_by(answer) for case, answer in zip(asked, answers, strict=True))
    verdict.claim(
        "At capacity, all answers are right",
        right == len(answers),
        requests_per_second=round(capacity, 1),
        p99_at_capacity=round(usual, 2),
    )

    rate, before, seen = options.times * capacity, server.memory, []
    seconds = max(options.seconds, ENOUGH_REQUESTS / rate if options.seconds >= 60 else 0)
    watching = asyncio.create_task(watch_memory(server, seen))
    loop = OpenLoop(server.port, endless)
    await loop.run(rate, seconds)
    watching.cancel()
    judge_overload(loop, verdict, usual, seconds)

    grown = max(seen) - before
    facts = {"requests": sum(loop.statuses.values()), "megabytes": round(before / 2**20)}
    verdict.claim("The memory grows by less than 50 MB", grown < MOST_GROWTH, grown_mb=round(grown / 2**20, 1), **facts)
    right = await count_right(server.port, cases)
    verdict.claim("Afterwards, all answers are right", right == len(cases), right=f"{right} of {len(cases)}")
    verdict.claim("Afterwards, no row, request or page is in use", is_at_rest(await metrics_of(server.port)))


def judge_overload(loop: OpenLoop, verdict: Verdict, usual: float, seconds: float) -> None:
    statuses = {str(status): count for status, count in sorted(loop.statuses.items(), key=str)}
    verdict.claim("Nothing but 200 and 429", set(loop.statuses) <= {200, 429}, statuses=statuses)
    verdict.claim("The load was an overload", loop.statuses[429] > 0, late_p99=round(quantile(loop.lateness, 0.99), 3))
    verdict.claim("Every 429 says when to try again", not loop.without_retry_after)
    verdict.claim("Admitted requests are answered rightly", not loop.wrong and loop.statuses[200] > 0, wrong=loop.wrong)
    worst = quantile(loop.latencies, 0.99)
    verdict.claim(
        "p99 of the admitted is within 3 times that at capacity",
        worst <= 3 * usual,
        p99=round(worst, 2),
        times=round(worst / usual, 2),
        answered_per_second=round(loop.statuses[200] / seconds, 1),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--times", type=float, default=4, help="the capacity")
    parser.add_argument("--cases", type=int, default=200, help="different requests")
    parser.add_argument("--capacity-requests", type=int, default=1000)
    parser.add_argument("--int8", action="store_true")
    options = parser.parse_args()
    verdict = Verdict()
    with tempfile.TemporaryDirectory() as place:
        folder = write_story(Path(place) / "story")
        # Pages that are no longer used are kept for prompts that begin alike, up to the memory for them; with little of
        # it, that growth is over before the overload.
        with start_weft(folder, "--memory", "128MB", *(["--int8"] if options.int8 else [])) as server:
            asyncio.run(judge(server, options, verdict))
            said = server.said
    verdict.claim("The service told of no error", not tells_of_errors(said))
    verdict.exit()


if __name__ == "__main__":
    main()
