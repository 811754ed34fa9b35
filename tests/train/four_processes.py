"""What only real processes can show. torchrun starts four of these; each checks its own side."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from checkpoint_matrix import NETWORKS, SIZE, differences, find_pickles, layouts, save
from weft.model.families import design
from weft.model.network import outline
from weft.model.packed import pack
from weft.model.peers import own_randomness
from weft.model.tensor_parallel import network_of_peer
from weft.objectives.objective import Batch, HeadObjective
from weft.recipe.processes import ProcessesSection
from weft.train.batches import StepPiece
from weft.train.engine import Engine
from weft.train.grid import arranged
from weft.train.optimizers import OptimizerSpec
from weft.train.process_group import joined_processes
from weft.train.step import Step

READ, WRITTEN = [[1, 2, 3, 4, 5], [6, 7, 52]], [[3, 4, 5], [7, 0]]


def batch_for(architecture):
    read, written = pack(READ), pack(WRITTEN)
    if architecture.is_encoder_decoder:
        return Batch(read, written.tokens.roll(1), decoder=written, counts={"seq2seq": 5})
    if architecture.encoder is not None:
        return Batch(read, torch.tensor([52, 0]), torch.tensor([1, 5]), counts={"masked": 2})
    return Batch(read, read.tokens.roll(-1), counts={"causal": 8})


def make_engine(architecture, optimizer, processes):
    network = network_of_peer(outline(architecture), processes.tensor)
    return Engine(Step(network.train(), HeadObjective()), OptimizerSpec(optimizer), seed=1, processes=processes)


class Sent(TorchDispatchMode):
    """Counts collectives, and the numbers that are added over processes. (torch's CommDebugMode counts them alike, but
    its record of modules breaks on a head that is called outside of its network.)
    """

    def __init__(self):
        super().__init__()
        self.counts, self.numbers = Counter(), 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if function.namespace == "c10d":
            self.counts[function.name()] += 1
        if function is torch.ops.c10d.allreduce_.default:
            self.numbers += sum(tensor.numel() for tensor in arguments[0])
        return function(*arguments, **(options or {}))


def all_reduces(architecture, batch):
    """The formula of docs/processes.md: how many in a step of one batch, and of how many numbers."""
    width, source = architecture.width, len(batch.packed.tokens)
    calls, numbers = 3, batch.scored * (width + 3)  # the vocabulary loss
    encoder, decoder = (
        (0 if stack is None else stack.layers) for stack in (architecture.encoder, architecture.decoder)
    )
    if architecture.is_encoder_decoder:
        calls += 4 * encoder + 6 * decoder + 3
        numbers += width * (source * (4 * encoder + 2) + len(batch.decoder.tokens) * (6 * decoder + 1))
    else:
        calls += 4 * (encoder + decoder) + 1
        numbers += width * source * (4 * (encoder + decoder) + 1)
    calls, numbers = calls + 1, numbers + 1  # the norm of the gradient
    attention = (architecture.decoder or architecture.encoder).blocks[0].attention
    if attention.head_norm is not None:
        calls, numbers = calls + 1, numbers + 2 * attention.head_width * decoder
    return calls, numbers


def check_what_is_sent(processes):
    processes = arranged(processes, ProcessesSection(tensor=4))
    for family, (more, optimizer) in NETWORKS.items():
        architecture = design(family, **{**SIZE, "layers": 2, **more})[1]
        batch = batch_for(architecture)
        engine = make_engine(architecture, optimizer, processes)
        with Sent() as sent:
            engine.take_step([StepPiece(0, [batch])], 0)
        calls, numbers = all_reduces(architecture, batch)
        gathered = {"c10d::_allgather_base_": 4 * architecture.layers} if optimizer == "muon" else {}
        assert dict(sent.counts) == {"c10d::allreduce_": calls, **gathered}, (family, sent.counts, calls)
        assert sent.numbers == numbers, (family, sent.numbers, numbers)


def check_dropout(processes):
    """What all peers have is dropped alike, so weights that all have stay equal; what is cut is dropped differently."""
    processes = arranged(processes, ProcessesSection(tensor=4))
    torch.manual_seed(5)
    with own_randomness(processes.tensor, torch.device("cpu")):
        own = torch.rand(3).tolist()
    after = torch.rand(3).tolist()
    assert len(set(map(tuple, processes.gather(own)))) == 4
    assert processes.gather(after) == [after] * 4

    def losses(seed, dropout=0.3):
        architecture = design("gpt2", **SIZE, dropout=dropout, attention_dropout=dropout, embedding_dropout=0.0)[1]
        engine, batch = make_engine(architecture, "adamw", processes), batch_for(architecture)
        engine.seed = seed
        found = [engine.take_step([StepPiece(0, [batch])], step)[0] for step in range(3)]
        shared = engine.step.network.decoder.norm.weight.tolist()
        assert processes.gather(shared) == [shared] * 4
        return found

    assert losses(1) == losses(1)
    assert len({losses(1)[-1], losses(2)[-1], losses(1, dropout=0.0)[-1]}) == 3


def check_checkpoints(processes, folder):
    """Saved and opened in every layout of four processes."""
    for family in ("qwen3", "t5"):
        arrangements = {name: arranged(processes, section) for name, section in layouts(4).items()}
        for name, arrangement in arrangements.items():
            save(family, arrangement, folder / family / name)
        for saved in arrangements:
            for name, arrangement in arrangements.items():
                count, wrong = differences(family, arrangement, folder / family / saved)
                assert count > 100, count
                assert not wrong, (family, saved, name)
    if processes.is_first:
        assert not find_pickles(folder)


def main():
    torch.set_num_threads(1)
    with joined_processes() as processes:
        check_what_is_sent(processes)
        check_dropout(processes)
        check_checkpoints(replace(processes), Path(sys.argv[1]))
        if processes.is_first:
            print("all is right")


if __name__ == "__main__":
    main()
