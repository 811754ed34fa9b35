"""The fields that completions and chat share, and the settings of weft that they stand for.

Field names and defaults are OpenAI's; the rest is vLLM's, where clients already send it. A temperature of 0 is greedy
decoding. Without a temperature, the model's own generation_config.json decides.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from weft.errors import InputError
from weft.serve.body import RequestBody
from weft.serve.errors import HTTPProblem
from weft.serve.limits import ServiceLimits

MOST_LOG_PROBS = 20
_SMALLEST_TEMPERATURE = 1e-4  # below it the most probable token wins anyway
_SMALLEST_TOP_P = 1e-6
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
ShortText = Annotated[str, StringConstraints(max_length=1_000)]


class JsonSchemaFormat(RequestBody):
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | bool | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(RequestBody):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class StreamOptions(RequestBody):
    include_usage: bool | None = None


class WritingRequest(RequestBody):
    """What /v1/completions and /v1/chat/completions have in common."""

    model: str | None = Field(None, description="name of the model; default: the first that is served")
    n: int | None = Field(None, ge=1, le=16_384, description="answers per prompt")
    temperature: float | None = Field(None, ge=0, le=100, description="0: greedy; default: the model's own, or 1")
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=-1, description="-1 or 0: all tokens")
    min_p: float | None = Field(None, ge=0, le=1)
    typical_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**64, description="the same seed gives the same text")
    stop: ShortText | list[ShortText] | None = Field(None, description="the text ends before the first of these")
    stop_token_ids: list[TokenId] | None = None
    ignore_eos: bool | None = Field(None, description="write on after the end of a text")
    min_tokens: int | None = Field(None, ge=0, description="no end before this many new tokens")
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, ge=0.01, le=100)
    no_repeat_ngram: int | None = Field(None, ge=1, le=1_000)
    slide: bool | None = Field(None, description="write beyond the context: when it is full, its older half is dropped")
    speculate: int | None = Field(None, ge=0, le=64, description="tokens guessed ahead; the text is the same")
    logit_bias: dict[str, float] | None = Field(None, description="added to the scores of token ids")
    bad_words: list[ShortText] | None = Field(None, description="words of one token that are never written")
    use_beam_search: bool | None = None
    beams: int | None = Field(None, ge=1, le=64)
    length_penalty: float | None = Field(None, ge=-20, le=20)
    early_stopping: bool | None = None
    response_format: ResponseFormat | None = None
    guided_json: dict[str, Any] | str | None = Field(None, description="a JSON schema that the text follows")
    guided_regex: str | None = Field(None, description="a regular expression that the text matches")
    guided_choice: list[str] | None = Field(None, description="texts of which the answer is one")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    user: str | None = None

    @field_validator("logit_bias")
    @classmethod
    def _check_biases(cls, biases: dict[str, float] | None) -> dict[str, float] | None:
        for token, bias in (biases or {}).items():
            if not token.isascii() or not token.isdigit() or len(token) > 9:
                raise ValueError('keys are token ids, such as "50256"')
            if not -100 <= bias <= 100:
                raise ValueError("values are from -100 to 100")
        return biases

    @model_validator(mode="after")
    def _check_together(self) -> "WritingRequest":
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options goes with stream: true")
        if self.stream and self.is_beam_search:
            raise ValueError("beam search has its text only at the end, so it cannot be streamed")
        return self

    @property
    def is_beam_search(self) -> bool:
        return bool(self.use_beam_search) or (self.beams or 1) > 1

    @property
    def includes_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    def check_limits(self, prompts: int, limits: ServiceLimits) -> None:
        """Raises HTTPProblem (400) for more than one request may ask."""
        answers = prompts * (self.n or 1)
        if answers > limits.answers:
            message = f"{prompts} prompts with n = {self.n or 1} are {answers} answers; the limit is {limits.answers}."
            raise HTTPProblem(400, message, param="n")
        if len(self.stops) > limits.stops:
            raise HTTPProblem(400, f"There are more than {limits.stops} stop strings.", param="stop")

    def generation_settings(self, end_ids: tuple[int, ...]) -> dict[str, Any]:
        """The settings for weft's writer. `end_ids`: the tokens that end a text of this model."""
        banned: list[int | str] = [*(self.bad_words or []), *(end_ids if self.ignore_eos else ())]
        given = {
            "n": self.n,
            "stop": self.stops or None,
            "stop_tokens": self.stop_token_ids or None,
            "banned": banned or None,
            "min_new_tokens": self.min_tokens,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "repetition_penalty": self.repetition_penalty,
            "no_repeat_ngram": self.no_repeat_ngram,
            "slide": self.slide,
            "speculate": self.speculate,
            "logit_bias": {int(token): bias for token, bias in (self.logit_bias or {}).items()} or None,
            **self._strategy(),
            **self._constraint(),
        }
        return {name: value for name, value in given.items() if value is not None}

    def _strategy(self) -> dict[str, Any]:
        if self.is_beam_search:
            beams = max(self.beams or 4, self.n or 1)
            return {"strategy": "beam", "beams": beams, "length_penalty": self.length_penalty} | (
                {"early_stopping": self.early_stopping}
            )
        if self.temperature is not None and self.temperature < _SMALLEST_TEMPERATURE:
            # Several greedy answers are the same text several times, which sampling from one token gives.
            return {"strategy": "greedy"} if (self.n or 1) == 1 else {"strategy": "sample", "top_k": 1, "seed": 0}
        return {
            "strategy": "sample",
            "temperature": self.temperature,
            "top_p": None if self.top_p is None else max(self.top_p, _SMALLEST_TOP_P),
            "top_k": self.top_k if self.top_k is not None and self.top_k > 0 else None,
            "min_p": self.min_p,
            "typical_p": self.typical_p,
            "seed": None if self.seed is None else self.seed % 2**63,
        }

    def _constraint(self) -> dict[str, Any]:
        found: dict[str, Any] = {"json_schema": self.guided_json, "regex": self.guided_regex}
        found["choice"] = self.guided_choice
        wanted = self.response_format
        if wanted is not None and wanted.type != "text":
            if any(value is not None for value in found.values()):
                raise InputError(
                    "Give response_format or one of guided_json, guided_regex and guided_choice, not both."
                )
            found["json_schema"] = {"type": "object"}
            if wanted.type == "json_schema":
                if wanted.json_schema is None or not isinstance(wanted.json_schema.schema_, dict):
                    raise InputError('response_format: json_schema needs a schema: {"schema": {…}}.')
                found["json_schema"] = wanted.json_schema.schema_
        if sum(value is not None for value in found.values()) > 1:
            raise InputError("Give only one of guided_json, guided_regex and guided_choice.")
        return found
