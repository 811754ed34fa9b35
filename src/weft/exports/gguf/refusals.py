"""What llama.cpp cannot compute, each as a sentence: what it is, why, and what to do instead.

llama.cpp has one graph for each architecture that it knows by name. A model is taken if its settings are those of the
graph; weft's own mixtures (a GPT-2 with rotary positions, layers of unequal size) are refused.
"""

from collections.abc import Iterator

from weft.api.model import Model
from weft.exports.gguf.hyperparameters import local_period
from weft.exports.gguf.links import architecture_name
from weft.exports.gguf.token_table import CannotExpress
from weft.exports.gguf.vocabulary import gguf_vocabulary
from weft.model.block import BlockSpec
from weft.model.heads import HeadSpec
from weft.model.network import Architecture
from weft.model.norm import NormSpec
from weft.model.positions import Learned, Positions, Relative, Rotary
from weft.model.stack import StackSpec

_ONNX = "Use --to onnx."
_READ_PAIRS = ("pair", "similarity", "answer")  # tasks in weft.json
_DECODER, _ENCODER, _BOTH = (False, True), (True, False), (True, True)
_STACKS = {
    **dict.fromkeys(("gpt2", "llama", "qwen3"), (_DECODER,)),
    **dict.fromkeys(("bert", "roberta", "distilbert", "modernbert"), (_ENCODER,)),
    "t5": (_ENCODER, _BOTH),
}
_T5_DISTANCE = 128  # fixed in llama.cpp


def why_not_gguf(model: Model, precision: str) -> str | None:
    """The sentence that refuses the model. None: it can be written."""
    architecture = model.network.architecture
    if reason := next(_unlike(architecture), None) or next(_wrong_heads(architecture), None):
        return reason
    if reason := _pairs(model):
        return reason
    try:
        gguf_vocabulary(model)
    except CannotExpress as error:
        return str(error)
    return None


def _unlike(architecture: Architecture) -> Iterator[str]:
    has = architecture.encoder is not None, architecture.decoder is not None
    if architecture.family in _STACKS and has not in _STACKS[architecture.family]:
        yield f"it has not the encoder or decoder that llama.cpp has for this family. {_ONNX}"
    match architecture.family:
        case "gpt2":
            yield from _unlike_gpt2(architecture)
        case "llama" | "qwen3":
            yield from _unlike_llama(architecture)
        case "bert" | "roberta" | "distilbert":
            yield from _unlike_bert(architecture)
        case "modernbert":
            yield from _unlike_modern_bert(architecture)
        case "t5":
            yield from _unlike_t5(architecture)
        case "transformer":
            yield "llama.cpp has no graph for the original Transformer. Use --to ctranslate2 or --to onnx."
        case _:
            yield f"llama.cpp has no graph for an {architecture.family.upper()}. {_ONNX}"


def _unlike_gpt2(architecture: Architecture) -> Iterator[str]:
    yield from _unlike_positions(architecture, Learned)
    yield from _unlike_embedding(architecture, norm=None, most_segments=0)
    stack = architecture.decoder
    assert stack is not None
    yield from _unlike_stack(architecture, stack, "pre")
    block = stack.blocks[0]
    yield from _unlike_norm(block.norm, "layer", bias=True)
    yield from _unlike_attention(architecture, block, bias=True)
    yield from _unlike_feedforward(block, ("gelu", "gelu-tanh"), gated=False, bias=True)


def _unlike_llama(architecture: Architecture) -> Iterator[str]:
    yield from _unlike_positions(architecture, Rotary)
    yield from _unlike_embedding(architecture, norm=None, most_segments=0)
    stack = architecture.decoder
    assert stack is not None
    yield from _unlike_stack(architecture, stack, "pre")
    block = stack.blocks[0]
    attention = block.attention
    yield from _unlike_norm(block.norm, "rms", bias=False)
    yield from _unlike_feedforward(block, ("silu",), gated=True, bias=block.feedforward.bias)
    if not attention.scaled:
        yield f"llama.cpp divides attention scores by the root of the head width, and this model does not. {_ONNX}"
    if attention.head_norm is None:
        return
    if attention.head_norm != block.norm:
        yield f"its norm of queries and keys differs from its other norms; llama.cpp has one kind for all. {_ONNX}"
    if attention.bias or attention.out_bias or block.feedforward.bias:
        yield f"llama.cpp has no biases in a model that normalizes queries and keys (Qwen3). {_ONNX}"


