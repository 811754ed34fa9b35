"""Which jobs run: first come, first served, while there are rows and pages for their longest possible texts."""

import time
from collections import deque
from collections.abc import Iterator

from weft.errors import InputError
from weft.generate.decoder import Decoder
from weft.generate.job import Finish, Job
from weft.generate.kernels import PAGE_TOKENS
from weft.generate.pages import pages_for


class Wave:
    """Answers of one job that began together. Their pages are reserved until the last of them has left."""

    def __init__(self, texts: int, sources: int, first: int, answers: int) -> None:
        """`texts`, `sources`: reserved pages. `first`: the index of its first answer."""
        self.texts, self.sources, self.first, self.answers = texts, sources, first, answers


class Admission:
    def __init__(self, decoder: Decoder, rows: int) -> None:
        self.decoder, self.rows = decoder, rows
        self._inbox: deque[Job] = deque()  # from other threads
        self._waiting: deque[Job] = deque()
        self._texts = self._sources = 0  # reserved pages

    def submit(self, job: Job) -> None:
        texts, sources = self._pages(job, _least_rows(job))
        pool, source_pool = self.decoder.pool, self.decoder.source_pool
        is_too_large = (pool is not None and texts > pool.pages) or (
            source_pool is not None and sources > source_pool.pages
        )
        if is_too_large or _least_rows(job) > self.rows:
            raise InputError(
                f"A prompt of {len(job.prompt_ids):,} tokens with {job.most:,} new ones does not fit into the memory "
                "for keys and values. Ask for fewer tokens or beams, or give it more memory."
            )
        self._inbox.append(job)

    @property
    def waiting(self) -> int:
        return len(self._waiting) + len(self._inbox)

    def dropped(self) -> Iterator[Job]:
        """Waiting jobs that were cancelled, or whose time is over."""
        while self._inbox:
            self._waiting.append(self._inbox.popleft())
        now = time.monotonic()
        for job in [one for one in self._waiting if why_ended(one, now)]:
            self._waiting.remove(job)
            yield job

    def admitted(self, running: int) -> Iterator[tuple[Job, Wave]]:
        """Jobs to start, each with the answers that begin now. `running`: rows in use."""
        while self._waiting:
            job, least = self._waiting[0], _least_rows(self._waiting[0])
            rows = min(least if job.is_beam else job.n - job.admitted, self.rows - running)
            while rows >= least and not self._fits(job, rows, is_alone=running == 0):
                rows = rows // 2 if rows > least else 0
            if rows < least:
                return
            self._waiting.popleft()
            wave = Wave(*self._pages(job, rows), job.admitted, rows)
            self._texts, self._sources = self._texts + wave.texts, self._sources + wave.sources
            running += rows
            job.admitted = job.n if job.is_beam else job.admitted + rows
            if job.admitted < job.n:
                self._waiting.appendleft(job)  # more answers when there is room for them
            yield job, wave

    def left(self, wave: Wave, answers: int = 1) -> None:
        wave.answers -= answers
        if wave.answers == 0:
            self._texts, self._sources = self._texts - wave.texts, self._sources - wave.sources

    def _pages(self, job: Job, rows: int) -> tuple[int, int]:
        """Pages for so many rows of a job. They share the full pages of the prompt."""
        if self.decoder.pool is None:
            return 0, 0
        shared = 0 if job.limit is not None else len(job.prompt) // PAGE_TOKENS
        each = pages_for(job.longest + job.settings.speculate) + 1 - shared
        return shared + rows * each, 0 if job.source is None else pages_for(len(job.source))

    def _fits(self, job: Job, rows: int, *, is_alone: bool) -> bool:
        pool, source_pool = self.decoder.pool, self.decoder.source_pool
        if pool is None:
            return True
        texts, sources = self._pages(job, rows)
        if is_alone:
            return texts <= pool.pages
        has_room = self._texts + texts <= pool.pages
        return has_room and (source_pool is None or self._sources + sources <= source_pool.pages)


def _least_rows(job: Job) -> int:
    return (job.settings.beams or 1) if job.is_beam else 1


def why_ended(job: Job, now: float) -> Finish | None:
    """Why a job must end before its answers do."""
    if job.is_cancelled:
        return "cancelled"
    return "deadline" if job.deadline is not None and now > job.deadline else None
