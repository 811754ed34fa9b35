"""What a service does when things around it die: its clients, its folder, its disk, itself.

    python scripts/serve_kill.py [--only client sigterm folder disk]

client     kill -9 of a client in the middle of an answer: the work for it stops
sigterm    SIGTERM while answers are written and requests wait: all that were admitted are answered, rightly
folder     the model's folder is deleted: what is served goes on; a new start says in a sentence what is missing
disk       it becomes full, or is full from the start, or messages cannot be written: answers are given all the same
Ends with 1 if a claim does not hold.
"""

import argparse
import asyncio
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from small_service import (
    ROUTE,
    Server,
    Verdict,
    answered_alone,
    ask_again,
    bodies,
    closed_loop,
    connect,
    count_right,
    get,
    is_at_rest,
    metrics_of,
    post,
    start_weft,
    tells_of_errors,
    write_story,
)

LONG_TOKENS = 3000
POSITIONS = LONG_TOKENS + 100
LONG = {"prompt": "Alice", "max_tokens": LONG_TOKENS, "ignore_eos": True, "temperature": 0.0}
CLIENT = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    connection.sendall(sys.stdin.buffer.read())
    while connection.recv(4096):
        pass
"""


async def until(port: int, reached, seconds: float = 60) -> float | None:
    """Seconds until the metrics are as `reached` wants them; None if that takes too long."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if reached(await metrics_of(port)):
            return time.monotonic() - began
        await asyncio.sleep(0.02)
    return None


async def kill_client(server: Server, how: str, verdict: Verdict) -> None:
    before = (await metrics_of(server.port))["weft_generation_tokens_total"]
    request = post(ROUTE, {**LONG, "stream": how == "stream"})
    with subprocess.Popen([sys.executable, "-c", CLIENT, str(server.port)], stdin=subprocess.PIPE) as client:
        assert client.stdin is not None
        client.stdin.write(request)
        client.stdin.close()
        begun = await until(server.port, lambda found: found["weft_generation_tokens_total"] > before + 20)
        assert begun is not None and client.poll() is None, "the client has had no answer"
        client.send_signal(signal.SIGKILL)
    took = await until(server.port, is_at_rest)
    written = (await metrics_of(server.port))["weft_generation_tokens_total"] - before
    verdict.claim(
        f"kill -9 of a client ({how}): the work for it stops",
        took is not None and written < LONG_TOKENS,
        seconds=None if took is None else round(took, 2),
        tokens=f"{written:.0f} of {LONG_TOKENS}",
    )


def judge_client(folder: Path, verdict: Verdict) -> None:
    async def judge(server: Server) -> None:
        cases = await answered_alone(server.port, bodies(8, 0))
        for how in ("stream", "whole"):
            await kill_client(server, how, verdict)
        verdict.claim("Afterwards, all answers are right", await count_right(server.port, cases) == len(cases))

    with start_weft(folder) as server:
        asyncio.run(judge(server))


def judge_sigterm(folder: Path, verdict: Verdict) -> None:
    """More requests than the engine has rows, so that some of them wait; a quarter are streams."""
    asked = bodies(24, 1, (200, 300))

    async def judge(server: Server) -> None:
        cases = await answered_alone(server.port, asked)
        cases = cases * 4
        open_requests = len(cases)
        answers = asyncio.create_task(closed_loop(server.port, [case.request for case in cases], open_requests))
        admitted = await until(
            server.port,
            lambda found: (
                found["weft_http_requests_running"] > open_requests and found["weft_num_requests_waiting"] > 0
            ),
        )
        assert admitted is not None, "not all requests were admitted"
        state = await metrics_of(server.port)
        kept = await connect(server.port)
        server.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        late = await refused_from_now_on(server, kept, cases[0].request)
        found = await answers
        right = sum(case.is_answered_by(answer) for case, answer in zip(cases, found, strict=True))
        code = await asyncio.to_thread(server.process.wait, 60)
        verdict.claim(
            "SIGTERM: no admitted request is lost, every answer is right",
            right == open_requests,
            right=f"{right} of {open_requests}",
            running=int(state["weft_num_requests_running"]),
            waiting=int(state["weft_num_requests_waiting"]),
        )
        verdict.claim("SIGTERM: new requests are refused", late in ("refused", 503), late=late)
        verdict.claim("SIGTERM: ends with 0", code == 0, code=code, stopped_after=round(time.monotonic() - began, 1))

    with start_weft(folder, "--queue", "200") as server:
        asyncio.run(judge(server))
        said = server.said
    verdict.claim("SIGTERM: a sentence, no traceback", "Stopping" in said and not tells_of_errors(said))


