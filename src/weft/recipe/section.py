"""The base of all sections of a recipe: unknown keys and wrong types are errors."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

SectionKind = TypeVar("SectionKind", bound=BaseModel)

# Settings that pre-training and fine-tuning share, with defaults of their own.
WarmUp = Annotated[
    float,
    Field(
        ge=0,
        allow_inf_nan=False,
        description="length of the warm-up: a share of the steps if below 1, otherwise a number of steps",
    ),
]
StepPieces = Annotated[
    int | None,
    Field(
        ge=1,
        le=4096,
        description="parts of a step that processes share; the result depends on it, but not on the number of "
        "processes; default: 1, with several processes 8",
    ),
]


def _no_float16(given: Any) -> Any:
    if given in ("float16", "fp16", "half"):
        raise ValueError(
            "float16 cannot hold small gradients without a loss scale, and T5 overflows in it; choose bfloat16, or "
            "float32 where the device lacks bfloat16"
        )
    return given


TrainingPrecision = Annotated[
    Literal["float32", "bfloat16"] | None,
    BeforeValidator(_no_float16),
    Field(description="precision of training; default: bfloat16 where it is faster, otherwise float32"),
]
GradientClip = Annotated[
    float,
    Field(
        ge=0,
        allow_inf_nan=False,
        description="largest gradient norm; larger gradients are clipped; 0: no clipping",
    ),
]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def exactly_one(section: SectionKind, first: str, second: str) -> SectionKind:
    """Raises ValueError unless exactly one of the two settings is given."""
    given = [name for name in (first, second) if getattr(section, name) is not None]
    if len(given) != 1:
        raise ValueError(f"give {first} or {second}{', not both' if given else ''}")
    return section
