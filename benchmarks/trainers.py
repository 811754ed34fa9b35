"""The two contestants in training: a step of weft's loop, and `transformers.Trainer`."""

import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import Trainer, TrainingArguments

from weft.model.flops import training_flops
from weft.model.network import Network
from weft.objectives.objective import Objective
from weft.tokens.order import Order
from weft.train.batches import StepBatches
from weft.train.engine import Engine
from weft.train.optimizers import OptimizerSpec
from weft.train.schedules import Schedule
from weft.train.spec import TrainSpec
from weft.train.step import Step

DECAY = 0.01


class Ours:
    def __init__(
        self,
        network: Network,
        objective: Objective,
        samples: int,
        rate: float,
        precision: torch.dtype = torch.float32,
    ) -> None:
        self.network, self.precision = network.train(), precision
        schedule, optimizer = Schedule(10**6, "linear"), OptimizerSpec("adamw", rate, DECAY)
        self.spec = TrainSpec(10**6, samples, schedule, optimizer, precision=precision)
        self.engine = Engine(Step(self.network, objective, precision), optimizer)
        self.pieces_of = StepBatches([objective], Order((len(objective),), (1.0,), 0), self.spec)
        self.step = 0

    def prepare(self, steps: int) -> None:
        pass

    def train(self, steps: int) -> tuple[int, float]:
        tokens, flops = 0, 0.0
        for _ in range(steps):
            (piece,) = self.pieces_of(self.step)
            (batch,) = piece.batches
            self.engine.take_step([piece], self.step, self.spec.schedule(self.step))
            self.step += 1
            tokens += len(batch.packed.tokens)
            flops += training_flops(self.network, batch.packed, None, batch.scored)
        return tokens, flops


class Theirs:
    """Built before each turn, untimed, so that only training counts."""

    def __init__(
        self,
        model: Any,
        rows: Sequence[dict[str, Any]],
        collator: Callable,
        samples: int,
        rate: float,
        precision: torch.dtype = torch.float32,
    ) -> None:
        self.model, self.rows, self.collator, self.samples, self.rate = model, rows, collator, samples, rate
        self.precision = precision
        self.place, self.turns = tempfile.mkdtemp(), 0

    def prepare(self, steps: int) -> None:
        arguments = TrainingArguments(
            self.place, max_steps=steps, per_device_train_batch_size=self.samples, learning_rate=self.rate,
            weight_decay=DECAY, optim="adamw_torch_fused", report_to=[], save_strategy="no",
            logging_strategy="no", disable_tqdm=True, use_cpu=True, seed=self.turns,
            bf16=self.precision == torch.bfloat16,
        )  # fmt: skip
        self.turns += 1
        self.seen = 0
        self.trainer = Trainer(self.model, arguments, train_dataset=self.rows, data_collator=self._collate)

    def _collate(self, rows: list[dict[str, Any]]) -> Any:
        self.seen += sum(len(row["input_ids"]) for row in rows)
        return self.collator(rows)

    def train(self, steps: int) -> tuple[int, float]:
        self.trainer.train()
        return self.seen, 0.0