async def refused_from_now_on(server: Server, kept, request: bytes) -> str | int:
    """What a request gets after the signal, over a connection from before it or a new one."""
    await asyncio.sleep(0.3)
    try:
        _, answer = await ask_again(server.port, kept, request)
    except OSError:
        return "refused"
    return answer.status


def judge_folder(folder: Path, verdict: Verdict) -> None:
    copy = folder.with_name("doomed")
    shutil.copytree(folder, copy)

    async def judge(server: Server) -> None:
        cases = await answered_alone(server.port, bodies(24, 2))
        shutil.rmtree(copy)
        right = await count_right(server.port, cases, clients=8)
        verdict.claim("The folder disappears: all answers stay right", right == len(cases), right=right)
        connection = await connect(server.port)
        ready = (await connection.ask(get("/ready"))).status
        verdict.claim("The folder disappears: the service is ready", ready == 200)

    with start_weft(f"story={copy}") as server:
        asyncio.run(judge(server))
        said = server.said
    verdict.claim("The folder disappears: no traceback", not tells_of_errors(said))
    command = [sys.executable, "-m", "weft", "serve", str(copy), "--port", "0"]
    again = subprocess.run(command, capture_output=True, text=True, timeout=60)
    sentence = again.stderr.strip()
    is_sentence = "Traceback" not in sentence and "doomed" in sentence and len(sentence.splitlines()) < 4
    verdict.claim("A folder that is missing at the start: a sentence, 2", is_sentence and again.returncode == 2)
    print(f"     {sentence}")


@contextmanager
def full_disk(place: Path) -> Iterator[dict[str, str]]:
    """An environment whose home, cache and temporary folder are on a full disk; nothing is in them. It needs the right
    to mount one.
    """
    disk = place / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(disk)], check=True, capture_output=True)
    try:
        (disk / "full").write_bytes(b"x" * 4096)
        yield {"HOME": str(disk), "XDG_CACHE_HOME": str(disk), "TMPDIR": str(disk), "TEMP": str(disk)}
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=False)


def judge_disk(folder: Path, verdict: Verdict) -> None:
    async def judge(server: Server, name: str, *, becomes_full: bool = False) -> None:
        cases = await answered_alone(server.port, bodies(16, 3))
        if becomes_full:  # every file, also that of the service's messages
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (0, 0))
        right = await count_right(server.port, cases, clients=8)
        verdict.claim(f"{name}: answers as before", right == len(cases), right=right)

    def judge_started(name: str, *, becomes_full: bool = False, **settings: Any) -> None:
        try:
            with start_weft(folder, "--log-requests", **settings) as server:
                asyncio.run(judge(server, name, becomes_full=becomes_full))
                code = server.stop()
            verdict.claim(f"{name}: ends with 0", code == 0, code=code)
        except RuntimeError as error:
            verdict.claim(f"{name}: it starts", False, said=str(error)[-500:])

    judge_started("A disk that becomes full", becomes_full=True)
    try:
        with tempfile.TemporaryDirectory() as place, full_disk(Path(place)) as env:
            judge_started("A full disk and no cache of kernels", env=env)
    except subprocess.CalledProcessError as error:
        print(f"?    A full disk from the start: not tried, as none can be mounted here ({error.stderr!r})")
    with Path("/dev/full").open("w") as full:
        judge_started("Messages that cannot be written", stderr=full)


JUDGES = {"client": judge_client, "sigterm": judge_sigterm, "folder": judge_folder, "disk": judge_disk}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=JUDGES, nargs="+", default=list(JUDGES))
    options = parser.parse_args()
    verdict = Verdict()
    with tempfile.TemporaryDirectory() as place:
        folder = write_story(Path(place) / "story", positions=POSITIONS)
        for name in options.only:
            JUDGES[name](folder, verdict)
    verdict.exit()


if __name__ == "__main__":
    main()
