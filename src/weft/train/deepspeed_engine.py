"""Training by DeepSpeed's ZeRO (Rajbhandari et al. 2020) instead of our own sums over processes.

    stage 0   each process keeps everything whole        stage 2   its part of gradients and optimizer state
    stage 1   its part of the optimizer's state          stage 3   and of the weights

Batches, dropout, schedule, optimizer, clipping and checkpoints are those of `Engine`; DeepSpeed adds up gradients, and
keeps and moves the parts. It adds in an order of its own, so weights agree with `Engine`'s closely, not to the bit.
Its checkpoints are pickles and are not used. Ours are, so either engine continues what the other began.

Nothing is compiled. At the start DeepSpeed would build a library for sums in shared memory, for a minute, and wait for
ever for the lock of a build that was killed. Only its inference uses that library, so we tell DeepSpeed that it is not
to be had.
"""

import copy
import functools
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from weft.devices import widest_float
from weft.errors import needs
from weft.model.block import Block
from weft.model.network import Network
from weft.model.parts import Part, everything
from weft.objectives.objective import Batch
from weft.train.batches import StepPiece
from weft.train.checkpoints import newest_checkpoint, restore_weights
from weft.train.engine import Engine, check_finite, piece_seed
from weft.train.local import shared_rows
from weft.train.optimizers import OptimizerSpec, set_rate
from weft.train.process_group import lost_processes_noticed
from weft.train.processes import Processes
from weft.train.step import Step
from weft.train.stored_parts import OwnFile, StoredParts, file_of_parts

_MOMENTS = ("exp_avg", "exp_avg_sq")  # the tensors of AdamW's state
_BUCKET = 25_000_000  # numbers that are sent at once; the buffers have this size


