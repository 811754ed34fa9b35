"""A small service for the scripts that mistreat one: its model, requests with known answers, its metrics.

An answer depends on its request alone, whatever else is served. So each request is asked once while nobody else is
there, and every later answer to it must be the same text.
"""

# ruff: noqa: E402 (the benchmarks' modules are found after their folder is named)

import json
import random
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "tests")]

import weft
from load_client import Answer, Connection, ask_again, closed_loop, connect, get, post
from servers import Server, start_weft
from weft.tokenizer.train import train_tokenizer

__all__ = ["ROOT", "Answer", "Connection", "Server", "ask_again", "closed_loop", "connect", "get", "post", "start_weft"]

BOOK = ROOT / "examples" / "alice.txt"
ROUTE = "/v1/completions"
POSITIONS = 256


def write_story(folder: Path, layers: int = 4, width: int = 256, positions: int = POSITIONS) -> Path:
    """A Llama with random weights and the vocabulary of a book."""
    tokenizer = train_tokenizer([BOOK], "bpe", 1000, family="gpt2")
    shape = {"layers": layers, "width": width, "heads": width // 32, "positions": positions}
    weft.create("llama", seed=1, tokenizer=tokenizer, **shape).save(folder)
    return folder


@dataclass(frozen=True)
class Case:
    """A request, and the texts of its answer."""

    body: dict[str, Any]
    request: bytes
    texts: tuple[str, ...] = ()

    def is_answered_by(self, answer: Answer) -> bool:
        return answer.status == 200 and texts_of(answer) == self.texts


def bodies(count: int, seed: int, new_tokens: tuple[int, int] = (16, 64)) -> list[dict[str, Any]]:
    """Greedy and seeded sampling, whole and streamed, one answer and two, with and without a stop string."""
    chance, text = random.Random(seed), BOOK.read_text("utf-8")
    found = []
    for number in range(count):
        begin = chance.randrange(len(text) - 200)
        body: dict[str, Any] = {"prompt": text[begin : begin + chance.randint(10, 200)], "ignore_eos": True}
        body |= {"model": "story", "max_tokens": chance.randint(*new_tokens), "temperature": 0.0}
        if number % 2:
            body |= {
                "temperature": chance.choice([0.7, 1.0]),
                "seed": chance.randrange(2**31),
                "n": number % 8 // 4 + 1,
            }
        body |= {"stream": True} if number % 4 == 3 else {}
        body |= {"stop": ["e "]} if number % 16 == 5 else {}
        found.append(body)
    return found


def texts_of(answer: Answer) -> tuple[str, ...]:
    texts: dict[int, str] = {}
    for event in answer.events:
        for choice in event.get("choices", ()):
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return tuple(texts[index] for index in sorted(texts))


async def answered_alone(port: int, asked: Iterable[dict[str, Any]]) -> list[Case]:
    listed = list(asked)
    requests = [post(ROUTE, body) for body in listed]
    answers = await closed_loop(port, requests, 1)
    assert all(answer.status == 200 for answer in answers), [answer.content[:300] for answer in answers][:3]
    return [
        Case(body, request, texts_of(answer)) for body, request, answer in zip(listed, requests, answers, strict=True)
    ]


async def count_right(port: int, cases: list[Case], clients: int = 1) -> int:
    answers = await closed_loop(port, [case.request for case in cases], clients)
    return sum(case.is_answered_by(answer) for case, answer in zip(cases, answers, strict=True))


async def metric_lines(port: int) -> list[tuple[str, str, float]]:
    """Name, labels and value of each metric."""
    connection = await connect(port)
    answer = await connection.ask(get("/metrics"))
    connection.transport.close()
    found = []
    for line in answer.content.decode().splitlines():
        if line and not line.startswith("#"):
            what, _, value = line.rpartition(" ")
            name, _, labels = what.partition("{")
            found.append((name, labels, float(value)))
    return found


async def metrics_of(port: int) -> dict[str, float]:
    """The sum over all labels of each metric."""
    found: dict[str, float] = {}
    for name, _, value in await metric_lines(port):
        found[name] = found.get(name, 0.0) + value
    return found


async def statuses_of(port: int) -> dict[str, int]:
    """How many requests the service has answered with each status."""
    found: dict[str, int] = {}
    for name, labels, value in await metric_lines(port):
        if name == "weft_http_requests_total":
            status = labels.partition('status="')[2].partition('"')[0]
            found[status] = found.get(status, 0) + int(value)
    return found


BUSY = ("weft_num_requests_running", "weft_num_requests_waiting", "weft_kv_cache_usage_perc")


def is_at_rest(metrics: dict[str, float]) -> bool:
    """No row, no waiting request and no page in use; the only request is the one for the metrics."""
    return all(metrics[name] == 0 for name in BUSY) and metrics["weft_http_requests_running"] <= 1


def tells_of_errors(said: str) -> bool:
    """Whether a service printed a traceback, or that a request ended in an error of its own."""
    return "Traceback" in said or any(line.startswith("weft: req-") for line in said.splitlines())


class Verdict:
    """Claims that were tried, each printed when it is; the whole as a line of JSON."""

    def __init__(self) -> None:
        self.claims: dict[str, bool] = {}
        self.facts: dict[str, Any] = {}

    def claim(self, what: str, holds: bool, **facts: Any) -> None:
        self.claims[what] = holds
        self.facts |= facts
        shown = ", ".join(f"{name} {value}" for name, value in facts.items())
        print(f"{'yes' if holds else 'NO '}  {what}{f': {shown}' if shown else ''}", flush=True)

    def exit(self) -> None:
        """With 1 if a claim does not hold."""
        print(json.dumps({"holds": all(self.claims.values()), "claims": self.claims, **self.facts}), flush=True)
        sys.exit(not all(self.claims.values()))


def quantile(numbers: Iterable[float], share: float) -> float:
    ordered = sorted(numbers)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
