"""The `tokenizer:` and `model:` sections: what to train or to load."""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from weft.recipe.section import Section, exactly_one


class TokenizerSection(Section):
    """Either `kind`, to train a tokenizer on the corpus, or `path` to an existing one."""

    kind: Literal["bpe", "wordpiece", "unigram", "char"] | None = Field(None, description="kind of tokenizer to train")
    path: str | None = Field(
        None, min_length=1, description="folder with tokenizer.json, or a vocabulary file of BERT or GPT-2"
    )
    vocab_size: int | None = Field(
        None, ge=1, description="vocabulary size, including special tokens; default for char: all characters"
    )
    cased: bool = Field(False, description="wordpiece: keep upper case and accents")

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.path is not None and self.vocab_size is not None:
            raise ValueError("vocab_size needs kind; a loaded tokenizer has a fixed size")
        return exactly_one(self, "kind", "path")


class ModelSection(BaseModel):
    """The model to build. Other keys are settings of the family (`theta`, `window`, `dropout` …)."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    family: str | None = Field(
        None,
        description="one of bert, roberta, distilbert, gpt2, t5, transformer, llama, qwen3, modernbert or lstm",
    )
    path: str | None = Field(None, min_length=1, description="model folder to continue training from")
    size: str | None = Field(None, description="published size of the family: base, mini, gpt3-175b …")
    head: str | None = Field(
        None, description="output head (masked, causal, seq2seq, sequence, token, span …); default: that of the family"
    )
    labels: int = Field(2, ge=1, description="number of labels of a sequence or token head")
    vocabulary: int | None = Field(None, ge=1, description="vocabulary size")
    layers: int | None = Field(None, ge=1, description="number of Transformer blocks")
    width: int | None = Field(None, ge=1, description="hidden size")
    heads: int | None = Field(None, ge=1, description="number of attention heads")
    positions: str | int | None = Field(
        None, description="position encoding (learned, sinusoidal, rotary, relative), or the number of positions"
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.path is not None and (others := self.model_fields_set - {"path"} | set(self.model_extra or {})):
            raise ValueError(f"a model loaded by path has fixed settings: leave out {min(others)}")
        return exactly_one(self, "family", "path")

    def settings(self) -> dict[str, Any]:
        """The settings given, for `families.design`."""
        return {key: value for key, value in self.model_dump().items() if value is not None}
