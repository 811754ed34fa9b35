"""The chapter on layers: each formula as written gives what weft computes. Double precision, unequal lengths."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.model.attention import AttentionSpec, View
from weft.model.block import Block, BlockSpec
from weft.model.dropout import Dropout, dropout_mask
from weft.model.feedforward import FeedForward, FeedForwardSpec, activate
from weft.model.norm import NormSpec, make_norm
from weft.model.packed import pack
from weft.model.stack import Stack, StackSpec
from weft.theory.written import layer as written

lengths = st.lists(st.integers(1, 5), min_size=1, max_size=3)
seeds = st.integers(0, 2**31)
widths = st.integers(1, 4)
norm_kinds = st.sampled_from(["layer", "rms"])
PHI = {
    "relu": written.relu,
    "gelu": written.gelu,
    "gelu-tanh": written.gelu_by_tanh,
    "silu": written.silu,
    "relu-squared": lambda z: written.relu(z) ** 2,
    "tanh": np.tanh,
}


def random_weights(module):
    """In double precision, none of them 0 or 1."""
    for weight in module.double().parameters():
        torch.nn.init.normal_(weight)
    return module.eval()


def numbers(weight):
    return weight.detach().numpy()


def block_spec(width, order, kind="layer", **dropout):
    return BlockSpec(AttentionSpec(1, width, 1), FeedForwardSpec(3), NormSpec(kind, 1e-3), order, **dropout)


@given(st.integers(1, 5), widths, st.integers(1, 5), st.booleans(), st.sampled_from(list(PHI)), seeds)
def test_feed_forward(tokens, width, inner, bias, activation, seed):
    torch.manual_seed(seed)
    layer = random_weights(FeedForward(FeedForwardSpec(inner, activation, bias=bias), width))
    x = torch.randn(tokens, width, dtype=torch.float64)
    b_1, b_2 = (numbers(one.bias) if bias else np.zeros(n) for one, n in ((layer.up, inner), (layer.down, width)))
    W_1, W_2 = numbers(layer.up.weight), numbers(layer.down.weight)
    expected = [written.two_matrices(W_1, b_1, W_2, b_2, one, PHI[activation]) for one in x.numpy()]
    np.testing.assert_allclose(numbers(layer(x)), expected, atol=1e-10)
    with torch.inference_mode():
        np.testing.assert_allclose(layer(x), expected, atol=1e-10)
    gated = FeedForward(FeedForwardSpec(inner, activation, gated=True), width)
    assert gated.up.weight.shape == (2 * inner, width)


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=5))
def test_activations(z):
    for name, phi in PHI.items():
        found = activate(torch.tensor(z, dtype=torch.float64), name)
        np.testing.assert_allclose(found, [phi(one) for one in z], atol=1e-12, rtol=1e-12)


@settings(max_examples=25)
@given(st.integers(1, 5), widths, st.integers(1, 5), st.sampled_from(list(PHI)), seeds)
def test_gated(tokens, width, inner, activation, seed):
    torch.manual_seed(seed)
    x = torch.randn(tokens, width, dtype=torch.float64)
    for name in ("silu", activation):
        layer = random_weights(FeedForward(FeedForwardSpec(inner, name, gated=True, bias=False), width))
        both, W_2 = numbers(layer.up.weight), numbers(layer.down.weight)
        expected = [written.gated_network(both[:inner], both[inner:], W_2, one, PHI[name]) for one in x.numpy()]
        np.testing.assert_allclose(numbers(layer(x)), expected, atol=1e-10)
        plain = random_weights(FeedForward(FeedForwardSpec(inner, name, bias=False), width))
        W_1, W_2 = numbers(plain.up.weight), numbers(plain.down.weight)
        b_1, b_2 = np.zeros(inner), np.zeros(width)
        expected = [written.two_matrices(W_1, b_1, W_2, b_2, one, PHI[name]) for one in x.numpy()]
        np.testing.assert_allclose(numbers(plain(x)), expected, atol=1e-10)


@settings(max_examples=15)
@given(lengths, widths, st.integers(1, 3), st.booleans(), seeds)
def test_residual_stream(lengths, width, layers, final_norm, seed):
    torch.manual_seed(seed)
    spec = StackSpec((block_spec(width, "pre"),) * layers, final_norm=final_norm)
    stack = random_weights(Stack(spec, width, None))
    kept = {"attention": [], "feedforward": []}
    for block in stack.blocks:
        for name, found in kept.items():
            getattr(block, name).register_forward_hook(lambda _, __, out, found=found: found.append(numbers(out)))
    x = torch.randn(sum(lengths), width, dtype=torch.float64)
    out = stack(x, pack([range(length) for length in lengths]))
    assert all(len(found) == layers for found in kept.values())
    expected = written.residual_stream(x.numpy(), kept["attention"], kept["feedforward"])
    if final_norm:
        g, b = numbers(stack.norm.weight), numbers(stack.norm.bias)
        expected = [written.standardized(one, g, b, 1e-3) for one in expected]
    np.testing.assert_allclose(numbers(out), expected, atol=1e-10)


@given(st.integers(1, 4), st.integers(2, 5), st.floats(1e-6, 1), seeds)
def test_layer_norm(tokens, width, epsilon, seed):
    torch.manual_seed(seed)
    norm = random_weights(make_norm(NormSpec("layer", epsilon), width))
    x = torch.randn(tokens, width, dtype=torch.float64)
    g, b = numbers(norm.weight), numbers(norm.bias)
    expected = [written.standardized(one, g, b, epsilon) for one in x.numpy()]
    np.testing.assert_allclose(numbers(norm(x)), expected, atol=1e-10)
    without = random_weights(make_norm(NormSpec("layer", epsilon, bias=False), width))
    expected = [written.standardized(one, numbers(without.weight), 0 * b, epsilon) for one in x.numpy()]
    np.testing.assert_allclose(numbers(without(x)), expected, atol=1e-10)
    assert type(make_norm(NormSpec("rms"), width)).__name__ == "RMSNorm"


@given(st.integers(1, 4), st.integers(1, 5), st.floats(1e-6, 1), seeds)
def test_rms_norm(tokens, width, epsilon, seed):
    torch.manual_seed(seed)
    norm = random_weights(make_norm(NormSpec("rms", epsilon), width))
    x = torch.randn(tokens, width, dtype=torch.float64)
    expected = [written.divided_by_size(one, numbers(norm.weight), epsilon) for one in x.numpy()]
    np.testing.assert_allclose(numbers(norm(x)), expected, atol=1e-10)


@settings(max_examples=15)
@given(lengths, widths, norm_kinds, st.booleans(), seeds)
def test_norm_order(lengths, width, kind, of_attention, seed):
    for order, in_order in (("pre", written.pre_norm_sum), ("post", written.post_norm_sum)):
        for p in (0.0, 0.25):
            check_block(lengths, width, order, in_order, kind, p, of_attention, seed)


def check_block(lengths, width, order, in_order, kind, p, of_attention, seed):
    torch.manual_seed(seed)
    dropout = {"attention_dropout" if of_attention else "feedforward_dropout": p}
    block = random_weights(Block(block_spec(width, order, kind, **dropout), width))
    batch = pack([range(length) for length in lengths])
    x = torch.randn(sum(lengths), width, dtype=torch.float64)
    for training in (False, True):
        block.train(training)
        masks = [torch.ones_like(x), torch.ones_like(x)]
        torch.manual_seed(seed)
        if training and p:
            masks[not of_attention] = dropout_mask(x.shape, p, x.dtype)
        expected = x
        for sublayer, norm, mask in (
            (lambda h: block.attention(h, batch, View()), block.attention_norm, masks[0]),
            (block.feedforward, block.feedforward_norm, masks[1]),
        ):
            expected = in_order(expected, lambda h, s=sublayer, m=mask: m * s(h), norm)
        torch.manual_seed(seed)
        torch.testing.assert_close(block(x, batch, View()), expected, atol=1e-9, rtol=0)
    first = random_weights(Block(block_spec(width, order, kind), width, attention_norm=False))
    attended = x + first.attention(x, batch, View())
    expected = in_order(attended, first.feedforward, first.feedforward_norm)
    torch.testing.assert_close(first(x, batch, View()), expected, atol=1e-9, rtol=0)


@given(st.integers(1, 3), st.integers(1, 9), st.integers(0, 63), seeds)
def test_dropout(tokens, width, share, seed):
    """weft draws 16 bits for each number, so `p` is a multiple of 1/65536."""
    p, layer = share / 64, Dropout(share / 64)
    x = torch.randn(tokens, width, dtype=torch.float64)
    torch.manual_seed(seed)
    drawn = torch.empty((tokens * width + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    u, after = (drawn.double() / 2**16 + 0.5)[: tokens * width], torch.get_rng_state()
    torch.manual_seed(seed)
    expected = written.dropped_out(x.flatten().numpy(), u.numpy(), p).reshape(tokens, width)
    np.testing.assert_allclose(layer(x), expected, atol=1e-12)
    assert not p or torch.equal(torch.get_rng_state(), after)  # no more numbers are drawn than needed
    torch.testing.assert_close(layer.eval()(x), x)


def test_dropout_keeps_the_mean():
    torch.manual_seed(0)
    dropped = Dropout(0.25)(torch.ones(40_000, dtype=torch.float64))
    assert abs(float(dropped.mean()) - 1) < 0.01 and abs(float((dropped == 0).double().mean()) - 0.25) < 0.01
