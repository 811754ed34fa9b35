"""The verbs of a model that writes: generate, stream, score, choose.

Prompts are texts, or lists of token ids; what comes back is of the same kind. One alone gives one answer, a list a
list. Prompts go through in batches, those of like length together.
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from weft.errors import InputError
from weft.generate.beam import search
from weft.generate.ends import Ends
from weft.generate.next_token import Chances
from weft.generate.prompts import Asked, Prompt, Reader, as_list, whole_numbers
from weft.generate.score import Candidate, log_probs_after, log_probs_of, shared_prefix, summary
from weft.generate.settings import NEW_TOKENS, Settings, settings_of
from weft.generate.text import Text, cut, new_text
from weft.generate.write import Finish, Row, Task, write
from weft.model.network import Network
from weft.model.packed import order_by_length
from weft.progress import track
from weft.tokenizer.tokenizer import Tokenizer

CACHE_BYTES, ROWS = 2**29, 64  # of a batch, at the most
Normalize = Literal["none", "tokens", "bytes"]


@dataclass(frozen=True)
class Generation:
    """One answer: its new tokens, its text, how it came to its end and how likely it was."""

    tokens: list[int]
    text: str | None
    finish: Finish  # an end token, a stop string, or the most tokens
    score: float  # the sum of log_probs; of beam search, divided by lengthᵖ
    log_probs: list[float]  # of each token, in the model's own distribution


class Writer:
    def __init__(
        self,
        plain: Network,
        network: Network,
        tokenizer: Tokenizer | None,
        ends: Ends,
        recommended: dict[str, Any] | None = None,
    ) -> None:
        """`plain` is the network as it was loaded, for whole texts; `network` the same, prepared to write;
        `recommended` the folder's generation_config.json.
        """
        self.plain, self.network, self.tokenizer, self.ends = plain, network, tokenizer, ends
        self.recommended = recommended or {}
        self.reader = Reader(network.architecture, tokenizer, ends)

    def generate(self, prompts: Any, *, details: bool = False, progress: bool = False, **given: Any) -> Any:
        """An answer to each prompt; `n` > 1: a list of them, best first. With `details`, `Generation`s."""
        settings = settings_of(given, self.recommended)
        alone, listed = as_list(prompts)
        asked = [self.reader.ask(prompt, place, settings) for place, prompt in enumerate(listed)]
        answers = self._answer(asked, settings, details=details, progress=progress)
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
        asked = self.reader.ask(listed[0], 0, settings)
        return self._stream(asked, settings)

    def score(self, texts: Any, sources: Any = None) -> Any:
        """How likely each text is; of an encoder–decoder, each as an answer to its source."""
        alone, listed = as_list(texts)
        ids = [
            self.reader.encode(text, place) if isinstance(text, str) else whole_numbers(text, place)
            for place, text in enumerate(listed)
        ]
        for place, row in enumerate(ids):
            self.reader.check_ids(row, f"Text {place}")
        start = [] if self.ends.start is None else [self.ends.start]
        given = [row if row[:1] == start else [*start, *row] for row in ids]
        written = [text if isinstance(text, str) else self._decoded(row) for text, row in zip(listed, ids, strict=True)]
        with torch.inference_mode():
            found = log_probs_of(
                self.plain, given, self._sources_to_score(sources, alone, len(listed)), self.reader.limit
            )
        scores = [summary(numbers, text) for numbers, text in zip(found, written, strict=True)]
        return scores[0] if alone else scores

    def _decoded(self, ids: list[int]) -> str:
        return "" if self.tokenizer is None else self.tokenizer.decode(ids)

    def _sources_to_score(self, sources: Any, alone: bool, count: int) -> list[list[int]] | None:
        if not self.reader.has_source:
            if sources is not None:
                raise InputError("Sources go with an encoder–decoder; this model scores texts by themselves.")
            return None
        if sources is None:
            raise InputError("An encoder–decoder scores a text as the answer to a source: score(texts, sources).")
        is_one, listed = as_list(sources)
        if is_one != alone or len(listed) != count:
            raise InputError(f"There are {count} texts but {len(listed)} sources.")
        asked = [self.reader.ask(source, place, settings_of({})) for place, source in enumerate(listed)]
        return self._sources(asked)

    def choose(self, prompt: Prompt, options: Sequence[str], *, normalize: Normalize, details: bool) -> Any:
        """The likeliest of the options after the prompt; with `details` all of them, likeliest first."""
        tokenizer = self.reader.tokenizer
        if not isinstance(prompt, str) or isinstance(options, str) or not all(isinstance(one, str) for one in options):
            raise InputError("choose takes a text and a list of texts to choose from.")
        if not options or len(set(options)) < len(options) or not all(options):
            raise InputError("choose needs at least one option, all of them different and none empty.")
        if normalize not in get_args(Normalize):
            raise InputError(f"normalize cannot be {normalize!r}; it is one of {', '.join(get_args(Normalize))}.")
        if self.reader.has_source:
            asked = self.reader.ask(prompt, 0, settings_of({}))
            before, source = asked.prompt, asked.source
            answers = [tokenizer.encode(option) for option in options]
        else:
            # Together with the prompt, as they would be read: a token may reach over the seam.
            whole = [
                self.reader.ask(prompt + option, place, settings_of({})).prompt for place, option in enumerate(options)
            ]
            start = [] if self.ends.start is None or whole[0][:1] == [self.ends.start] else [self.ends.start]
            whole = [[*start, *row] for row in whole]
            begin = min(shared_prefix(whole), max(1, len(self.reader.encode(prompt, 0)) + len(start)))
            if begin == 0:
                raise InputError("The prompt is empty, and this model has no start token to begin with.")
            before, source, answers = whole[0][:begin], None, [row[begin:] for row in whole]
        if self.reader.limit is not None and len(before) + max(map(len, answers)) - 1 > self.reader.limit:
            raise InputError(
                f"The prompt and an option are longer than the {self.reader.limit} tokens that this model reads."
            )
        with torch.inference_mode():
            totals = log_probs_after(self.network, before, source, answers)
        sizes = {"none": lambda place: 1, "tokens": lambda place: len(answers[place])}
        sizes["bytes"] = lambda place: len(options[place].encode())
        merits = torch.tensor([total / sizes[normalize](place) for place, total in enumerate(totals)])
        candidates = [
            Candidate(option, probability, total, len(answer))
            for option, probability, total, answer in zip(
                options, merits.softmax(0).tolist(), totals, answers, strict=True
            )
        ]
        candidates.sort(key=lambda candidate: -candidate.probability)
        return candidates if details else candidates[0].option

    def _stream(self, asked: Asked, settings: Settings) -> Iterator[Any]:
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

    def _answer(
        self, asked: list[Asked], settings: Settings, *, details: bool, progress: bool
    ) -> list[list[Generation]]:
        task, settings = self._task(settings, details=details)
        chances = self._chances(asked, settings)
        answers: list[list[Generation]] = [[]] * len(asked)
        batches = list(self._batches(asked, task))
        for picked in track(batches, "Writing", unit="batches") if progress else batches:
            part = [asked[place] for place in picked]
            mine = None
            if chances is not None:
                mine = chances.of([place * settings.n + copy for place in picked for copy in range(settings.n)])
            with torch.inference_mode():
                found = self._search(part, task) if settings.strategy == "beam" else self._write(part, task, mine)
            for place, answer in zip(picked, found, strict=True):
                answers[place] = answer
        return answers

    def _write(self, asked: list[Asked], task: Task, chances: Chances | None) -> list[list[Generation]]:
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

    def _search(self, asked: list[Asked], task: Task) -> list[list[Generation]]:
        def holds_stop(place: int, tokens: list[int]) -> bool:
            text = new_text(self.reader.tokenizer, self._before(asked[place].prompt), tokens)
            return any(stop in text for stop in task.settings.stop)

        ends_text = holds_stop if task.settings.stop else None
        mosts = [self.reader.most(one, task.settings) for one in asked]
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

    def _row(self, asked: Asked, task: Task, *, streams: bool = False) -> Row:
        """Text is made while a row is written only where somebody waits for it."""
        text = None
        if streams or task.settings.stop:
            text = Text(self.reader.tokenizer, self._before(asked.prompt), task.settings.stop)
        return Row(asked.prompt, self.reader.most(asked, task.settings), text)

    def _before(self, prompt: Sequence[int]) -> Sequence[int]:
        """The text that the new one goes on with; a decoder's start token is none."""
        return () if self.reader.has_source else prompt

    def _text(self, prompt: Sequence[int], tokens: list[int], task: Task) -> str | None:
        if self.tokenizer is None:
            return None
        kept = tokens[:-1] if tokens and tokens[-1] in task.ends.ends else tokens
        return cut(new_text(self.tokenizer, self._before(prompt), kept), task.settings.stop)

    def _sources(self, asked: Sequence[Asked]) -> list[list[int]] | None:
        return [one.source for one in asked if one.source is not None] if self.reader.has_source else None

    def _task(self, settings: Settings, *, details: bool) -> tuple[Task, Settings]:
        if settings.stop and self.tokenizer is None:
            raise InputError("This model has no tokenizer, so it knows no stop strings; stop_tokens are ids.")
        if settings.strategy == "beam" and settings.beams == 1:  # nothing to compare: the likeliest token each time
            settings = settings.model_copy(update={"strategy": "greedy"})
        banned = [self._banned(item) for item in settings.banned]
        self.reader.check_ids(banned, "banned")
        self.reader.check_ids(settings.stop_tokens, "stop_tokens")
        settings = settings.model_copy(update={"banned": banned})
        ends = Ends((*self.ends.ends, *settings.stop_tokens), self.ends.start, self.ends.forced, self.ends.banned)
        if not self.network.architecture.vocabulary > len({*banned, *ends.banned}):
            raise InputError("Every token is banned, so nothing can be written.")
        most = settings.max_new_tokens or max(NEW_TOKENS, settings.min_new_tokens)
        return Task(
            self.network, settings, ends, most, self.reader.limit if settings.slide else None, details
        ), settings

    def _banned(self, item: int | str) -> int:
        if isinstance(item, int):
            return item
        tokenizer = self.reader.tokenizer
        ids = tokenizer.engine.encode(item, add_special_tokens=False).ids
        if len(ids) != 1:
            raise InputError(f"banned: {item!r} is {len(ids)} tokens of this model; only single tokens can be banned.")
        return ids[0]

    def _chances(self, asked: Sequence[Asked], settings: Settings) -> Chances | None:
        if settings.strategy != "sample":
            return None
        seed = secrets.randbits(63) if settings.seed is None else settings.seed
        prompts = [one.prompt if one.source is None else one.source for one in asked for _ in range(settings.n)]
        return Chances.seeded(seed, prompts)

    def _batches(self, asked: Sequence[Asked], task: Task) -> Iterator[list[int]]:
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
