"""Which tensors of a GGUF file hold which parameters, for each architecture of llama.cpp.

The links are those of `interchange.weight_map`, so that one list serves writing and reading. GGUF's matrices are
(out, in), as weft's are. Three architectures hold some tensors in another form:

    llama   rotates neighbouring columns of a head, not its halves: rows of queries and keys are interleaved
    bert    positions start at 0: RoBERTa's first rows, which no token uses, are cut off
    t5      does not scale the decoder's output: the scale goes into the weights of the last norm
"""

from collections.abc import Iterator

from torch import Tensor

from weft.interchange.dialect import joined
from weft.interchange.weight_map import Link, link
from weft.model.attention import AttentionSpec
from weft.model.network import Architecture
from weft.model.positions import Learned, Relative
from weft.model.stack import StackSpec

LEFT_OUT = "left_out."  # names of what GGUF has no place for: masked-LM heads, the pooler


def architecture_name(architecture: Architecture) -> str | None:
    """llama.cpp's name for the network's architecture. None: it has none that is alike."""
    match architecture.family:
        case "gpt2":
            return "gpt2"
        case "llama" | "qwen3":
            return "llama" if architecture.decoder.blocks[0].attention.head_norm is None else "qwen3"
        case "bert" | "roberta" | "distilbert":
            return "bert"
        case "modernbert":
            return "modern-bert"
        case "t5":
            return "t5encoder" if architecture.decoder is None else "t5"
    return None


def gguf_links(architecture: Architecture) -> Iterator[Link]:
    match architecture_name(architecture):
        case "gpt2":
            return _gpt2(architecture)
        case "llama" | "qwen3":
            return _llama(architecture)
        case "bert":
            return _bert(architecture)
        case "modern-bert":
            return _modern_bert(architecture)
        case _:
            return _t5(architecture)


def to_gguf(name: str, tensor: Tensor, architecture: Architecture) -> Tensor:
    """A tensor in the form in which llama.cpp expects it under this name."""
    kind, positions = architecture_name(architecture), architecture.embedding.positions
    if kind == "llama" and (heads := _rotated_heads(name, architecture)):
        return tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).reshape(tensor.shape)
    if kind == "bert" and name == "position_embd.weight" and isinstance(positions, Learned):
        return tensor[positions.offset :]
    if kind == "t5" and name == "dec.output_norm.weight" and (head := architecture.head("seq2seq")) and head.scale:
        return tensor * head.scale
    return tensor


def from_gguf(name: str, tensor: Tensor, architecture: Architecture, kind: str) -> Tensor:
    """The inverse of `to_gguf`, for the architectures that can be imported. `kind`: the file's, such as qwen2."""
    if kind == "llama" and (heads := _rotated_heads(name, architecture)):
        return tensor.unflatten(0, (heads, -1, 2)).transpose(1, 2).reshape(tensor.shape)
    return tensor


def _rotated_heads(name: str, architecture: Architecture) -> int:
    """The number of heads of a tensor of queries or keys; 0 for others."""
    attention = architecture.decoder.blocks[0].attention
    return {"attn_q": attention.heads, "attn_k": attention.key_value_heads}.get(name.split(".")[-2], 0)


def _gpt2(architecture: Architecture) -> Iterator[Link]:
    yield link("embed.tokens", "token_embd")
    yield link("embed.positions", "position_embd")
    for layer in range(architecture.decoder.layers):
        block, theirs = f"decoder.blocks.{layer}.", f"blk.{layer}."
        yield link(block + "attention_norm", theirs + "attn_norm")
        yield link(block + "attention.qkv", theirs + "attn_qkv")
        yield link(block + "attention.out", theirs + "attn_output")
        yield link(block + "feedforward_norm", theirs + "ffn_norm")
        yield link(block + "feedforward.up", theirs + "ffn_up")
        yield link(block + "feedforward.down", theirs + "ffn_down")
    yield link("decoder.norm", "output_norm")
    yield link("heads.causal.out", "output")


def _llama(architecture: Architecture) -> Iterator[Link]:
    yield link("embed.tokens", "token_embd")
    for layer, spec in enumerate(architecture.decoder.blocks):
        block, theirs = f"decoder.blocks.{layer}.", f"blk.{layer}."
        yield link(block + "attention_norm", theirs + "attn_norm")
        yield _queries_keys_values(block, theirs, spec.attention)
        yield link(block + "attention.query_norm", theirs + "attn_q_norm")
        yield link(block + "attention.key_norm", theirs + "attn_k_norm")
        yield link(block + "attention.out", theirs + "attn_output")
        yield link(block + "feedforward_norm", theirs + "ffn_norm")
        yield Link(block + "feedforward.up", joined(theirs, "ffn_gate", "ffn_up"))
        yield link(block + "feedforward.down", theirs + "ffn_down")
    yield link("decoder.norm", "output_norm")
    yield link("heads.causal.out", "output")


