"""FLOPs of a batch. Only matrix products are counted: nearly all of the arithmetic.

A matrix of m weights costs 2 m FLOPs per token. Attention costs 4 · L · H · D per token and layer (scores, and the
weighted sum of values), half of that if causal. The backward pass costs two more products for each: one for the
inputs, one for the weights.
"""

from torch import nn

from weft.model.attention import CrossAttention
from weft.model.network import Network
from weft.model.packed import Packed
from weft.model.quantized import QuantizedLinear
from weft.model.stack import Stack


def training_flops(network: Network, batch: Packed, target: Packed | None = None, scored: int | None = None) -> float:
    """Of one forward and backward pass. `scored`: tokens that go through the vocabulary layer. Default: all."""
    return 3 * forward_flops(network, batch, target, scored)


def forward_flops(network: Network, batch: Packed, target: Packed | None = None, scored: int | None = None) -> float:
    total = 0.0
    if network.encoder is not None:
        total += _stack_flops(network.encoder, batch, batch)
    if network.decoder is not None:
        total += _stack_flops(network.decoder, target or batch, batch)
    if network.recurrent is not None:
        total += 2 * _matrix_weights(network.recurrent) * len(batch.tokens)
    rows = len((target or batch).tokens) if scored is None else scored
    for head in network.heads.values():
        answers = rows if head.spec.pool == "every" else len(batch.lengths)
        total += 2 * _matrix_weights(head) * answers
    return total


def stack_weights(network: Network) -> int:
    """The weights in matrices, without embeddings and vocabulary layer: the N of scaling laws."""
    parts = (network.encoder, network.decoder, network.recurrent)
    return sum(_matrix_weights(part) for part in parts if part is not None)


def _stack_flops(stack: Stack, batch: Packed, source: Packed) -> float:
    local = stack.spec.local
    total = 2.0 * _matrix_weights(stack) * len(batch.tokens)
    for layer, block in enumerate(stack.spec.blocks):
        width = block.attention.heads * block.attention.head_width
        reach = 2 * local.window + 1 if local is not None and layer in local.layers else None
        seen = sum(length * min(length, reach or length) for length in batch.lengths)
        total += 4 * width * seen * (0.5 if stack.spec.causal else 1.0)
        if stack.spec.cross:
            pairs = zip(batch.lengths, source.lengths, strict=True)
            total += 4 * width * sum(query * key for query, key in pairs)
    for module in stack.modules():
        if isinstance(module, CrossAttention):  # its keys and values are computed from the source's tokens
            total += 2 * _matrix_weights(module.key_value) * (len(source.tokens) - len(batch.tokens))
    return total


def _matrix_weights(module: nn.Module) -> int:
    """Weights in matrices. Embedding look-ups are no products, so they do not count."""
    tables = {id(table.weight) for table in module.modules() if isinstance(table, nn.Embedding)}
    weights = [weight for weight in module.parameters() if weight.dim() == 2 and id(weight) not in tables]
    quantized = [part.values for part in module.modules() if isinstance(part, QuantizedLinear)]
    return sum(matrix.numel() for matrix in (*weights, *quantized))
