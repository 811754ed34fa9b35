"""`pretrain:` what is learnt from plain text, for how long, and how."""

from typing import Literal

from pydantic import Field

from weft.recipe.section import Section

ObjectiveName = Literal["causal", "masked", "masked+next-sentence", "masked+sentence-order", "span"]


class PretrainSection(Section):
    """What is learnt, for how long, and how. What is left out is chosen; the run folder's recipe.yml says what."""

    objective: ObjectiveName | None = Field(None, description="the family's own if left out")
    budget: str = Field("20m", description="20m (or 90s, 2h), 2000 steps, 50M tokens or 3 epochs")
    sequence_length: int | None = Field(None, ge=4, le=1_000_000, description="tokens, special ones included")
    batch_tokens: int | None = Field(None, ge=1, description="tokens in a step")
    accumulation: int = Field(1, ge=1, description="pieces a step is cut into, to save memory")
    optimizer: Literal["adamw", "muon"] = "muon"
    learning_rate: float | None = Field(None, gt=0, allow_inf_nan=False, description="AdamW's peak")
    matrix_rate: float | None = Field(None, gt=0, allow_inf_nan=False, description="Muon's peak, for matrices")
    weight_decay: float = Field(0.01, ge=0, allow_inf_nan=False)
    schedule: Literal["cosine", "linear", "wsd"] = "wsd"
    decay: float | None = Field(
        None, gt=0, le=1, description="wsd: the share of the steps in which the rate falls to 0"
    )
    warmup: float = Field(0.02, ge=0, allow_inf_nan=False, description="below 1 a share of the steps, else steps")
    clip: float = Field(1.0, ge=0, allow_inf_nan=False, description="longest gradient; 0: as it is")
    dropout: float | None = Field(None, ge=0, lt=1, description="while pre-training; none unless asked for")
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    mask_share: float = Field(0.15, gt=0, lt=1)
    mask_unit: Literal["token", "word", "span", "cover"] = "token"
    precision: Literal["float32", "bfloat16"] | None = Field(None, description="bfloat16 where it is the faster one")
    threads: int | None = Field(None, ge=1, le=4096, description="CPU threads; else OMP_NUM_THREADS, else one per core")
    compile: bool | None = Field(None, description="torch.compile; measured if left out, when the run is long enough")
    seed: int = Field(0, ge=0, lt=2**31)
    log_every: int | None = Field(None, ge=1, description="steps")
    validate_every: int | None = Field(None, ge=1, description="steps")
    checkpoint_every: int | None = Field(None, ge=1, description="steps")
    validation_tokens: int | None = Field(None, ge=1, description="how much is validated on while training")
    keep: int = Field(2, ge=1, description="checkpoints that stay, beside the best")
    patience: int | None = Field(None, ge=1, description="validations without a better loss before the run stops")


class PretrainPlan(PretrainSection):
    """The same with everything chosen; the budget is in steps."""

    objective: ObjectiveName
    sequence_length: int
    batch_tokens: int
    learning_rate: float
    precision: Literal["float32", "bfloat16"]
    compile: bool
    log_every: int
    validate_every: int
    checkpoint_every: int
    validation_tokens: int
