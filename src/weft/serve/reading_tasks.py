"""The tasks that read, in Hugging Face's shapes: labels, similarity, tags, answers, intents, masks, vectors."""

from collections import defaultdict
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from weft.metrics.retrieval import unit_vectors
from weft.serve.embeddings import check_dimensions, encoded_vector
from weft.serve.read_requests import json_answer, read_suggestions, read_task, read_vectors
from weft.serve.scores import score_labels, score_similarities
from weft.serve.served import ServedModel
from weft.serve.task_formats import (
    AnswerParameters,
    AnswerRequest,
    ExtractRequest,
    FeatureRequest,
    FillParameters,
    FillRequest,
    IntentRequest,
    LabelParameters,
    LabelRequest,
    SimilarityRequest,
    TagParameters,
    TagRequest,
)
from weft.tasks.example import Example
from weft.tasks.predicted_tags import PredictedTags, entities
from weft.tasks.words import places_of


async def labels(request: Request, served: ServedModel, body: LabelRequest) -> Response:
    wanted = body.parameters or LabelParameters()
    found = await score_labels(
        request, served, body.items, apply=wanted.function_to_apply, truncate=bool(wanted.truncate)
    )
    return await json_answer(
        request,
        lambda: [
            [{"label": label.name, "score": label.score} for label in row[: wanted.top_k]] for row in found.ranked
        ],
        truncated=found.truncated,
    )


async def sentence_similarity(request: Request, served: ServedModel, body: SimilarityRequest) -> Response:
    truncate = bool(body.parameters and body.parameters.truncate)
    listed = body.inputs if isinstance(body.inputs, list) else [body.inputs]
    compared = [(one.source_sentence, one.sentences) for one in listed]
    found = await score_similarities(request, served, compared, truncate=truncate)
    return await json_answer(
        request,
        lambda: found.rows if isinstance(body.inputs, list) else found.rows[0],
        truncated=found.truncated,
    )


async def tags(request: Request, served: ServedModel, body: TagRequest) -> Response:
    wanted = body.parameters or TagParameters()
    found = await read_task(request, served, "tag", [{"words": text} for text in body.texts])
    task: Any = found.reader.task
    groups = task.entities and wanted.aggregation_strategy != "none"
    shown, key = (_entities, "entity_group") if groups else (_tagged_words, "entity")

    def answer() -> Any:
        rows = [
            [one for one in shown(example, tags) if one[key] not in wanted.ignore_labels]
            for example, tags in zip(found.examples, found.answers(), strict=True)
        ]
        return body.one_or_all(rows)

    return await json_answer(request, answer)


def _entities(example: Example, tags: PredictedTags) -> list[dict[str, Any]]:
    return [
        {
            "entity_group": one["kind"],
            "score": one["confidence"],
            "word": one["text"],
            "start": one["characters"][0],
            "end": one["characters"][1],
        }
        for one in entities(example, tags)
    ]


def _tagged_words(example: Example, tags: PredictedTags) -> list[dict[str, Any]]:
    words = zip(tags, tags.probabilities, example.given, places_of(example.given, example.text), strict=True)
    return [
        {"entity": tag, "score": round(score, 6), "word": word, "start": start, "end": end}
        for tag, score, word, (start, end) in words
    ]


async def answers(request: Request, served: ServedModel, body: AnswerRequest) -> Response:
    top = (body.parameters or AnswerParameters()).top_k
    listed = body.inputs if isinstance(body.inputs, list) else [body.inputs]
    asked = [{"question": one.question, "context": one.context} for one in listed]
    found = await read_task(request, served, "answer", asked)

    def answer() -> Any:
        pairs = zip(found.examples, found.answers(), strict=True)
        rows = [_spans(found.reader.task.shown(*pair, details=True)) for pair in pairs]
        best = [row[0] if top == 1 else row[:top] for row in rows]
        return best if isinstance(body.inputs, list) else best[0]

    return await json_answer(request, answer)


def _spans(shown: dict[str, Any]) -> list[dict[str, Any]]:
    """Best first. Where there is no answer, its place is 0 to 0, as in `transformers`."""
    first = {key: value for key, value in shown.items() if key != "others"}
    return [{**one, "start": max(0, one["start"]), "end": max(0, one["end"])} for one in (first, *shown["others"])]


async def summaries(request: Request, served: ServedModel, body: ExtractRequest) -> Response:
    """Sentences of the text itself."""
    found = await read_task(request, served, "extract", [{"source": text} for text in body.texts])
    with_sentences = body.parameters is not None and body.parameters.return_sentences

    def answer() -> Any:
        rows = []
        for example, scores in zip(found.examples, found.answers(), strict=True):
            shown = found.reader.task.shown(example, scores, details=with_sentences)
            rows.append({"summary_text": shown.pop("text"), **shown})
        return rows

    return await json_answer(request, answer)


async def intents(request: Request, served: ServedModel, body: IntentRequest) -> Response:
    found = await read_task(request, served, "intent", [{"words": text} for text in body.texts])
    top = None if body.parameters is None else body.parameters.top_k

    def best_intents(probabilities: np.ndarray) -> list[dict[str, Any]]:
        task: Any = found.reader.task
        order = np.argsort(-probabilities, kind="stable")[:top]
        return [{"label": task.intents[number], "score": float(probabilities[number])} for number in order]

    def answer() -> Any:
        rows = []
        for example, (probabilities, tags) in zip(found.examples, found.answers(), strict=True):
            shown = found.reader.task.shown(example, (probabilities, tags))
            slots = defaultdict(list)
            for one in _entities(example, tags):
                slots[one.pop("entity_group")].append(one)
            row = {"intent": shown["intent"], "score": shown["score"], "slots": slots}
            rows.append(row if top is None else {**row, "intents": best_intents(probabilities)})
        return body.one_or_all(rows)

    return await json_answer(request, answer)


async def fill(request: Request, served: ServedModel, body: FillRequest) -> Response:
    wanted = body.parameters or FillParameters()
    reader = served.reading.readers.masks
    inputs, found = await read_suggestions(request, served, body.texts, wanted.top_k, wanted.targets)

    def answer() -> Any:
        rows = []
        for one, masks in zip(inputs, found, strict=True):
            filled = [
                [_suggestion(*reader.filled(one, place, token), token, score) for token, score in mask]
                for place, mask in enumerate(masks)
            ]
            rows.append(filled[0] if len(filled) == 1 else filled)
        return body.one_or_all(rows)

    return await json_answer(request, answer)


def _suggestion(word: str, text: str, token: int, score: float) -> dict[str, Any]:
    return {"score": score, "token": token, "token_str": word, "sequence": text}


async def features(request: Request, served: ServedModel, body: FeatureRequest) -> Response:
    check_dimensions(served.reading.readers.vectors, body.value("dimensions"))
    found = await read_vectors(
        request,
        served,
        body.texts,
        truncate=bool(body.value("truncate")),
        side=body.value("truncation_direction") or "right",
    )
    scale = unit_vectors if body.value("normalize") else lambda vector: vector

    def answer() -> Any:
        return body.one_or_all([encoded_vector(scale(one), body.value("encoding_format")) for one in found.vectors])

    return await json_answer(request, answer, truncated=found.truncated)