def _unlike_bert(architecture: Architecture) -> Iterator[str]:
    yield from _unlike_positions(architecture, Learned)
    stack = architecture.encoder
    assert stack is not None
    block = stack.blocks[0]
    yield from _unlike_embedding(architecture, norm=block.norm, most_segments=None)
    yield from _unlike_stack(architecture, stack, "post")
    yield from _unlike_norm(block.norm, "layer", bias=True)
    yield from _unlike_attention(architecture, block, bias=True)
    yield from _unlike_feedforward(block, ("gelu", "gelu-tanh"), gated=False, bias=True)


def _unlike_modern_bert(architecture: Architecture) -> Iterator[str]:
    yield from _unlike_positions(architecture, Rotary)
    stack = architecture.encoder
    assert stack is not None
    block = stack.blocks[0]
    yield from _unlike_embedding(architecture, norm=block.norm, most_segments=0)
    yield from _unlike_stack(architecture, stack, "pre", first_norm=False)
    yield from _unlike_norm(block.norm, "layer", bias=False)
    yield from _unlike_attention(architecture, block, bias=False)
    yield from _unlike_feedforward(block, ("gelu", "gelu-tanh"), gated=True, bias=False)
    if stack.local is not None and local_period(stack) is None:
        yield f"llama.cpp has global attention in layers 0, n, 2n …, and this model in others. {_ONNX}"


def _unlike_t5(architecture: Architecture) -> Iterator[str]:
    yield from _unlike_positions(architecture, Relative)
    yield from _unlike_embedding(architecture, norm=None, most_segments=0)
    distance = architecture.embedding.positions
    if isinstance(distance, Relative) and distance.distance != _T5_DISTANCE:
        yield (
            f"its relative positions reach {distance.distance} tokens; llama.cpp's T5 has {_T5_DISTANCE} built in. "
            f"{_ONNX}"
        )
    encoder, decoder = architecture.encoder, architecture.decoder
    for stack in (encoder, decoder):
        if stack is None:
            continue
        yield from _unlike_stack(architecture, stack, "pre", cross=stack is decoder)
        block = stack.blocks[0]
        yield from _unlike_norm(block.norm, "rms", bias=False)
        if block.attention.scaled or block.attention.bias or block.attention.out_bias or block.attention.head_norm:
            yield f"llama.cpp's T5 has attention without scale, biases and norms. {_ONNX}"
        allowed = ("gelu", "gelu-tanh") if block.feedforward.gated else ("relu",)
        yield from _unlike_feedforward(block, allowed, gated=block.feedforward.gated, bias=False)
    if decoder is not None and decoder.layers > encoder.layers:
        yield (
            f"its decoder has {decoder.layers} layers, its encoder {encoder.layers}; llama.cpp has room for as many as "
            "the encoder has. Use --to ctranslate2 or --to onnx."
        )
    if decoder is not None and decoder.blocks[0] != encoder.blocks[0]:
        yield f"the layers of its encoder and its decoder differ; llama.cpp's are alike. {_ONNX}"
    if decoder is not None and not architecture.shared_embedding:
        yield f"its encoder and its decoder have embeddings of their own; llama.cpp's share one. {_ONNX}"


def _unlike_positions(architecture: Architecture, wanted: type[Positions]) -> Iterator[str]:
    positions = architecture.embedding.positions
    if not isinstance(positions, wanted):
        has = "no" if positions is None else positions.kind
        yield (
            f"llama.cpp computes this family with {wanted.__name__.lower()} positions only, and this model has {has} "
            f"ones. {_ONNX}"
        )


def _unlike_embedding(architecture: Architecture, *, norm: NormSpec | None, most_segments: int | None) -> Iterator[str]:
    embedding = architecture.embedding
    if embedding.scaled or embedding.norm != norm or (most_segments is not None and embedding.segments > most_segments):
        yield f"its embedding layer (scale, norm or segments) is not that of llama.cpp for this family. {_ONNX}"


def _unlike_stack(
    architecture: Architecture, stack: StackSpec, order: str, *, first_norm: bool = True, cross: bool = False
) -> Iterator[str]:
    if not stack.is_uniform:
        yield f"its layers differ in size or kind, and llama.cpp's are all alike. {_ONNX}"
    if stack.blocks[0].order != order or stack.final_norm != (order == "pre") or stack.first_norm != first_norm:
        yield f"its norms are in other places than those of llama.cpp's {architecture_name(architecture)}. {_ONNX}"
    if stack.cross != cross or stack.causal != (stack is architecture.decoder):
        yield f"its attention is not that of llama.cpp's {architecture_name(architecture)}. {_ONNX}"
    if stack.local is not None and architecture.family != "modernbert":
        yield f"some of its layers have local attention, which llama.cpp does not have in this family. {_ONNX}"


