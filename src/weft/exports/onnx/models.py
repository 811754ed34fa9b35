"""Whole graphs, with the inputs, outputs and file names that optimum and transformers.js expect.

    reads whole sequences   model.onnx                 input_ids, attention_mask, token_type_ids (if it has segments)
                                                       -> logits; start_logits, end_logits; last_hidden_state …
    decoder that writes     model.onnx                 + position_ids, past_key_values.{layer}.key/value
                                                       -> logits, present.{layer}.key/value
    LSTM that writes        model.onnx                 + state_h, state_c -> logits, present_state_h, present_state_c
    encoder–decoder         encoder_model.onnx         input_ids, attention_mask -> last_hidden_state
                            decoder_model_merged.onnx  input_ids, encoder_hidden_states, encoder_attention_mask,
                                                       past_key_values.{layer}.decoder/encoder.key/value -> logits, …

A past of length 0 begins a text, so one graph computes the prompt and each further token. Positions of whole sequences
are counted from the mask: padding may be on either side (behind the tokens only, for an LSTM).
"""

from collections.abc import Callable

from weft.api.model import Model
from weft.exports.onnx.attention import Indices, KeyValues, add_padding_bias
from weft.exports.onnx.bricks import add_embeddings
from weft.exports.onnx.graph import OnnxGraph, Value
from weft.exports.onnx.heads import add_head, add_pooling, add_recurrent, add_unit_length
from weft.exports.onnx.stack import SourceView, add_source, add_source_unless_known, add_stack
from weft.exports.onnx.weights import Weights
from weft.model.network import Network
from weft.model.positions import Relative
from weft.model.stack import Stack

MakeWeights = Callable[[OnnxGraph, Network], Weights]
MakeGraph = Callable[[Model, MakeWeights], OnnxGraph]
# transformers.js looks for this name to create an empty past.
_BATCH, _LENGTH, _PAST, _TOTAL = "batch_size", "sequence_length", "past_sequence_length", "total_sequence_length"
_SOURCE_LENGTH, _SOURCE_PAST = "encoder_sequence_length", "past_encoder_sequence_length"
SPAN_OUTPUTS = ("start_logits", "end_logits")
_NAMES_BESIDE_OTHERS = {"masked": "prediction_logits", "next-sentence": "seq_relationship_logits"}


def graphs_of(model: Model) -> dict[str, MakeGraph]:
    """By file name."""
    architecture, heads = model.network.architecture, set(model.network.heads)
    if architecture.is_encoder_decoder and heads <= {"seq2seq"}:
        return {"encoder_model.onnx": encoder_graph, "decoder_model_merged.onnx": seq2seq_decoder_graph}
    if heads != {"causal"}:
        return {"model.onnx": reader_graph}
    return {"model.onnx": causal_graph if architecture.recurrent is None else recurrent_graph}


def has_cache(model: Model) -> bool:
    """Whether the model's graphs continue a text: those of decoders that write, and of encoder–decoders."""
    return reader_graph not in graphs_of(model).values()


def begins_in_optimum(model: Model) -> bool:
    """Whether the empty past that optimum creates has the shape of this model's: it derives it from width and heads."""
    architecture = model.network.architecture
    blocks = () if architecture.decoder is None else architecture.decoder.blocks
    heads = {block.attention.heads for block in blocks}
    if architecture.encoder is not None:
        heads |= {block.attention.heads for block in architecture.encoder.blocks}
    return len(heads) == 1 and all(
        block.attention.head_width == model.network.width // block.attention.heads for block in blocks
    )


def reader_graph(model: Model, make_weights: MakeWeights) -> OnnxGraph:
    network, graph = model.network, OnnxGraph("model")
    weights = make_weights(graph, network)
    ids, mask, segments = _text_inputs(graph, network)
    indices, positions = _whole(graph, network, mask)
    if network.recurrent is not None:
        x = add_embeddings(weights, network.embed, ids, None, segments)
        hidden, _ = add_recurrent(weights, x, network.recurrent, mask, None)
    else:
        x = add_embeddings(weights, network.embed, ids, positions, segments)
        hidden, _ = add_stack(weights, x, network.encoder or _decoder(network), indices, positions)
    if network.architecture.is_encoder_decoder:
        start = model.start_end.start_id or 0
        hidden = _decoded(weights, network, hidden, _shifted(graph, ids, mask, start), mask)
    _add_outputs(weights, model, hidden, mask)
    return graph


