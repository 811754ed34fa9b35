"""A Llama folder of Hugging Face's format as one GGUF file, so that llama.cpp runs the very weights that weft runs.

`gguf`'s own converter refuses every vocabulary it has not been told of. Two things to know about the file: llama.cpp
rotates neighbouring pairs of a head, not its halves, so the rows of queries and keys are reordered; and the ids of
special tokens have defaults that fit no other vocabulary, so they are always written.
"""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

Q8_0, F32 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F32
_FILE_TYPES = {Q8_0: gguf.LlamaFileType.MOSTLY_Q8_0, F32: gguf.LlamaFileType.ALL_F32}
_OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_IN_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(folder: Path, file: Path, precision: gguf.GGMLQuantizationType = Q8_0) -> Path:
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(file, "llama")
    _write_settings(writer, config, precision)
    _write_vocabulary(writer, json.loads((folder / "tokenizer.json").read_text()), config)
    for name, weights in load_file(folder / "model.safetensors").items():
        as_kept = precision if weights.ndim > 1 else F32  # norms stay as they are
        ordered = np.ascontiguousarray(_reordered(name, weights.astype(np.float32), config))
        writer.add_tensor(_named(name), gguf.quants.quantize(ordered, as_kept), raw_dtype=as_kept)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _write_settings(writer: gguf.GGUFWriter, config: dict[str, Any], precision: gguf.GGMLQuantizationType) -> None:
    head_width = config["head_dim"]
    writer.add_name("llama")
    writer.add_file_type(_FILE_TYPES[precision])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_width)
    writer.add_value_length(head_width)
    writer.add_rope_dimension_count(head_width)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])


def _write_vocabulary(writer: gguf.GGUFWriter, tokenizer: dict[str, Any], config: dict[str, Any]) -> None:
    """A byte-level BPE as GPT-2's."""
    ids = {**tokenizer["model"]["vocab"], **{token["content"]: token["id"] for token in tokenizer["added_tokens"]}}
    special = {token["content"] for token in tokenizer["added_tokens"]}
    tokens = sorted(ids, key=ids.__getitem__)
    assert [ids[token] for token in tokens] == list(range(config["vocab_size"])), "ids of tokens are not 0, 1, 2 …"
    kinds = [gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(False)


def _named(name: str) -> str:
    where = name.removesuffix(".weight")
    if where in _OUTSIDE:
        return f"{_OUTSIDE[where]}.weight"
    _, _, layer, inside = where.split(".", 3)
    return f"blk.{layer}.{_IN_LAYER[inside]}.weight"


def _reordered(name: str, weights: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    if "q_proj" in name or "k_proj" in name:
        heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
        return weights.reshape(heads, 2, -1, weights.shape[1]).swapaxes(1, 2).reshape(weights.shape)
    return weights
