"""Batches for what reads: embeddings, labels, tags, answers, masks.

A call is a list of token sequences and a reader, which says what is computed from their hidden states. Whenever the
compute thread is free, the queue takes what waits, first come first served, up to a number of tokens, and sends the
sequences of all calls with the same reader through the network in one flat batch. There is no waiting window: at rest a
call is computed at once, under load batches form by themselves. A call of more tokens than one batch is read in parts,
and goes to the end of the queue after each, so that others have their turn.

What a call gets does not depend on the calls beside it, but for rounding: a matrix product over more rows adds in
another order, so numbers agree to about 1e-5, not bit for bit.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import torch

from weft.api.model import Model
from weft.model.packed import order_by_length
from weft.serve.errors import HTTPProblem, Overloaded
from weft.serve.readers import BatchReader, ModelReaders
from weft.tasks.batches import pack_inputs
from weft.tasks.example import Input

_STEP_TOKENS = 2048  # larger batches are no faster on a CPU, and those who write wait longer
_MOST_WAITING, _MOST_WAITING_TOKENS = 512, 2**18
_FIRST_RATE = 1000.0  # tokens per second, until it is measured
_LONGEST_WAIT = 60  # seconds that a client is asked to wait at most


class ReadingLoad(NamedTuple):
    """`waiting` and `waiting_tokens` now; the others since the start."""

    waiting: int
    waiting_tokens: int
    batches: int
    sequences: int
    tokens: int


class ReadCall:
    """Sequences to read, and their results as they come. The future's result is a list with one result per input."""

    def __init__(self, reader: BatchReader, inputs: Sequence[Input]) -> None:
        self.reader, self.inputs = reader, list(inputs)
        self.future: Future[list[Any]] = Future()
        self.results: list[Any] = []
        self.tokens_left = _tokens(self.inputs)

    @property
    def inputs_left(self) -> list[Input]:
        return self.inputs[len(self.results) :]

    def add(self, inputs: Sequence[Input], results: Sequence[Any]) -> None:
        self.results += results
        self.tokens_left -= _tokens(inputs)

    def finish(self) -> None:
        # Only now, not when it begins: a call that is read in parts can be cancelled between them.
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(self.results)

    def fail(self, error: BaseException) -> None:
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


_Part = tuple[ReadCall, list[Input]]


