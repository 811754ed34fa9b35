"""One prompt on its way through the engine: what is asked, and its answers as they grow."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from weft.errors import WeftError
from weft.generate.decoder import Ids, Row
from weft.generate.next_token import Processor, TokenRules
from weft.generate.settings import Settings
from weft.generate.start_end_tokens import StartEndTokens
from weft.generate.text import AnswerTexts, Text

# An end token, a stop string, the most new tokens; the caller's wish, or its time is over.
Finish = Literal["end", "stop", "length", "cancelled", "deadline"]


class TokenInfo(NamedTuple):
    """A token with its log-probability, before penalties and filters, and those of the most probable ones."""

    id: int
    log_prob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(slots=True)
class News:
    """What a step added to one answer."""

    index: int  # which of the job's answers
    text: str
    tokens: list[TokenInfo]
    finish: Finish | None


@dataclass(frozen=True)
class Generation:
    """One answer: its new tokens, its text, why it ended, and how probable it is."""

    tokens: list[int]
    text: str | None
    finish: Finish
    score: float  # the sum of log_probs; for beam search, divided by lengthᵖ
    log_probs: list[float]  # of each token, before penalties and filters
    top: list[tuple[tuple[int, float], ...]] = field(default_factory=list)  # with top_log_probs


@dataclass(slots=True, eq=False)
class ActiveAnswer:
    """One text being generated. `pending`: tokens that its row has still to read."""

    job: "Job"
    index: int
    rules: TokenRules
    key: int  # of its random numbers
    text: Text | None
    constraint: Any = None
    row: Row | None = None
    pending: list[int] = field(default_factory=list)
    guesses: list[int] = field(default_factory=list)  # by speculative decoding, read after `pending`
    tokens: list[int] = field(default_factory=list)
    infos: list[TokenInfo] = field(default_factory=list)
    finish: Finish | None = None
    begin: int = 0  # tokens of prompt and text that were dropped from the context
    told: int = 0  # tokens that the caller has heard of
    copies: int = 1  # answers that begin with this one's row once the prompt is read
    wave: Any = None  # admission.Wave

    def add(self, info: TokenInfo) -> None:
        token = info.id
        self.tokens.append(token)
        self.infos.append(info)
        self.rules.note(token)
        if token in self.job.start_end.end_ids:
            self.finish = "end"
            return
        if self.constraint is not None:
            self.constraint.accept(token)
        if self.text is not None:
            self.text.add(token)
        if self.text is not None and self.text.is_stopped:
            self.finish = "stop"
        elif self.constraint is not None and self.constraint.is_over:
            self.finish = "end"
        elif len(self.tokens) >= self.job.most:
            self.finish = "length"

    def context(self) -> list[int]:
        """The tokens the decoder reads. If they exceed the limit, the older half of the context is dropped."""
        known = [*self.job.prompt, *self.tokens]
        limit = self.job.limit
        if limit is not None and len(known) - self.begin > limit:
            self.begin = len(known) - (limit - limit // 2)
        return known[self.begin :]

    @property
    def is_full(self) -> bool:
        """Whether the newest token no longer fits into the context."""
        limit = self.job.limit
        return limit is not None and len(self.job.prompt) + len(self.tokens) - self.begin > limit


class Job:
    def __init__(
        self,
        prompt: Ids,
        source: Ids | None,
        settings: Settings,
        start_end: StartEndTokens,
        *,
        most: int,
        limit: int | None = None,
        keys: Sequence[int] = (),
        wants_log_probs: bool = False,
        wants_prompt: bool = False,
        reads_only: bool = False,
        processors: Sequence[Processor] = (),
        constraint: Any = None,
    ) -> None:
        """`most`: new tokens at most. `limit`: tokens of a context that slides. `keys`: of the answers' random numbers.
        `wants_prompt`: log-probabilities of the prompt's tokens. `reads_only`: of no others.
        """
        self.prompt, self.source = list(prompt), None if source is None else list(source)
        self.settings, self.start_end = settings, start_end
        self.most, self.limit, self.keys = most, limit, keys
        self.wants_log_probs = wants_log_probs or settings.top_log_probs > 0
        self.wants_prompt, self.reads_only, self.processors = wants_prompt, reads_only, processors
        self.constraint = constraint
        self.n = settings.n
        self.texts: AnswerTexts | None = None  # None: the model has no tokenizer
        self.streams = True  # tell of every token at once, or of each answer when it is finished
        self.deadline: float | None = None
        self.cached_tokens = 0
        self.prompt_log_probs: list[TokenInfo] | None = [] if wants_prompt else None
        self.found: list[Generation | None] = [None] * self.n
        self.admitted = self.ended = 0  # answers
        self.is_cancelled = False
        self.error: WeftError | None = None
        self.search: Any = None  # beam.BeamSearch, while it runs

    @property
    def prompt_ids(self) -> list[int]:
        """What was given to read: the prompt, or the encoder's source."""
        return self.prompt if self.source is None else self.source

    @property
    def is_finished(self) -> bool:
        return self.ended == self.n or self.error is not None

    @property
    def is_beam(self) -> bool:
        return self.settings.strategy == "beam"

    @property
    def longest(self) -> int:
        """Tokens of the longest row it can have. The last token is generated without being read."""
        whole = len(self.prompt) + max(self.most - 1, 0)
        return whole if self.limit is None else min(whole, self.limit)
