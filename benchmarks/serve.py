"""Services that write, over HTTP, with the same weights: weft, llama.cpp's server and `transformers serve`.

    python benchmarks/serve.py [--clients 1 4 16 64] [--rounds 5] [--requests 3] [--contestants …] [--quick]

Clients in a closed loop, each with a connection, ask for streamed greedy answers; all services get the same requests.
weft with int8 weights races llama.cpp with q8_0, weft in float32 races transformers, and both race the library's own
engine without HTTP. The services take turns for several rounds; those that wait take no processor time. Beside tokens
per second stands the time to the first token. `transformers serve` runs with or without continuous batching, whichever
is faster in the warm-up.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import weft
from contest import report
from gguf_llama import F32, write_gguf
from load_client import closed_loop, post
from served_llama import Request, Requests, books_of, without_end, write_llama
from servers import HERE, Server, start_llama, start_transformers, start_weft

INT8, FP32, LLAMA, PLAIN, BATCHING = "weft int8", "weft", "llama-server", "transformers serve", "transformers, batching"
LIBRARY_INT8, LIBRARY = "library int8", "library"
CONTESTANTS = (INT8, FP32, LLAMA, PLAIN, BATCHING, LIBRARY_INT8, LIBRARY)
ROUTE = "/v1/completions"
GOALS = {16: 1.5, 64: 1.5}  # against llama-server; 1 at other loads


@dataclass(frozen=True)
class Turn:
    rate: float  # new tokens per second
    first: list[float]  # seconds to the first token
    client_share: float  # of a core, for the load itself
    idle_share: float  # of a core, for services that wait

    @property
    def p95(self) -> float:
        return quantile(self.first, 0.95)


class Pipe:
    """A process that reads a turn as a line of JSON and answers with a line."""

    def __init__(self, script: str, *given: str) -> None:
        command = [sys.executable, str(HERE / script), *given]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, turn: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(turn) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"{self.process.args} ended"
        found: dict[str, Any] = json.loads(line)
        return found

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def body_for(name: str, request: Request) -> dict[str, Any]:
    asked = {"max_tokens": request.new_tokens, "temperature": 0.0, "stream": True}
    if name in (PLAIN, BATCHING):  # takes a text only, and always sends the usage
        return {**asked, "prompt": request.text}
    usage = {"stream_options": {"include_usage": True}, "ignore_eos": True}
    only = {"cache_prompt": False} if name == LLAMA else {}
    return {**asked, **usage, **only, "prompt": request.tokens}


class Contest:
    """All services, started once."""

    def __init__(self, started: dict[str, Server | Pipe], load: Pipe, names: dict[str, str]) -> None:
        """`names`: of the model, where a service needs it."""
        self.started, self.load, self.names = started, load, names

    def turn(self, name: str, requests: list[Request], clients: int) -> Turn:
        service = self.started[name]
        bodies = [body_for(name, request) for request in requests]
        bodies = [{"model": self.names[name], **body} for body in bodies] if name in self.names else bodies
        others = [one for one in self.started.values() if one is not service and isinstance(one, Server)]
        before = sum(one.cpu_seconds for one in others)
        if isinstance(service, Server):
            found = self.load.ask({"port": service.port, "path": ROUTE, "bodies": bodies, "clients": clients})
        else:
            found = service.ask({"bodies": bodies, "clients": clients})
        seconds = found["seconds"]
        idle = (sum(one.cpu_seconds for one in others) - before) / seconds
        return Turn(found["tokens"] / seconds, found.get("first", []), found.get("client_seconds", 0) / seconds, idle)


@contextmanager
def started_contest(folder: Path, place: Path, contestants: list[str], slots: int) -> Iterator[Contest]:
    copy = without_end(folder, place / "without-end")
    file = write_gguf(folder, place / "q8_0.gguf")
    starts: dict[str, Callable[[], Server | Pipe]] = {
        INT8: lambda: start_weft(folder, "--int8"),
        FP32: lambda: start_weft(folder),
        LLAMA: lambda: start_llama(file, slots),
        PLAIN: lambda: start_transformers(copy),
        BATCHING: lambda: start_transformers(copy, "--continuous-batching"),
        LIBRARY_INT8: lambda: Pipe("library_rate.py", str(folder), "--int8"),
        LIBRARY: lambda: Pipe("library_rate.py", str(folder)),
    }
    with ExitStack() as ends:
        load = Pipe("load_client.py")
        ends.callback(load.stop)
        started = {}
        for name in contestants:
            started[name] = starts[name]()
            ends.callback(started[name].stop)
        yield Contest(started, load, dict.fromkeys((PLAIN, BATCHING), str(copy)))


def check_same_weights(model: weft.Model, folder: Path, place: Path, requests: list[Request]) -> None:
    """llama.cpp must write the same tokens as weft, from a file of the same weights in float32. Quantized to q8_0 they
    are nearly the same weights, but a model with random weights soon writes another token.
    """
    new = 16
    ours = [model.generate(one.tokens, strategy="greedy", max_new_tokens=new, min_new_tokens=new) for one in requests]
    shares = {}
    for precision, options in ((F32, ["--exact"]), (None, [])):
        file = write_gguf(folder, place / "check.gguf", *([precision] if precision is not None else []))
        body = {"n_predict": new, "temperature": 0.0, "ignore_eos": True, "cache_prompt": False, "return_tokens": True}
        posts = [post("/completion", {**body, "prompt": one.tokens}) for one in requests]
        with start_llama(file, 1, *options) as server:
            answers = asyncio.run(closed_loop(server.port, posts, 1))
        theirs = [answer.events[0]["tokens"] for answer in answers]
        equal = [mine == other for a, b in zip(ours, theirs, strict=True) for mine, other in zip(a, b, strict=True)]
        shares["f32" if precision is not None else "q8_0"] = statistics.mean(equal)
    print(f"# llama.cpp writes weft's tokens: {shares['f32']:.0%} in f32, {shares['q8_0']:.0%} in q8_0", flush=True)
    assert shares["f32"] > 0.9, "llama.cpp has other weights"


def quantile(numbers: list[float], share: float) -> float:
    ordered = sorted(numbers)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def race_services(contest: Contest, make: Requests, clients: int, rounds: int, count: int) -> dict[str, list[Turn]]:
    names = list(contest.started)
    warm_up = {name: contest.turn(name, make(clients, f"warm-up {clients}"), clients) for name in names}
    if PLAIN in names and BATCHING in names:
        slower = min(PLAIN, BATCHING, key=lambda name: warm_up[name].rate)
        print(f"# {clients} clients: {slower} is the slower one, {warm_up[slower].rate:.0f} tokens/s", flush=True)
        names.remove(slower)
    turns: dict[str, list[Turn]] = {name: [] for name in names}
    for number in range(rounds):
        requests = make(count, f"{clients} {number}")
        for name in names if number % 2 else reversed(names):  # so that nobody always goes first
            turns[name].append(contest.turn(name, requests, clients))
    return turns


def report_all(turns: dict[str, list[Turn]], clients: int) -> None:
    load = f"{clients} client{'s' if clients > 1 else ''}"
    for ours, kind, library in ((INT8, ", int8", LIBRARY_INT8), (FP32, "", LIBRARY)):
        if ours not in turns:
            continue
        if library in turns:
            report_rate(f"serving{kind}, {load}, the engine without HTTP", turns, ours, library, "library", 0.9)
        if ours == INT8 and LLAMA in turns:
            goal = GOALS.get(clients, 1.0)
            report_rate(f"serving, int8 against q8_0, {load}", turns, ours, LLAMA, "llama-server", goal)
            report_first(f"time to first token, int8 against q8_0, {load}, 95 %", turns, ours, LLAMA)
        peer = next((name for name in (PLAIN, BATCHING) if name in turns), None)
        if ours == FP32 and peer is not None:
            facts = {"continuous_batching": peer == BATCHING}
            report_rate(f"serving, float32, {load}", turns, ours, peer, "transformers serve", 2.5, **facts)


def report_rate(
    what: str, turns: dict[str, list[Turn]], ours: str, theirs: str, peer: str, goal: float, **facts: Any
) -> None:
    rates = {"weft": [turn.rate for turn in turns[ours]], peer: [turn.rate for turn in turns[theirs]]}
    both = {"weft": turns[ours], peer: turns[theirs]}
    firsts = {
        f"first_token_ms_p{percent}": {
            name: round(1000 * quantile([second for turn in its for second in turn.first], percent / 100))
            for name, its in both.items()
            if its[0].first
        }
        for percent in (50, 95)
    }
    shares = {
        "client_cpu": round(max(turn.client_share for turn in turns[ours]), 3),
        "idle_cpu": round(max(turn.idle_share for its in both.values() for turn in its), 3),
    }
    report(what, rates, peer, goal, **firsts, **shares, **facts)


def report_first(what: str, turns: dict[str, list[Turn]], ours: str, theirs: str) -> None:
    """Times of all rounds together; the spread is that of single rounds. A ratio above 1: weft is sooner."""
    pooled = {
        name: quantile([second for turn in turns[name] for second in turn.first], 0.95) for name in (ours, theirs)
    }
    ratios = [their.p95 / our.p95 for our, their in zip(turns[ours], turns[theirs], strict=True)]
    ratio = pooled[theirs] / pooled[ours]
    line = {
        "benchmark": what,
        "unit": "ms",
        "weft": round(1000 * pooled[ours]),
        "llama-server": round(1000 * pooled[theirs]),
        "ratio": round(ratio, 2),
        "spread": [round(min(ratios), 2), round(max(ratios), 2)],
        "at_least": 1.0,
        "reached": ratio >= 1.0,
    }
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=3, help="of each client in a round; at least 8 in all")
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--quick", action="store_true", help="one round with few requests")
    options = parser.parse_args()
    clients = [1, 4] if options.quick else options.clients
    # llama.cpp's threads wait actively: on a machine with other work it falls to a tenth of its rate.
    print(f"# other processes take {psutil.cpu_percent(2):.0f} % of the machine", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        books = books_of(options.data, place)
        model = write_llama(place / "llama", books)
        make = Requests(model.tokenizer, books[-1])
        if LLAMA in options.contestants:
            check_same_weights(model, place / "llama", place, make(8, "check"))
        with started_contest(place / "llama", place, options.contestants, max(clients)) as contest:
            for name in options.contestants:  # some prepare much at the first request
                contest.turn(name, make(1, "first"), 1)
            for load in clients:
                count = load if options.quick else max(8, options.requests * load)
                rounds = 1 if options.quick else options.rounds
                report_all(race_services(contest, make, load, rounds, count), load)


if __name__ == "__main__":
    main()
