"""The `pretrain:` section: the objective on plain text, for how long, and how."""

from typing import Any, Literal

from pydantic import Field, model_validator

from weft.recipe.section import GradientClip, Section, StepPieces, TrainingPrecision, WarmUp

ObjectiveName = Literal["causal", "masked", "masked+next-sentence", "masked+sentence-order", "span", "denoise"]


MASK_SHARE, DENOISED_SHARE = 0.15, 0.3  # as BERT and T5 mask, and as BART


class PretrainSection(Section):
    """Pre-training. The run folder's recipe.yml shows the defaults that depend on data and machine."""

    objective: ObjectiveName | None = Field(
        None, description="what the model learns to predict; default: that of the family"
    )
    budget: str = Field(
        "20m", description="length of training: a time such as 20m, 90s or 2h, 2000 steps, 50M tokens or 3 epochs"
    )
    sequence_length: int | None = Field(
        None, ge=4, le=1_000_000, description="tokens per training sequence, including special tokens"
    )
    batch_tokens: int | None = Field(None, ge=1, description="tokens per optimizer step")
    accumulation: int = Field(
        1, ge=1, description="micro-batches per optimizer step; a higher number needs less memory"
    )
    pieces: StepPieces = None
    optimizer: Literal["adamw", "muon"] = Field(
        "muon", description="muon: Muon for matrices, AdamW for the rest; adamw: AdamW for all"
    )
    learning_rate: float | None = Field(None, gt=0, allow_inf_nan=False, description="peak learning rate of AdamW")
    matrix_rate: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="peak learning rate of Muon, for matrices"
    )
    weight_decay: float = Field(0.01, ge=0, allow_inf_nan=False, description="decoupled weight decay")
    schedule: Literal["cosine", "linear", "wsd"] = Field(
        "wsd", description="how the learning rate falls after the warm-up; wsd: constant, then a decay to 0"
    )
    decay: float | None = Field(
        None, gt=0, le=1, description="share of the steps in which wsd decays the learning rate to 0"
    )
    warmup: WarmUp = 0.02
    clip: GradientClip = 1.0
    dropout: float | None = Field(None, ge=0, lt=1, description="dropout probability during pre-training; default: 0")
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="share of the target probability spread over all tokens"
    )
    mask_share: float = Field(
        MASK_SHARE, gt=0, lt=1, description="share of the tokens that are masked; default with denoise: 0.3"
    )
    mask_unit: Literal["token", "word", "span", "cover"] = Field(
        "token",
        description="what is masked: tokens, whole words or spans; cover: each token once in 1 / mask_share epochs",
    )
    precision: TrainingPrecision = None
    threads: int | None = Field(
        None, ge=1, le=4096, description="CPU threads; default: OMP_NUM_THREADS, or one per core"
    )
    compile: bool | None = Field(
        None, description="use torch.compile; default: if the run is long enough and a measurement shows a gain"
    )
    seed: int = Field(0, ge=0, lt=2**31, description="random seed")
    log_every: int | None = Field(None, ge=1, description="steps between two log entries")
    validate_every: int | None = Field(None, ge=1, description="steps between two validations")
    checkpoint_every: int | None = Field(None, ge=1, description="steps between two checkpoints")
    validation_tokens: int | None = Field(None, ge=1, description="number of tokens per validation during training")
    keep: int = Field(2, ge=1, description="number of newest checkpoints to keep, in addition to the best")
    patience: int | None = Field(
        None, ge=1, description="stop after this many validations without a lower loss; default: never"
    )

    @model_validator(mode="before")
    @classmethod
    def _share_of_the_objective(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("objective") == "denoise":
            return {"mask_share": DENOISED_SHARE, **given}
        return given


class PretrainPlan(PretrainSection):
    """The section with every default resolved. The budget is in steps."""

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