def _unlike_norm(norm: NormSpec, kind: str, *, bias: bool) -> Iterator[str]:
    if norm.kind != kind:
        names = {"layer": "LayerNorm", "rms": "RMSNorm"}
        yield f"llama.cpp computes this family with {names[kind]}, and this model has {names[norm.kind]}. {_ONNX}"
    elif kind == "layer" and norm.bias != bias:
        yield f"llama.cpp has {'a bias' if bias else 'no biases'} in the norms of this family. {_ONNX}"


def _unlike_attention(architecture: Architecture, block: BlockSpec, *, bias: bool) -> Iterator[str]:
    """Of families whose attention has one form."""
    spec = block.attention
    if spec.heads * spec.head_width != architecture.width or spec.key_value_heads != spec.heads:
        yield (
            f"llama.cpp's heads in this family are as wide as the model together ({architecture.width}), and these "
            f"are {spec.heads} × {spec.head_width}. {_ONNX}"
        )
    if spec.bias != bias or spec.out_bias != bias:
        yield f"llama.cpp has {'a bias' if bias else 'no biases'} in the attention of this family. {_ONNX}"
    if not spec.scaled:
        yield f"llama.cpp divides attention scores by the root of the head width, and this model does not. {_ONNX}"
    if spec.head_norm is not None:
        yield f"llama.cpp does not normalize queries and keys in this family. {_ONNX}"


def _unlike_feedforward(block: BlockSpec, activations: tuple[str, ...], *, gated: bool, bias: bool) -> Iterator[str]:
    spec = block.feedforward
    if spec.activation not in activations or spec.gated != gated:
        wanted = f"{'gated ' if gated else ''}{' or '.join(activations)}"
        has = f"{'gated ' if spec.gated else ''}{spec.activation}"
        yield f"llama.cpp computes this family with {wanted}, and this model has {has}. {_ONNX}"
    if spec.bias != bias:
        yield f"llama.cpp has {'a bias' if bias else 'no biases'} in the feedforward of this family. {_ONNX}"


def _wrong_heads(architecture: Architecture) -> Iterator[str]:
    for head in architecture.heads:
        yield from _wrong_head(head, architecture)
    if architecture_name(architecture) == "t5" and not architecture.head("seq2seq"):
        yield f"llama.cpp runs a T5 with a decoder for writing text only. {_ONNX}"


def _wrong_head(head: HeadSpec, architecture: Architecture) -> Iterator[str]:
    match head.kind:
        case "token" | "span":
            name = "labels for each token" if head.kind == "token" else "the start and end of an answer"
            yield f"llama.cpp has no head that gives {name}. {_ONNX}"
        case "next-sentence" if not architecture.head("masked"):
            yield f"llama.cpp has no next-sentence head, and reads no pairs with segments. {_ONNX}"
        case "causal" | "seq2seq":
            if head.dense is not None or head.bias != "none" or (head.scale is not None and head.kind == "causal"):
                yield f"its output layer has parts that llama.cpp's has not: a bias, a scale or a layer before. {_ONNX}"
        case "sequence":
            yield from _wrong_classifier(head, architecture)


def _wrong_classifier(head: HeadSpec, architecture: Architecture) -> Iterator[str]:
    if architecture.encoder is None or architecture.decoder is not None:
        yield f"llama.cpp has classifiers on BERT-like encoders only. {_ONNX}"
        return
    dense, is_modern = head.dense, architecture.family == "modernbert"
    wanted = ("gelu", "gelu-tanh") if is_modern else ("tanh",)
    if dense is None or dense.activation not in wanted:
        has = "no layer" if dense is None else f"a layer with {dense.activation}"
        yield f"llama.cpp's classifier has a layer with {wanted[0]} before its output, and this one has {has}. {_ONNX}"
    elif dense.bias == is_modern or (dense.norm != architecture.embedding.norm if is_modern else dense.norm):
        yield f"its classifier has a bias or a norm where llama.cpp's has none. {_ONNX}"
    if head.pool not in (("first", "mean") if is_modern else ("first",)):
        yield f"llama.cpp's classifier reads the first token, and this one the {head.pool}. {_ONNX}"


def _pairs(model: Model) -> str | None:
    """Of a model that was tuned on pairs with segments."""
    task = model.facts.get("task")
    name = task.get("name") if isinstance(task, dict) else None
    if name in _READ_PAIRS and model.network.architecture.embedding.segments > 1:
        return f"it was tuned on pairs of texts ({name}), and llama.cpp gives both the same segment. {_ONNX}"
    return None
