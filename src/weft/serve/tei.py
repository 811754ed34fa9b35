"""The routes of text-embeddings-inference, for its clients: /embed, /predict, /rerank, /similarity, /tokenize …"""

import secrets
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from tokenizers import Encoding

from weft.errors import InputError
from weft.metrics.retrieval import unit_vectors
from weft.serve.body import read_body
from weft.serve.embeddings import as_inputs, check_dimensions
from weft.serve.openapi import RouteEntry
from weft.serve.read_requests import MOST_INPUTS, admitted_model, json_answer, read_vectors
from weft.serve.readers import encode_all
from weft.serve.scores import score_labels, score_relevance, score_similarity
from weft.serve.served import ServedModel, Service
from weft.serve.tei_formats import (
    DecodeRequest,
    EmbedAllRequest,
    EmbedRequest,
    PredictRequest,
    RerankDocumentsRequest,
    RerankRequest,
    TeiSimilarityRequest,
    TokenizeRequest,
)
from weft.version import VERSION

_MOST_TOKENIZED = 2**18  # tokens of an answer


async def embed(request: Request) -> Response:
    body = await read_body(request, EmbedRequest)
    served = admitted_model(request, body.model)
    check_dimensions(served.reading.readers.vectors, body.dimensions)
    found = await read_vectors(request, served, as_inputs(body.inputs), truncate=bool(body.truncate), side=body.side)
    scale = unit_vectors if body.normalize else lambda vector: vector
    return await json_answer(
        request,
        lambda: [scale(vector).tolist() for vector in found.vectors],
        truncated=found.truncated,
        tokens=found.tokens,
    )


async def embed_all(request: Request) -> Response:
    body = await read_body(request, EmbedAllRequest)
    served = admitted_model(request, body.model)
    found = await read_vectors(
        request, served, as_inputs(body.inputs), truncate=bool(body.truncate), side=body.side, every_token=True
    )
    return await json_answer(
        request, lambda: [rows.tolist() for rows in found.vectors], truncated=found.truncated, tokens=found.tokens
    )


async def predict(request: Request) -> Response:
    body = await read_body(request, PredictRequest)
    found = await score_labels(
        request,
        admitted_model(request, body.model),
        body.items,
        apply="none" if body.raw_scores else None,
        truncate=bool(body.truncate),
    )
    rows = [[{"score": label.score, "label": label.name} for label in row] for row in found.ranked]
    return await json_answer(
        request, lambda: rows if body.is_batch else rows[0], truncated=found.truncated, tokens=found.tokens
    )


async def rerank(request: Request) -> Response:
    body = await read_body(request, RerankRequest)
    found = await score_relevance(
        request,
        admitted_model(request, body.model),
        body.query,
        body.texts,
        label=body.label,
        raw=body.raw_scores,
        truncate=bool(body.truncate),
    )

    def answer() -> list[dict[str, Any]]:
        return [
            {"index": index, **({"text": body.texts[index]} if body.return_text else {}), "score": found.values[index]}
            for index in _best_first(found.values)
        ]

    return await json_answer(request, answer, truncated=found.truncated, tokens=found.tokens)


async def rerank_documents(request: Request) -> Response:
    body = await read_body(request, RerankDocumentsRequest)
    served, texts = admitted_model(request, body.model), body.texts
    found = await score_relevance(request, served, body.query, texts, label=body.label, truncate=bool(body.truncate))

    def answer() -> dict[str, Any]:
        results = [
            {
                "index": index,
                **({"document": {"text": texts[index]}} if body.return_documents else {}),
                "relevance_score": found.values[index],
            }
            for index in _best_first(found.values)[: body.top_n]
        ]
        usage = {"prompt_tokens": found.tokens, "total_tokens": found.tokens}
        return {"id": f"rerank-{secrets.token_hex(12)}", "model": served.name, "usage": usage, "results": results}

    return await json_answer(request, answer, truncated=found.truncated)


def _best_first(scores: list[float]) -> list[int]:
    return sorted(range(len(scores)), key=lambda index: -scores[index])


async def similarity(request: Request) -> Response:
    body = await read_body(request, TeiSimilarityRequest)
    found = await score_similarity(
        request,
        admitted_model(request, body.model),
        body.inputs.source_sentence,
        body.inputs.sentences,
        truncate=bool(body.parameters and body.parameters.truncate),
    )
    return await json_answer(request, lambda: found.values, truncated=found.truncated, tokens=found.tokens)


async def tokenize(request: Request) -> Response:
    body = await read_body(request, TokenizeRequest)
    tokenizer = admitted_model(request, body.model).model.tokenizer
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs

    def answer() -> list[list[dict[str, Any]]]:
        encodings = encode_all(tokenizer, texts, special=body.add_special_tokens)
        if (count := sum(map(len, encodings))) > _MOST_TOKENIZED:
            raise InputError(f"The inputs have {count:,} tokens; a request may have {_MOST_TOKENIZED:,}.")
        unknown = tokenizer.id_of("unk")
        return [_tokens(text, encoding, unknown) for text, encoding in zip(texts, encodings, strict=True)]

    return await json_answer(request, answer)


