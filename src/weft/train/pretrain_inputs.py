"""What pre-training starts from, once the corpus is tokens. With a plan it gives a network, objectives and settings."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from weft.corpus.split import SplitName
from weft.devices import local_device
from weft.errors import InputError
from weft.objectives.catalog import ObjectiveKind
from weft.objectives.masking import MaskSpec
from weft.objectives.objective import Objective
from weft.recipe.finetune import FinetunePlan
from weft.recipe.model import ModelSection
from weft.recipe.pretrain import PretrainPlan
from weft.tokenizer.tokenizer import Tokenizer
from weft.train.budget import read_budget
from weft.train.build import Built, build_network
from weft.train.data import TokenizedCorpus
from weft.train.optimizers import OptimizerSpec
from weft.train.schedules import Schedule
from weft.train.spec import TrainSpec


@dataclass(frozen=True)
class PretrainInputs:
    base: Path  # the recipe's paths are relative to it
    tokenizer: Tokenizer
    data: TokenizedCorpus
    kind: ObjectiveKind
    device: str = field(default_factory=local_device)
    world: int = 1  # processes that share the samples
    tensor: int = 1  # processes that share the computation of a sample

    def build(self, model: ModelSection, plan: PretrainPlan) -> Built:
        length, dropout, seed = plan.sequence_length, plan.dropout, plan.seed
        built = build_network(model, self.base, self.kind.head, self.tokenizer, length, dropout, seed)
        built.network.to(self.device)
        return built

    def outline(self, model: ModelSection, plan: PretrainPlan) -> Built:
        """As `build`, but a fresh network has no weights yet: each process draws its own part of them."""
        length, dropout, seed = plan.sequence_length, plan.dropout, plan.seed
        return build_network(model, self.base, self.kind.head, self.tokenizer, length, dropout, seed, is_outline=True)

    def objectives(self, split: SplitName, plan: PretrainPlan) -> list[Objective]:
        """One per source. Raises InputError if a source is shorter than one sequence."""
        mask = MaskSpec(plan.mask_share, plan.mask_unit)
        made: list[Objective] = []
        for shards in self.data.splits[split]:
            try:
                objective = self.kind.make(shards, self.tokenizer, plan.sequence_length, mask)
            except InputError as error:
                raise type(error)(f"The {split} part of the corpus: {error}") from None
            if len(objective) == 0:
                raise InputError(
                    f"The {split} part of a source has {len(shards):,} tokens, fewer than one sequence of "
                    f"{plan.sequence_length}. Add text, or lower pretrain.sequence_length."
                )
            made.append(replace(objective, smoothing=plan.label_smoothing))
        return made

    def spec(self, plan: PretrainPlan) -> TrainSpec:
        steps = int(read_budget(plan.budget).amount)
        warmup = round(plan.warmup if plan.warmup >= 1 else plan.warmup * steps)
        return TrainSpec(
            steps,
            samples=max(1, plan.batch_tokens // plan.sequence_length),
            schedule=Schedule(steps, plan.schedule, min(warmup, steps), plan.decay or 1.0),  # only wsd uses the decay
            optimizer=OptimizerSpec(
                plan.optimizer, plan.learning_rate, plan.weight_decay, matrix_rate=plan.matrix_rate or 0.0
            ),
            seed=plan.seed,
            **loop_settings(plan),
        )


def loop_settings(plan: PretrainPlan | FinetunePlan) -> dict[str, Any]:
    """The settings of TrainSpec that pre-training and fine-tuning plans name alike."""
    same = ("accumulation", "clip", "log_every", "validate_every", "checkpoint_every", "keep", "patience")
    found = {name: getattr(plan, name) for name in same}
    return {**found, "pieces": plan.pieces or 1, "precision": getattr(torch, plan.precision)}
