"""Language models on text: how well they predict it.

    causal    every token of a piece of text, each piece by itself
    masked    masked tokens of windows, the same for all models (a fixed seed)
    seq2seq   the targets of span corruption, with the same seed; the whole text, if the first learned by denoising

A model with another tokenizer than the first predicts other tokens. It is compared by bits per byte if it is causal,
otherwise not at all. A decoder's speed is that of writing; the others are timed as they read.
"""

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from weft.compress.card.contest import Contest, Performance, model_name
from weft.compress.card.texts import MOST_PIECES, cut_pieces, draw, have_same_tokenizer, read_texts, shared_length
from weft.compress.card.timing import TimedWork
from weft.errors import InputError, RecipeError, WeftError
from weft.generate.prepare import prepared
from weft.generate.prompts import PromptReader
from weft.generate.writer import Writer
from weft.metrics.bootstrap import sum_intervals
from weft.metrics.judged import Judged
from weft.model.flops import forward_flops
from weft.model.packed import group_by_tokens, pack
from weft.objectives.catalog import OBJECTIVES, text_objective
from weft.objectives.objective import Batch
from weft.progress import say
from weft.sources.reading import Reading
from weft.tasks.labelled.data import named
from weft.tasks.loaded import LoadedModel
from weft.train.text_evaluation import TextWindows, language_head, tokenized_texts, window_sums

_MOST_BATCH_TOKENS, _MOST_LOGITS = 4096, 2**26
_WRITTEN = 32  # tokens, after a prompt of as many
# Batches of the texts with these numbers; for each sequence of the batch, the place of its text in the list.
_Batches = Callable[[Sequence[int]], Iterator[tuple[list[int], Batch]]]


