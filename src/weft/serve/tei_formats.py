"""The bodies of text-embeddings-inference's routes (TEI 1.9), and of /v1/rerank, as Jina and Cohere have it.

One difference: TEI truncates long texts unless told otherwise; here they are refused unless `truncate` is true.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from weft.serve.body import RequestBody
from weft.serve.embeddings import Several, SomeIds, SomeText
from weft.serve.readers import Side
from weft.serve.scores import TextOrPair
from weft.serve.settings import TokenId

SomeTexts = Annotated[list[SomeText], Several]
TeiInput = SomeText | SomeIds | Annotated[list[SomeText | SomeIds], Several]
OneOrTwo = Annotated[list[SomeText], Field(min_length=1, max_length=2)]
PredictInput = SomeText | OneOrTwo | Annotated[list[OneOrTwo], Several]


class TeiRequest(RequestBody):
    model: str | None = Field(None, description="which of the served models; TEI itself serves one")
    truncate: bool | None = Field(None, description="cut texts that are too long; else they are refused")
    truncation_direction: Literal["left", "right", "Left", "Right"] = "right"
    prompt_name: None = Field(None, description="not supported: put the prompt into the text")

    @property
    def side(self) -> Side:
        return "left" if self.truncation_direction.lower() == "left" else "right"


class EmbedAllRequest(TeiRequest):
    inputs: TeiInput


class EmbedRequest(EmbedAllRequest):
    normalize: bool = Field(True, description="vectors of length 1")
    dimensions: int | None = Field(None, ge=1, description="only the model's own number is possible")


class PredictRequest(TeiRequest):
    inputs: PredictInput = Field(description="a text; a list of two texts is one pair; a list of lists is several")
    raw_scores: bool = Field(False, description="scores before softmax or sigmoid")

    @property
    def is_batch(self) -> bool:
        return not isinstance(self.inputs, str) and isinstance(self.inputs[0], list)

    @property
    def items(self) -> list[TextOrPair]:
        return [_text_or_pair(one) for one in (self.inputs if self.is_batch else [self.inputs])]


def _text_or_pair(given: Any) -> TextOrPair:
    if isinstance(given, str):
        return given
    return given[0] if len(given) == 1 else (given[0], given[1])


class RerankRequest(TeiRequest):
    query: SomeText
    texts: SomeTexts
    raw_scores: bool = False
    return_text: bool = False
    label: str | None = Field(None, description="of a model for pairs: the label that means a good fit")


class SentencesToCompare(RequestBody):
    source_sentence: SomeText
    sentences: SomeTexts


class SimilarityOptions(RequestBody):
    truncate: bool | None = None


class TeiSimilarityRequest(RequestBody):
    inputs: SentencesToCompare
    parameters: SimilarityOptions | None = None
    model: str | None = None


class TokenizeRequest(RequestBody):
    inputs: str | Annotated[list[str], Several]
    add_special_tokens: bool = True
    model: str | None = None


class DecodeRequest(RequestBody):
    ids: Annotated[list[TokenId], Field(max_length=2**20)] | Annotated[list[list[TokenId]], Several]
    skip_special_tokens: bool = True
    model: str | None = None


class DocumentText(RequestBody):
    text: SomeText


class RerankDocumentsRequest(RequestBody):
    query: SomeText
    documents: Annotated[list[SomeText | DocumentText], Several]
    top_n: int | None = Field(None, ge=1)
    return_documents: bool = True
    truncate: bool | None = None
    label: str | None = Field(None, description="of a model for pairs: the label that means a good fit")
    model: str | None = None

    @property
    def texts(self) -> list[str]:
        return [one if isinstance(one, str) else one.text for one in self.documents]
