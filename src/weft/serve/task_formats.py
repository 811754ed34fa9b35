"""The bodies of /v1/tasks/…, in the shapes of Hugging Face's hosted inference: {"inputs": …, "parameters": {…}}.

One input gives one answer, a list of inputs a list. A parameter that a task does not have is an error, so that nobody
takes an answer for what it is not. `truncate` is a parameter wherever a text can be too long.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from weft.errors import suggest
from weft.serve.body import RequestBody
from weft.serve.embeddings import EncodingFormat, Several, SomeText
from weft.serve.readers import Side
from weft.serve.scores import Apply, TextOrPair
from weft.serve.settings import ShortText
from weft.serve.tei_formats import SentencesToCompare

_MOST_LABELS = 10_000


class TaskParameters(RequestBody):
    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, given: Any) -> Any:
        unknown = [name for name in given if name not in cls.model_fields] if isinstance(given, dict) else []
        if unknown:
            name, known = str(unknown[0])[:40], ", ".join(cls.model_fields)
            raise ValueError(f"there is no parameter {name!r}{suggest(name, cls.model_fields)}; parameters: {known}")
        return given


class TaskRequest(RequestBody):
    model: str | None = Field(None, description="which of the served models; also ?model= in the address")
    options: dict[str, Any] | None = Field(None, description="of the hosted service (use_cache …); ignored")


class TextPair(RequestBody):
    text: SomeText
    text_pair: SomeText


class LabelParameters(TaskParameters):
    top_k: int | None = Field(None, ge=1, le=_MOST_LABELS, description="the best labels only; default: all")
    function_to_apply: Apply | None = Field(None, description="to the raw scores; default: as the model was tuned")
    truncate: bool | None = None


class LabelRequest(TaskRequest):
    """Of texts or pairs."""

    inputs: SomeText | TextPair | Annotated[list[SomeText | TextPair], Several]
    parameters: LabelParameters | None = None

    @property
    def items(self) -> list[TextOrPair]:
        return [
            one if isinstance(one, str) else (one.text, one.text_pair)
            for one in (self.inputs if isinstance(self.inputs, list) else [self.inputs])
        ]


class ClassifyRequest(LabelRequest):
    inputs: SomeText | Annotated[list[SomeText], Several]  # type: ignore[assignment]


class PairRequest(LabelRequest):
    inputs: TextPair | Annotated[list[TextPair], Several]  # type: ignore[assignment]


class SimilarityParameters(TaskParameters):
    truncate: bool | None = None


class SimilarityRequest(TaskRequest):
    inputs: SentencesToCompare | Annotated[list[SentencesToCompare], Field(min_length=1, max_length=64)]
    parameters: SimilarityParameters | None = None


class TextsRequest(TaskRequest):
    inputs: SomeText | Annotated[list[SomeText], Several]

    @property
    def texts(self) -> list[str]:
        return [self.inputs] if isinstance(self.inputs, str) else self.inputs

    def one_or_all(self, answers: list[Any]) -> Any:
        return answers[0] if isinstance(self.inputs, str) else answers


class TagParameters(TaskParameters):
    aggregation_strategy: Literal["none", "simple", "first", "average", "max"] | None = Field(
        None, description="none: each word; others: each entity (they do not differ: a word has one tag)"
    )
    ignore_labels: list[ShortText] = Field(["O"], max_length=_MOST_LABELS)


class TagRequest(TextsRequest):
    parameters: TagParameters | None = None


class ExtractParameters(TaskParameters):
    return_sentences: bool = Field(False, description="also each sentence of the text with its score")


class ExtractRequest(TextsRequest):
    parameters: ExtractParameters | None = None


class QuestionInput(RequestBody):
    question: SomeText
    context: SomeText


class AnswerParameters(TaskParameters):
    top_k: int = Field(1, ge=1, le=5, description="more than one: a list of answers, best first")


class AnswerRequest(TaskRequest):
    inputs: QuestionInput | Annotated[list[QuestionInput], Several]
    parameters: AnswerParameters | None = None


class IntentParameters(TaskParameters):
    top_k: int | None = Field(None, ge=1, le=_MOST_LABELS, description="also the best intents, as `intents`")


class IntentRequest(TextsRequest):
    parameters: IntentParameters | None = None


class FillParameters(TaskParameters):
    top_k: int = Field(5, ge=1, le=100, description="suggestions for each mask")
    targets: list[ShortText] | None = Field(None, min_length=1, max_length=100, description="the words to choose from")


class FillRequest(TextsRequest):
    parameters: FillParameters | None = None


class RewriteParameters(TaskParameters):
    max_new_tokens: int | None = Field(None, ge=1, description="default: as the model was tuned")
    num_beams: int | None = Field(None, ge=1, le=64, description="of a beam search; default: as the model was tuned")
    num_return_sequences: int | None = Field(
        None, ge=1, le=64, description="texts per input, each with its score: the mean log-probability of its tokens"
    )
    truncate: bool | None = None
    truncation: Literal["do_not_truncate", "longest_first", "only_first", "only_second"] | None = Field(
        None, description="Hugging Face's name for truncate"
    )

    @property
    def truncates(self) -> bool:
        return bool(self.truncate) or self.truncation not in (None, "do_not_truncate")


class RewriteRequest(TextsRequest):
    parameters: RewriteParameters | None = None


class GenerateParameters(TaskParameters):
    max_new_tokens: int | None = Field(None, ge=1)
    do_sample: bool | None = Field(None, description="default: true if a setting of sampling is given")
    temperature: float | None = Field(None, gt=0, le=100)
    top_k: int | None = Field(None, ge=1)
    top_p: float | None = Field(None, gt=0, le=1)
    typical_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=0, lt=2**63)
    repetition_penalty: float | None = Field(None, ge=0.01, le=100)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    stop: list[ShortText] | None = Field(None, max_length=16)
    num_return_sequences: int = Field(1, ge=1, le=64)
    return_full_text: bool = Field(False, description="the prompt before the new text")

    sampling: ClassVar[tuple[str, ...]] = ("temperature", "top_k", "top_p", "typical_p", "seed")

    def settings(self) -> dict[str, Any]:
        """The settings for weft's writer."""
        own = ("max_new_tokens", "repetition_penalty", "frequency_penalty", "stop")
        found = {name: getattr(self, name) for name in own} | {"n": self.num_return_sequences}
        samples = self.num_return_sequences > 1 or any(getattr(self, name) is not None for name in self.sampling)
        if self.do_sample or (self.do_sample is None and samples):
            found |= {"strategy": "sample", **{name: getattr(self, name) for name in self.sampling}}
        else:
            found["strategy"] = "greedy"
        return {name: value for name, value in found.items() if value is not None}


class GenerateRequest(TextsRequest):
    parameters: GenerateParameters | None = None
    stream: Literal[False] | None = Field(None, description="for streams, use /v1/completions")


class FeatureParameters(TaskParameters):
    normalize: bool | None = Field(None, description="vectors of length 1; default: as the model's folder says")
    truncate: bool | None = None
    truncation_direction: Side | None = None
    dimensions: int | None = Field(None, ge=1, description="only the model's own number is possible")
    encoding_format: EncodingFormat | None = None


class FeatureRequest(TextsRequest):
    """huggingface_hub sends the parameters of this task beside the inputs."""

    parameters: FeatureParameters | None = None
    normalize: bool | None = None
    truncate: bool | None = None
    truncation_direction: Side | None = None
    dimensions: int | None = Field(None, ge=1)
    encoding_format: EncodingFormat | None = None

    def value(self, name: str) -> Any:
        beside = getattr(self, name)
        return getattr(self.parameters, name, None) if beside is None else beside
