"""Starts HTTP services as processes on a free port of this machine, waits until they answer, and ends them."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).parent
# `import weft` sets these for itself and its children. Peers run with their defaults.
OURS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")
QUIET = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRANSFORMERS_VERBOSITY": "error"}


class Server:
    """`with Server(command, port) as server:` ends the process, and all it started, at the end."""

    def __init__(
        self,
        command: Sequence[str],
        port: int,
        *,
        health: str = "/health",
        seconds: float = 120,
        env: Mapping[str, str] | None = None,
        without: Sequence[str] = (),
        **popen: Any,
    ) -> None:
        """`env`, `without`: variables to set, or to remove."""
        self.port = port
        self._said = tempfile.TemporaryFile("w+b")  # noqa: SIM115 (lives as long as the process)
        settings = {"stdout": self._said, "stderr": self._said, "stdin": subprocess.DEVNULL, **popen}
        environment = {name: value for name, value in os.environ.items() if name not in without}
        self.process = subprocess.Popen(command, env={**environment, **QUIET, **(env or {})}, **settings)
        try:
            self._wait(health, seconds)
        except BaseException:
            self.stop()
            raise

    def _wait(self, health: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{health}", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except (OSError, urllib.error.URLError):
                time.sleep(0.1)
        raise RuntimeError(f"{' '.join(map(str, self.process.args))}: does not answer.\n{self.said[-4000:]}")

    @property
    def said(self) -> str:
        self._said.seek(0)
        return self._said.read().decode("utf-8", "replace")

    @property
    def memory(self) -> int:
        """Resident bytes."""
        return psutil.Process(self.process.pid).memory_info().rss

    @property
    def cpu_seconds(self) -> float:
        """Of the process and those it started."""
        process = psutil.Process(self.process.pid)
        times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
        return sum(one.user + one.system for one in times)

    def stop(self, seconds: float = 20) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def start_weft(*given: str | Path, **settings: Any) -> Server:
    """`given`: folders of models, and options of `weft serve`."""
    port = free_port()
    command = [sys.executable, "-m", "weft", "serve", *map(str, given), "--port", str(port)]
    return Server(command, port, **{"health": "/ready", **settings})


def start_llama(file: Path, slots: int, *options: str, **settings: Any) -> Server:
    port = free_port()
    command = [sys.executable, str(HERE / "llama_server.py"), str(file)]
    command += ["--port", str(port), "--slots", str(slots), *options]
    return Server(command, port, without=OURS, **settings)


def start_transformers(folder: Path, *options: str, **settings: Any) -> Server:
    port = free_port()
    command = [str(Path(sys.executable).parent / "transformers"), "serve", str(folder), "--device", "cpu"]
    return Server([*command, "--port", str(port), *options], port, seconds=300, without=OURS, **settings)
