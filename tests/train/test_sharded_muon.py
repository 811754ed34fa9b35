"""Muon under FSDP2: two processes that hold half of each matrix take the steps of one that holds all of it."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file

import weft
from weft.model.packed import pack
from weft.train.optimizers import OptimizerSpec, make_optimizers, set_rate

STEPS = 3


def trained(shard):
    network = weft.create("llama", vocabulary=30, layers=2, width=16, heads=2, key_value_heads=1, seed=1).network
    shard(network)
    optimizers = make_optimizers(network, OptimizerSpec("muon", weight_decay=0.1))
    batch = pack([[1, 2, 3, 4, 5], [6, 7, 8]])
    for step in range(STEPS):
        network(batch).square().mean().backward()
        set_rate(optimizers, 1.0, step)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return network


def one_of_two(rank, folder):
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)

    def shard(network):
        for block in network.decoder.blocks:
            fully_shard(block)
        fully_shard(network)

    network = trained(shard)
    weights = {name: weight.full_tensor() for name, weight in network.named_parameters()}
    if rank == 0:
        save_file(weights, f"{folder}/weights")
    dist.destroy_process_group()


def test_two_processes_take_the_steps_of_one(tmp_path):
    mp.spawn(one_of_two, (str(tmp_path),), nprocs=2)
    together = load_file(tmp_path / "weights")
    for name, weight in trained(lambda network: None).named_parameters():
        torch.testing.assert_close(together[name], weight.detach(), atol=2e-4, rtol=1e-3, msg=name)
