"""The chapter on cost: each count as written is what weft counts, and what torch really computes and keeps."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import weft
from weft.generate.pages import PageShape, pages_for
from weft.model.attention import Attention, AttentionSpec
from weft.model.families import design
from weft.model.feedforward import FeedForward, FeedForwardSpec
from weft.model.flops import forward_flops, stack_weights, training_flops
from weft.model.loss import logits_of_a_block, rows_of_a_block
from weft.model.network import count_parameters, outline
from weft.model.packed import pack
from weft.model.quantized import QuantizedWeight, put_quantized, weight_bytes
from weft.recipe.model import ModelSection
from weft.theory.written import cost as written
from weft.train.optimizers import OptimizerSpec, make_optimizers
from weft.train.plan.scaling import best_size, expected_loss

lengths = st.lists(st.integers(1, 5), min_size=1, max_size=3)
small = st.integers(1, 3)


def batch_of(lengths):
    return pack([range(length) for length in lengths])


def network_of(family, **knobs):
    return outline(design(family, **knobs)[1])


def quantized(rows, columns, groups, bits):
    return QuantizedWeight(torch.ones(rows, columns, dtype=torch.int8), torch.ones(rows, groups), bits)


def matrices_of(layer):
    return sum(weight.numel() for weight in layer.parameters() if weight.dim() == 2)


@given(small, small, small, small, st.integers(1, 5), st.booleans())
def test_layer_weights(d, key_heads, shared_by, D, m, gated):
    heads = key_heads * shared_by
    with torch.device("meta"):
        attention = Attention(AttentionSpec(heads, D, key_heads), d)
        feedforward = FeedForward(FeedForwardSpec(m, gated=gated), d)
    found = matrices_of(attention) + matrices_of(feedforward)
    assert found == written.layer_weights(d, heads, key_heads, D, m, 2 if gated else 1)
    shapes = [tuple(one.weight.shape) for one in (attention.qkv, attention.out, feedforward.up, feedforward.down)]
    assert found == written.matrix_weights(shapes)


@given(st.integers(1, 9), st.integers(1, 9), small, small, st.booleans())
@settings(max_examples=15)
def test_parameters(V, P, heads, layers, tied):
    d = 2 * heads
    network = network_of("gpt2", vocabulary=V, positions=P, width=d, heads=heads, layers=layers, tied=tied)
    expected = written.gpt2_parameters(V, P, d, layers) + (0 if tied else V * d)
    assert count_parameters(network) == expected
    assert (network.head("causal").out.weight is network.embed.tokens.weight) == tied
    put_quantized(network, "embed.tokens", quantized(V, d, 1, 8))  # its scales do not count
    assert count_parameters(network) == expected


@given(small, small)
@settings(max_examples=10)
def test_matrix_weights(heads, layers):
    d = 2 * heads
    knobs = {"vocabulary": 7, "width": d, "heads": heads, "layers": layers}
    own = [(3 * d, d), (d, d), (4 * d, d), (d, 4 * d)]
    gpt2, t5 = network_of("gpt2", **knobs), network_of("t5", head_width=2, **knobs)
    assert stack_weights(gpt2) == written.matrix_weights(own * layers) == 12 * layers * d**2
    assert stack_weights(network_of("bert", **knobs)) == written.matrix_weights(own * layers)
    cross = [(d, d), (2 * d, d), (d, d)]
    assert stack_weights(t5) == written.matrix_weights((2 * own + cross) * layers)
    lstm = network_of("lstm", vocabulary=7, width=d, layers=layers)
    assert stack_weights(lstm) == written.matrix_weights([(4 * d, d)] * 2 * layers)
    put_quantized(gpt2, "decoder.blocks.0.attention.out", quantized(d, d, 1, 8))
    assert stack_weights(gpt2) == written.matrix_weights(own * layers)


@given(lengths, small, small, st.integers(0, 4))
@settings(max_examples=15)
def test_reading_flops(n, heads, layers, R):
    V, d, T = 7, 2 * heads, sum(n)
    M = 12 * layers * d**2
    knobs = {"vocabulary": V, "width": d, "heads": heads, "layers": layers}
    gpt2, batch = network_of("gpt2", **knobs), batch_of(n)
    assert forward_flops(gpt2, batch, scored=R) == written.reading_flops(n, R, M, layers, d, V)
    assert forward_flops(gpt2, batch) == written.reading_flops(n, T, M, layers, d, V)
    pooled = forward_flops(network_of("gpt2", head="sequence", labels=3, **knobs), batch)
    assert pooled == written.reading_flops(n, len(n), M, layers, d, 3)  # one answer per sequence
    bert = forward_flops(network_of("bert", head="sequence", labels=3, **knobs), batch)
    both_ways = 2 * layers * d * sum(one**2 for one in n)
    pooler = 2 * d**2 * len(n)
    assert bert == written.reading_flops(n, len(n), M, layers, d, 3) + both_ways + pooler
    lstm = network_of("lstm", vocabulary=V, width=d, layers=layers)
    assert forward_flops(lstm, batch) == written.reading_flops(n, T, 8 * layers * d**2, 0, d, V)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=3), small, small)
@settings(max_examples=15)
def test_cross_flops(pairs, heads, layers):
    t, s = map(list, zip(*pairs, strict=True))
    V, d = 7, 2 * heads
    knobs = {"vocabulary": V, "width": d, "heads": heads, "head_width": 2, "layers": layers}
    found = forward_flops(network_of("t5", **knobs), batch_of(s), batch_of(t))
    encoder = forward_flops(network_of("t5", head="encoder", **knobs), batch_of(s))
    assert encoder == written.reading_flops(s, 0, 12 * layers * d**2, 2 * layers, d, V)  # both ways: twice the pairs
    assert found == encoder + written.decoder_flops(t, s, layers, d) + 2 * V * d * sum(t)


@given(lengths, small, small)
@settings(max_examples=10)
def test_training_flops(n, d, layers):
    T, batch = sum(n), batch_of(n)
    shapes = [(3 * d, d), (d, d), (4 * d, d), (d, 4 * d)] * layers
    gpt2 = network_of("gpt2", vocabulary=7, width=d, heads=1, layers=layers)
    attention = 2 * layers * d * sum(one**2 for one in n)  # of a forward pass, again three times
    assert training_flops(gpt2, batch, scored=0) == written.step_flops(shapes, T) + 3 * attention
    assert training_flops(gpt2, batch) == written.step_flops([*shapes, (7, d)], T) + 3 * attention
    layer, x = FeedForward(FeedForwardSpec(4 * d), d), torch.ones(T, d, requires_grad=True)
    with FlopCounterMode(display=False) as counter:  # what torch really multiplies
        layer(x).sum().backward()
    assert counter.get_total_flops() == written.step_flops([(4 * d, d), (d, 4 * d)], T)


@given(small, st.sampled_from([4, 8]), st.sampled_from([1, 2]), st.sampled_from([torch.float16, torch.float32]))
@settings(max_examples=15)
def test_weight_bytes(d, bits, groups, dtype):
    rows, columns = 2 * d, 4 * d
    network = nn.Sequential(nn.Embedding(3, columns), nn.Linear(columns, rows), nn.Linear(columns, rows)).to(dtype)
    network[2].weight = network[1].weight  # tied: stored once
    others = [(3 * columns, dtype.itemsize), (rows, dtype.itemsize), (rows, dtype.itemsize)]
    whole = [(rows * columns, dtype.itemsize), *others]
    assert weight_bytes(network) == written.bytes_of_weights([], whole)
    put_quantized(network, "1", quantized(rows, columns, groups, bits))
    assert weight_bytes(network) == written.bytes_of_weights([(bits, rows, columns, groups)], others)
    put_quantized(network, "0", quantized(3, columns, 1, 8))
    assert weight_bytes(network) == written.bytes_of_weights(
        [(bits, rows, columns, groups), (8, 3, columns, 1)], others[1:]
    )


@given(small, st.sampled_from([torch.float32, torch.float64]), st.booleans(), st.booleans())
@settings(max_examples=10)
def test_training_bytes(heads, dtype, muon, exact):
    d = 2 * heads
    network = weft.create("gpt2", vocabulary=7, positions=5, width=d, heads=heads, layers=1).network.to(dtype)
    optimizers = make_optimizers(network, OptimizerSpec("muon" if muon else "adamw"), dtype, exact=exact)
    kept = list(network.parameters())
    for _ in range(2):
        for weight in network.parameters():
            weight.grad = torch.ones_like(weight)
        before = [dict(state) for one in optimizers for state in one.state.values()]
        for one in optimizers:
            one.step()
    states = [state for one in optimizers for state in one.state.values()]
    for state, earlier in zip(states, before, strict=True):  # the second step keeps what the first one made
        assert all(state[name] is earlier[name] for name in earlier if name != "step")
        kept += [tensor for name, tensor in state.items() if name != "step"]
    found = sum(one.nbytes for one in kept) + sum(weight.grad.nbytes for weight in network.parameters())
    M = 12 * d**2 if muon else 0
    assert found == written.trained_bytes(count_parameters(network), M, dtype.itemsize)
    steps = [float(state["step"]) for state in states if "step" in state]
    assert steps and set(steps) == {2.0}


@given(small, small, small, small, st.integers(0, 70), st.sampled_from([2, 4]))
def test_remembered_bytes(layers, key_heads, shared_by, width, n, beta):
    heads = key_heads * shared_by
    shape = PageShape([(key_heads, 2 * width)] * layers)
    assert shape.numbers * pages_for(n) * beta == written.remembered_bytes(layers, key_heads, 2 * width, n, beta)
    one = written.remembered_bytes(1, key_heads, 2 * width, 16, 1)
    assert shape.begins == [layer * one for layer in range(layers)]
    stack = network_of(
        "llama", vocabulary=7, width=2 * width * heads, heads=heads, key_value_heads=key_heads, layers=layers
    ).decoder
    assert PageShape.of_tokens(stack).numbers == shape.numbers


@given(st.integers(1, 2**26), st.integers(0, 2**40))
def test_loss_block(V, G):
    assert rows_of_a_block(torch.device("cpu"), V) == written.block_rows(V, 0)
    assert max(1, logits_of_a_block(G) // V) == written.block_rows(V, G)
    assert logits_of_a_block(None) == written.block_rows(1, 0)


amounts = st.floats(1e2, 1e10)


@given(amounts, amounts, amounts)
def test_scaling_law(M, D, U):
    assert expected_loss(M, D, U) == pytest.approx(written.law(M, D, U), rel=1e-12)
    assert expected_loss(M, 40 * D, D) > expected_loss(M, 40 * D, 40 * D)  # fresh text is worth more


@given(st.permutations([2, 8, 16]), st.floats(1, 6), st.integers(1, 3))
@settings(max_examples=25)
def test_best_size(widths, power, count):
    sizes = [ModelSection(family="gpt2", layers=1, width=width, heads=1) for width in widths[:count]]
    found = best_size(sizes, 7, 10**power)
    assert 12 * found.width**2 == written.fitting_size([12 * width**2 for width in widths[:count]], 10**power)
