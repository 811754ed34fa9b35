"""All stages of ZeRO in one start of torchrun, for test_deepspeed.py.

    torchrun --nproc-per-node 2 zero_stages.py FOLDER

Each stage trains a run from its beginning, continues one that our own loop began, and meets a gradient that is not a
number.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from test_processes import Counting, spec

import weft
from weft.tokens.order import Order
from weft.train.batches import StepBatches
from weft.train.deepspeed_engine import DeepSpeedEngine
from weft.train.engine import Diverged
from weft.train.loop import train
from weft.train.process_group import joined_processes
from weft.train.processes import Processes
from weft.train.step import Step

# Parts of unequal length, and 2 batches for one process but 4 for the other.
SHAPE = {"vocabulary": 51, "layers": 1, "width": 15, "heads": 3, "dropout": 0.1, "attention_dropout": 0.1}
SPEC = spec(pieces=3, accumulation=2, clip=0.1, checkpoint_every=2)


def network():
    return weft.create("gpt2", **SHAPE, embedding_dropout=0.0, seed=1).network


def run(folder: Path, processes: Processes | None = None, *, resume: bool = False):
    trained, objective = network(), Counting()
    held_out = [objective.batch([sample], [0], 0) for sample in (1, 2, 3)]
    order = Order((len(objective),), (1.0,), 5)
    train(trained, [objective], order, SPEC, folder, validation=held_out, processes=processes, resume=resume)
    return trained


class Steep(Counting):
    """Where it is steep, the gradient is NaN and the loss is finite."""

    is_steep = False

    def loss(self, network, batch, totals):
        loss = super().loss(network, batch, totals)
        return loss + (loss * 0.0).sqrt() if self.is_steep else loss


def check_a_steep_step_is_not_taken(processes: Processes) -> None:
    objective = Steep()
    engine = DeepSpeedEngine(
        Step(network(), objective), SPEC.optimizer, clip=0.1, seed=0, pieces=3, processes=processes
    )
    pieces_of = StepBatches([objective], Order((len(objective),), (1.0,), 5), SPEC, processes)
    engine.take_step(pieces_of(0), 0)
    check_what_is_kept(engine)
    before = weights(engine)
    Steep.is_steep = not processes.is_first
    try:
        engine.take_step(pieces_of(1), 1)
    except Diverged as error:
        assert "At step 2 the loss is" in str(error)
        assert "the loss is nan" not in str(error)
    else:
        raise AssertionError("the step was taken")
    Steep.is_steep = False
    assert all(map(torch.equal, before, weights(engine)))


def check_what_is_kept(engine: DeepSpeedEngine) -> None:
    """About half of the optimizer's state from stage 1 on, and of the weights in stage 3."""
    whole = sum(weight.numel() for weight in network().parameters())
    state = engine.optimizers[-1].state
    moments = sum(each[key].numel() for each in state.values() for key in ("exp_avg", "exp_avg_sq"))
    assert moments == 2 * whole if engine.zero == 0 else whole <= moments < 1.1 * whole
    kept = list(engine.step.network.parameters())
    assert sum(weight.numel() for weight in kept) == (0 if engine.zero == 3 else whole)
    if engine.zero == 3:
        assert whole / 2 <= sum(weight.ds_tensor.numel() for weight in kept) < 0.55 * whole
        assert all(weight.untyped_storage().nbytes() == 4 for weight in engine.given.parameters())


def weights(engine: DeepSpeedEngine):
    with engine.whole_weights():
        return [weight.detach().clone() for weight in engine.given.parameters()]


def main(folder: Path) -> None:
    with joined_processes() as processes:
        for stage in range(4):
            known = replace(processes, zero=stage)
            trained = run(folder / f"zero-{stage}", known)
            if processes.is_first:
                save_file(dict(trained.named_parameters()), folder / f"trained-{stage}.safetensors")
            run(folder / f"continued-{stage}", known, resume=True)
            check_a_steep_step_is_not_taken(known)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
