"""The models that are served, with their queues, and the service that routes requests to them."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from weft.errors import FolderError, suggest
from weft.serve.errors import HTTPProblem, Unavailable
from weft.serve.limits import ServiceLimits
from weft.serve.metrics import ServiceMetrics
from weft.serve.worker import Worker

if TYPE_CHECKING:  # a service without models (weft page) does without torch
    from weft.api.model import Model
    from weft.generate.chat_template import ChatTemplate
    from weft.generate.chat_writer import ChatFrame
    from weft.generate.engine import GenerationEngine
    from weft.generate.writer import Writer
    from weft.serve.reading import ReadingQueue
    from weft.serve.token_text import TokenTexts
    from weft.serve.writing import WritingQueue
    from weft.tokenizer.tokenizer import Tokenizer

_Result = TypeVar("_Result")
_TOKENIZING_THREADS = 2
_LAST_STEP_SECONDS = 10


@dataclass(frozen=True)
class ServedModel:
    """`writing` is None for a model that does not write: an encoder."""

    name: str
    model: "Model"
    reading: "ReadingQueue"
    writing: "WritingQueue | None" = None
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def writer(self) -> "Writer | None":
        return None if self.writing is None else self.writing.writer

    @property
    def engine(self) -> "GenerationEngine | None":
        return None if self.writing is None else self.writing.engine

    @cached_property
    def token_texts(self) -> "TokenTexts":
        from weft.serve.token_text import TokenTexts

        return TokenTexts(self.tokenizer, self.model.network.architecture.vocabulary)

    @property
    def tokenizer(self) -> "Tokenizer | None":
        try:
            return self.model.tokenizer
        except FolderError:
            return None

    @cached_property
    def languages(self) -> tuple[str, ...]:
        from weft.serve.reading_languages import languages_of

        return languages_of(self.tokenizer)

    @cached_property
    def chat_template(self) -> "ChatTemplate | None":
        from weft.generate.chat_template import ChatTemplate

        return None if self.tokenizer is None else ChatTemplate.of(self.tokenizer)

    @property
    def chat_by(self) -> "ChatFrame | None":
        """Raises InputError for a template that cannot be used."""
        from weft.generate.chat_writer import chat_frame

        return None if self.writer is None else chat_frame(self.chat_template, self.writer.reader.framing)

    def text_of(self, ids: Sequence[int]) -> str:
        """Empty without a tokenizer."""
        return "" if self.tokenizer is None else self.tokenizer.decode(ids)


class Service:
    def __init__(self, models: Sequence[ServedModel], limits: ServiceLimits | None = None) -> None:
        self.models = {model.name: model for model in models}
        self.limits = limits or ServiceLimits()
        self.worker = Worker([queue for one in models for queue in (one.writing, one.reading) if queue is not None])
        self.metrics = ServiceMetrics(models)
        self.is_closing = False
        self._threads = ThreadPoolExecutor(_TOKENIZING_THREADS, "weft-tokenize")

    def pick(self, name: str | None) -> ServedModel:
        """The model of this name; the first one if there is no name. Raises HTTPProblem (404)."""
        if not self.models:
            raise HTTPProblem(
                404, "No model is served here, only runs are watched.", param="model", code="model_not_found"
            )
        if name is None:
            return next(iter(self.models.values()))
        if name in self.models:
            return self.models[name]
        known = ", ".join(self.models)
        message = f"There is no model {name[:100]!r} here{suggest(name[:100], self.models)}. Models: {known}."
        raise HTTPProblem(404, message, param="model", code="model_not_found")

    def check_open(self) -> None:
        """Raises Unavailable if nothing more can be admitted."""
        if self.is_closing:
            raise Unavailable("The service is stopping.")
        if not self.worker.is_healthy:
            raise Unavailable("The compute thread is dead. Restart the service.")

    async def off_loop(self, work: Callable[..., _Result], *given: Any) -> _Result:
        """Runs CPU work of milliseconds, such as tokenization, on another thread than the event loop's."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)

    def start(self) -> None:
        """On the event loop that answers requests."""
        loop = asyncio.get_running_loop()
        for one in self.models.values():
            if one.writing is not None:
                one.writing.loop = loop
        self.worker.start()

    async def stop(self) -> None:
        """Ends the compute thread; what still waits is answered with 503."""
        self.is_closing = True
        self.worker.close()
        await asyncio.to_thread(self.worker.join, _LAST_STEP_SECONDS)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def abandon(self, problem: HTTPProblem) -> None:
        """Answers everything that waits with this problem. On the event loop."""
        for one in self.models.values():
            for queue in (one.writing, one.reading):
                if queue is not None:
                    queue.abandon(problem)
