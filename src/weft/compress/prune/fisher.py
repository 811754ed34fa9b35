"""How much each neuron and each head matters: the diagonal of the Fisher information of masks (Kwon et al. 2022).

A mask m multiplies the output of a head, or an inner neuron; it is 1. The score is Σ over samples of (∂ loss / ∂ m)².
In a flat batch every sample has its own mask, without any being made: ∂ loss / ∂ m of a sample is the sum of
x · ∂ loss / ∂ x over its tokens, where x is what the mask would multiply. So one backward pass per batch is enough.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from weft.compress.prune.cut import stacks_of
from weft.model.network import Network
from weft.model.packed import Packed
from weft.objectives.objective import Batch, scaled_loss
from weft.progress import track

PartScores = dict[str, Tensor]  # by module, such as encoder.blocks.0.attention: a score per head or neuron


def fisher_scores(network: Network, batches: Sequence[Batch]) -> PartScores:
    """`attention` and `cross` have a score per key/value head, `feedforward` one per inner neuron."""
    found: PartScores = {}
    current: list[Batch] = []

    def add(name: str, units: int, x: Tensor, gradient: Tensor) -> None:
        reader = current[0].packed if name.startswith("encoder.") else current[0].decoder or current[0].packed
        products = (x * gradient).unflatten(1, (units, -1)).sum(-1)
        squares = sums_of_each(products, reader).double().square().sum(0)
        found[name] = found[name] + squares if name in found else squares

    with _gradients_of_activations(network), _watched(network, add):
        for batch in track(batches, "Scoring heads and neurons", unit="batches"):
            current[:] = [batch]
            # Summed, not averaged: so the gradient of a sample does not depend on the others.
            scaled_loss(network, batch, dict.fromkeys(batch.counts, 1)).backward()
    return found


def sums_of_each(rows: Tensor, reader: Packed) -> Tensor:
    """(S, …): the sum over each sequence's tokens."""
    owner = torch.repeat_interleave(reader.starts.diff(), output_size=len(rows))
    return rows.new_zeros(len(reader.lengths), *rows.shape[1:]).index_add_(0, owner, rows)


def masked_outputs(network: Network) -> Iterator[tuple[str, nn.Module, int]]:
    """The output matrix of each sublayer, whose input a mask would multiply: name of the sublayer, matrix, units."""
    for side, stack in stacks_of(network.architecture).items():
        for number, block in enumerate(getattr(network, side).blocks):
            spec, name = stack.blocks[number], f"{side}.blocks.{number}"
            yield f"{name}.attention", block.attention.out, spec.attention.key_value_heads
            if block.cross is not None:
                yield f"{name}.cross", block.cross.out, spec.attention.heads
            yield f"{name}.feedforward", block.feedforward.down, spec.feedforward.inner


@contextmanager
def _watched(network: Network, add: Callable[[str, int, Tensor, Tensor], None]) -> Iterator[None]:
    def watch(name: str, units: int) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(module: nn.Module, given: tuple[Tensor, ...]) -> None:
            x = given[0]
            x.register_hook(lambda gradient: add(name, units, x.detach(), gradient))

        return hook

    handles = [matrix.register_forward_pre_hook(watch(name, units)) for name, matrix, units in masked_outputs(network)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _gradients_of_activations(network: Network) -> Iterator[None]:
    """Gradients flow from the embeddings on, and none is computed for a weight: a third less work."""
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    tables = [table for table in (network.embed, network.decoder_embed) if table is not None]
    was_training = network.training
    network.eval()
    for parameter in trained:
        parameter.requires_grad_(False)
    handles = [table.register_forward_hook(lambda _, given, out: out.requires_grad_()) for table in tables]
    try:
        with torch.enable_grad():
            yield
    finally:
        for handle in handles:
            handle.remove()
        for parameter in trained:
            parameter.requires_grad_(True)
        network.train(was_training)
