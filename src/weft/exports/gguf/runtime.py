"""Asks llama.cpp's server about a GGUF file: starts it, waits for it, ends it."""

import json
import math
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch

_PROGRAM, _LIBRARY = (Path(__file__).with_name(name) for name in ("llama_process.py", "llama_library.py"))
_SECONDS_TO_START, _SECONDS_TO_ANSWER, _SECONDS_TO_END = 600.0, 600.0, 10.0
# A crash of ggml would otherwise start a debugger on itself.
_NO_DEBUGGER = {"GGML_NO_BACKTRACE": "1"}


class RuntimeFailed(Exception):
    """llama.cpp did not start, did not answer or refused; the message says why."""


class LlamaServer:
    """`with LlamaServer(file) as server:` ends the process at the end, whatever happens."""

    def __init__(self, file: Path, *, embedding: bool = False, context: int = 512) -> None:
        self._key = secrets.token_hex(16)  # other users of this machine can reach the port
        settings = {
            "file": str(file.resolve()),
            "key": self._key,
            "embedding": embedding,
            "context": context,
            "threads": _threads(),
        }
        self._said = TemporaryFile("w+b")  # noqa: SIM115 (lives as long as the process)
        self._process = subprocess.Popen(  # noqa: S603 (a program of our own)
            [sys.executable, "-I", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, **_NO_DEBUGGER},
        )
        try:
            self._address = self._start(settings)
        except BaseException:
            self._end()
            raise

    def _start(self, settings: dict[str, Any]) -> str:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        alarm = threading.Timer(_SECONDS_TO_START, process.kill)
        alarm.start()
        try:
            process.stdin.write(json.dumps(settings).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline().decode("utf-8", "replace").strip()
        except OSError:
            line = ""
        finally:
            alarm.cancel()
        if not line.startswith("http://"):
            raise RuntimeFailed(f"llama.cpp did not open the file{self._complaint()}")
        return urlsplit(line).netloc

    def _complaint(self) -> str:
        self._said.seek(0)
        lines = self._said.read().decode("utf-8", "replace").splitlines()
        found = [line.partition("error")[2] for line in lines if "error loading model" in line]
        return found[0].removeprefix(" loading model") + "." if found else "."

    def ask(self, route: str, body: dict[str, Any]) -> Any:
        connection = HTTPConnection(self._address, timeout=_SECONDS_TO_ANSWER)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        try:
            connection.request("POST", route, json.dumps(body).encode(), headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, HTTPException, ValueError) as error:
            raise RuntimeFailed(f"llama.cpp gave no answer ({type(error).__name__}).") from None
        finally:
            connection.close()
        if response.status != 200:
            said = answer.get("error", {}).get("message", "") if isinstance(answer, dict) else ""
            raise RuntimeFailed(f"llama.cpp refused a request: {said or response.status}.")
        return answer

    def token_ids(self, text: str) -> list[int]:
        return self.ask("/tokenize", {"content": text, "add_special": True})["tokens"]

    def next_log_probabilities(self, ids: Sequence[int], most: int, harmless: int) -> dict[int, float]:
        """Of the `most` probable next tokens. `harmless` is the token that is written: if the last one were half of a
        character, llama-server would leave the probabilities out. They are those before such a bias.
        """
        asked = {"prompt": list(ids), "n_predict": 1, "temperature": 0.0, "n_probs": most}
        answer = self.ask("/completion", {**asked, "logit_bias": [[harmless, 1000.0]], "cache_prompt": False})
        found = answer["completion_probabilities"][0]["top_logprobs"]
        return {one["id"]: math.nan if one["logprob"] is None else one["logprob"] for one in found}

    def greedy(self, ids: Sequence[int], count: int, banned: Sequence[int] = ()) -> list[int]:
        asked: dict[str, Any] = {"prompt": list(ids), "n_predict": count, "temperature": 0.0, "repeat_penalty": 1.0}
        asked["logit_bias"] = [[token, False] for token in banned]
        return self.ask("/completion", {**asked, "return_tokens": True, "cache_prompt": False})["tokens"]

    def vector(self, ids: Sequence[int]) -> np.ndarray:
        """As it is pooled, without a scale; or the scores of a classifier, followed by undefined numbers."""
        answer = self.ask("/embedding", {"content": list(ids), "embd_normalize": -1})
        return np.asarray(answer[0]["embedding"], np.float32).reshape(-1)

    def _end(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._said.close()

    def __enter__(self) -> "LlamaServer":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()


def library_logits(file: Path, vocabulary: int, pairs: Sequence[tuple[list[int], list[int]]]) -> np.ndarray:
    """The next token's logits of an encoder–decoder, for each source and the decoder's input so far."""
    asked = {"file": str(file.resolve()), "vocabulary": vocabulary, "pairs": list(pairs), "threads": _threads()}
    try:
        said = subprocess.run(  # noqa: S603 (a program of our own)
            [sys.executable, "-I", str(_LIBRARY)],
            input=json.dumps(asked).encode(),
            capture_output=True,
            timeout=_SECONDS_TO_ANSWER,
            env={**os.environ, **_NO_DEBUGGER},
            check=False,
        )
        found = np.asarray(json.loads(said.stdout), np.float32) if said.returncode == 0 else None
    except (subprocess.TimeoutExpired, ValueError):
        found = None
    if found is None or found.shape != (len(pairs), vocabulary):
        raise RuntimeFailed("llama.cpp's library did not run it.")
    return found


def _threads() -> int:
    return min(torch.get_num_threads(), 4)


def runtime_name() -> str:
    return f"llama.cpp (xllamacpp {version('xllamacpp')})"
