"""The `prune:`, `quantize:` and `compare:` sections: what `weft run` does to the model that it has trained."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from weft.recipe.section import Section

PRUNE_BOUNDS = ("speedup", "size", "layers", "inner", "heads", "weights", "vocabulary")


class PruneSection(Section):
    """Cut what matters least, as `weft prune` does. Give at least one bound; several go together."""

    model: str | None = Field(
        None, min_length=1, description="folder of the model; default: the one that this recipe makes before"
    )
    speedup: str | float | None = Field(
        None, description="how many times as fast the model becomes, measured on this machine: 2x"
    )
    size: str | None = Field(None, description="largest size of the weights: 20MB")
    layers: int | None = Field(None, ge=1, description="number of layers that stay in each stack")
    inner: float | int | None = Field(
        None, gt=0, description="inner neurons that stay in each layer: a share such as 0.5, or a number"
    )
    heads: str | float | int | None = Field(
        None, description="attention heads that stay: a number, a share, or uneven:0.5 (in weft's own format)"
    )
    weights: float | None = Field(None, gt=0, le=1, description="share of the weights that are not set to zero")
    vocabulary: str | None = Field(
        None, min_length=1, description="file or folder with text; tokens that it does not use are removed"
    )
    keep_tokens: int | None = Field(None, ge=1, description="with vocabulary: keep about this many tokens at most")
    data: str | None = Field(
        None,
        min_length=1,
        description="rows of the task or text, which tell what matters; default: the training data of this recipe",
    )
    minutes: float = Field(
        0.0, ge=0, lt=1e5, description="minutes of training afterwards, with the whole model as the teacher"
    )
    measure: Literal["throughput", "latency"] = Field(
        "throughput", description="what speedup means: throughput on the data, or latency of one text at a time"
    )

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if not self.bounds():
            raise ValueError(f"say what to prune: one of {', '.join(PRUNE_BOUNDS)}")
        if self.keep_tokens is not None and self.vocabulary is None:
            raise ValueError("keep_tokens goes with vocabulary")
        if self.minutes and set(self.bounds()) == {"vocabulary"}:
            raise ValueError("minutes recovers what layers, inner, heads or weights took; vocabulary takes nothing")
        return self

    def bounds(self) -> dict[str, Any]:
        """The bounds that are given, as `weft prune` takes them."""
        return {name: value for name in PRUNE_BOUNDS if (value := getattr(self, name)) is not None}


class QuantizeSection(Section):
    """Store the weights as int8 or int4, as `weft quantize` does."""

    model: str | None = Field(
        None, min_length=1, description="folder of the model; default: the one that this recipe makes before"
    )
    bits: Literal[8, 4] = Field(8, description="bits of a weight: 8, or 4 in groups")
    data: str | list[str] | None = Field(
        None,
        description="rows of the task or text, which tell what the matrices read; default: the training data of this "
        "recipe",
    )
    allowed_loss: float | None = Field(
        None,
        gt=0,
        lt=100,
        description="largest divergence of the predictions (KL in nats), which matrices left in fp32 keep; default: "
        "0.01 with 8 bits, 0.03 with 4",
    )
    tune: str | None = Field(
        None, description="training with rounded weights, the model itself as the teacher: 5m, 200 steps"
    )
    group: int = Field(32, ge=8, multiple_of=2, description="4 bits: inputs that share a scale, at most; even")
    unpacked: bool = Field(False, description="4 bits: a byte per value, which transformers computes with on a CPU")
    seed: int = Field(0, ge=0, lt=2**31, description="random seed of the training")

    @model_validator(mode="after")
    def _fits_the_bits(self) -> Self:
        if self.bits == 8 and {"group", "unpacked"} & self.model_fields_set:
            raise ValueError("group and unpacked go with bits: 4")
        return self


class CompareSection(Section):
    """The card at the end, as `weft compare` makes it: every model of the chain against the first."""

    data: str | list[str] | None = Field(
        None,
        description="labelled data or text; default: the test data of finetune or distil, or the held-out part of a "
        "corpus that is built",
    )
    limit: int | None = Field(None, ge=1, description="number of texts at most, drawn at random; default: all")
    rounds: int = Field(7, ge=1, le=1000, description="how often each model is timed, in turns")