class DeepSpeedEngine(Engine):
    """DeepSpeed itself starts with the first step, or once a checkpoint is loaded."""

    def __init__(
        self, step: Step, optimizer: OptimizerSpec, *, clip: float, seed: int, pieces: int, processes: Processes
    ) -> None:
        assert processes.zero is not None
        assert not (processes.zero and optimizer.kind == "muon")  # it needs whole matrices; the recipe is checked
        self.zero, self.given = processes.zero, step.network
        if self.zero == 3:
            step = Step(_twin(step.network), step.objective, step.precision)
        super().__init__(step, optimizer, clip=clip, seed=seed, pieces=pieces, processes=processes)
        self.deepspeed = load_deepspeed(processes.device)
        self.running: Any = None  # DeepSpeed's engine

    def _take_step(self, pieces: Sequence[StepPiece], number: int, rate: float) -> tuple[float, float]:
        with lost_processes_noticed(self.processes.rank):
            running = self._started()
            losses = self._compute(running, pieces, number)
            self.processes.sum_([losses])
            loss = sum(losses.tolist())
            check_finite(loss, loss, number)
            set_rate(self.optimizers, rate, number)
            norm = self._clip_whole(loss, number) if self.zero == 0 else 0.0
            for optimizer in self.optimizers[:-1]:  # Muon; DeepSpeed takes one optimizer
                optimizer.step()
            running.step()
            if self.zero:  # a norm that is not finite makes DeepSpeed skip the step
                norm = float(running.get_global_grad_norm()) if running.was_step_applied() else float("inf")
                check_finite(loss, norm, number)
            return loss, norm

    def _compute(self, running: Any, pieces: Sequence[StepPiece], number: int) -> Tensor:
        """Forward and backward passes over all batches; the last one adds up the gradients of all processes. Returns
        the losses by piece. A process that has no batch left computes its first one again, and multiplies the loss by
        zero: all must send equally often.
        """
        totals = self._totals(pieces)
        losses = torch.zeros(self.pieces, dtype=widest_float(self.step.device), device=self.step.device)
        queue = [(piece.number, place, batch) for piece in pieces for place, batch in enumerate(piece.batches)]
        most = max(self.processes.gather(len(queue)))
        for turn in range(most):
            running.set_gradient_accumulation_boundary(turn == most - 1)
            if turn < len(queue):
                piece, place, batch = queue[turn]
                if place == 0:
                    torch.manual_seed(piece_seed(self.seed, number, piece))
                losses[piece] += self._pass(running, batch, totals, float(self.processes.world))  # it takes the mean
            else:
                self._pass(running, queue[0][2], totals, 0.0)
        return losses

    def _pass(self, running: Any, batch: Batch, totals: Mapping[str, int], factor: float) -> Tensor:
        loss = running(batch.to(self.step.device, non_blocking=True), totals)
        running.backward(loss * factor)
        return loss.detach()

    def _clip_whole(self, loss: float, number: int) -> float:
        norm = get_total_norm([weight.grad for weight in self.weights if weight.grad is not None])
        check_finite(loss, value := float(norm), number)
        if 0 < self.clip < value:
            clip_grads_with_norm_(self.weights, self.clip, norm)
        return value

    def _started(self) -> Any:
        if self.running is None:
            # In stage 3 a block's weights are gathered together. DeepSpeed can do so only where the block's input has a
            # gradient, which that of the first block lacks if the embeddings are frozen.
            if self.zero == 3 and all(weight.requires_grad for weight in self.given.parameters()):
                self.deepspeed.utils.set_z3_leaf_modules(self.step, [Block], raise_if_not_found=False)
            self.running, *_ = self.deepspeed.initialize(
                model=self.step, optimizer=self.optimizers[-1], config=_settings(self.zero, self.clip)
            )
            if self.zero:
                self._begin_state()
            self._release()
        return self.running

    def _begin_state(self) -> None:
        """AdamW's state of the flat parts, as its first step would make it. DeepSpeed looks for it after the step of
        the first group of weights, and would not find that of the others.
        """
        for flat in self._flat_parts():
            moments = {key: torch.zeros_like(flat) for key in _MOMENTS}
            self.optimizers[-1].state[flat] = {"step": torch.zeros(()), **moments}
        if self.zero < 3:
            self.running.optimizer._lazy_init_hp_params_optimizer_state()

    def checkpoint_files(self) -> list[OwnFile]:
        """Each process has some rows of every tensor, gathered one tensor at a time."""
        if self.zero == 0:
            return super().checkpoint_files()
        fragments = self.deepspeed.utils
        trained = {name: weight for name, weight in self._named_weights() if weight.requires_grad}
        weights = ((name, self._whole(weight)) for name, weight in self._named_weights())
        moments = (
            (f"{key}/{name}", fragments.safe_get_full_optimizer_state(weight, key))
            for key in _MOMENTS
            for name, weight in trained.items()
        )
        with lost_processes_noticed(self.processes.rank):
            steps = {f"step/{name}": self._steps_taken() for name in trained} if self.processes.is_first else {}
            return [
                *file_of_parts(*self._own_rows(weights), "network", self.processes),
                *file_of_parts(*self._own_rows(moments, steps), "optimizer", self.processes),
            ]

    def _own_rows(
        self, wholes: Iterator[tuple[str, Tensor]], others: Mapping[str, Tensor] | None = None
    ) -> tuple[dict[str, Tensor], dict[str, Part]]:
        kept, parts = dict(others or {}), {}
        for name, whole in wholes:
            part = everything(whole.shape).rows(shared_rows(len(whole), self.processes.rank, self.processes.world))
            if all(part.shape):
                kept[name], parts[name] = part.taken_from(whole.detach()), part
        return kept, parts

    def restore_newest(self, folder: Path) -> dict[str, Any] | None:
        if self.zero == 0:
            return super().restore_newest(folder)
        found = newest_checkpoint(folder, self.processes)
        if found is None:
            return None
        place, state = found
        restore_weights(place, self.step.network)
        with StoredParts(place, "optimizer") as stored, lost_processes_noticed(self.processes.rank):
            self._started()
            self._fill_state(stored)
        return state

    @torch.no_grad()
    def _fill_state(self, stored: StoredParts) -> None:
        fragments = self.deepspeed.utils
        taken = [stored.number(name) for name in stored.names if name.startswith("step/")]
        for flat in self._flat_parts():
            self.optimizers[-1].state[flat]["step"].copy_(torch.stack(taken).max())
        for name, weight in self._named_weights():
            for key in _MOMENTS:
                if f"{key}/{name}" not in stored.names:
                    continue
                whole = stored.read(f"{key}/{name}", everything(stored.shape(f"{key}/{name}")))
                whole = whole.to(self.step.device)
                if self.zero == 3:
                    fragments.safe_set_local_optimizer_state(weight, self._own_part(whole, weight), key)
                else:
                    fragments.safe_set_full_optimizer_state(weight, whole, key)

    def _own_part(self, whole: Tensor, weight: Any) -> Tensor:
        """This process's part of a weight in stage 3: equally long in all, the last one filled up with zeros."""
        size = weight.ds_tensor.numel()
        filled = whole.new_zeros(size * self.processes.world)
        filled[: whole.numel()] = whole.flatten()
        return filled[size * self.processes.rank :][:size]

    def _flat_parts(self) -> list[Tensor]:
        zero = self.running.optimizer
        return zero.fp32_partitioned_groups_flat if self.zero == 3 else zero.single_partition_of_fp32_groups

    def _steps_taken(self) -> Tensor:
        return self.optimizers[-1].state[self._flat_parts()[0]]["step"].clone()

    def _named_weights(self) -> Iterator[tuple[str, nn.Parameter]]:
        return self.step.network.named_parameters()

    def _whole(self, weight: nn.Parameter) -> Tensor:
        if self.zero < 3:
            return weight.detach()
        with self.deepspeed.zero.GatheredParameters([weight]):
            return weight.detach().clone()

    @contextmanager
    def whole_weights(self) -> Iterator[None]:
        self._fill_given()
        yield
        self._release()

    def finish(self) -> None:
        self._fill_given()
        if self.running is not None:
            self.running.destroy()
            self.running = None

    def _fill_given(self) -> None:
        if self.zero == 3 and self.running is not None:
            with lost_processes_noticed(self.processes.rank):
                for given, (_, weight) in zip(self.given.parameters(), self._named_weights(), strict=True):
                    given.data = self._whole(weight)

    def _release(self) -> None:
        """In stage 3 the given network keeps its shapes, but no numbers."""
        if self.zero == 3 and self.running is not None:
            for given, (_, weight) in zip(self.given.parameters(), self._named_weights(), strict=True):
                given.data = given.data.new_zeros(()).expand(weight.ds_shape)  # type: ignore[attr-defined]


