"""`tokenizer:` and `model:` what to train or to load."""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from weft.recipe.section import Section, exactly_one


class TokenizerSection(Section):
    """Either `kind`, and it is trained on the corpus, or `path` to an existing one."""

    kind: Literal["bpe", "wordpiece", "unigram", "char"] | None = None
    path: str | None = Field(None, min_length=1, description="a folder with a tokenizer.json, or BERT's or GPT-2's own")
    vocab_size: int | None = Field(None, ge=1, description="tokens, special ones included; char takes all there are")
    cased: bool = Field(False, description="WordPiece: keep upper case and accents")

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.path is not None and self.vocab_size is not None:
            raise ValueError("vocab_size goes with kind; a tokenizer that is loaded has its size")
        return exactly_one(self, "kind", "path")


class ModelSection(BaseModel):
    """What to build. Other keys are the family's own settings (`theta`, `window`, `dropout` …)."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    family: str | None = Field(
        None, description="bert, roberta, distilbert, gpt2, t5, transformer, llama, qwen3, modernbert or lstm"
    )
    path: str | None = Field(None, min_length=1, description="a model folder whose training goes on")
    size: str | None = Field(None, description="a published size of the family: base, mini, gpt3-175b …")
    head: str | None = Field(
        None, description="masked, causal, seq2seq, sequence, token, span …; the family's own if left out"
    )
    labels: int = Field(2, ge=1, description="how many labels a sequence or token head has")
    vocabulary: int | None = Field(None, ge=1, description="tokens in the vocabulary")
    layers: int | None = Field(None, ge=1, description="blocks on top of each other")
    width: int | None = Field(None, ge=1, description="numbers per token")
    heads: int | None = Field(None, ge=1, description="attention heads")
    positions: str | int | None = Field(
        None, description="learned, sinusoidal, rotary or relative; or how many there are"
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.path is not None and (others := self.model_fields_set - {"path"} | set(self.model_extra or {})):
            raise ValueError(f"a model that is loaded by its path has its settings: leave out {min(others)}")
        return exactly_one(self, "family", "path")

    def settings(self) -> dict[str, Any]:
        """What was said, for `families.design`."""
        return {key: value for key, value in self.model_dump().items() if value is not None}
