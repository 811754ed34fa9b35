"""Scores that several routes share: of labels, of similarity, of how well a text answers a query."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np
from starlette.requests import Request

from weft.errors import InputError
from weft.metrics.retrieval import unit_vectors
from weft.serve.read_requests import read_task, read_vectors
from weft.serve.served import ServedModel

Apply = Literal["softmax", "sigmoid", "none"]
TextOrPair = str | tuple[str, str]
# Labels that mean "yes, these belong together", for models that were tuned on pairs with two or three labels.
_YES = frozenset(
    "1 yes true entailment entails relevant paraphrase equivalent duplicate similar same match positive label_1".split()
)


class Label(NamedTuple):
    name: str
    score: float


@dataclass(frozen=True)
class LabelScores:
    """The scores of all labels, per input."""

    rows: list[list[Label]]
    tokens: int
    truncated: int

    @property
    def ranked(self) -> list[list[Label]]:
        return [sorted(row, key=lambda label: -label.score) for row in self.rows]


class ServedScores(NamedTuple):
    values: list[float]
    tokens: int
    truncated: int


class SimilarityRows(NamedTuple):
    rows: list[list[float]]  # per source sentence
    tokens: int
    truncated: int


async def score_labels(
    request: Request,
    served: ServedModel,
    items: Sequence[TextOrPair],
    *,
    apply: Apply | None = None,
    truncate: bool = False,
) -> LabelScores:
    """Of texts and pairs of texts. `apply`: what turns raw scores into these; default: as the task does.

    A model that predicts a number has one label.
    """
    texts = [(number, {"text": one}) for number, one in enumerate(items) if isinstance(one, str)]
    pairs = [
        (number, {"text": one[0], "second": one[1]}) for number, one in enumerate(items) if not isinstance(one, str)
    ]
    pair_task = "similarity" if "similarity" in served.reading.readers.abilities else "pair"
    rows: list[list[Label]] = [[] for _ in items]
    tokens = truncated = 0
    for task, part in (("classify", texts), (pair_task, pairs)):
        if not part:
            continue
        found = await read_task(
            request, served, task, [row for _, row in part], truncate=truncate, raw=apply is not None
        )
        labels = found.reader.task.labels or ("score",)
        values = [_applied(row, apply) for row in found.pieces] if apply is not None else found.pieces
        for (number, _), scores in zip(part, values, strict=True):
            rows[number] = [
                Label(label, float(score)) for label, score in zip(labels, np.atleast_1d(scores), strict=True)
            ]
        tokens += found.prepared.tokens
        truncated += found.prepared.truncated
    return LabelScores(rows, tokens, truncated)


def _applied(scores: np.ndarray, apply: Apply) -> np.ndarray:
    if apply == "sigmoid":
        return 1 / (1 + np.exp(-np.clip(scores.astype(np.float64), -700, 700)))
    if apply == "softmax":
        weights = np.exp(scores.astype(np.float64) - scores.max())
        return weights / weights.sum()
    return scores


async def score_similarity(
    request: Request, served: ServedModel, source: str, sentences: Sequence[str], *, truncate: bool = False
) -> ServedScores:
    """As a model tuned for similarity predicts it; by other models, the cosine of the vectors."""
    found = await score_similarities(request, served, [(source, sentences)], truncate=truncate)
    return ServedScores(found.rows[0], found.tokens, found.truncated)


async def score_similarities(
    request: Request, served: ServedModel, compared: Sequence[tuple[str, Sequence[str]]], *, truncate: bool = False
) -> SimilarityRows:
    """Of several texts with lists of others. A text that occurs several times has one vector."""
    pairs = [(source, one) for source, sentences in compared for one in sentences]
    if "similarity" in served.reading.readers.abilities:
        found = await score_labels(request, served, pairs, truncate=truncate)
        values, tokens, truncated = [row[0].score for row in found.rows], found.tokens, found.truncated
    else:
        places = {text: place for place, text in enumerate(dict.fromkeys(text for pair in pairs for text in pair))}
        vectors = await read_vectors(request, served, list(places), truncate=truncate)
        units = unit_vectors(np.stack(vectors.vectors))
        values = [float(units[places[first]] @ units[places[second]]) for first, second in pairs]
        tokens, truncated = vectors.tokens, vectors.truncated
    rest = iter(values)
    return SimilarityRows([list(islice(rest, len(sentences))) for _, sentences in compared], tokens, truncated)


async def score_relevance(
    request: Request,
    served: ServedModel,
    query: str,
    texts: Sequence[str],
    *,
    label: str | None = None,
    raw: bool = False,
    truncate: bool = False,
) -> ServedScores:
    """How well each text fits the query: the probability of a pair's label, else as `score_similarity`.

    `label`: the one that means a good fit. `raw`: its score before the softmax.
    """
    readers = served.reading.readers
    if "pair" not in readers.abilities:
        if label is not None:
            raise InputError("label is for models that give a pair one of several labels; this model does not.")
        return await score_similarity(request, served, query, texts, truncate=truncate)
    wanted = _relevant_label(readers.task("pair").task.labels, label)
    found = await score_labels(
        request, served, [(query, text) for text in texts], apply="none" if raw else None, truncate=truncate
    )
    return ServedScores([row[wanted].score for row in found.rows], found.tokens, found.truncated)


def _relevant_label(labels: Sequence[str], wanted: str | None) -> int:
    names = ", ".join(labels)
    if wanted is not None:
        if wanted not in labels:
            raise InputError(f"label: there is no label {wanted[:40]!r}. Labels: {names}.")
        return list(labels).index(wanted)
    known = [number for number, name in enumerate(labels) if name.casefold() in _YES]
    if len(known) != 1:
        raise InputError(f"Which label means that a text fits the query? Name it with label. Labels: {names}.")
    return known[0]
