"""`generate` and `stream`.

Prompts are texts or lists of token ids; answers are of the same kind. One prompt gives one answer, a list a list.
Prompts are processed in batches of similar length.
"""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from weft.errors import InputError
from weft.generate.beam import search
from weft.generate.decoder import plain_inference
from weft.generate.framing import Turn
from weft.generate.next_token import RandomStreams
from weft.generate.prompts import EncodedPrompt, Prompt, PromptReader, as_list
from weft.generate.settings import DEFAULT_NEW_TOKENS, settings_of
from weft.generate.start_end_tokens import StartEndTokens
from weft.generate.text import Text, before_stop, new_text
from weft.generate.write import ActiveSequence, DecodeSpec, Finish, write_steps
from weft.model.network import Network
from weft.model.packed import order_by_length
from weft.progress import Gauge

_MOST_CACHE_BYTES, _MOST_BATCH_ROWS = 2**29, 64  # of a batch


@dataclass(frozen=True)
class Generation:
    """One answer: its new tokens, its text, why it ended, and how probable it is."""

    tokens: list[int]
    text: str | None
    finish: Finish  # an end token, a stop string, or the most new tokens
    score: float  # the sum of log_probs; for beam search, divided by lengthᵖ
    log_probs: list[float]  # of each token, before penalties and filters


@dataclass(frozen=True)
class _Batch:
    places: list[int]  # indices of prompts
    copies: range  # which of the n answers to each of them

    @property
    def size(self) -> int:
        return len(self.places) * len(self.copies)


