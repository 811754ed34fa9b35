"""A whole network as one of CTranslate2's three kinds of model: decoder, encoder–decoder, encoder.

The output matrix belongs to the decoder. Tokens that the model never writes get a bias of `NEVER_WRITTEN`, so that they
need not be suppressed at each call. An encoder has room for one dense layer on its first token, the pooler; other parts
of heads are saved beside the model (`heads.py`).
"""

from typing import Any

import numpy as np
from ctranslate2.specs import transformer_spec
from ctranslate2.specs.model_spec import LanguageModelSpec, ModelSpec

from weft.exports.ctranslate2.layers import activation_code, as_array, decoder_spec, encoder_spec, fill_linear
from weft.exports.ctranslate2.vocabulary import NEVER_WRITTEN, TokenStrings
from weft.model.heads import Head
from weft.model.network import Architecture, Network


def assembled(network: Network, strings: TokenStrings, pooler: Head | None) -> ModelSpec:
    """The filled specification, with vocabulary and config."""
    if network.decoder is None:
        spec = _encoder_model(network, strings, pooler)
    elif network.encoder is None:
        spec = _decoder_model(network, strings)
    else:
        spec = _encoder_decoder(network, strings)
    config = spec.config
    config.unk_token, config.bos_token, config.eos_token = strings.unknown, strings.begin, strings.ends[0]
    config.layer_norm_epsilon = _epsilon(network.architecture)
    return spec


def _encoder_model(network: Network, strings: TokenStrings, pooler: Head | None) -> LanguageModelSpec:
    assert network.encoder is not None
    encoder = encoder_spec(network.encoder, network.embed)
    if pooler is None:
        spec = transformer_spec.TransformerEncoderModelSpec(encoder)
    else:
        activation = activation_code(pooler.spec.dense.activation)
        spec = transformer_spec.TransformerEncoderModelSpec(encoder, pooling_layer=True, pooling_activation=activation)
        fill_linear(spec.pooler_dense, pooler.dense.weight, pooler.dense.bias)
    spec.register_vocabulary(strings.tokens)
    return spec


def _decoder_model(network: Network, strings: TokenStrings) -> LanguageModelSpec:
    assert network.decoder is not None
    decoder = decoder_spec(network.decoder, network.embed)
    _fill_output(decoder, network.head("causal"), strings)
    spec = transformer_spec.TransformerDecoderModelSpec(decoder)
    spec.register_vocabulary(strings.tokens)
    return spec


def _encoder_decoder(network: Network, strings: TokenStrings) -> ModelSpec:
    assert network.encoder is not None
    assert network.decoder is not None
    encoder = encoder_spec(network.encoder, network.embed)
    decoder = decoder_spec(network.decoder, network.decoder_embed or network.embed)
    _fill_output(decoder, network.head("seq2seq"), strings)
    if strings.has_added_row:
        encoder.embeddings[0].weight = _with_row(encoder.embeddings[0].weight)
    spec = transformer_spec.TransformerSpec(encoder, decoder)
    spec.register_source_vocabulary(strings.tokens)
    spec.register_target_vocabulary(strings.tokens)
    spec.config.decoder_start_token = strings.start
    return spec


def _fill_output(decoder: Any, head: Head, strings: TokenStrings) -> None:
    weight = decoder.embeddings.weight if head.spec.tied else as_array(head.out.weight)
    bias = None if head.out.bias is None else as_array(head.out.bias)
    if strings.has_added_row:
        weight = _with_row(weight)
        decoder.embeddings.weight = weight if head.spec.tied else _with_row(decoder.embeddings.weight)
        bias = None if bias is None else np.append(bias, np.float32(0))
    if strings.banned:
        bias = np.zeros(len(strings.tokens), np.float32) if bias is None else bias
        bias[list(strings.banned)] = NEVER_WRITTEN
    decoder.projection.weight = weight
    if bias is not None:
        decoder.projection.bias = bias
    if head.spec.scale is not None:
        decoder.scale_outputs = np.float32(head.spec.scale)


def _with_row(matrix: np.ndarray) -> np.ndarray:
    return np.concatenate([matrix, np.zeros_like(matrix[:1])])


def _epsilon(architecture: Architecture) -> float:
    """All norms of the runtime have one; `refusal.py` has checked that the network's are equal."""
    stack = architecture.decoder or architecture.encoder
    assert stack is not None
    return stack.blocks[0].norm.epsilon