def causal_graph(model: Model, make_weights: MakeWeights) -> OnnxGraph:
    network, graph = model.network, OnnxGraph("model")
    weights = make_weights(graph, network)
    ids = graph.integer_input("input_ids", _BATCH, _LENGTH)
    mask = graph.integer_input("attention_mask", _BATCH, _TOTAL)
    positions = graph.integer_input("position_ids", _BATCH, _LENGTH) if _counts_positions(network) else None
    stack = _decoder(network)
    past = [_past_input(graph, network, layer, "", _PAST) for layer in range(stack.spec.layers)]
    total, new = graph.size(mask, 1), graph.size(ids, 1)
    indices = Indices(
        _range(graph, graph.op("Sub", total, new), total), _range(graph, graph.integer(0), total), _tokens(graph, mask)
    )
    x = add_embeddings(weights, network.embed, ids, positions, None)
    hidden, known = add_stack(weights, x, stack, indices, positions, past)
    _add_logits(weights, network, "causal", hidden, mask)
    for layer, keys_and_values in enumerate(known):
        _past_output(graph, network, layer, "", keys_and_values, _TOTAL)
    return graph


def recurrent_graph(model: Model, make_weights: MakeWeights) -> OnnxGraph:
    network, graph = model.network, OnnxGraph("model")
    weights = make_weights(graph, network)
    ids, mask, segments = _text_inputs(graph, network)
    assert network.recurrent is not None
    shape = network.recurrent.lstm.num_layers, _BATCH, network.width
    state = graph.float_input("state_h", *shape), graph.float_input("state_c", *shape)
    x = add_embeddings(weights, network.embed, ids, None, segments)
    hidden, (h, c) = add_recurrent(weights, x, network.recurrent, mask, state)
    _add_logits(weights, network, "causal", hidden, mask)
    graph.float_output("present_state_h", h, *shape)
    graph.float_output("present_state_c", c, *shape)
    return graph


def encoder_graph(model: Model, make_weights: MakeWeights) -> OnnxGraph:
    network, graph = model.network, OnnxGraph("encoder")
    weights = make_weights(graph, network)
    ids, mask, segments = _text_inputs(graph, network)
    indices, positions = _whole(graph, network, mask)
    x = add_embeddings(weights, network.embed, ids, positions, segments)
    assert network.encoder is not None
    hidden, _ = add_stack(weights, x, network.encoder, indices, positions)
    graph.float_output("last_hidden_state", hidden, _BATCH, _LENGTH, network.width)
    if not network.heads:
        _add_sentence_embedding(graph, model, hidden, mask)
    return graph


def seq2seq_decoder_graph(model: Model, make_weights: MakeWeights) -> OnnxGraph:
    network, graph = model.network, OnnxGraph("decoder")
    weights, stack = make_weights(graph, network), _decoder(network)
    ids = graph.integer_input("input_ids", _BATCH, _LENGTH)
    memory = graph.float_input("encoder_hidden_states", _BATCH, _SOURCE_LENGTH, network.width)
    mask = graph.integer_input("encoder_attention_mask", _BATCH, _SOURCE_LENGTH)
    past, past_source = [], []
    for layer in range(stack.spec.layers):  # optimum fills them in this order
        past.append(_past_input(graph, network, layer, "decoder.", _PAST))
        past_source.append(_past_input(graph, network, layer, "encoder.", _SOURCE_PAST))
    before = graph.size(past[0].keys, 2)
    total = graph.op("Add", before, graph.size(ids, 1))
    indices = Indices(_range(graph, before, total), _range(graph, graph.integer(0), total), None)
    positions = graph.unsqueeze(indices.queries, 0) if _counts_positions(network) else None
    bias = add_padding_bias(graph, _tokens(graph, mask))
    source = SourceView(add_source_unless_known(weights, stack, memory, past_source), bias)
    x = add_embeddings(weights, network.decoder_embed or network.embed, ids, positions, None)
    hidden, known = add_stack(weights, x, stack, indices, positions, past, source)
    if network.heads:
        _add_logits(weights, network, "seq2seq", hidden, mask)
    else:
        graph.float_output("last_hidden_state", hidden, _BATCH, _LENGTH, network.width)
    for layer in range(stack.spec.layers):
        _past_output(graph, network, layer, "decoder.", known[layer], _TOTAL)
        _past_output(graph, network, layer, "encoder.", source.layers[layer], _SOURCE_LENGTH)
    return graph


def _text_inputs(graph: OnnxGraph, network: Network) -> tuple[Value, Value, Value | None]:
    """Token ids, mask and segments. A single segment needs no input."""
    names = ["input_ids", "attention_mask"]
    if network.architecture.embedding.segments > 1:
        names.append("token_type_ids")
    ids, mask, *segments = (graph.integer_input(name, _BATCH, _LENGTH) for name in names)
    return ids, mask, segments[0] if segments else None


def _decoder(network: Network) -> Stack:
    assert network.decoder is not None
    return network.decoder


def _counts_positions(network: Network) -> bool:
    positions = network.architecture.embedding.positions
    return positions is not None and not isinstance(positions, Relative)


