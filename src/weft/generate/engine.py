"""The engine: many prompts at once, each at its own step.

Jobs are submitted at any time. In every step each running answer reads its next tokens: usually the one just chosen, at
first a part of the prompt, so that a long prompt does not hold up the others. All of these go through the network
together (`decoder`). Then each answer's next token is chosen by its own settings. A finished answer leaves at once and
the next job takes its place. What an answer gets does not depend on the others.

The memory for keys and values decides what is admitted: a job starts when the pages of its longest possible text are
free, so that it can always be finished. `submit` and `cancel` may be called from any thread, `step` from one.
"""

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from torch import Tensor

from weft.errors import InputError, WeftError
from weft.generate.admission import Admission, Wave, why_ended
from weft.generate.beam import BeamSearch, advance_searches
from weft.generate.choose import choose_next, info_of
from weft.generate.decoder import Decoder, TokenChunk, plain_inference
from weft.generate.job import ActiveAnswer, Finish, Generation, Job, News
from weft.generate.next_token import TokenRules
from weft.generate.prepare import Prepared
from weft.generate.speculate import Guesser, most_guesses

DEFAULT_MEMORY = 2**29
MOST_ROWS = 64
_PROMPT_TOKENS, _IDLE_PROMPT_TOKENS = 192, 512  # of prompts in a step: while others are generated, and otherwise
_SCORED_TOKENS = 128  # of a prompt whose log-probabilities are wanted, in a step: a row of the vocabulary each

StepNews = list[tuple[Job, list[News]]]
_Reading = list[tuple[ActiveAnswer, TokenChunk]]


class EngineLoad(NamedTuple):
    running: int  # answers
    waiting: int  # jobs
    pages_used: int
    pages_total: int
    prompt_tokens: int  # counters since the start
    generated_tokens: int
    cached_tokens: int
    guessed_tokens: int
    accepted_tokens: int


