"""The verbs of a model that writes: generate, stream, score, choose.

Prompts are texts, or lists of token ids; what comes back is of the same kind. One alone gives one answer, a list a
list. Prompts go through in batches, those of like length together.
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from weft.errors import InputError
from weft.generate.beam import search
from weft.generate.ends import Ends
from weft.generate.next_token import Chances
from weft.generate.settings import NEW_TOKENS, Settings, settings_of
from weft.generate.text import Text, cut, new_text
from weft.generate.write import Finish, Row, Task, write
from weft.model.network import Network
from weft.model.packed import order_by_length
from weft.model.positions import longest
from weft.progress import say
from weft.tokenizer.tokenizer import Tokenizer

CACHE_BYTES, ROWS = 2**29, 64  # of a batch, at the most
Prompt = str | Sequence[int]


@dataclass(frozen=True)
class Generation:
    """One answer: its new tokens, its text, how it came to its end and how likely it was."""

    tokens: list[int]
    text: str | None
    finish: Finish  # an end token, a stop string, or the most tokens
    score: float  # the sum of log_probs; of beam search, divided by lengthᵖ
    log_probs: list[float]  # of each token, in the model's own distribution


@dataclass(frozen=True)
class _Asked:
    """A prompt, made out: token ids for the decoder, and of an encoder–decoder for the encoder."""

    prompt: list[int]
    source: list[int] | None
    is_text: bool


class Writer:
    def __init__(
        self, network: Network, tokenizer: Tokenizer | None, ends: Ends, recommended: dict[str, Any] | None = None
    ) -> None:
        """`recommended` is the folder's generation_config.json."""
        self.network, self.tokenizer, self.ends = network, tokenizer, ends
        self.recommended = recommended or {}
        self.limit = longest(network.architecture.embedding.positions)
        self.has_source = network.architecture.is_encoder_decoder

    def generate(self, prompts: Any, *, details: bool = False, **given: Any) -> Any:
        """An answer to each prompt; `n` > 1: a list of them, best first. With `details`, `Generation`s."""
        settings = settings_of(given, self.recommended)
        alone, listed = as_list(prompts)
        asked = [self._ask(prompt, place, settings) for place, prompt in enumerate(listed)]
        answers = self._answer(asked, settings, details=details)
        shown: list[Any] = answers
        if not details:
            shown = [
                [answer.text if one.is_text else answer.tokens for answer in row]
                for one, row in zip(asked, answers, strict=True)
            ]
        if settings.n == 1:
            shown = [row[0] for row in shown]
        return shown[0] if alone else shown

    def stream(self, prompt: Prompt, **given: Any) -> Iterator[str] | Iterator[int]:
        """The answer as it is written: pieces of text, or token ids."""
        settings = settings_of(given, self.recommended)
        if settings.strategy == "beam":
            raise InputError("Beam search knows its text only at the end, so there is nothing to stream.")
        if settings.n != 1:
            raise InputError("A stream is one answer; n goes with generate.")
        alone, listed = as_list(prompt)
        if not alone:
            raise InputError("stream takes one prompt; for several use generate.")
        asked = self._ask(listed[0], 0, settings)
        return self._stream(asked, settings)

    def _stream(self, asked: _Asked, settings: Settings) -> Iterator[Any]:
        task, settings = self._task(settings, details=False)
        row = self._row(asked, task, streams=asked.is_text)
        chances = self._chances([asked], settings)
        with torch.inference_mode():
            for _ in write(task, [row], None if asked.source is None else [asked.source], chances):
                if row.text is None or not asked.is_text:
                    yield row.tokens[-1]
                elif piece := row.text.ready():
                    yield piece
        if row.text is not None and asked.is_text and (piece := row.text.rest()):
            yield piece

    def _answer(self, asked: list[_Asked], settings: Settings, *, details: bool) -> list[list[Generation]]:
        task, settings = self._task(settings, details=details)
        chances = self._chances(asked, settings)
        answers: list[list[Generation]] = [[]] * len(asked)
        for picked in self._batches(asked, task):
            part = [asked[place] for place in picked]
            mine = None
            if chances is not None:
                mine = chances.of([place * settings.n + copy for place in picked for copy in range(settings.n)])
            with torch.inference_mode():
                found = self._search(part, task) if settings.strategy == "beam" else self._write(part, task, mine)
            for place, answer in zip(picked, found, strict=True):
                answers[place] = answer
        return answers

    def _write(self, asked: list[_Asked], task: Task, chances: Chances | None) -> list[list[Generation]]:
        copies = task.settings.n
        rows = [self._row(one, task) for one in asked for _ in range(copies)]
        for _ in write(task, rows, self._sources(asked), chances):
            pass
        answers = [
            Generation(
                row.tokens,
                self._text(row.prompt, row.tokens, task),
                row.finish or "length",
                sum(row.log_probs),
                row.log_probs,
            )
            for row in rows
        ]
        return [answers[start : start + copies] for start in range(0, len(answers), copies)]

    def _search(self, asked: list[_Asked], task: Task) -> list[list[Generation]]:
        def holds_stop(place: int, tokens: list[int]) -> bool:
            text = new_text(self._needed_tokenizer(), self._before(asked[place].prompt), tokens)
            return any(stop in text for stop in task.settings.stop)

        ends_text = holds_stop if task.settings.stop else None
        mosts = [self._most(one, task.settings) for one in asked]
        found = search(task, [one.prompt for one in asked], self._sources(asked), mosts, ends_text)
        return [
            [
                Generation(
                    text.tokens, self._text(one.prompt, text.tokens, task), text.finish, text.score, text.log_probs
                )
                for text in texts[: task.settings.n]
            ]
            for one, texts in zip(asked, found, strict=True)
        ]

    def _row(self, asked: _Asked, task: Task, *, streams: bool = False) -> Row:
        """Text is made while a row is written only where somebody waits for it."""
        text = None
        if streams or task.settings.stop:
            text = Text(self._needed_tokenizer(), self._before(asked.prompt), task.settings.stop)
        return Row(asked.prompt, self._most(asked, task.settings), text)

    def _before(self, prompt: Sequence[int]) -> Sequence[int]:
        """The text that the new one goes on with; a decoder's start token is none."""
        return () if self.has_source else prompt

    def _text(self, prompt: Sequence[int], tokens: list[int], task: Task) -> str | None:
        if self.tokenizer is None:
            return None
        kept = tokens[:-1] if tokens and tokens[-1] in task.ends.ends else tokens
        return cut(new_text(self.tokenizer, self._before(prompt), kept), task.settings.stop)

    def _sources(self, asked: Sequence[_Asked]) -> list[list[int]] | None:
        return [one.source for one in asked if one.source is not None] if self.has_source else None

    def _task(self, settings: Settings, *, details: bool) -> tuple[Task, Settings]:
        if settings.stop:
            self._needed_tokenizer()
        if settings.strategy == "beam" and settings.beams == 1:  # nothing to compare: the likeliest token each time
            settings = settings.model_copy(update={"strategy": "greedy"})
        banned = [self._banned(item) for item in settings.banned]
        self._check_ids(banned, "banned")
        self._check_ids(settings.stop_tokens, "stop_tokens")
        settings = settings.model_copy(update={"banned": banned})
        ends = Ends((*self.ends.ends, *settings.stop_tokens), self.ends.start, self.ends.forced, self.ends.banned)
        if not self.network.architecture.vocabulary > len({*banned, *ends.banned}):
            raise InputError("Every token is banned, so nothing can be written.")
        most = settings.max_new_tokens or max(NEW_TOKENS, settings.min_new_tokens)
        return Task(self.network, settings, ends, most, self.limit if settings.slide else None, details), settings

    def _banned(self, item: int | str) -> int:
        if isinstance(item, int):
            return item
        tokenizer = self._needed_tokenizer()
        ids = tokenizer.engine.encode(item, add_special_tokens=False).ids
        if len(ids) != 1:
            raise InputError(f"banned: {item!r} is {len(ids)} tokens of this model; only single tokens can be banned.")
        return ids[0]

    def _chances(self, asked: Sequence[_Asked], settings: Settings) -> Chances | None:
        if settings.strategy != "sample":
            return None
        seed = secrets.randbits(63) if settings.seed is None else settings.seed
        prompts = [one.prompt if one.source is None else one.source for one in asked for _ in range(settings.n)]
        return Chances.seeded(seed, prompts)

    def _batches(self, asked: Sequence[_Asked], task: Task) -> Iterator[list[int]]:
        """Those of like length together, so many as the cache has room for."""
        settings = task.settings
        rows = settings.beams if settings.strategy == "beam" else settings.n
        order = order_by_length([one.source or one.prompt for one in asked])
        batch: list[int] = []
        for place in order:
            one = asked[place]
            width = len(one.prompt) + task.most + len(one.source or ())
            limit = min(ROWS, CACHE_BYTES // (width * self._bytes_per_token))
            if batch and (len(batch) + 1) * (rows or 1) > limit:
                yield batch
                batch = []
            batch.append(place)
        if batch:
            yield batch

    @property
    def _bytes_per_token(self) -> int:
        stack = self.network.architecture.decoder
        if stack is None:
            return 1
        attention = stack.block.attention
        return 2 * 4 * stack.layers * attention.key_value_heads * attention.head_width

    def _ask(self, prompt: Prompt, place: int, settings: Settings) -> _Asked:
        is_text = isinstance(prompt, str)
        ids = self._encode(prompt, place) if isinstance(prompt, str) else _whole_numbers(prompt, place)
        self._check_ids(ids, f"Prompt {place}")
        if self.has_source:
            return self._ask_source(ids, place, settings, is_text)
        if not ids:
            if self.ends.start is None:
                raise InputError(f"Prompt {place} is empty, and this model has no start token to begin with.")
            ids = [self.ends.start]
        asked = _Asked(ids, None, is_text)
        if self.limit is not None and not settings.slide:
            self._check_fits(ids, place, settings)
        return asked

    def _ask_source(self, ids: list[int], place: int, settings: Settings, is_text: bool) -> _Asked:
        if not ids:
            raise InputError(f"Prompt {place} is empty; an encoder–decoder needs something to write from.")
        if self.limit is not None and len(ids) > self.limit:
            raise InputError(f"Prompt {place} has {len(ids)} tokens; this model reads at most {self.limit}.")
        if self.ends.start is None:
            raise InputError("This model does not say with which token its decoder starts (decoder_start_token_id).")
        most = settings.max_new_tokens
        if self.limit is not None and most is not None and most > self.limit:
            raise InputError(f"{most} tokens are to be written; this model writes at most {self.limit}.")
        return _Asked([self.ends.start], ids, is_text)

    def _check_fits(self, ids: list[int], place: int, settings: Settings) -> None:
        assert self.limit is not None
        if len(ids) > self.limit:
            raise InputError(
                f"Prompt {place} has {len(ids)} tokens; this model reads at most {self.limit}. Shorten it, or let the "
                "context slide (slide)."
            )
        room = self.limit - len(ids) + 1  # the last token is written without being read
        if settings.max_new_tokens is not None and settings.max_new_tokens > room:
            raise InputError(
                f"Prompt {place} has {len(ids)} tokens and {settings.max_new_tokens} are to be written; this model "
                f"reads at most {self.limit} in all. Ask for at most {room}, or let the context slide (slide)."
            )

    def _most(self, asked: _Asked, settings: Settings) -> int:
        """How many tokens this row may write: as asked for, or what fits."""
        if settings.max_new_tokens is not None:
            return settings.max_new_tokens
        if self.limit is None or settings.slide:
            return max(NEW_TOKENS, settings.min_new_tokens)
        return min(max(NEW_TOKENS, settings.min_new_tokens), self.limit - len(asked.prompt) + 1)

    def _encode(self, text: str, place: int) -> list[int]:
        tokenizer = self._needed_tokenizer()
        encoding = tokenizer.engine.encode(text)
        unknown = tokenizer.id_of("unk")
        strange = [
            text[begin:end]
            for token, (begin, end) in zip(encoding.ids, encoding.offsets, strict=True)
            if token == unknown and text[begin:end] != tokenizer.special.get("unk")
        ]
        if strange and not self.has_source:
            shown = ", ".join(repr(piece) for piece in dict.fromkeys(strange[:10]))
            raise InputError(f"Prompt {place} has what this model has never seen: {shown}. Leave it out.")
        if strange:
            say(f"Prompt {place}: {len(strange)} unknown to this model, {strange[0]!r} for one.")
        ids = encoding.ids
        # Some tokenizers close a text with its end; one that is to be gone on with has none yet.
        while not self.has_source and ids and ids[-1] in self.ends.ends and encoding.special_tokens_mask[len(ids) - 1]:
            ids = ids[:-1]
        return ids

    def _needed_tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError("This model has no tokenizer, so it takes and writes token ids only, and no stop strings.")
        return self.tokenizer

    def _check_ids(self, ids: Sequence[int], what: str) -> None:
        vocabulary = self.network.architecture.vocabulary
        if wrong := [token for token in ids if not 0 <= token < vocabulary]:
            raise InputError(f"{what}: the token id {wrong[0]} is not one of this model's, 0 to {vocabulary - 1}.")


def as_list(prompts: Any) -> tuple[bool, list[Any]]:
    """Whether it is a single prompt, and the prompts as a list."""
    if isinstance(prompts, str):
        return True, [prompts]
    if isinstance(prompts, np.ndarray | torch.Tensor):
        prompts = prompts.tolist()
    if not isinstance(prompts, Sequence) or isinstance(prompts, bytes):
        raise InputError(f"A prompt is a text or a list of token ids, not {type(prompts).__name__}.")
    listed = list(prompts)
    if listed and all(isinstance(item, int | np.integer) and not isinstance(item, bool) for item in listed):
        return True, [listed]
    return False, listed


def _whole_numbers(prompt: Any, place: int) -> list[int]:
    ids = np.asarray(prompt if isinstance(prompt, Sequence | np.ndarray | torch.Tensor) else None)
    if ids.size == 0 and ids.ndim == 1:
        return []
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise InputError(f"Prompt {place} is neither a text nor a list of token ids (whole numbers).")
    return [int(token) for token in ids]