def _whole(graph: OnnxGraph, network: Network, mask: Value) -> tuple[Indices, Value | None]:
    """Of sequences that are read at once: all tokens are queries and keys. Positions (B, S) count the tokens."""
    index = _range(graph, graph.integer(0), graph.size(mask, 1))
    indices = Indices(index, index, _tokens(graph, mask))
    if not _counts_positions(network):
        return indices, None
    count = graph.op("Sub", graph.op("CumSum", mask, graph.integer(1)), graph.integer(1))
    return indices, graph.op("Max", count, graph.integer(0))


def _range(graph: OnnxGraph, start: Value, end: Value) -> Value:
    return graph.op("Range", start, end, graph.integer(1))


def _tokens(graph: OnnxGraph, mask: Value) -> Value:
    """(B, 1, 1, K) booleans."""
    return graph.unsqueeze(graph.to_bool(mask), 1, 2)


def _shifted(graph: OnnxGraph, ids: Value, mask: Value, start: int) -> Value:
    """The decoder's input of a task head: each sequence behind the start token, without its last token."""

    def moved(x: Value) -> Value:
        """One place to the right: 0 first, the last dropped."""
        return graph.op("Pad", x, graph.integers(0, 1, 0, -1))

    return graph.op("Where", graph.to_bool(moved(mask)), moved(ids), graph.integer(start))


def _decoded(weights: Weights, network: Network, memory: Value, ids: Value, mask: Value) -> Value:
    """The decoder's hidden states of `ids`, which have the same mask as the source."""
    graph, stack = weights.graph, _decoder(network)
    indices, positions = _whole(graph, network, mask)
    source = SourceView(add_source(weights, stack, memory), add_padding_bias(graph, _tokens(graph, mask)))
    x = add_embeddings(weights, network.decoder_embed or network.embed, ids, positions, None)
    return add_stack(weights, x, stack, indices, positions, source=source)[0]


def _past_input(graph: OnnxGraph, network: Network, layer: int, side: str, length: str) -> KeyValues:
    shape = _BATCH, _heads_in_cache(network, layer, side), length, _head_width(network, layer)
    name = f"past_key_values.{layer}.{side}"
    return KeyValues(graph.float_input(f"{name}key", *shape), graph.float_input(f"{name}value", *shape))


def _past_output(graph: OnnxGraph, network: Network, layer: int, side: str, known: KeyValues, length: str) -> None:
    shape = _BATCH, _heads_in_cache(network, layer, side), length, _head_width(network, layer)
    graph.float_output(f"present.{layer}.{side}key", known.keys, *shape)
    graph.float_output(f"present.{layer}.{side}value", known.values, *shape)


def _heads_in_cache(network: Network, layer: int, side: str) -> int:
    spec = _decoder(network).spec.blocks[layer].attention
    return spec.heads if side == "encoder." else spec.key_value_heads  # cross-attention has no grouped heads


def _head_width(network: Network, layer: int) -> int:
    return _decoder(network).spec.blocks[layer].attention.head_width


def _add_logits(weights: Weights, network: Network, kind: str, hidden: Value, mask: Value) -> None:
    logits = add_head(weights, hidden, mask, network.head(kind))
    weights.graph.float_output("logits", logits, _BATCH, _LENGTH, network.architecture.vocabulary)


def _add_outputs(weights: Weights, model: Model, hidden: Value, mask: Value) -> None:
    """The outputs of all heads. A model without one, or with a pooler only, gives hidden states and embeddings."""
    graph, network = weights.graph, model.network
    if not gives_logits(network):
        graph.float_output("last_hidden_state", hidden, _BATCH, _LENGTH, network.width)
    for kind in network.heads:
        head = network.head(kind)
        result, size = add_head(weights, hidden, mask, head), head.spec.outputs or network.width
        shape = (_BATCH, _LENGTH, size) if head.spec.pool == "every" else (_BATCH, size)
        if kind == "span":
            parts = graph.split(result, -1, 1, 1)
            for name, part in zip(SPAN_OUTPUTS, parts, strict=True):
                graph.float_output(name, graph.op("Squeeze", part, graph.integers(-1)), _BATCH, _LENGTH)
        else:
            graph.float_output(output_name(network, kind), result, *shape)
    if not gives_logits(network):
        _add_sentence_embedding(graph, model, hidden, mask)


def gives_logits(network: Network) -> bool:
    return any(kind != "pooler" for kind in network.heads)


def output_name(network: Network, kind: str) -> str:
    """What the output of a head is called."""
    if kind == "pooler":
        return "pooler_output"
    return "logits" if len(network.heads) == 1 else _NAMES_BESIDE_OTHERS.get(kind, f"{kind}_logits")


def _add_sentence_embedding(graph: OnnxGraph, model: Model, hidden: Value, mask: Value) -> None:
    vector = add_pooling(graph, hidden, mask, model.pooling.kind)
    vector = add_unit_length(graph, vector) if model.pooling.normalize else vector
    graph.float_output("sentence_embedding", vector, _BATCH, model.network.width)
