"""`generate` and `stream`, and the jobs that the engine runs for them and for a service.

Prompts are texts or lists of token ids; answers are of the same kind. One prompt gives one answer, a list a list.
"""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

from weft.errors import InputError
from weft.generate.constraint import Constraint, constraints_of
from weft.generate.engine import DEFAULT_MEMORY, MOST_ROWS, GenerationEngine
from weft.generate.framing import Turn
from weft.generate.job import Job
from weft.generate.next_token import Processor, random_keys
from weft.generate.pages import PageShape, pages_for
from weft.generate.prepare import Prepared
from weft.generate.prompts import EncodedPrompt, Prompt, PromptReader, as_list
from weft.generate.settings import Settings, settings_of
from weft.generate.speculate import DraftGuesser, Guesser
from weft.generate.start_end_tokens import StartEndTokens
from weft.generate.text import AnswerTexts
from weft.progress import Gauge


class Writer:
    def __init__(
        self,
        ready: Prepared,
        reader: PromptReader,
        recommended: dict[str, Any],
        draft: Prepared | None = None,
    ) -> None:
        """`recommended`: the folder's generation_config.json. `draft`: a smaller model for speculative decoding."""
        self.ready, self.reader, self.recommended, self.draft = ready, reader, recommended, draft

    def engine(
        self, *, memory: int = DEFAULT_MEMORY, rows: int = MOST_ROWS, tell_seconds: float = 0.0
    ) -> GenerationEngine:
        """As `GenerationEngine`."""
        guesser = Guesser()
        if self.draft is not None:
            guesser = DraftGuesser(self.draft, memory, self.reader.vocabulary)
        return GenerationEngine(self.ready, memory=memory, rows=rows, guesser=guesser, tell_seconds=tell_seconds)

    def job(
        self,
        prompt: Prompt,
        *,
        history: Sequence[Turn] = (),
        log_probs: bool = False,
        prompt_log_probs: bool = False,
        reads_only: bool = False,
        processors: Sequence[Processor] = (),
        streams: bool = True,
        **given: Any,
    ) -> Job:
        """One prompt for the engine. Raises InputError for a prompt or a setting that the model cannot take.

        `history`: earlier turns, for a model that was tuned to reply. `log_probs`, `prompt_log_probs`: of the tokens of
        the answers and of the prompt. `reads_only`: no new tokens. `processors`: functions of (tokens so far, scores)
        that change the scores of the next token. `streams`: news of every token, or of finished answers only.
        """
        settings = self._settings(given)
        encoded = self.reader.read(prompt, "The prompt", settings, history)
        job = self._job(encoded, settings, log_probs, prompt_log_probs, reads_only, processors, streams)
        if settings.strategy == "sample":
            job.keys = self._keys([encoded], settings)
        return job

    def generate(
        self,
        prompts: Any,
        *,
        details: bool = False,
        progress: bool = False,
        processors: Sequence[Processor] = (),
        **given: Any,
    ) -> Any:
        """An answer per prompt; a list of them, best first, if `n` > 1. With `details`, `Generation`s."""
        alone, listed = as_list(prompts)
        settings = self._settings(given)
        encoded = [self.reader.read(prompt, f"Prompt {place}", settings) for place, prompt in enumerate(listed)]
        jobs = [self._job(one, settings, details, False, False, processors, False) for one in encoded]
        if settings.strategy == "sample":
            keys = self._keys(encoded, settings)
            for place, job in enumerate(jobs):
                job.keys = keys[place * settings.n : (place + 1) * settings.n]
        self._run(jobs, progress=progress)
        found = [[answer for answer in job.found if answer is not None] for job in jobs]
        shown: list[Any] = found
        if not details:
            shown = [
                [answer.text if one.is_text else answer.tokens for answer in row]
                for one, row in zip(encoded, found, strict=True)
            ]
        if settings.n == 1:
            shown = [row[0] for row in shown]
        return shown[0] if alone else shown

    def stream(self, prompt: Prompt, *, history: Sequence[Turn] = (), **given: Any) -> Iterator[Any]:
        """The answer while it is generated: pieces of text, or token ids."""
        settings = self._settings(given)
        if settings.strategy == "beam":
            raise InputError("Beam search has its text only at the end, so it cannot be streamed.")
        if settings.n != 1:
            raise InputError("A stream is one answer; n goes with generate.")
        alone, listed = as_list(prompt)
        if not alone:
            raise InputError("stream takes one prompt; for several use generate.")
        return self.pieces(self.job(listed[0], history=history, **given), as_text=isinstance(listed[0], str))

    def pieces(self, job: Job, *, as_text: bool) -> Iterator[Any]:
        """A job's only answer while it is generated: pieces of text, or token ids."""
        engine = self._engine_for([job])
        engine.submit(job)
        try:
            while not job.is_finished:
                for _, news in engine.step():
                    for one in news:
                        yield from [one.text] if as_text and one.text else []
                        yield from [] if as_text else [token.id for token in one.tokens]
        finally:
            engine.cancel(job)
        _check(job)

    def _run(self, jobs: Sequence[Job], *, progress: bool) -> None:
        """Runs all jobs. The longest prompts start first, so that no long one is left over at the end."""
        if not jobs:
            return
        engine = self._engine_for(jobs)
        for job in sorted(jobs, key=lambda job: -len(job.prompt_ids)):
            engine.submit(job)
        total = sum(job.n for job in jobs)
        with Gauge("Writing", unit="texts", total_items=total) if progress else nullcontext() as gauge:
            while engine.has_work:
                for job, news in engine.step():
                    _check(job)
                    if gauge is not None:
                        gauge.add(sum(one.finish is not None for one in news))

    def _engine_for(self, jobs: Sequence[Job]) -> GenerationEngine:
        """With memory for the largest job, however large it is."""
        stack, rows = self.ready.network.decoder, max((job.settings.beams or 1) for job in jobs)
        if stack is None:
            return self.engine(rows=max(rows, MOST_ROWS))
        pages = max(pages_for(job.longest + job.settings.speculate) + 2 for job in jobs) * rows
        sources = max(pages_for(len(job.source or ())) for job in jobs)
        floats = PageShape.of_tokens(stack).numbers + (PageShape.of_source(stack).numbers if sources else 0)
        return self.engine(memory=max(DEFAULT_MEMORY, 4 * floats * max(pages, sources)), rows=max(rows, MOST_ROWS))

    def _job(
        self,
        encoded: EncodedPrompt,
        settings: Settings,
        log_probs: bool,
        prompt_log_probs: bool,
        reads_only: bool,
        processors: Sequence[Processor],
        streams: bool,
    ) -> Job:
        if settings.speculate and self.ready.network.decoder is None:
            raise InputError("An LSTM cannot take back what it has read, so it cannot speculate.")
        own = self.reader.start_end
        start_end = StartEndTokens(
            (*own.end_ids, *settings.stop_tokens), own.start_id, own.forced_end_id, own.banned_ids
        )
        job = Job(
            encoded.prompt,
            encoded.source,
            settings,
            start_end,
            most=0 if reads_only else self.reader.most(encoded, settings),
            limit=self.reader.limit if settings.slide else None,
            wants_log_probs=log_probs,
            wants_prompt=prompt_log_probs,
            reads_only=reads_only,
            processors=processors,
            constraint=self._constraint(settings),
        )
        if self.reader.has_tokenizer:
            # An encoder–decoder's start token is no text.
            before = () if self.reader.has_source else encoded.prompt
            drops_space = job.constraint is not None and job.constraint.begins_with_space
            job.texts = AnswerTexts(
                self.reader.tokenizer, before, settings.stop, start_end.end_ids, drops_space=drops_space
            )
        job.streams = streams
        return job

    def _settings(self, given: dict[str, Any]) -> Settings:
        settings, own, vocabulary = settings_of(given, self.recommended), self.reader.start_end, self.reader.vocabulary
        if settings.stop and not self.reader.has_tokenizer:
            raise InputError("This model has no tokenizer, so it cannot find stop strings. Use stop_tokens (ids).")
        banned = [self.reader.token_of(item) for item in settings.banned]
        self.reader.check_ids(banned, "banned")
        self.reader.check_ids(settings.stop_tokens, "stop_tokens")
        self.reader.check_ids(list(settings.logit_bias), "logit_bias")
        ends = (*own.end_ids, *settings.stop_tokens)
        out = {*banned, *own.banned_ids, *(ends if settings.min_new_tokens else ())}
        if len(out) == vocabulary:
            raise InputError("Every token is banned, so nothing can be generated.")
        update: dict[str, Any] = {"banned": banned}
        if settings.beams == 1:  # beam search with one beam is greedy decoding
            update["strategy"] = "greedy"
        settings = settings.model_copy(update=update)
        if settings.strategy == "beam" and settings.is_constrained:
            raise InputError("json_schema, regex and choice go with strategy greedy or sample, not with beam search.")
        return settings

    def _constraint(self, settings: Settings) -> Constraint | None:
        if not settings.is_constrained:
            return None
        reader = self.reader
        constraints = constraints_of(reader.tokenizer, reader.vocabulary, reader.start_end.end_ids)
        return constraints.start(json_schema=settings.json_schema, regex=settings.regex, choice=settings.choice)

    @staticmethod
    def _keys(encoded: Sequence[EncodedPrompt], settings: Settings) -> list[int]:
        seed = secrets.randbits(63) if settings.seed is None else settings.seed
        prompts = [one.prompt if one.source is None else one.source for one in encoded for _ in range(settings.n)]
        return random_keys(seed, prompts)


def _check(job: Job) -> None:
    if job.error is not None:
        raise job.error