def _tokens(text: str, encoding: Encoding, unknown: int | None) -> list[dict[str, Any]]:
    """`unknown` marks, beyond what TEI says, a piece that the model cannot tell from others."""
    found = []
    marks = zip(encoding.ids, encoding.tokens, encoding.offsets, encoding.special_tokens_mask, strict=True)
    for token, name, (start, stop), is_special in marks:
        if is_special:
            found.append({"id": token, "text": name, "special": True, "start": None, "stop": None})
        else:
            one = {"id": token, "text": text[start:stop], "special": False, "start": start, "stop": stop}
            found.append({**one, "unknown": True} if token == unknown else one)
    return found


async def decode(request: Request) -> Response:
    body = await read_body(request, DecodeRequest)
    tokenizer = admitted_model(request, body.model).model.tokenizer
    several = bool(body.ids) and isinstance(body.ids[0], list)
    rows: Any = body.ids if several else [body.ids]

    def answer() -> list[str]:
        most = max((token for row in rows for token in row), default=0)
        if most >= tokenizer.vocabulary:
            raise InputError(f"There is no token id {most}; ids are from 0 to {tokenizer.vocabulary - 1}.")
        return tokenizer.engine.decode_batch(rows, skip_special_tokens=body.skip_special_tokens)

    return await json_answer(request, answer)


async def info(request: Request) -> Response:
    service: Service = request.app.state.service
    served = admitted_model(request, None)
    reading, weights = served.reading, next(served.model.network.parameters())
    facts = {
        "model_id": served.name,
        "model_sha": None,
        "model_dtype": str(weights.dtype).removeprefix("torch."),
        "served_model_name": served.name,
        "model_type": _model_type(served),
        "max_concurrent_requests": service.limits.requests,
        "max_input_length": reading.readers.vectors.most_tokens,
        "max_batch_tokens": reading.most_tokens,
        "max_batch_requests": None,
        "max_client_batch_size": MOST_INPUTS,
        "auto_truncate": False,
        "tokenization_workers": 2,
        "version": VERSION,
        "sha": None,
        "docker_label": None,
        "abilities": list(reading.readers.abilities),
    }
    return await json_answer(request, lambda: facts)


def _model_type(served: ServedModel) -> dict[str, Any]:
    readers = served.reading.readers
    if readers.own_task in ("classify", "pair", "similarity"):
        labels = readers.task(readers.own_task).task.labels or ("score",)
        names = {str(number): label for number, label in enumerate(labels)}
        kind = "reranker" if readers.own_task == "similarity" else "classifier"
        return {kind: {"id2label": names, "label2id": {label: number for number, label in enumerate(labels)}}}
    pooling = {"mean": "mean", "first": "cls", "last": "last_token"}[served.model.pooling.kind]
    return {"embedding": {"pooling": pooling}}


def tei_routes() -> list[RouteEntry]:
    scored = [{"score": 0.98, "label": "positive"}, {"score": 0.02, "label": "negative"}]
    ranked = [{"index": 1, "score": 0.9}, {"index": 0, "score": 0.1}]
    results = [{"index": 1, "document": {"text": "…"}, "relevance_score": 0.9}]
    token = {"id": 101, "text": "[CLS]", "special": True, "start": None, "stop": None}
    post, tei = "POST", "tei"
    return [
        RouteEntry("/embed", post, embed, "A vector per text", EmbedRequest, "The vectors.", [[0.1, -0.2]], tei),
        RouteEntry("/embed_all", post, embed_all, "A vector per token", EmbedAllRequest, "Rows.", [[[0.1]]], tei),
        RouteEntry("/predict", post, predict, "Labels of a text or a pair", PredictRequest, "Labels.", scored, tei),
        RouteEntry("/rerank", post, rerank, "Texts by how well they fit a query", RerankRequest, "Ranks.", ranked, tei),
        RouteEntry(
            "/v1/rerank", post, rerank_documents, "Documents by a query", RerankDocumentsRequest, "Results.",
            {"id": "rerank-…", "model": "…", "results": results}, "jina",
        ),
        RouteEntry("/similarity", post, similarity, "Similarity of texts", TeiSimilarityRequest, "Scores.", [0.9], tei),
        RouteEntry("/tokenize", post, tokenize, "The tokens of texts", TokenizeRequest, "Tokens.", [[token]], tei),
        RouteEntry("/decode", post, decode, "The texts of token ids", DecodeRequest, "Texts.", ["some text"], tei),
        RouteEntry("/info", "GET", info, "What the model is and may be asked (?model=)", None, "Facts.", None, tei),
    ]  # fmt: skip
