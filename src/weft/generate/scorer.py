"""`score`: how probable texts are. `choose`: the most probable of given answers."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch

from weft.errors import InputError
from weft.generate.decoder import plain_inference
from weft.generate.log_probs import (
    Candidate,
    Score,
    log_probs_after,
    log_probs_after_each,
    log_probs_of,
    shared_prefix,
    to_score,
)
from weft.generate.prepare import Prepared
from weft.generate.prompts import PromptReader, as_list
from weft.generate.settings import Settings

Normalize = Literal["none", "tokens", "bytes"]
_OPTIONS_AT_A_TIME = 256  # of `choose`, in one batch


# The decoder's prompt, the encoder's source, and the tokens of each option.
_Asked = tuple[list[int], list[int] | None, list[list[int]]]


class Scorer:
    def __init__(self, ready: Prepared, reader: PromptReader) -> None:
        self.ready, self.network, self.reader = ready, ready.network, reader

    def score(self, texts: Any, sources: Any = None) -> Any:
        """How probable each text is; for an encoder–decoder, as an answer to its source."""
        alone, listed = as_list(texts)
        ids = [self.reader.ids_of(text, f"Text {place}") for place, text in enumerate(listed)]
        given = [self._started(row) for row in ids]
        with plain_inference(self.network):
            found = log_probs_of(self.network, given, self._sources(sources, alone, len(listed)), self.reader.limit)
        scores = [self._summary(numbers, text, row) for numbers, text, row in zip(found, listed, ids, strict=True)]
        return scores[0] if alone else scores

    def _summary(self, log_probs: list[float], text: Any, ids: list[int]) -> Score:
        if not isinstance(text, str):
            text = self.reader.tokenizer.decode(ids) if self.reader.has_tokenizer else ""
        return to_score(log_probs, text)

    def _started(self, ids: list[int]) -> list[int]:
        start = self.reader.start_end.start_id
        return ids if start is None or ids[:1] == [start] else [start, *ids]

    def _sources(self, sources: Any, alone: bool, count: int) -> list[list[int]] | None:
        if not self.reader.has_source:
            if sources is not None:
                raise InputError("Sources go with an encoder–decoder; this model scores texts by themselves.")
            return None
        if sources is None:
            raise InputError("An encoder–decoder scores a text as the answer to a source: score(texts, sources).")
        is_one, listed = as_list(sources)
        if is_one != alone:
            raise InputError("Give one text and one source, or a list of each.")
        if len(listed) != count:
            raise InputError(f"There are {count} texts but {len(listed)} sources.")
        return [self._source(source, f"Source {place}") for place, source in enumerate(listed)]

    def _source(self, source: Any, what: str) -> list[int]:
        encoded = self.reader.read(source, what, Settings())
        assert encoded.source is not None
        return encoded.source

    def choose(self, prompt: str, options: Sequence[str], *, normalize: Normalize, details: bool) -> Any:
        """The most probable option after the prompt; with `details` all of them, most probable first."""
        if not isinstance(prompt, str):
            raise InputError("choose takes a text and a list of texts to choose from.")
        candidates = sorted(self.choose_each([prompt], options, normalize)[0], key=lambda one: -one.probability)
        return candidates if details else candidates[0].option

    def choose_each(
        self, prompts: Sequence[str], options: Sequence[str], normalize: Normalize
    ) -> list[list[Candidate]]:
        """All options after each prompt, in their order. What the prompts of a decoder begin with is read once."""
        options = _checked_options(options)
        if not isinstance(normalize, str) or normalize not in get_args(Normalize):
            raise InputError(f"normalize cannot be {normalize!r}; it is one of {', '.join(get_args(Normalize))}.")
        asked = [self._answers(prompt, options) for prompt in prompts]
        for before, _, answers in asked:
            if self.reader.limit is not None and len(before) + max(map(len, answers)) - 1 > self.reader.limit:
                raise InputError(
                    f"The prompt and an option are longer than the {self.reader.limit} tokens that this model reads."
                )
        totals: list[list[float]] = [[] for _ in prompts]
        with plain_inference(self.network):
            for start in range(0, len(options), _OPTIONS_AT_A_TIME):
                parts = [answers[start : start + _OPTIONS_AT_A_TIME] for _, _, answers in asked]
                for total, more in zip(totals, self._log_probs(asked, parts), strict=True):
                    total += more
        return [
            _candidates(options, answers, total, normalize)
            for (_, _, answers), total in zip(asked, totals, strict=True)
        ]

    def _log_probs(self, asked: Sequence[_Asked], answers: Sequence[list[list[int]]]) -> list[list[float]]:
        if len(asked) > 1 and not self.reader.has_source:
            return log_probs_after_each(self.ready, [before for before, _, _ in asked], answers)
        return [
            log_probs_after(self.ready, before, source, part)
            for (before, source, _), part in zip(asked, answers, strict=True)
        ]

    def _answer(self, option: str, what: str) -> list[int]:
        """The tokens of an answer as in training: with an end token, without opening tokens."""
        ids = self.reader.ids_of(option, what)
        if self.reader.has_source or self.reader.framing is None:
            return ids
        opening = self.reader.framing.opening(self.reader.tokenizer.engine)
        ids = ids[len(opening) :] if ids[: len(opening)] == opening else ids
        return [*ids, self.reader.start_end.end_ids[0]] if ids else []

    def _answers(self, prompt: str, options: Sequence[str]) -> _Asked:
        if self.reader.has_source or (self.reader.framing and self.reader.start_end.end_ids):
            encoded = self.reader.read(prompt, "The prompt", Settings())
            answers = [self._answer(option, f"Option {place}") for place, option in enumerate(options)]
            if empty := [option for option, answer in zip(options, answers, strict=True) if not answer]:
                raise InputError(f"The option {empty[0]!r} has no tokens, so it cannot be chosen.")
            return encoded.prompt, encoded.source, answers
        # Tokenized together with the prompt: a token may span the border.
        whole = [
            self._started(self.reader.ids_of(prompt + one, f"With option {n}, the prompt"))
            for n, one in enumerate(options)
        ]
        begin = min(shared_prefix(whole), len(self._started(self.reader.ids_of(prompt, "The prompt"))))
        if begin == 0:
            raise InputError(
                "The prompt is too short: it shares its only token with an option, and this model has no start token."
            )
        return whole[0][:begin], None, [row[begin:] for row in whole]


def _checked_options(options: Any) -> list[str]:
    if isinstance(options, str) or not isinstance(options, Iterable):
        raise InputError("choose takes a text and a list of texts to choose from.")
    options = [str(one) if isinstance(one, np.str_) else one for one in options]
    if not all(isinstance(one, str) for one in options):
        raise InputError("choose takes a text and a list of texts to choose from.")
    if not options or len(set(options)) < len(options) or not all(options):
        raise InputError("choose needs at least one option, all of them different and none empty.")
    return options


def _candidates(
    options: Sequence[str], answers: Sequence[list[int]], totals: Sequence[float], normalize: Normalize
) -> list[Candidate]:
    sizes = [_size(option, answer, normalize) for option, answer in zip(options, answers, strict=True)]
    merits = torch.tensor([total / size for total, size in zip(totals, sizes, strict=True)], dtype=torch.double)
    found = zip(options, merits.softmax(0).tolist(), totals, map(len, answers), strict=True)
    return [Candidate(*facts) for facts in found]


def _size(option: str, answer: Sequence[int], normalize: Normalize) -> int:
    match normalize:
        case "none":
            return 1
        case "tokens":
            return len(answer)
        case "bytes":
            return len(option.encode())