class TextContest(Contest):
    kind: ClassVar[str] = "text"

    def __init__(
        self,
        models: Sequence[LoadedModel],
        paths: Sequence[Path],
        reading: Reading,
        limit: int | None = None,
    ) -> None:
        """Raises InputError if the models predict different things."""
        self.head = _shared_head(models)
        self._objective = text_objective(self.head, models[0].results.get("objective"))
        self._others = [model for model in models if not have_same_tokenizer(model, models[0])]
        texts, self.notes = read_texts(paths, reading)
        self.where, self.length = named(paths), shared_length(models)
        pieces = list(cut_pieces(texts, models[0].tokenizer, max(1, self.length - 2)))
        self.numbers = draw(len(pieces), limit or MOST_PIECES)
        self.pieces = [pieces[number] for number in self.numbers]
        self.count, self.unit = len(self.pieces), "pieces of text"
        if len(self.pieces) < len(pieces):
            self.notes.append(f"{len(self.pieces):,} of {len(pieces):,} pieces of text, drawn at random.")
        self._folder = tempfile.TemporaryDirectory(prefix="weft-")
        if self.head == "causal":
            self.metric = "bits_per_byte" if self._others else "perplexity"
            self.headline, self.alone_title = "alone", f"{self._written} tokens written"
        else:
            self.metric, self.unit = "loss", "windows of text"
            different = [models[0], *self._others]
            self._windows = [self._cut_windows(model, number) for number, model in enumerate(different)]
            self.count = min(limit or MOST_PIECES, *(windows.count for windows in self._windows))
        for model in self._others:
            compared = "bits per byte are compared" if self.head == "causal" else "its loss cannot be compared"
            self.notes.append(f"{model_name(model)} has another tokenizer than {model_name(models[0])}, so {compared}.")

    def _tokenizer_of(self, model: LoadedModel) -> int:
        """0: the first model's; otherwise the model's own."""
        return next((number for number, one in enumerate(self._others, 1) if one is model), 0)

    @property
    def _written(self) -> int:
        return max(1, min(_WRITTEN, self.length // 2))

    def _cut_windows(self, model: LoadedModel, number: int) -> TextWindows:
        kind, folder = OBJECTIVES[self._objective], Path(self._folder.name) / str(number)
        try:
            shards = tokenized_texts(lambda: iter(self.pieces), model.tokenizer, kind, folder)
            return TextWindows.of(shards, model.tokenizer, kind, self.length)
        except RecipeError as error:  # the tokenizer has no mask token, or no sentinels
            raise InputError(f"{model_name(model)}: {error}") from None

    def perform(self, model: LoadedModel) -> Performance:
        say(f"Reading {self.count:,} {self.unit} of {self.where} with {model_name(model)} ...")
        batches, tokens, flops = self._batches(model), 0, 0.0
        for _, batch in batches(range(self.count)):
            tokens += len(batch.packed.tokens) + (0 if batch.decoder is None else len(batch.decoder.tokens))
            flops += forward_flops(model.network, batch.packed, batch.decoder, batch.scored)
        began = time.perf_counter()
        sums = self._sums(model, batches, range(self.count))
        seconds = time.perf_counter() - began
        if not np.isfinite(sums).all():
            raise WeftError(f"{model_name(model)}: the loss is NaN, so the model cannot be compared.")
        same_tokens = self._tokenizer_of(model) == 0
        if not same_tokens and self.head != "causal":
            return Performance(tokens, flops, seconds)
        if not sums[:, 2].any():  # every model would be perfect
            what = f"the tokenizer of {model_name(model)} does not know this text"
            raise InputError(f"No token of {self.where} can be predicted: {what}.")
        return Performance(tokens, flops, seconds, self._judged(sums, same_tokens))

    def _judged(self, sums: np.ndarray, same_tokens: bool) -> Judged:
        """`sums` (texts, 3): nats, correct predictions, scored tokens."""
        sizes = [len(piece.encode("utf-8", "surrogatepass")) for piece in self.pieces] if self.head == "causal" else []
        counts = np.column_stack([sums, sizes]) if sizes else sums

        def figures(sums: np.ndarray) -> dict[str, np.ndarray]:
            loss = sums[..., 0] / np.maximum(sums[..., 2], 1)
            of_tokens = {"accuracy": sums[..., 1] / np.maximum(sums[..., 2], 1)}
            if self.head != "causal":
                return {"loss": loss, **of_tokens}
            bits = {"bits_per_byte": sums[..., 0] / math.log(2) / sums[..., 3]}
            perplexity = {"perplexity": np.exp(np.minimum(loss, 700.0))}
            return {**perplexity, **bits, **of_tokens} if same_tokens else bits

        found = {name: float(value) for name, value in figures(counts.sum(0)).items()}
        nothing = np.zeros(len(counts))
        return Judged(found, sum_intervals(counts, figures), nothing, nothing)

    def _sums(self, model: LoadedModel, batches: _Batches, numbers: Sequence[int]) -> np.ndarray:
        found = np.zeros((len(numbers), 3))
        for places, batch in batches(numbers):
            np.add.at(found, places, window_sums(model.network, self.head, batch.to(model.device)))
        return found

    def _batches(self, model: LoadedModel) -> _Batches:
        most = min(_MOST_BATCH_TOKENS, _MOST_LOGITS // model.network.architecture.vocabulary)
        if self.head == "causal":
            return _CausalPieces.of(model, self.pieces, self.length, most).batches

        windows = self._windows[self._tokenizer_of(model)]

        def of_windows(numbers: Sequence[int]) -> Iterator[tuple[list[int], Batch]]:
            for part in group_by_tokens([self.length] * len(numbers), most):
                yield list(part), windows.batch([numbers[i] for i in part])

        return of_windows

    def work(self, model: LoadedModel) -> TimedWork:
        batches = self._batches(model)

        def together(numbers: Sequence[int]) -> None:
            self._sums(model, batches, numbers)

        if self.head != "causal":
            return TimedWork(lambda number: together([number]), together)
        ends = model.input_spec.ends
        writer = Writer(prepared(model.network), PromptReader(model.network.architecture, model.tokenizer, ends), {})
        count = self._written
        encoded = [model.tokenizer.engine.encode(piece, add_special_tokens=False).ids[:count] for piece in self.pieces]
        settings: dict[str, Any] = {"strategy": "greedy", "max_new_tokens": count, "min_new_tokens": count}
        return TimedWork(lambda number: writer.generate([encoded[number] or [0]], **settings), together)


@dataclass(frozen=True)
class _CausalPieces:
    """What a decoder reads of each piece: windows, of which all but the first overlap the one before by a quarter."""

    windows: list[list[tuple[np.ndarray, int]]]  # by piece: token ids, and the first that is scored
    most_tokens: int  # in a batch

    @classmethod
    def of(cls, model: LoadedModel, pieces: Sequence[str], length: int, most_tokens: int) -> "_CausalPieces":
        ends = model.input_spec.ends
        first = [*ends.end_ids, *([] if ends.start_id is None else [ends.start_id])][:1]  # what precedes a document
        found = []
        for piece in pieces:
            ids = np.asarray([*first, *model.tokenizer.engine.encode(piece, add_special_tokens=False).ids], np.int64)
            step = length - length // 4
            starts = range(0, max(1, len(ids) - 1 - length // 4), step)
            found.append([(ids[start : start + length + 1], length // 4 if start else 0) for start in starts])
        return cls(found, most_tokens)

    def batches(self, numbers: Sequence[int]) -> Iterator[tuple[list[int], Batch]]:
        known = [
            (place, *window)
            for place, number in enumerate(numbers)
            for window in self.windows[number]
            if len(window[0]) > 1
        ]
        known.sort(key=lambda one: -len(one[1]))
        for part in group_by_tokens([len(ids) - 1 for _, ids, _ in known], self.most_tokens):
            picked = [known[i] for i in part]
            packed = pack([ids[:-1] for _, ids, _ in picked])
            rows = [
                np.arange(s + scored, s + len(ids) - 1)
                for s, (_, ids, scored) in zip(packed.starts.tolist(), picked, strict=False)
            ]
            targets = np.concatenate([ids[1 + scored :] for _, ids, scored in picked])
            batch = Batch(packed, torch.from_numpy(targets), torch.from_numpy(np.concatenate(rows)))
            yield [place for place, _, _ in picked], batch


def _shared_head(models: Sequence[LoadedModel]) -> str:
    heads = [language_head(model.network) for model in models]
    before = heads[0]
    assert before is not None
    for model, head in zip(models, heads, strict=True):
        if head != before:
            what = "no language model" if head is None else f"a {head} language model"
            raise InputError(
                f"{model_name(models[0])} is a {before} language model, {model_name(model)} is {what}: they do not "
                "predict the same."
            )
    return before
