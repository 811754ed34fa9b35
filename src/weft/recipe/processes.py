"""The `processes:` section: how the processes that torchrun starts share a model."""

from typing import Literal

from pydantic import Field, model_validator

from weft.errors import RecipeError
from weft.recipe.section import Section

_USUAL_STAGE = 2


class ProcessesSection(Section):
    """Where a model trains, and how several processes share it (torchrun). While `exact` is true, the result does not
    depend on their number or on sharding; with `tensor` above 1, with DeepSpeed, or on another kind of device it
    differs in the last digits.
    """

    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        "auto",
        description="what computes: cpu, cuda (of several processes each has its own GPU) or mps (an Apple GPU); auto: "
        "the GPU if there is one",
    )

    data: int | None = Field(
        None, ge=1, description="processes that share the samples of a step; default: all, divided by `tensor`"
    )

    sharded: bool = Field(
        False,
        description="each process keeps a part of every weight, of its gradient and of the optimizer's state, so that "
        "the memory of all counts together; false: each keeps them whole, which needs less communication",
    )
    exact: bool = Field(
        True,
        description="the same bytes on any number of processes; false: each computes its whole share of a step at once "
        "and gradients are added as usual, which changes the last digits",
    )
    tensor: int = Field(
        1,
        ge=1,
        description="processes that share the computation of each sample: each has some attention heads and a part of "
        "the inner width and of the vocabulary. For wide models; above 1 the last digits change",
    )
    engine: Literal["weft", "deepspeed"] = Field("weft", description="what adds up gradients and takes the steps")
    zero: Literal[0, 1, 2, 3] | None = Field(
        None,
        description="stage of DeepSpeed's ZeRO: processes share out nothing (0), the optimizer's state (1), also "
        f"gradients (2), also weights (3); default: {_USUAL_STAGE}",
    )

    @model_validator(mode="after")
    def _fits(self) -> "ProcessesSection":
        if self.engine == "deepspeed" and self.sharded:
            raise ValueError("sharded belongs to weft's own engine; with deepspeed set zero: 3")
        if self.engine == "deepspeed" and self.tensor > 1:
            raise ValueError("tensor belongs to weft's own engine; leave it out with engine: deepspeed")
        if self.engine == "deepspeed" and not self.exact:
            raise ValueError("exact belongs to weft's own engine; leave it out with engine: deepspeed")
        if self.engine != "deepspeed" and self.zero is not None:
            raise ValueError("zero belongs to DeepSpeed; set engine: deepspeed as well")
        return self

    @property
    def stage(self) -> int:
        return _USUAL_STAGE if self.zero is None else self.zero

    def check_optimizer(self, chosen: str, setting: str) -> None:
        """Raises RecipeError where Muon would not find whole matrices. `setting`: the key that chooses."""
        if self.engine == "deepspeed" and self.stage and chosen == "muon":
            raise RecipeError(
                f"{setting}: muon needs whole matrices, and ZeRO {self.stage} cuts them into flat parts. Set "
                f"{setting}: adamw, or processes.zero: 0."
            )