class GenerationEngine:
    def __init__(
        self,
        ready: Prepared,
        *,
        memory: int = DEFAULT_MEMORY,
        rows: int = MOST_ROWS,
        guesser: Guesser | None = None,
        tell_seconds: float = 0.0,
    ) -> None:
        """`memory`: bytes for keys and values. `rows`: answers at a time. `guesser`: for speculative decoding.
        `tell_seconds`: between two news of a streamed answer, but for its first token and its end.
        """
        with plain_inference(ready.network):
            self.decoder = Decoder(ready, memory)
        self.rows, self.admission, self.guesser = rows, Admission(self.decoder, rows), guesser or Guesser()
        self.vocabulary = ready.network.architecture.vocabulary
        self._running: list[ActiveAnswer] = []
        self._news: dict[Job, list[News]] = {}
        self._tell_seconds, self._told_at, self._tells_all = tell_seconds, 0.0, True
        self._counts = dict.fromkeys(("prompt", "generated", "cached", "guessed", "accepted"), 0)

    def submit(self, job: Job) -> None:
        """Raises InputError if the job can never fit into the memory."""
        self.admission.submit(job)

    def cancel(self, job: Job) -> None:
        """Its answers end at the next step."""
        job.is_cancelled = True

    @property
    def has_work(self) -> bool:
        return bool(self._running or self.admission.waiting)

    @property
    def load(self) -> EngineLoad:
        pool = self.decoder.pool
        pages = (0, 0) if pool is None else (pool.used, pool.pages)
        return EngineLoad(len(self._running), self.admission.waiting, *pages, *self._counts.values())

    def step(self) -> StepNews:
        """One step. Returns what is new for each job."""
        with plain_inference(self.decoder.network):
            self._news = {}
            now = time.monotonic()
            self._tells_all = now - self._told_at >= self._tell_seconds
            if self._tells_all:
                self._told_at = now
            self._end_early(now)
            for job, wave in self.admission.admitted(len(self._running)):
                self._start(job, wave)
            reading = self._with_guesses(self._planned())
            if reading:
                self._advance(reading)
            return list(self._news.items())

    def _end_early(self, now: float) -> None:
        """Ends jobs that were cancelled, or whose time is over."""
        for job in self.admission.dropped():
            self._end_unstarted(job, why_ended(job, now) or "cancelled")
        for job in {one.job for one in self._running if why_ended(one.job, now)}:
            self._end(job, why_ended(job, now) or "cancelled")

    def _end(self, job: Job, finish: Finish) -> None:
        for answer in [one for one in self._running if one.job is job]:
            if job.search is None:
                self._finish(answer, finish)
            else:
                self._leave(answer)
        if job.search is not None:
            job.search = None
            self._end_unstarted(job, finish)

    def _end_unstarted(self, job: Job, finish: Finish) -> None:
        for index in range(0 if job.is_beam else job.admitted, job.n):
            self._end_empty(job, index, finish)

    def _end_empty(self, job: Job, index: int, finish: Finish) -> None:
        job.found[index] = Generation([], "", finish, 0.0, [])
        job.ended += 1
        self._tell(job, News(index, "", [], finish))

    def _start(self, job: Job, wave: Wave) -> None:
        source = None if job.source is None else self.decoder.read_source(job.source)
        answer = self._new_answer(job, wave, wave.first)
        answer.copies = wave.answers
        context = answer.context()
        answer.row = self.decoder.open_row(source, () if _scores_prompt(answer) else context)
        answer.pending = context[len(answer.row.tokens) :]
        if answer.index == 0:
            job.cached_tokens = len(answer.row.tokens)
            self._counts["prompt"] += len(job.prompt_ids)
            self._counts["cached"] += job.cached_tokens
        if job.is_beam:
            ends_text = job.texts.holds_stop if job.texts is not None and job.settings.stop else None
            job.search = BeamSearch(job.settings, job.start_end, job.most, answer.rules, ends_text)

    def _new_answer(self, job: Job, wave: Wave, index: int) -> ActiveAnswer:
        rules = TokenRules(job.settings, job.start_end, job.prompt, self.vocabulary, job.processors)
        needs_text = job.texts is not None and not job.is_beam and (job.streams or job.settings.stop)
        text = job.texts.begin() if job.texts is not None and needs_text else None
        constraint = None if job.constraint is None else job.constraint.copy()
        answer = ActiveAnswer(job, index, rules, job.keys[index] if job.keys else 0, text, constraint, wave=wave)
        self._running.append(answer)
        return answer

    def _planned(self) -> _Reading:
        """What each answer reads in this step."""
        is_generating = any(len(one.pending) == 1 for one in self._running)
        room = _PROMPT_TOKENS if is_generating else _IDLE_PROMPT_TOKENS
        planned: _Reading = []
        for answer in self._running:
            count = len(answer.pending)
            wants_all = _scores_prompt(answer)
            if count > 1:
                count = min(count, room, _SCORED_TOKENS if wants_all else count)
                room -= count
            if count:
                assert answer.row is not None
                is_last = count == len(answer.pending)
                wanted = count if wants_all else int(is_last)
                planned.append((answer, TokenChunk(answer.row, answer.pending[:count], wanted)))
        return planned

    def _with_guesses(self, planned: _Reading) -> _Reading:
        """Speculative decoding: guesses are read after the pending token and checked in the same step."""
        able = [
            answer
            for answer, chunk in planned
            if answer.job.settings.speculate and answer.tokens and chunk.wanted == 1 and most_guesses(answer)
        ]
        if not able or self.decoder.pool is None:
            return planned
        self.guesser.guess(able)
        self._counts["guessed"] += sum(len(answer.guesses) for answer in able)
        return [
            (answer, TokenChunk(chunk.row, [*chunk.tokens, *answer.guesses], chunk.wanted + len(answer.guesses)))
            for answer, chunk in planned
        ]

    def _advance(self, reading: _Reading) -> None:
        logits = self.decoder.read([chunk for _, chunk in reading])
        ready: list[tuple[ActiveAnswer, int]] = []  # answers that get a token, and the row of their logits
        at = 0
        for answer, chunk in reading:
            guesses = len(answer.guesses)
            if _scores_prompt(answer):
                _note_prompt(answer, chunk, logits[at : at + chunk.wanted])
            del answer.pending[: len(chunk.tokens) - guesses]
            if not answer.pending:
                ready += self._begun(answer, at + chunk.wanted - 1 - guesses, logits)
            at += chunk.wanted
        searching = [(answer, row) for answer, row in ready if answer.job.search is not None]
        if searching:
            self._search(searching, logits)
        going = settled = [(answer, row) for answer, row in ready if answer.job.search is None and answer.row]
        while going:
            stuck = choose_next(going, logits, self.vocabulary)
            self._counts["generated"] += len(going)
            for job in {answer.job for answer in stuck}:
                job.error = InputError("No token can follow: bans, processors or a constraint exclude all of them.")
                self._end(job, "cancelled")
            going = [(answer, row + 1) for answer, row in going if _was_guessed(answer)]
        for answer, _ in settled:
            if answer.row is not None:
                self._settle(answer)

    def _begun(self, answer: ActiveAnswer, row: int, logits: Tensor) -> Iterator[tuple[ActiveAnswer, int]]:
        """An answer that has read all there is, and after a prompt also those that share it."""
        job = answer.job
        if answer.copies and not answer.tokens:
            if not bool(logits[row].isfinite().all()):
                job.error = WeftError("The model's logits are NaN: its weights have diverged, so it cannot generate.")
                self._end(job, "cancelled")
                return
            if job.reads_only and job.search is not None:
                self._end(job, "length")
                return
            if job.reads_only:
                self._finish(answer, "length")
                return
        yield answer, row
        for number in range(1, answer.copies):
            assert answer.row is not None
            other = self._new_answer(job, answer.wave, answer.index + number)
            other.row, other.copies, other.begin = self.decoder.fork(answer.row), 0, answer.begin
            yield other, row
        answer.copies = 0

    def _settle(self, answer: ActiveAnswer) -> None:
        """After its tokens of this step: what the row reads next, or that it has finished."""
        assert answer.row is not None
        if answer.guesses:
            known = len(answer.job.prompt) + len(answer.tokens) - answer.begin - 1
            wrong = max(0, len(answer.row.tokens) - known)
            self._counts["accepted"] += len(answer.guesses) - wrong
            if wrong:
                self.decoder.shorten(answer.row, known)
            answer.guesses = []
        if answer.finish is not None:
            self._finish(answer, answer.finish)
            return
        if answer.is_full:
            context = answer.context()
            source = answer.row.source
            row = self.decoder.open_row(source, context)
            self.decoder.close(answer.row)
            answer.row, answer.pending = row, context[len(row.tokens) :]
        else:
            answer.pending = [answer.tokens[-1]]
        if answer.job.streams and (self._tells_all or not answer.told):
            self._tell_of(answer)

    def _finish(self, answer: ActiveAnswer, finish: Finish) -> None:
        job, answer.finish = answer.job, finish
        self._leave(answer)
        text = None if job.texts is None else job.texts.whole(answer.tokens)
        log_probs = [info.log_prob for info in answer.infos] if job.wants_log_probs else []
        top = [info.top for info in answer.infos] if job.settings.top_log_probs else []
        job.found[answer.index] = Generation(answer.tokens, text, finish, sum(log_probs), log_probs, top)
        job.ended += 1
        self._tell_of(answer)
        for index in range(answer.index + 1, answer.index + answer.copies):  # were to share its prompt
            self._end_empty(job, index, finish)

    def _leave(self, answer: ActiveAnswer) -> None:
        if answer.row is not None:
            self.decoder.close(answer.row)
            answer.row = None
        self.guesser.forget(answer)
        self._running.remove(answer)
        self.admission.left(answer.wave, max(1, answer.copies))

    def _search(self, searching: Sequence[tuple[ActiveAnswer, int]], logits: Tensor) -> None:
        """A step of beam search for all jobs that have one."""
        beams: dict[Job, list[tuple[ActiveAnswer, int]]] = {}
        for answer, row in searching:
            beams.setdefault(answer.job, []).append((answer, row))
        parents = advance_searches(
            [job.search for job in beams], logits[[row for its in beams.values() for _, row in its]]
        )
        for (job, its), continued in zip(beams.items(), parents, strict=True):
            self._counts["generated"] += len(its)
            answers = [answer for answer, _ in its]
            if job.search.is_over:
                self._end_search(job, answers)
            else:
                self._reorder(answers, continued.tolist(), [tokens[-1] for tokens in job.search.texts])

    def _reorder(self, answers: Sequence[ActiveAnswer], parents: Sequence[int], tokens: Sequence[int]) -> None:
        """Beam i continues beam parents[i] with a token: it takes over the row, or a fork of it."""
        rows = [answer.row for answer in answers if answer.row is not None]
        free, taken = set(range(len(rows))), list(rows)
        for place, parent in enumerate(parents):
            row = rows[parent]
            taken[place] = row if parent in free else self.decoder.fork(row)
            free.discard(parent)
        for place in free:
            self.decoder.close(rows[place])
        for answer, row, token in zip(answers, taken, tokens, strict=True):
            answer.row, answer.pending = row, [token]

    def _end_search(self, job: Job, answers: Sequence[ActiveAnswer]) -> None:
        for answer in answers:
            self._leave(answer)
        found = job.search.ranked()[: job.n]
        if not found:
            job.error = InputError("No text is possible: bans and penalties exclude all tokens.")
        for index, text in enumerate(found):
            whole = None if job.texts is None else job.texts.whole(text.tokens)
            job.found[index] = Generation(text.tokens, whole, text.finish, text.score, text.log_probs)
            infos = [info_of(token, number) for token, number in zip(text.tokens, text.log_probs, strict=True)]
            self._tell(job, News(index, whole or "", infos, text.finish))
        for index in range(len(found), job.n):  # a small vocabulary has no more texts of this length
            self._tell(job, News(index, "", [], "length" if found else "cancelled"))
        job.search, job.ended = None, job.n

    def _tell_of(self, answer: ActiveAnswer) -> None:
        job, text = answer.job, ""
        if answer.text is not None and job.streams:
            text = answer.text.ready() if answer.finish is None else answer.text.rest()
        elif answer.finish is not None:
            found = job.found[answer.index]
            text = (found.text or "") if found is not None else ""
        self._tell(job, News(answer.index, text, answer.infos[answer.told :], answer.finish))
        answer.told = len(answer.tokens)

    def _tell(self, job: Job, news: News) -> None:
        self._news.setdefault(job, []).append(news)


def _scores_prompt(answer: ActiveAnswer) -> bool:
    """Whether the log-probabilities of the prompt are noted while this answer reads it: the first one does."""
    return answer.job.wants_prompt and answer.index == 0 and not answer.tokens


def _was_guessed(answer: ActiveAnswer) -> bool:
    """Whether the token just chosen was guessed, so that the logits after it are known as well."""
    step = len(answer.row.tokens) if answer.row is not None else 0
    known = len(answer.job.prompt) + len(answer.tokens) - answer.begin
    if answer.finish is not None or not answer.guesses or known > step:
        return False
    return answer.row is not None and answer.row.tokens[known - 1] == answer.tokens[-1]


def _note_prompt(answer: ActiveAnswer, chunk: TokenChunk, logits: Tensor) -> None:
    """Log-probabilities of the prompt's tokens."""
    job = answer.job
    assert job.prompt_log_probs is not None
    begin = len(chunk.row.tokens) - len(chunk.tokens) + answer.begin
    targets = job.prompt[begin + 1 : begin + 1 + len(chunk.tokens)]
    for token, numbers in zip(targets, logits.log_softmax(-1), strict=False):
        job.prompt_log_probs.append(info_of(token, float(numbers[token]), numbers, job.settings.top_log_probs))
