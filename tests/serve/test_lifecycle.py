"""The command from its first line to its last signal, and a compute thread that dies."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2 as httpx
import pytest
from running import Running, events, serving

import weft
from random_models import make_random
from weft.cli import main
from weft.errors import InputError
from weft.serve.arguments import named_folders, parse_bytes
from weft.serve.limits import ServiceLimits
from weft.serve.worker import Worker

Start = Callable[..., tuple[subprocess.Popen, str]]


@pytest.fixture
def start(models: dict[str, weft.Model], tmp_path: Path) -> Iterator[Start]:
    """Starts `weft serve` with a model folder. Returns the process and its address."""
    processes = []

    def begin(*options: str) -> tuple[subprocess.Popen, str]:
        models["story"].save(tmp_path / "runs/tale/model")
        command = [sys.executable, "-m", "weft", "serve", str(tmp_path / "runs/tale/model"), "--port", "0", *options]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        processes.append(process)
        said = ""
        while not (found := re.search(r"serves (\S+) at (http://\S+)", said)):
            line = process.stderr.readline()
            assert line, said
            said += line
        assert found[1] == "tale"
        return process, found[2]

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


class Reader(threading.Thread):
    """Reads a long stream. `begun` is set at its first event."""

    def __init__(self, address: str, seed: int) -> None:
        super().__init__()
        self.address, self.begun, self.text = address, threading.Event(), ""
        self.body = {"prompt": "So", "max_tokens": 250, "ignore_eos": True, "seed": seed, "stream": True}

    def run(self) -> None:
        with (
            contextlib.suppress(httpx.RemoteProtocolError),  # cut off
            httpx.stream("POST", f"{self.address}/v1/completions", json=self.body, timeout=60) as answer,
        ):
            for piece in answer.iter_text():
                self.text += piece
                self.begun.set()


def test_sigterm_loses_no_request_that_was_admitted(start: Start, models: dict[str, weft.Model], tmp_path: Path):
    process, address = start()
    shutil.rmtree(tmp_path / "runs")  # a model is in memory once it is loaded
    readers = [Reader(address, seed) for seed in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        assert reader.begun.wait(60)
    process.send_signal(signal.SIGTERM)
    for reader in readers:
        reader.join()
        found = events(reader.text)  # complete, to its [DONE]
        expected = models["story"].generate(
            "So", max_new_tokens=250, banned=list(end_ids(models)), strategy="sample", seed=reader.body["seed"]
        )
        assert "".join(one["choices"][0]["text"] for one in found) == expected
    assert process.wait(60) == 0
    assert "Traceback" not in process.stderr.read()


def end_ids(models: dict[str, weft.Model]) -> tuple[int, ...]:
    return models["story"].writer().reader.start_end.end_ids


def test_a_second_signal_stops_at_once(start: Start):
    process, address = start()
    reader = Reader(address, 1)
    reader.body |= {"n": 64}
    reader.start()
    assert reader.begun.wait(60)
    process.send_signal(signal.SIGINT)
    while "second signal" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    assert process.wait(60) in (0, 1)  # 0: all of it was finished in the meantime
    reader.join()


def test_what_takes_too_long_when_stopping_is_told(models: dict[str, weft.Model]):
    with serving({"talk": models["talk"]}, ServiceLimits(shutdown_seconds=0)) as running:
        reader = Reader(running.address, 1)
        reader.body |= {"n": 32, "max_tokens": 900}
        reader.start()
        assert reader.begun.wait(60)
        running.server.should_exit = True
        reader.join()
    last = reader.text.split("\n\n")[-2].removeprefix("data: ")
    assert last == "[DONE]" or json.loads(last)["error"]["type"] == "service_unavailable"


def test_what_the_user_got_wrong_is_a_sentence(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    def said(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["weft", "serve", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        text = capsys.readouterr().err
        assert text.count("\n") == 1
        return text

    assert "--api-key-file" in said(str(tmp_path), "--host", "0.0.0.0")
    assert "in use" in said(str(tmp_path), "--port", str(running.port))
    assert "nothing" in said(str(tmp_path / "nothing"), "--port", "0")
    assert "2GB" in said(str(tmp_path), "--memory", "much")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert 'pip install "weft[serve]"' in said(str(tmp_path))


def test_names_of_models(tmp_path: Path):
    folder = tmp_path / "runs/x/model"
    folder.mkdir(parents=True)
    assert named_folders([str(folder), f"y={folder}", str(tmp_path)]) == {
        "x": folder,
        "y": folder,
        tmp_path.name: tmp_path,
    }
    with pytest.raises(InputError, match="Two models are named x"):
        named_folders([str(folder), str(folder)])
    with pytest.raises(InputError, match="name"):
        named_folders([f"a/b={folder}"])
    assert [parse_bytes(text) for text in ("2GB", "1.5 MiB", "7")] == [2 * 10**9, 3 * 2**19, 7]
    with pytest.raises(InputError, match="2GB"):
        parse_bytes("much")


def test_a_dead_compute_thread_is_told(models: dict[str, weft.Model], monkeypatch: pytest.MonkeyPatch, capfd):
    with serving({"story": models["story"]}) as running:
        assert running.get("/health").status_code == running.get("/ready").status_code == 200

        def fail() -> None:
            raise ValueError("broken")

        monkeypatch.setattr(running.service.models["story"].engine, "step", fail)
        waiting = running.post("/v1/completions", {"prompt": "A"})
        assert waiting.status_code == 503
        assert waiting.json()["error"]["type"] == "service_unavailable"
        assert running.get("/health").status_code == running.get("/ready").status_code == 503
        for path in ("/v1/completions", "/v1/chat/completions"):
            body = {"prompt": "A", "messages": [{"role": "user", "content": "A"}]}
            assert running.post(path, body).status_code in (400, 503)
        assert running.get("/metrics").status_code == 200
    assert "the compute thread ended: ValueError: broken" in capfd.readouterr().err


def test_the_worker_takes_turns_and_sleeps():
    class Count:
        def __init__(self, left: int) -> None:
            self.left, self.ended = left, threading.Event()

        @property
        def has_work(self) -> bool:
            return self.left > 0

        def step(self) -> None:
            order.append(self)
            self.left -= 1
            if not self.left:
                self.ended.set()

        def abandon(self, problem) -> None:
            self.ended.set()

    order: list[Count] = []
    first, second = Count(3), Count(2)
    worker = Worker([first, second])
    worker.start()
    worker.wake()
    assert first.ended.wait(60)
    assert order == [first, second, first, second, first]
    for _ in range(200):  # work that comes while it falls asleep is never missed
        second.ended.clear()
        second.left = 1
        worker.wake()
        assert second.ended.wait(60)
    worker.close()
    worker.join()
    assert not worker.is_healthy


def test_more_than_fits_is_answered_with_429_at_once(models: dict[str, weft.Model]):
    body = {"prompt": "So", "max_tokens": 20, "temperature": 0}

    async def ask_all(address: str) -> list[httpx.Response]:
        async with httpx.AsyncClient(timeout=60) as client:
            asked = [client.post(f"{address}/v1/completions", json=body) for _ in range(120)]
            return await asyncio.gather(*asked)

    with serving({"story": models["story"]}, ServiceLimits(queue=2)) as running:
        alone = running.post("/v1/completions", body).json()["choices"]
        answers = asyncio.run(ask_all(running.address))
        assert {answer.status_code for answer in answers} <= {200, 429}
        assert all(answer.json()["choices"] == alone for answer in answers if answer.status_code == 200)
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers if answer.status_code == 429)
        assert running.service.models["story"].writing.open_jobs == 0


def test_a_model_without_a_tokenizer_takes_and_gives_ids():
    with serving({"ids": make_random("gpt2", positions=64)}) as running:
        body = {"prompt": [1, 2, 3], "max_tokens": 5, "temperature": 0, "return_token_ids": True, "logprobs": 1}
        choice = running.post("/v1/completions", body).json()["choices"][0]
        assert choice["logprobs"]["tokens"] == [f"token_id:{token}" for token in choice["token_ids"]]
        assert choice["text"] == ""
        for wrong in ({"prompt": "text"}, {"stop": ["a"]}, {"guided_regex": "a"}):
            assert running.post("/v1/completions", {**body, **wrong}).status_code == 400
        chat = running.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "A"}]})
        assert chat.status_code == 400


def test_metrics_count_what_happened(models: dict[str, weft.Model]):
    with serving({"story": models["story"]}) as running:
        for stream in (False, True):
            running.post("/v1/completions", {"prompt": "A", "max_tokens": 5, "ignore_eos": True, "stream": stream})
        running.post("/v1/completions", {"prompt": 1})
        text = running.get("/metrics").text
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert found['weft_generation_tokens_total{model_name="story"}'] == "10.0"
    assert found['weft_request_success_total{finished_reason="length",model_name="story"}'] == "2.0"
    assert found['weft_http_requests_total{method="POST",route="/v1/completions",status="400"}'] == "1.0"
    assert found['weft_time_to_first_token_seconds_count{model_name="story"}'] == "1.0"
    assert found['weft_e2e_request_latency_seconds_count{model_name="story"}'] == "2.0"
    assert float(found['weft_inter_token_latency_seconds_count{model_name="story"}']) > 0
    assert found['weft_num_requests_waiting{model_name="story"}'] == "0.0"


def test_the_document_describes_every_route(running: Running):
    document = running.get("/openapi.json").json()
    named = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert named == set(running.get("/").json()["routes"])
    references = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document))
    assert set(references) <= set(document["components"]["schemas"])