def _queries_keys_values(block: str, theirs: str, spec: AttentionSpec) -> Link:
    query, key = (count * spec.head_width for count in (spec.heads, spec.key_value_heads))
    return Link(block + "attention.qkv", joined(theirs, "attn_q", "attn_k", "attn_v"), rows=(query, key, key))


def _bert(architecture: Architecture) -> Iterator[Link]:
    yield link("embed.tokens", "token_embd")
    yield link("embed.positions", "position_embd")
    yield link("embed.segments", "token_types")
    yield link("embed.norm", "token_embd_norm")
    for layer, spec in enumerate(architecture.encoder.blocks):
        block, theirs = f"encoder.blocks.{layer}.", f"blk.{layer}."
        yield _queries_keys_values(block, theirs, spec.attention)
        yield link(block + "attention.out", theirs + "attn_output")
        yield link(block + "attention_norm", theirs + "attn_output_norm")
        yield link(block + "feedforward.up", theirs + "ffn_up")
        yield link(block + "feedforward.down", theirs + "ffn_down")
        yield link(block + "feedforward_norm", theirs + "layer_output_norm")
    yield from _encoder_heads()


def _modern_bert(architecture: Architecture) -> Iterator[Link]:
    yield link("embed.tokens", "token_embd")
    yield link("embed.norm", "token_embd_norm")
    for layer in range(architecture.encoder.layers):
        block, theirs = f"encoder.blocks.{layer}.", f"blk.{layer}."
        yield link(block + "attention_norm", theirs + "attn_norm")
        yield link(block + "attention.qkv", theirs + "attn_qkv")
        yield link(block + "attention.out", theirs + "attn_output")
        yield link(block + "feedforward_norm", theirs + "ffn_norm")
        yield link(block + "feedforward.up", theirs + "ffn_up")  # gate and value in one matrix
        yield link(block + "feedforward.down", theirs + "ffn_down")
    yield link("encoder.norm", "output_norm")
    yield from _encoder_heads()


def _encoder_heads() -> Iterator[Link]:
    yield link("heads.sequence.dense", "cls")
    yield link("heads.sequence.norm", "cls.norm")
    yield link("heads.sequence.out", "cls.output")
    for kind in ("masked", "next-sentence", "pooler"):
        for part in ("dense", "norm", "out"):
            yield link(f"heads.{kind}.{part}", f"{LEFT_OUT}{kind}.{part}")


def _t5(architecture: Architecture) -> Iterator[Link]:
    yield link("embed.tokens", "token_embd")
    for side, prefix, stack in (("encoder", "enc", architecture.encoder), ("decoder", "dec", architecture.decoder)):
        if stack is not None:
            yield from _t5_stack(side, prefix, stack, architecture.embedding.positions)
    yield link("heads.seq2seq.out", "output")


def _t5_stack(side: str, prefix: str, stack: StackSpec, positions: object) -> Iterator[Link]:
    if isinstance(positions, Relative):
        yield link(f"{side}.relative.table", f"{prefix}.blk.0.attn_rel_b")
    for layer, spec in enumerate(stack.blocks):
        block, theirs = f"{side}.blocks.{layer}.", f"{prefix}.blk.{layer}."
        yield link(block + "attention_norm", theirs + "attn_norm")
        yield _queries_keys_values(block, theirs, spec.attention)
        yield link(block + "attention.out", theirs + "attn_o")
        yield link(block + "cross_norm", theirs + "cross_attn_norm")
        yield link(block + "cross.query", theirs + "cross_attn_q")
        yield Link(block + "cross.key_value", joined(theirs, "cross_attn_k", "cross_attn_v"))
        yield link(block + "cross.out", theirs + "cross_attn_o")
        yield link(block + "feedforward_norm", theirs + "ffn_norm")
        gated = spec.feedforward.gated
        yield Link(block + "feedforward.up", joined(theirs, *(("ffn_gate", "ffn_up") if gated else ("ffn_up",))))
        yield link(block + "feedforward.down", theirs + "ffn_down")
    yield link(f"{side}.norm", f"{prefix}.output_norm")
