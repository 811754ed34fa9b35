"""The answers of /v1/completions: OpenAI's text_completion, whole or as events, with its older log-probabilities."""

import codecs
import math
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from json import JSONEncoder
from json.encoder import encode_basestring_ascii
from typing import Any

from weft.generate.job import Job, News, TokenInfo
from weft.serve.answers import REASONS, Usage, WholeAnswers
from weft.serve.token_text import TokenTexts

compact_json = JSONEncoder(separators=(",", ":"), allow_nan=False).encode  # no spaces: a stream is many small objects
_NO_LOG_PROB = -9999.0  # OpenAI's number for minus infinity, which JSON cannot hold


@dataclass(frozen=True)
class AnswerHead:
    """What all parts of an answer begin with."""

    model: str
    kind: str  # the object: text_completion, chat.completion …
    id: str
    created: int = field(default_factory=lambda: int(time.time()))

    @classmethod
    def new(cls, model: str, kind: str, prefix: str) -> "AnswerHead":
        return cls(model, kind, f"{prefix}-{uuid.uuid4().hex}")

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, "object": self.kind, "created": self.created, "model": self.model}


@dataclass(frozen=True)
class CompletionDetails:
    """What a request wants beside the text. `echoes`: the text of each prompt; None: it is not repeated."""

    texts: TokenTexts
    log_probs: bool = False
    token_ids: bool = False
    echoes: Sequence[str] | None = None
    usage: bool = False  # in a last event of a stream

    @property
    def only_text(self) -> bool:
        return not (self.log_probs or self.token_ids)


def json_number(log_prob: float) -> float:
    return _NO_LOG_PROB if math.isinf(log_prob) or math.isnan(log_prob) else log_prob


class LegacyLogProbs:
    """tokens, token_logprobs, top_logprobs and text_offset of an answer, piece by piece."""

    def __init__(self, texts: TokenTexts) -> None:
        self.texts, self.offset = texts, 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def of_prompt(self, job: Job) -> dict[str, list[Any]]:
        """The first token has no log-probability: nothing precedes it."""
        found = self.of([TokenInfo(token, 0.0, ()) for token in job.prompt_ids[:1]])
        found["token_logprobs"], found["top_logprobs"] = ([None] for _ in range(2))
        return joined_log_probs(found, self.of(job.prompt_log_probs or ()))

    def of(self, tokens: Sequence[TokenInfo]) -> dict[str, list[Any]]:
        text = self.texts.text
        offsets = []
        for token in tokens:
            offsets.append(self.offset)
            if not self.texts.is_special(token.id):
                self.offset += len(self._decoder.decode(self.texts.raw(token.id)))
        return {
            "tokens": [text(token.id) for token in tokens],
            "token_logprobs": [json_number(token.log_prob) for token in tokens],
            "top_logprobs": [self._top(token) for token in tokens],
            "text_offset": offsets,
        }

    def _top(self, token: TokenInfo) -> dict[str, float]:
        found: dict[str, float] = {}
        for id, log_prob in (*token.top, (token.id, token.log_prob)):  # the chosen one is always there
            found.setdefault(self.texts.text(id), json_number(log_prob))
        return found


def joined_log_probs(first: dict[str, list[Any]], second: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {name: [*values, *second[name]] for name, values in first.items()}


def completion_json(head: AnswerHead, whole: WholeAnswers, details: CompletionDetails) -> bytes:
    choices = []
    for number, answer in enumerate(whole.answers):
        log_probs = None
        echo = "" if details.echoes is None else details.echoes[whole.jobs.index(answer.job)]
        if details.log_probs:
            legacy = LegacyLogProbs(details.texts)
            before = legacy.of_prompt(answer.job) if details.echoes is not None else legacy.of(())
            log_probs = joined_log_probs(before, legacy.of(answer.tokens))
        choice = {"index": number, "text": echo + answer.text, "logprobs": log_probs, "finish_reason": answer.reason}
        if details.token_ids:
            choice["prompt_token_ids"] = answer.job.prompt_ids
            choice["token_ids"] = [token.id for token in answer.tokens]
        choices.append(choice)
    return compact_json({**head.as_json(), "choices": choices, "usage": whole.usage.as_json()}).encode()


class CompletionEvents:
    """The events of a streamed completion."""

    def __init__(self, head: AnswerHead, jobs: Sequence[Job], details: CompletionDetails) -> None:
        self.details = details
        self._start = f'data: {compact_json(head.as_json())[:-1]},"choices":['
        self._heads = [
            f'{self._start}{{"index":{number},"text":'.encode() for number in range(sum(job.n for job in jobs))
        ]
        self._end = b'],"usage":null}\n\n' if details.usage else b"]}\n\n"
        self._plain_tail = b',"logprobs":null,"finish_reason":null}' + self._end
        self._echoes = {id(job): echo for job, echo in zip(jobs, details.echoes or (), strict=False)}
        self._log_probs = [LegacyLogProbs(details.texts) for _ in self._heads] if details.log_probs else []

    def opening(self, number: int, job: Job) -> bytes:
        if self.details.echoes is None:
            return b""
        log_probs = self._log_probs[number].of_prompt(job) if self.details.log_probs else None
        return self._event(number, self._echoes[id(job)], log_probs, None, job.prompt_ids)

    def event(self, number: int, news: News) -> bytes:
        if news.finish is None and self.details.only_text:
            if not news.text:
                return b""
            return self._heads[number] + encode_basestring_ascii(news.text).encode() + self._plain_tail
        log_probs = self._log_probs[number].of(news.tokens) if self.details.log_probs else None
        reason = None if news.finish is None else REASONS[news.finish]
        return self._event(number, news.text, log_probs, reason, [token.id for token in news.tokens])

    def closing(self, usage: Usage) -> bytes:
        if not self.details.usage:
            return b""
        return f'{self._start}],"usage":{compact_json(usage.as_json())}}}\n\n'.encode()

    def _event(
        self, number: int, text: str, log_probs: dict[str, Any] | None, reason: str | None, token_ids: list[int]
    ) -> bytes:
        rest: dict[str, Any] = {"logprobs": log_probs, "finish_reason": reason}
        if self.details.token_ids:
            rest["token_ids"] = token_ids
        return b"".join(
            (
                self._heads[number],
                encode_basestring_ascii(text).encode(),
                f",{compact_json(rest)[1:]}".encode(),
                self._end,
            )
        )
