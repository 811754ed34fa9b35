"""Streams: the same text as without, whatever is in it; slow readers, silence, late errors, clients that leave."""

import asyncio
import json
import random
import socket
import threading

import httpx2 as httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from running import Running, events

from weft.generate.job import News, TokenInfo
from weft.serve.completion_formats import AnswerHead, CompletionDetails, CompletionEvents
from weft.serve.disconnect import ClientGone
from weft.serve.errors import HTTPProblem, Unavailable
from weft.serve.limits import ServiceLimits
from weft.serve.stream import EventStream, StreamedAnswers
from weft.serve.token_text import TokenTexts

PIECES = [
    "a",
    "e",
    " the",
    "\n",
    "é",
    "爱",
    "🐇",
    "👨‍👩‍👧",
    "\u200b",
    "\x00",
    "\x7f",
    '"',
    "\\",
    "\u2028",
    "ld",
    "ust",
    "\ufffd",
]


@settings(max_examples=25)
@given(
    prompt=st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join),
    stop=st.lists(st.lists(st.sampled_from(PIECES), min_size=1, max_size=2).map("".join), max_size=3),
    seed=st.integers(0, 2**31),
)
def test_streamed_text_is_the_plain_text(running: Running, prompt: str, stop: list[str], seed: int):
    body = {"model": "story", "prompt": prompt, "stop": stop, "seed": seed, "max_tokens": 40, "n": 2}
    whole = running.post("/v1/completions", body).json()["choices"]
    found = events(running.post("/v1/completions", {**body, "stream": True}).text)
    for choice in whole:
        own = [one["choices"][0] for one in found if one["choices"][0]["index"] == choice["index"]]
        assert "".join(one["text"] for one in own) == choice["text"]
        assert own[-1]["finish_reason"] == choice["finish_reason"]
        assert not any(one in choice["text"] for one in stop)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_work(running: Running, stream: bool, monkeypatch: pytest.MonkeyPatch):
    engine = running.service.models["talk"].engine  # without a limit of its own
    cancelled = threading.Event()
    monkeypatch.setattr(engine, "cancel", lambda job, cancel=engine.cancel: (cancel(job), cancelled.set()))
    body = json.dumps(
        {"model": "talk", "prompt": "A", "max_tokens": 900, "ignore_eos": True, "n": 16, "stream": stream}
    )
    with socket.create_connection(("127.0.0.1", running.port)) as client:
        head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json"
        client.sendall(f"{head}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
        if stream:
            assert client.recv(100).startswith(b"HTTP/1.1 200")
        else:
            running.get("/health")  # the server has had a turn since
    assert cancelled.wait(60)
    assert running.service.models["talk"].writing.open_jobs == 0


def test_streams_go_on_while_others_leave(running: Running):
    """Each of many streams is left at a random place or read to its end; those that are read are whole."""

    async def read(client: httpx.AsyncClient, number: int) -> None:
        body = {"model": "story", "prompt": "So", "max_tokens": 30, "seed": number, "stream": True, "ignore_eos": True}
        leave_after = random.Random(number).choice([1, 3, None])
        lines = []
        async with client.stream("POST", f"{running.address}/v1/completions", json=body) as answer:
            assert answer.status_code == 200
            async for line in answer.aiter_lines():
                lines += [line] if line else []
                if len(lines) == leave_after:
                    return
        text = "".join(json.loads(line[6:])["choices"][0]["text"] for line in lines[:-1])
        assert text == running.post("/v1/completions", {**body, "stream": False}).json()["choices"][0]["text"]

    async def read_all() -> None:
        async with httpx.AsyncClient(timeout=60) as client:
            await asyncio.gather(*(read(client, number) for number in range(40)))

    asyncio.run(read_all())
    assert running.get("/ready").status_code == 200


class OneJob:
    """What a stream needs of a job."""

    n, prompt_ids, cached_tokens, prompt_log_probs, error = 1, [1, 2], 0, None, None


def heard(limits: ServiceLimits | None = None) -> tuple[StreamedAnswers, list[bool]]:
    job, cancelled = OneJob(), list[bool]()
    format = CompletionEvents(
        AnswerHead.new("m", "text_completion", "cmpl"), [job], CompletionDetails(TokenTexts(None, 9))
    )
    return StreamedAnswers([job], format, limits or ServiceLimits(), lambda: cancelled.append(True)), cancelled


def piece(text: str, finish: str | None = None) -> list[News]:
    return [News(0, text, [TokenInfo(1, -1.0)], finish)]


async def send_to(stream: EventStream, messages: list[dict], leaves: asyncio.Event | None = None) -> None:
    async def receive() -> dict:
        await (leaves or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: dict) -> None:
        messages.append(message)

    await stream({"type": "http"}, receive, send)


def test_news_that_are_pending_are_sent_in_one_write():
    async def run() -> None:
        answers, _ = heard()
        for text in ("a", "b"):
            answers.hear(answers.jobs[0], piece(text))
        answers.hear(answers.jobs[0], piece("c", "end"))
        messages, finished = [], []
        await send_to(EventStream(answers, lambda: finished.append(True)), messages)
        assert len(messages) == 3  # the head, all events, the end
        assert "".join(one["choices"][0]["text"] for one in events(messages[1]["body"].decode())) == "abc"
        assert finished == [True]

    asyncio.run(run())


def test_a_late_error_is_an_event():
    async def run() -> None:
        answers, cancelled = heard()
        answers.hear(answers.jobs[0], piece("a"))
        answers.fail(Unavailable("It is over."))
        messages = []
        await send_to(EventStream(answers, lambda: pytest.fail("it was not finished")), messages)
        last = messages[1]["body"].decode().split("\n\n")[-2]
        assert json.loads(last.removeprefix("data: "))["error"]["message"] == "It is over."
        assert cancelled

    asyncio.run(run())


def test_an_early_error_is_no_event():
    async def run() -> None:
        answers, _ = heard()
        answers.fail(HTTPProblem(503, "No."))
        with pytest.raises(HTTPProblem):
            await answers.begun

    asyncio.run(run())


def test_a_client_that_does_not_read_is_given_up():
    async def run() -> None:
        answers, cancelled = heard(ServiceLimits(pending_bytes=10_000))
        for _ in range(1_000):
            answers.hear(answers.jobs[0], piece("x" * 1_000))
        assert len(cancelled) >= 1
        assert len(await answers.next_bytes()) < 20_000

    asyncio.run(run())


def test_silence_is_broken_by_pings():
    async def run() -> None:
        answers, _ = heard(ServiceLimits(ping_seconds=0.01))
        answers.hear(answers.jobs[0], piece("a"))
        messages, leaves = [], asyncio.Event()
        sending = asyncio.create_task(send_to(EventStream(answers, lambda: None), messages, leaves))
        while not any(message.get("body") == b": ping\n\n" for message in messages):
            await asyncio.sleep(0)
        leaves.set()
        with pytest.raises(ClientGone):
            await sending

    asyncio.run(run())