def _twin(network: Network) -> Network:
    """The same network with parameters of its own, which share their numbers with the given ones."""
    weights = {id(one): nn.Parameter(one.data, requires_grad=one.requires_grad) for one in network.parameters()}
    return copy.deepcopy(network, weights)  # type: ignore[arg-type]


@functools.cache
def load_deepspeed(device: str) -> Any:
    """The package, made to compute on the device, to write to standard error and to compile nothing. Raises InputError
    if it is missing.
    """
    os.environ.setdefault("DS_ACCELERATOR", torch.device(device).type)
    with redirect_stdout(sys.stderr):  # its log keeps the stream
        deepspeed = needs("deepspeed", "deepspeed", "by processes.engine: deepspeed")
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", r"`torch\.distributed\.", FutureWarning)  # in every step
    deepspeed.ops.__compatible_ops__ = {}  # the libraries that it may compile
    return deepspeed


def _settings(zero: int, clip: float) -> dict[str, Any]:
    """Of DeepSpeed. Its names say micro-batch and accumulation; here `set_gradient_accumulation_boundary` decides."""
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": clip if zero else 0.0,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            "stage": zero,
            "overlap_comm": False,
            "reduce_bucket_size": _BUCKET,
            "allgather_bucket_size": _BUCKET,
            "stage3_prefetch_bucket_size": _BUCKET,
            "stage3_param_persistence_threshold": 0,  # none stays whole
        },
    }
