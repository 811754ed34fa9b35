"""Why a model cannot become one of CTranslate2's: what its format or its runtime does not have. It works without the
package.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch

from weft.api.model import Model
from weft.model.block import BlockSpec
from weft.model.heads import HeadSpec
from weft.model.network import Architecture
from weft.model.norm import NormSpec
from weft.model.positions import Relative
from weft.model.stack import StackSpec

_ELSEWHERE = "use --to onnx"
_MOST_F16 = torch.finfo(torch.float16).max


def reason_against(model: Model, precision: str) -> str | None:
    """A sentence, or None if the model can be exported."""
    architecture = model.network.architecture
    reasons = (*_of_kind(architecture), *_of_heads(architecture), *(_of_size(model) if precision == "f16" else ()))
    return next((f"{reason}." for reason in reasons), None)


def _of_size(model: Model) -> Iterator[str]:
    for name, weight in model.network.named_parameters():
        if (largest := float(weight.detach().abs().max())) > _MOST_F16:
            yield f"{name} holds {largest:.4g}, more than a 16-bit float can; use fp32 or --int8"


def _of_kind(architecture: Architecture) -> Iterator[str]:
    if architecture.recurrent is not None:
        yield f"CTranslate2 runs Transformers only, and this is an LSTM; {_ELSEWHERE}"
        return
    stacks = [stack for stack in (architecture.encoder, architecture.decoder) if stack is not None]
    for stack in stacks:
        yield from _of_stack(stack)
    yield from _of_embedding(architecture)
    norms = [norm for stack in stacks for norm in _norms(stack)]
    norms += [architecture.embedding.norm] if architecture.embedding.norm is not None else []
    if len(epsilons := sorted({norm.epsilon for norm in norms})) > 1:
        listed = " and ".join(f"{epsilon:g}" for epsilon in epsilons)
        yield f"its norms have different epsilons ({listed}), and CTranslate2's format holds one; {_ELSEWHERE}"


def _of_stack(stack: StackSpec) -> Iterator[str]:
    block = stack.blocks[0]
    if stack.local is not None:
        yield (
            "some of its layers attend to a window of neighbours on both sides, which CTranslate2's encoders cannot; "
            f"{_ELSEWHERE}"
        )
    if any(_without_size(other) != _without_size(block) for other in stack.blocks):
        yield f"its layers differ in more than the width of the feedforward; {_ELSEWHERE}"
    if not stack.first_norm:
        yield f"its first layer has no norm before the attention, which CTranslate2 requires; {_ELSEWHERE}"
    if stack.final_norm and block.order == "post":
        yield f"it has a norm after its last layer besides that layer's own, which CTranslate2 has not; {_ELSEWHERE}"
    if block.feedforward.activation == "relu-squared":
        yield f"its activation is relu-squared, which CTranslate2 does not have; {_ELSEWHERE}"
    attention = block.attention
    if attention.head_norm is not None and attention.head_norm.kind != "rms":
        yield f"it normalises queries and keys by LayerNorm, and CTranslate2 only by RMSNorm; {_ELSEWHERE}"
    if stack.cross and (attention.head_norm is not None or attention.key_value_heads != attention.heads):
        yield (
            "its self-attention and its cross-attention differ (grouped heads or normalised queries), and "
            f"CTranslate2 has the same kind for both; {_ELSEWHERE}"
        )


def _of_embedding(architecture: Architecture) -> Iterator[str]:
    embedding, decoder = architecture.embedding, architecture.decoder
    if embedding.positions is None:
        yield f"it has no position encoding, and CTranslate2 would add one; {_ELSEWHERE}"
    if decoder is not None and architecture.encoder is None and isinstance(embedding.positions, Relative):
        yield (
            "CTranslate2 computes relative position biases wrongly when a decoder reads a prompt of several tokens; "
            f"{_ELSEWHERE}"
        )
    if decoder is not None and embedding.segments:
        yield f"it has segments, and only CTranslate2's encoders do; {_ELSEWHERE}"
    stack = architecture.encoder or decoder
    if embedding.norm is not None and stack is not None and embedding.norm.kind != stack.blocks[0].norm.kind:
        yield f"the norm of its embeddings is of another kind than that of its layers; {_ELSEWHERE}"


def _of_heads(architecture: Architecture) -> Iterator[str]:
    if architecture.decoder is None:
        return
    wanted = "causal" if architecture.encoder is None else "seq2seq"
    runner = "Generator" if architecture.encoder is None else "Translator"
    has = ", ".join(head.kind for head in architecture.heads) or "none"
    if [head.kind for head in architecture.heads] != [wanted]:
        yield (
            f"CTranslate2's {runner} only writes text, so the model needs a language-model head (its head: {has}); "
            f"{_ELSEWHERE}"
        )
    elif _is_layered(architecture.heads[0]):
        yield f"its head has a layer before the vocabulary, which CTranslate2's decoders do not; {_ELSEWHERE}"


def _is_layered(head: HeadSpec) -> bool:
    return head.dense is not None or head.pool != "every"


def _norms(stack: StackSpec) -> Iterator[NormSpec]:
    for block in stack.blocks:
        yield block.norm
        if block.attention.head_norm is not None:
            yield block.attention.head_norm


def _without_size(block: BlockSpec) -> BlockSpec:
    """What the layers of a stack must have in common: all but the feedforward's width, and dropout, which is off."""
    return replace(
        block,
        attention=replace(block.attention, dropout=0.0),
        feedforward=replace(block.feedforward, inner=1, dropout=0.0),
        attention_dropout=0.0,
        feedforward_dropout=0.0,
    )
