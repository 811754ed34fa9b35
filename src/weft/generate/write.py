"""Greedy decoding and sampling: every sequence of a batch gets one token per step, and leaves when it is finished."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch

from weft.generate.decoder import Decoder, Ids
from weft.generate.next_token import RandomStreams, Rules, draw_tokens, filtered_probabilities, most_probable
from weft.generate.settings import Settings
from weft.generate.start_end_tokens import StartEndTokens
from weft.generate.text import Text
from weft.model.network import Network

Finish = Literal["end", "stop", "length"]


@dataclass
class ActiveSequence:
    """A text being generated: the prompt, and the tokens so far."""

    prompt: Ids
    most: int  # new tokens at most
    text: Text | None = None  # where text is needed during generation: streams, stop strings
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    finish: Finish | None = None  # None: not finished
    begin: int = 0  # tokens of prompt and text that were dropped from the context

    def add(self, token: int, ends: Sequence[int]) -> None:
        self.tokens.append(token)
        if token in ends:
            self.finish = "end"
            return
        if self.text is not None:
            self.text.add(token)
        if self.text is not None and self.text.is_stopped:
            self.finish = "stop"
        elif len(self.tokens) == self.most:
            self.finish = "length"

    def is_full(self, limit: int | None) -> bool:
        """Whether the newest token no longer fits into the context."""
        return limit is not None and len(self.prompt) + len(self.tokens) - self.begin > limit

    def context(self, limit: int | None) -> list[int]:
        """The tokens the decoder reads. If they exceed the limit, the older half of the context is dropped."""
        known = [*self.prompt, *self.tokens]
        if limit is not None and self.is_full(limit):
            self.begin = len(known) - (limit - limit // 2)
        return known[self.begin :]


@dataclass(frozen=True)
class DecodeSpec:
    """What all sequences of a batch share."""

    network: Network
    settings: Settings
    start_end: StartEndTokens
    most: int  # new tokens of any sequence at most
    limit: int | None  # tokens that the decoder reads
    wants_log_probs: bool = False


def write_steps(
    spec: DecodeSpec,
    rows: Sequence[ActiveSequence],
    sources: Sequence[Ids] | None,
    randoms: RandomStreams | None,
    copies: int = 1,
) -> Iterator[None]:
    """Each step adds one token to every unfinished row, until all are finished. `copies` neighbouring rows share a
    prompt and a source. With `randoms` tokens are sampled, without they are the most probable ones.
    """
    settings = spec.settings
    decoder = _read(spec, rows, sources, copies)
    if copies > 1:
        decoder.keep(np.repeat(np.arange(decoder.rows), copies))
        sources = None if sources is None else [source for source in sources for _ in range(copies)]
    rules = Rules(settings, spec.start_end, [row.prompt for row in rows], decoder.logits)
    for step in range(spec.most):
        if spec.wants_log_probs:
            log_probs = decoder.logits.log_softmax(-1)
        scores = rules.apply(decoder.logits, step, [row.most for row in rows])
        if randoms is None:
            tokens = most_probable(scores)
        else:
            tokens = draw_tokens(*filtered_probabilities(scores, settings), randoms.at(step))
        rules.note(tokens)
        for row, token in zip(rows, tokens.tolist(), strict=True):
            row.add(token, spec.start_end.end_ids)
        if spec.wants_log_probs:
            for row, number in zip(rows, log_probs.gather(1, tokens[:, None])[:, 0].tolist(), strict=True):
                row.log_probs.append(number)
        yield

        staying = np.array([place for place, row in enumerate(rows) if row.finish is None], dtype=np.int64)
        if staying.size == 0:
            return
        if staying.size < len(rows):
            rows = [rows[place] for place in staying]
            sources = None if sources is None else [sources[place] for place in staying]
            tokens = tokens[torch.as_tensor(staying, device=tokens.device)]
            decoder.keep(staying)
            rules.keep(staying)
            randoms = None if randoms is None else randoms.of(staying)
        if any(row.is_full(spec.limit) for row in rows):
            decoder = _read(spec, rows, sources)
        else:
            decoder.step(tokens)


def _read(spec: DecodeSpec, rows: Sequence[ActiveSequence], sources: Sequence[Ids] | None, copies: int = 1) -> Decoder:
    room = max(row.most - len(row.tokens) for row in rows)
    contexts = [row.context(spec.limit) for row in rows]
    return Decoder(spec.network, contexts[::copies], sources, room)
