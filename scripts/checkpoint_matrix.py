"""Checkpoints saved on 1, 2, 3, 4 and 8 processes in every layout, each opened on every number in every layout.

    python scripts/checkpoint_matrix.py

Of a BERT (AdamW), a Qwen3 (Muon, grouped keys, QK-norm) and a T5 (relative biases, cross-attention), whose vocabulary
of 53 tokens nobody can share evenly. Every weight and every state of the optimizers is filled with numbers drawn by its
name, so whoever opens a checkpoint knows what it must find in its own part. No byte of pickle may be in any folder.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from weft.model.families import design
from weft.model.initialize import draw_normal
from weft.model.network import outline
from weft.model.tensor_parallel import network_of_peer
from weft.objectives.objective import HeadObjective
from weft.recipe.processes import ProcessesSection
from weft.train.build import fresh_network
from weft.train.engine import Engine
from weft.train.grid import arranged
from weft.train.layout import WeightLayout
from weft.train.local import local_part
from weft.train.optimizers import Muon, OptimizerSpec
from weft.train.pending_checkpoint import PendingCheckpoint
from weft.train.process_group import joined_processes
from weft.train.processes import Processes
from weft.train.step import Step

WORLDS = (1, 2, 3, 4, 8)
SIZE = {"vocabulary": 53, "layers": 1, "width": 24, "heads": 24, "inner": 48}  # 24 heads: for 2, 3, 4 and 8 processes
NETWORKS = {
    "bert": ({"head": "masked+next-sentence"}, "adamw"),
    "qwen3": ({"heads": 48, "key_value_heads": 24, "head_width": 2}, "muon"),
    "t5": ({"head_width": 2}, "adamw"),
}
PIECES, STEP, TAKEN = 8, 5, 7.0

# How pickles look: the frame of protocols 4 and 5; a zip of torch.save; names of what is to be called.
PICKLES = (
    rb"\x80[\x04\x05]\x95.{5}\0\0\0",
    rb"PK\x03\x04",
    rb"c[A-Za-z_][\w.]{2,}\n[A-Za-z_]\w{2,}\n",
    rb"\A\x80[\x02-\x05]",
)


def layouts(world: int) -> dict[str, ProcessesSection]:
    """By name, every way to arrange so many processes."""
    found = {}
    for tensor in (number for number in range(1, world + 1) if world % number == 0):
        data = world // tensor
        parts = [f"tensor {tensor}"] if tensor > 1 else []
        for sharded in (False, True) if data > 1 else (False,):
            first = [f"{'sharded' if sharded else 'data'} {data}"] if data > 1 else []
            found[" × ".join([*first, *parts]) or "1"] = ProcessesSection(sharded=sharded, tensor=tensor)
    return found


def make_engine(family: str, processes: Processes) -> Engine:
    """With whatever weights."""
    more, optimizer = NETWORKS[family]
    architecture = design(family, **{**SIZE, **more})[1]
    network = fresh_network(architecture, 1) if processes.has_whole_weights else outline(architecture)
    if processes.tensor.world > 1:
        network = network_of_peer(network, processes.tensor)
    step = Step(network, HeadObjective())
    return Engine(step, OptimizerSpec(optimizer), seed=1, pieces=PIECES, processes=processes)


def own_tensors(engine: Engine) -> Iterator[tuple[Tensor, Tensor]]:
    """Each weight and each state of an optimizer: what this process has, and what it should have. Missing states are
    made.
    """
    network, layout = engine.step.network, WeightLayout(engine.step.network)
    names = {weight: name for name, weight in network.named_parameters()}
    for name, weight in network.named_parameters():
        yield local_part(weight.detach()), expected(name, name, weight, layout)
    for optimizer in engine.optimizers:
        for weight in (weight for group in optimizer.param_groups for weight in group["params"]):
            state = optimizer.state[weight]
            for key in ("momentum",) if isinstance(optimizer, Muon) else ("exp_avg", "exp_avg_sq"):
                state.setdefault(key, torch.zeros_like(weight))
                yield local_part(state[key]), expected(f"{key}/{names[weight]}", names[weight], weight, layout)
            if not isinstance(optimizer, Muon):
                yield state.setdefault("step", torch.zeros(())), torch.tensor(TAKEN)


def expected(name: str, weight_name: str, weight: Tensor, layout: WeightLayout) -> Tensor:
    part = layout.part(weight_name, weight)
    return part.taken_from(draw_normal(0, name, torch.Size(part.whole)))


def save(family: str, processes: Processes, folder: Path) -> None:
    engine = make_engine(family, processes)
    for own, wanted in own_tensors(engine):
        own.copy_(wanted)
    files = engine.checkpoint_files()
    PendingCheckpoint(folder, STEP, files, keep=1, state={"tokens": 3}, processes=processes).finish()


def differences(family: str, processes: Processes, folder: Path) -> tuple[int, int]:
    """Opens a checkpoint. Returns how many tensors were compared, over all processes, and how many differ."""
    engine = make_engine(family, processes)
    assert engine.restore_newest(folder) == {"step": STEP, "tokens": 3}
    for optimizer in engine.optimizers:
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        assert all(optimizer.state[weight] for weight in weights), "an optimizer state is missing"
    equal = [torch.equal(own, wanted) for own, wanted in own_tensors(engine)]
    return sum(processes.gather(len(equal))), sum(processes.gather(equal.count(False)))


def find_pickles(folder: Path) -> list[str]:
    """What looks like a pickle, and files that are neither JSON nor safetensors to the last byte."""
    found = []
    for file in (file for file in folder.rglob("*") if file.is_file()):
        data = file.read_bytes()
        found += [f"{file.name} has {shape!r}" for shape in PICKLES if re.search(shape, data, re.DOTALL)]
        if not _is_plain(file.suffix, data):
            found.append(f"{file.name} is neither JSON nor safetensors")
    return found


def _is_plain(suffix: str, data: bytes) -> bool:
    try:
        if suffix == ".json":
            json.loads(data)
            return True
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
        return suffix == ".safetensors" and 8 + size + max(ends, default=0) == len(data)
    except ValueError:
        return False


def work(folder: Path, *, opens: bool) -> None:
    """In each of the processes that torchrun has started: save in every layout, or open everything in every layout."""
    torch.set_num_threads(1)
    with joined_processes() as processes:
        cells = {}
        for name, section in layouts(processes.world).items():
            arrangement = arranged(processes, section)
            for family in NETWORKS:
                for place in [folder / name] if not opens else sorted(folder.iterdir()):
                    if not opens:
                        save(family, arrangement, place / family)
                        continue
                    count, wrong = differences(family, arrangement, place / family)
                    before = cells.get(f"{place.name}|{name}", (0, 0))
                    cells[f"{place.name}|{name}"] = before[0] + count, before[1] + wrong
        if opens and processes.is_first:
            print(json.dumps(cells))


def launch(world: int, folder: Path, task: str) -> str:
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(world)] if world > 1 else []
    command = [sys.executable, *launcher, __file__, "--task", task, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, nargs="+", default=list(WORLDS))
    parser.add_argument("--task", choices=("save", "open"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        work(options.folder, opens=options.task == "open")
        return
    names = [name for world in options.worlds for name in layouts(world)]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for world in options.worlds:
            launch(world, folder, "save")
        problems = find_pickles(folder)
        assert not problems, problems
        cells: dict[str, tuple[int, int]] = {}
        for world in options.worlds:
            cells |= json.loads(launch(world, folder, "open"))
    print("Tensors compared in all processes; each has its own part.\n")
    print(f"| saved on ↓, opened on → | {' | '.join(names)} |")
    print("|---" * (len(names) + 1) + "|")
    for saved in names:
        row = [cells[f"{saved}|{opened}"] for opened in names]
        print(
            f"| {saved} | {' | '.join(f'{count} equal' if not wrong else f'{wrong} DIFFER' for count, wrong in row)} |"
        )
    wrong = sum(wrong for _, wrong in cells.values())
    total = sum(count for count, _ in cells.values())
    print(f"\n{len(cells)} pairs, {total:,} tensors compared, {wrong} differ. No pickle in any folder.")
    assert not wrong


if __name__ == "__main__":
    main()