class ReadingQueue:
    """The calls that wait for one model. `submit` is for any thread, `step` for the compute thread."""

    def __init__(
        self,
        model: Model,
        *,
        most_tokens: int = _STEP_TOKENS,
        most_waiting: int = _MOST_WAITING,
        most_waiting_tokens: int = _MOST_WAITING_TOKENS,
    ) -> None:
        """`most_tokens`: of a batch, except that a longer sequence is a batch of its own. `most_waiting`,
        `most_waiting_tokens`: of calls that wait; a call that is larger still is taken if nothing waits.
        """
        self.model, self.readers = model, ModelReaders(model)
        self.most_tokens, self.most_waiting, self.most_waiting_tokens = most_tokens, most_waiting, most_waiting_tokens
        self._waiting: deque[ReadCall] = deque()
        self._waiting_tokens = self._batches = self._sequences = self._tokens = 0
        self._rate = _FIRST_RATE
        self._problem: HTTPProblem | None = None  # why nothing more is read
        self._lock = threading.Lock()

    @property
    def has_work(self) -> bool:
        return bool(self._waiting)

    @property
    def load(self) -> ReadingLoad:
        with self._lock:
            return ReadingLoad(len(self._waiting), self._waiting_tokens, self._batches, self._sequences, self._tokens)

    def submit(self, call: ReadCall) -> Future[list[Any]]:
        """Raises Overloaded if too much waits already."""
        tokens = call.tokens_left
        with self._lock:
            self._check_room(tokens)
            self._waiting.append(call)
            self._waiting_tokens += tokens
        return call.future

    def check_room(self) -> None:
        """Raises Overloaded if the queue is full: to be asked before a request is tokenized for nothing."""
        with self._lock:
            self._check_room(1)

    def _check_room(self, tokens: int) -> None:
        if self._problem is not None:
            raise self._problem.with_traceback(None)  # or it would grow with every request
        if not self._has_room(tokens):
            self._drop_cancelled()
        if not self._has_room(tokens):
            raise Overloaded(
                f"{len(self._waiting):,} requests of {self._waiting_tokens:,} tokens wait to be read. Try again later.",
                retry_after=max(1, min(_LONGEST_WAIT, round(self._waiting_tokens / self._rate))),
            )

    def abandon(self, problem: HTTPProblem) -> None:
        """Nothing more will be read: every call that waits or comes ends with this problem."""
        with self._lock:
            calls, self._waiting, self._waiting_tokens, self._problem = list(self._waiting), deque(), 0, problem
        for call in calls:
            call.fail(problem)

    def step(self) -> None:
        """Read one batch. An error ends the calls that cause it, not the others."""
        began, parts = time.perf_counter(), self._take()
        if not parts:
            return
        try:
            found = _read(parts)
        except Exception:
            found = _read_one_by_one(parts)
        tokens = sum(_tokens(inputs) for _, inputs in parts)
        with self._lock:
            self._batches += 1
            self._sequences += sum(len(inputs) for _, inputs in parts)
            self._tokens += tokens
            self._rate += 0.2 * (tokens / max(time.perf_counter() - began, 1e-6) - self._rate)
        for (call, inputs), results in zip(parts, found, strict=True):
            if isinstance(results, Exception):
                call.fail(results)
            else:
                call.add(inputs, results)
                self._put_back(call) if call.inputs_left else call.finish()

    def _has_room(self, tokens: int) -> bool:
        if not self._waiting:
            return True
        return len(self._waiting) < self.most_waiting and self._waiting_tokens + tokens <= self.most_waiting_tokens

    def _drop_cancelled(self) -> None:
        self._waiting = deque(call for call in self._waiting if not call.future.done())
        self._waiting_tokens = sum(call.tokens_left for call in self._waiting)

    def _take(self) -> list[_Part]:
        """What the next batch reads of which call. These calls leave the queue."""
        with self._lock:
            self._drop_cancelled()
            if not self._waiting:
                return []
            reader, parts, tokens = self._waiting[0].reader, list[_Part](), 0
            for call in self._waiting:
                if call.reader is not reader:
                    continue
                inputs = call.inputs_left
                count = _fitting(inputs, self.most_tokens - tokens, at_least=0 if parts else 1)
                if count or not inputs:
                    parts.append((call, inputs[:count]))
                    tokens += _tokens(inputs[:count])
                if count < len(inputs):
                    break
            taken = {id(call) for call, _ in parts}
            self._waiting = deque(call for call in self._waiting if id(call) not in taken)
            self._waiting_tokens = sum(call.tokens_left for call in self._waiting)
            return parts

    def _put_back(self, call: ReadCall) -> None:
        with self._lock:
            problem = self._problem
            if problem is None:
                self._waiting.append(call)
                self._waiting_tokens += call.tokens_left
        if problem is not None:
            call.fail(problem)


def _tokens(inputs: Sequence[Input]) -> int:
    return sum(len(one.ids) for one in inputs)


def _fitting(inputs: Sequence[Input], room: int, *, at_least: int) -> int:
    """How many of the inputs, from the first, have at most `room` tokens together."""
    for count, one in enumerate(inputs):
        room -= len(one.ids)
        if room < 0:
            return min(len(inputs), max(count, at_least))
    return len(inputs)


def _read(parts: Sequence[_Part]) -> list[Any]:
    """The results of each part."""
    reader, inputs = parts[0][0].reader, [one for _, part in parts for one in part]
    found: list[Any] = [None] * len(inputs)
    order = order_by_length([one.ids for one in inputs])
    if order:
        picked = [inputs[i] for i in order]
        packed = pack_inputs(picked).to(next(reader.network.parameters()).device)
        with torch.inference_mode():
            results = reader.read(reader.network(packed), packed, picked)
        for index, result in zip(order, results, strict=True):
            found[index] = result
    rest = iter(found)
    return [[next(rest) for _ in part] for _, part in parts]


def _read_one_by_one(parts: Sequence[_Part]) -> list[Any]:
    """As `_read`, with the error in place of the results of a call that fails alone, too."""
    found: list[Any] = []
    for part in parts:
        try:
            found += _read([part])
        except Exception as error:
            found.append(error)
    return found