class Writer:
    def __init__(self, network: Network, reader: PromptReader, recommended: dict[str, Any]) -> None:
        """`network`: from `prepared`. `recommended`: the folder's generation_config.json."""
        self.network, self.reader, self.recommended = network, reader, recommended

    def generate(self, prompts: Any, *, details: bool = False, progress: bool = False, **given: Any) -> Any:
        """An answer per prompt; a list of them, best first, if `n` > 1. With `details`, `Generation`s."""
        alone, listed = as_list(prompts)
        spec = self._spec(given, details=details)
        encoded = [self.reader.read(prompt, f"Prompt {place}", spec.settings) for place, prompt in enumerate(listed)]
        answers = self._answer(encoded, spec, progress=progress)
        shown: list[Any] = answers
        if not details:
            shown = [
                [answer.text if one.is_text else answer.tokens for answer in row]
                for one, row in zip(encoded, answers, strict=True)
            ]
        if spec.settings.n == 1:
            shown = [row[0] for row in shown]
        return shown[0] if alone else shown

    def stream(self, prompt: Prompt, *, history: Sequence[Turn] = (), **given: Any) -> Iterator[Any]:
        """The answer while it is generated: pieces of text, or token ids."""
        spec = self._spec(given, details=False)
        if spec.settings.strategy == "beam":
            raise InputError("Beam search has its text only at the end, so it cannot be streamed.")
        if spec.settings.n != 1:
            raise InputError("A stream is one answer; n goes with generate.")
        alone, listed = as_list(prompt)
        if not alone:
            raise InputError("stream takes one prompt; for several use generate.")
        encoded = self.reader.read(listed[0], "The prompt", spec.settings, history)
        row = self._row(encoded, spec, streams=encoded.is_text)
        return self._pieces(
            encoded, row, write_steps(spec, [row], self._sources([encoded]), self._random_streams([encoded], spec))
        )

    def _pieces(self, encoded: EncodedPrompt, row: ActiveSequence, steps: Iterator[None]) -> Iterator[Any]:
        while row.finish is None:
            with plain_inference(self.network):  # never around a yield, or the caller would be in inference mode
                next(steps)
            if not encoded.is_text:
                yield row.tokens[-1]
            elif row.text is not None and (piece := row.text.ready()):
                yield piece
        if encoded.is_text and row.text is not None and (piece := row.text.rest()):
            yield piece

    def _answer(self, encoded: list[EncodedPrompt], spec: DecodeSpec, *, progress: bool) -> list[list[Generation]]:
        randoms, n = self._random_streams(encoded, spec), spec.settings.n
        answers: list[list[Generation]] = [[] for _ in encoded]
        batches = list(self._batches(encoded, spec))
        total = sum(batch.size for batch in batches)
        with Gauge("Writing", unit="texts", total_items=total) if progress else nullcontext() as gauge:
            for batch in batches:
                part = [encoded[place] for place in batch.places]
                with plain_inference(self.network):
                    if spec.settings.strategy == "beam":
                        found = self._search(part, spec)
                    else:
                        rows = [place * n + copy for place in batch.places for copy in batch.copies]
                        own_randoms = None if randoms is None else randoms.of(rows)
                        found = self._write(part, spec, len(batch.copies), own_randoms)
                for place, answer in zip(batch.places, found, strict=True):
                    answers[place] += answer
                if gauge is not None:
                    gauge.add(batch.size)
        return answers

    def _write(
        self, encoded: list[EncodedPrompt], spec: DecodeSpec, copies: int, randoms: RandomStreams | None
    ) -> list[list[Generation]]:
        rows = [self._row(one, spec) for one in encoded for _ in range(copies)]
        for _ in write_steps(spec, rows, self._sources(encoded), randoms, copies):
            pass
        answers = []
        for row in rows:
            assert row.finish is not None
            text = self._text(row.prompt, row.tokens, spec)
            answers.append(Generation(row.tokens, text, row.finish, sum(row.log_probs), row.log_probs))
        return [answers[start : start + copies] for start in range(0, len(answers), copies)]

    def _search(self, encoded: list[EncodedPrompt], spec: DecodeSpec) -> list[list[Generation]]:
        stops = spec.settings.stop
        most = 4 * max(map(len, stops), default=0) + 8  # tokens at the end in which a new stop string must lie

        def holds_stop(place: int, tokens: list[int]) -> bool:
            before = [*self._before(encoded[place].prompt), *tokens[:-most]]
            text = new_text(self.reader.tokenizer, before, tokens[-most:])
            return any(stop in text for stop in stops)

        mosts = [self.reader.most(one, spec.settings) for one in encoded]
        ends_text = holds_stop if stops else None
        found = search(spec, [one.prompt for one in encoded], self._sources(encoded), mosts, ends_text)
        return [
            [
                Generation(
                    text.tokens, self._text(one.prompt, text.tokens, spec), text.finish, text.score, text.log_probs
                )
                for text in texts[: spec.settings.n]
            ]
            for one, texts in zip(encoded, found, strict=True)
        ]

    def _row(self, encoded: EncodedPrompt, spec: DecodeSpec, *, streams: bool = False) -> ActiveSequence:
        """Text is made during generation only for streams and stop strings."""
        text = None
        if streams or spec.settings.stop:
            text = Text(self.reader.tokenizer, self._before(encoded.prompt), spec.settings.stop)
        return ActiveSequence(encoded.prompt, self.reader.most(encoded, spec.settings), text)

    def _before(self, prompt: Sequence[int]) -> Sequence[int]:
        """The prompt whose text is continued. An encoder–decoder's start token is no text."""
        return () if self.reader.has_source else prompt

    def _text(self, prompt: Sequence[int], tokens: list[int], spec: DecodeSpec) -> str | None:
        if not self.reader.has_tokenizer:
            return None
        kept = tokens[:-1] if tokens and tokens[-1] in spec.start_end.end_ids else tokens
        return before_stop(new_text(self.reader.tokenizer, self._before(prompt), kept), spec.settings.stop)

    def _sources(self, encoded: Sequence[EncodedPrompt]) -> list[list[int]] | None:
        return [one.source for one in encoded if one.source is not None] if self.reader.has_source else None

    def _spec(self, given: dict[str, Any], *, details: bool) -> DecodeSpec:
        settings, own, vocabulary = settings_of(given, self.recommended), self.reader.start_end, self.reader.vocabulary
        if settings.stop and not self.reader.has_tokenizer:
            raise InputError("This model has no tokenizer, so it cannot find stop strings. Use stop_tokens (ids).")
        banned = [self.reader.token_of(item) for item in settings.banned]
        self.reader.check_ids(banned, "banned")
        self.reader.check_ids(settings.stop_tokens, "stop_tokens")
        start_end = StartEndTokens(
            (*own.end_ids, *settings.stop_tokens), own.start_id, own.forced_end_id, own.banned_ids
        )
        out = {*banned, *start_end.banned_ids, *(start_end.end_ids if settings.min_new_tokens else ())}
        if len(out) == vocabulary:
            raise InputError("Every token is banned, so nothing can be generated.")
        update: dict[str, Any] = {"banned": banned}
        if settings.beams == 1:  # beam search with one beam is greedy decoding
            update["strategy"] = "greedy"
        settings = settings.model_copy(update=update)
        most = settings.max_new_tokens or max(DEFAULT_NEW_TOKENS, settings.min_new_tokens)
        return DecodeSpec(
            self.network, settings, start_end, most, self.reader.limit if settings.slide else None, details
        )

    def _random_streams(self, encoded: Sequence[EncodedPrompt], spec: DecodeSpec) -> RandomStreams | None:
        settings = spec.settings
        if settings.strategy != "sample":
            return None
        seed = secrets.randbits(63) if settings.seed is None else settings.seed
        prompts = [one.prompt if one.source is None else one.source for one in encoded for _ in range(settings.n)]
        return RandomStreams.seeded(seed, prompts)

    def _batches(self, encoded: Sequence[EncodedPrompt], spec: DecodeSpec) -> Iterator[_Batch]:
        """Prompts of similar length together, as many rows as the cache has room for. Many answers to one prompt may
        need several batches.
        """
        settings, copies = spec.settings, range(spec.settings.n)
        if settings.strategy == "beam":
            rows, copies = settings.beams or 1, range(1)
        else:
            rows = settings.n
        batch, limit = list[int](), 1
        for place in order_by_length([one.source or one.prompt for one in encoded]):
            if batch and (len(batch) + 1) * rows > limit:
                yield _Batch(batch, copies)
                batch = []
            if not batch:  # the longest of its batch
                width = len(encoded[place].prompt) + spec.most + len(encoded[place].source or ())
                limit = max(1, min(_MOST_BATCH_ROWS, _MOST_CACHE_BYTES // (width * self._bytes_per_token)))
            if len(copies) > limit:
                yield from (_Batch([place], copies[start : start + limit]) for start in range(0, len(copies), limit))
            else:
                batch.append(place)
        if batch:
            yield _Batch(batch, copies)

    @property
    def _bytes_per_token(self) -> int:
        stack = self.network.architecture.decoder
        if stack is None:
            return 1
        return sum(2 * 4 * block.attention.key_value_heads * block.attention.head_width for block in stack.blocks)
