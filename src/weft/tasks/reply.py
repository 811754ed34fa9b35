"""Replies in a conversation, judged by how likely the model finds the gold reply (`candidates`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from weft.metrics.baselines.reply import candidate_cosines, reply_losses
from weft.metrics.bootstrap import mean_interval, sum_intervals
from weft.metrics.judged import Judged
from weft.metrics.rouge import rouge_of_each
from weft.model.network import Network
from weft.tasks.candidates import bits_per_byte, bytes_of, hits, with_candidates
from weft.tasks.example import Example
from weft.tasks.input_spec import InputSpec
from weft.tasks.rewrite import ROUGE_TITLES, Translate, perplexity
from weft.tasks.task import ExtraMetrics

HITS_AT_1 = "hits_at_1"


@dataclass(frozen=True)
class Reply(Translate):
    """Many replies are good, so the main metrics are the likelihood of the gold reply (`candidates`)."""

    name: ClassVar[str] = "reply"
    is_reply: ClassVar[bool] = True
    metric_titles: ClassVar[Mapping[str, str]] = {
        **Translate.metric_titles,
        **ROUGE_TITLES,
        HITS_AT_1: "hits@1",
        "bits_per_byte": "bits per byte of the gold reply",
        "distinct": "distinct texts",
    }

    def main_metric(self, figures: Mapping[str, float]) -> str:
        return HITS_AT_1 if HITS_AT_1 in figures else super().main_metric(figures)

    def measure(
        self, network: Network, examples: Sequence[Example], answers: Sequence[str], spec: InputSpec
    ) -> ExtraMetrics:
        losses = self.losses(network, examples, spec)
        ranked = with_candidates(examples)
        candidates = [replace(one, gold=text) for one, texts in ranked for text in texts]
        likely = self.losses(network, candidates, spec) if candidates else np.zeros((0, 3))
        scores = -likely[:, 0] / likely[:, 1]
        rows = np.split(scores, np.cumsum([len(texts) for _, texts in ranked])[:-1]) if candidates else []
        found = _reply_metrics(losses[:, 0], losses[:, 2], rows)
        return ExtraMetrics(
            {**found.figures, **{name: float(value) for name, value in perplexity(losses.sum(0)).items()}},
            {**found.intervals, **sum_intervals(losses, perplexity)},
        )

    def measure_baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> ExtraMetrics:
        """Bits per byte from a conditional n-gram model, hits@1 from the cosine of TF-IDF vectors."""
        pairs = [(one.given, one.gold) for one in train]
        nats = reply_losses(pairs, [(one.given, one.gold) for one in examples])
        ranked = [(one.given, texts) for one, texts in with_candidates(examples)]
        return _reply_metrics(nats, bytes_of(examples), candidate_cosines(pairs, ranked))

    def baseline(self, train: Sequence[Example], examples: Sequence[Example]) -> tuple[str, list[str]]:
        _, predicted = super().baseline(train, examples)
        return (
            "TF-IDF (hits@1), byte 6-grams (bits per byte), the reply to the most similar prompt (other metrics)",
            predicted,
        )

    def judge(self, examples: Sequence[Example], answers: Sequence[str]) -> Judged:
        judged = super().judge(examples, answers)
        shared = rouge_of_each(answers, [one.gold for one in examples])["rougeL"]
        judged.figures.update(rougeL=float(shared.mean()), distinct=len(set(answers)) / len(answers))
        judged.intervals["rougeL"] = mean_interval(shared)
        return judged


def _reply_metrics(nats: np.ndarray, sizes: np.ndarray, scores: Sequence[np.ndarray]) -> ExtraMetrics:
    counts, right = np.stack([nats, sizes], 1), hits(scores)
    figures = {name: float(value) for name, value in bits_per_byte(counts.sum(0)).items()}
    intervals = sum_intervals(counts, bits_per_byte)
    if len(right):
        figures, intervals = {HITS_AT_1: float(right.mean()), **figures}, {HITS_AT_1: mean_interval(right), **intervals}
    return ExtraMetrics(figures, intervals)
