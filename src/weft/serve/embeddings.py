"""POST /v1/embeddings, as OpenAI has it: numbers, or base64 of little-endian float32, which openai-python asks for."""

import base64
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, StringConstraints
from starlette.requests import Request
from starlette.responses import Response

from weft.errors import InputError
from weft.serve.body import RequestBody, read_body
from weft.serve.openapi import RouteEntry
from weft.serve.read_requests import MOST_INPUTS, admitted_model, json_answer, read_vectors
from weft.serve.readers import MOST_SEQUENCE_TOKENS, TextOrIds, VectorReader
from weft.serve.settings import TokenId

SomeText = Annotated[str, StringConstraints(min_length=1)]
SomeIds = Annotated[list[TokenId], Field(min_length=1, max_length=16 * MOST_SEQUENCE_TOKENS)]
Several = Field(min_length=1, max_length=MOST_INPUTS)
EmbeddingInput = SomeText | Annotated[list[SomeText], Several] | SomeIds | Annotated[list[SomeIds], Several]
EncodingFormat = Literal["float", "base64"]


class EmbeddingsRequest(RequestBody):
    input: EmbeddingInput = Field(description="a text, several, or token ids, which are read as they are")
    model: str | None = None
    encoding_format: EncodingFormat | None = None
    dimensions: int | None = Field(None, ge=1, description="only the model's own number is possible")
    truncate: bool | None = Field(None, description="cut off the end of texts that are too long; else they are refused")
    user: str | None = None


def as_inputs(given: Any) -> list[TextOrIds]:
    """A text or a list of token ids is one input; another list is several."""
    is_one = isinstance(given, str) or (bool(given) and isinstance(given[0], int))
    return [given] if is_one else list(given)


def check_dimensions(reader: VectorReader, dimensions: int | None) -> None:
    width = reader.network.width
    if dimensions not in (None, width):
        raise InputError(f"dimensions is {dimensions}, but this model's vectors have {width} and cannot be shortened.")


def encoded_vector(vector: np.ndarray, encoding: EncodingFormat | None) -> list[float] | str:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()


async def embeddings(request: Request) -> Response:
    body = await read_body(request, EmbeddingsRequest)
    served = admitted_model(request, body.model)
    check_dimensions(served.reading.readers.vectors, body.dimensions)
    found = await read_vectors(request, served, as_inputs(body.input), truncate=bool(body.truncate))

    def answer() -> dict[str, Any]:
        data = [
            {"object": "embedding", "index": index, "embedding": encoded_vector(vector, body.encoding_format)}
            for index, vector in enumerate(found.vectors)
        ]
        usage = {"prompt_tokens": found.tokens, "total_tokens": found.tokens}
        return {"object": "list", "data": data, "model": served.name, "usage": usage}

    return await json_answer(request, answer, truncated=found.truncated)


def embedding_routes() -> list[RouteEntry]:
    example = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.1, -0.2]}]}
    return [
        RouteEntry(
            path,
            "POST",
            embeddings,
            "A vector per text",
            EmbeddingsRequest,
            "The vectors, in the order of the inputs.",
            example,
            "openai",
        )
        for path in ("/embeddings", "/v1/embeddings")
    ]
