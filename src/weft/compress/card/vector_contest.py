"""Encoders without a head: how close their vectors of texts are to those of the first model."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from weft.compress.card.contest import Contest, Performance, model_name
from weft.compress.card.texts import MOST_PIECES, cut_pieces, draw, read_texts, shared_length
from weft.compress.card.timing import TimedWork
from weft.errors import InputError
from weft.metrics.baselines.frozen import row_cosines
from weft.metrics.bootstrap import sum_intervals
from weft.metrics.judged import Judged
from weft.model.flops import forward_flops
from weft.model.packed import group_by_tokens, pack
from weft.progress import say
from weft.sources.reading import Reading
from weft.tasks.batches import ANSWERED_TOKENS
from weft.tasks.judging.untuned import embed_texts
from weft.tasks.labelled.data import named
from weft.tasks.loaded import LoadedModel
from weft.train.text_evaluation import language_head


class VectorContest(Contest):
    kind: ClassVar[str] = "vectors"

    def __init__(
        self, models: Sequence[LoadedModel], paths: Sequence[Path], reading: Reading, limit: int | None = None
    ) -> None:
        for model in models[1:]:
            if model.task is not None or language_head(model.network) is not None:
                raise InputError(
                    f"{model_name(models[0])} gives vectors, {model_name(model)} has another head: give it without one."
                )
        texts, self.notes = read_texts(paths, reading)
        self.where, self.unit, self.metric = named(paths), "texts", "cosine"
        self.length = min(shared_length(models), *(model.pooling.most_tokens or 10**9 for model in models))
        pieces = list(cut_pieces(texts, models[0].tokenizer, max(1, self.length - 2)))
        self.texts = [pieces[number] for number in draw(len(pieces), limit or MOST_PIECES)]
        self.count = len(self.texts)
        if self.count < len(pieces):
            self.notes.append(f"{self.count:,} of {len(pieces):,} texts, drawn at random.")
        self._width = models[0].network.width
        if any(model.network.width != self._width for model in models):
            self.notes.append("Vectors of different width have no cosine, so these models are compared without it.")
        self._reference: np.ndarray | None = None

    def perform(self, model: LoadedModel) -> Performance:
        """The first model that performs is the reference."""
        say(f"Embedding {self.count:,} texts of {self.where} with {model_name(model)} ...")
        tokens, flops = 0, 0.0
        ids = [one or [0] for one in model.tokenizer.encode_many(self.texts, self.length)]
        for part in group_by_tokens([len(one) for one in ids], ANSWERED_TOKENS):
            batch = pack([ids[i] for i in part])
            tokens += len(batch.tokens)
            flops += forward_flops(model.network, batch)
        began = time.perf_counter()
        vectors = self._embed(model, self.texts)
        seconds = time.perf_counter() - began
        if self._reference is None:
            self._reference = vectors
        if vectors.shape != self._reference.shape:
            return Performance(tokens, flops, seconds)
        is_same = (vectors == self._reference).all(1)
        exact = row_cosines(vectors.astype(float), self._reference.astype(float))
        cosines = np.where(is_same, 1.0, np.minimum(exact, 1.0))
        # Not `mean_interval`, which takes values that are all 1 for right answers to questions.
        intervals = sum_intervals(cosines[:, None], lambda sums: {"cosine": sums[..., 0] / len(cosines)})
        judged = Judged({"cosine": float(cosines.mean())}, intervals, cosines, 1 - cosines)
        return Performance(tokens, flops, seconds, judged)

    def _embed(self, model: LoadedModel, texts: Sequence[str]) -> np.ndarray:
        return embed_texts(model.network, model.tokenizer, model.pooling, texts, self.length)

    def work(self, model: LoadedModel) -> TimedWork:
        return TimedWork(
            lambda text: self._embed(model, [self.texts[text]]),
            lambda texts: self._embed(model, [self.texts[text] for text in texts]),
        )
