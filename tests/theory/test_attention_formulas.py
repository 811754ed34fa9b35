"""The chapter on attention: each formula as written gives what weft computes. Double precision, unequal lengths."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.model.attention import Attention, AttentionSpec, View, attend, attend_with_maps, visibility_mask
from weft.model.fused_layers import prepare_heads
from weft.model.norm import NormSpec, make_norm
from weft.model.packed import pack
from weft.theory.written import attention as written

lengths = st.lists(st.integers(1, 5), min_size=1, max_size=3)
seeds = st.integers(0, 2**31)


def random_heads(lengths, heads, width, seed):
    """Queries, keys and values of a batch, (T, H, D), and the batch."""
    torch.manual_seed(seed)
    batch = pack([range(length) for length in lengths])
    q, k, v = torch.randn(3, sum(lengths), heads, width, dtype=torch.float64)
    return q, k, v, batch


def with_maps(q, k, v, batch, view=View(), scaled=True):  # noqa: B008
    return attend_with_maps(q, k, v, batch, batch, view, scaled=scaled, dropout=0.0)


def each_head(batch, *tensors):
    """(sequence, head, matrices of this sequence and head)."""
    for number, parts in enumerate(zip(*(batch.split(x) for x in tensors), strict=True)):
        for head in range(tensors[0].shape[1]):
            yield number, head, *(part[:, head].numpy() for part in parts)


def attention_layer(heads, width, seed):
    torch.manual_seed(seed)
    layer = Attention(AttentionSpec(heads, width, heads), heads * width).double()
    return layer, torch.randn(6, heads * width, dtype=torch.float64)


def matrices(layer, heads, width):
    """W and b of each head's queries, keys and values."""
    rows = [layer.qkv.weight.detach().numpy(), layer.qkv.bias.detach().numpy()]
    return [x.reshape(3, heads, width, *x.shape[1:]) for x in rows]


@given(st.integers(1, 3), st.integers(1, 4), seeds)
def test_projections(heads, width, seed):
    layer, x = attention_layer(heads, width, seed)
    W, b = matrices(layer, heads, width)
    expected = [
        [[written.project(W[kind, h], b[kind, h], one) for h in range(heads)] for one in x.numpy()] for kind in range(3)
    ]
    kept = {"heads": []}
    layer(x, pack([[0] * 4, [0] * 2]), View(), maps=kept)
    np.testing.assert_allclose(torch.stack(kept["heads"]).detach(), expected, atol=1e-12)
    split = prepare_heads(torch.cat(kept["heads"], dim=1), (heads, heads, heads), (None, None), None)
    np.testing.assert_allclose(torch.stack(split).detach(), expected, atol=1e-12)


@given(lengths, st.integers(1, 3), st.integers(1, 5), seeds)
def test_score(lengths, heads, width, seed):
    q, k, v, batch = random_heads(lengths, heads, width, seed)
    _, _, scores = with_maps(q, k, v, batch, scaled=False)
    _, _, scaled = with_maps(q, k, v, batch)
    for number, head, Q, K in each_head(batch, q, k):
        expected = [[written.dot_product(a, b) for b in K] for a in Q]
        np.testing.assert_allclose(scores[number][head], expected, atol=1e-12)
        np.testing.assert_allclose(scaled[number][head] * width**0.5, expected, atol=1e-12)


@given(lengths, st.integers(1, 3), st.integers(1, 5), seeds)
def test_weights(lengths, heads, width, seed):
    q, k, v, batch = random_heads(lengths, heads, width, seed)
    _, weights, _ = with_maps(q, k, v, batch)
    for number, head, Q, K in each_head(batch, q, k):
        np.testing.assert_allclose(weights[number][head], [written.attention_weights(one, K) for one in Q], atol=1e-12)
    _, _, unscaled = with_maps(q, k, v, batch, scaled=False)
    for number, head, Q, K in each_head(batch, q, k):
        np.testing.assert_allclose(unscaled[number][head], Q @ K.T, atol=1e-12)


@given(lengths, st.integers(1, 3), st.integers(1, 5), seeds)
def test_output(lengths, heads, width, seed):
    q, k, v, batch = random_heads(lengths, heads, width, seed)
    out, weights, _ = with_maps(q, k, v, batch)
    for number, head, V, Z in each_head(batch, v, out):
        expected = [written.weighted_sum(alpha, V) for alpha in weights[number][head].numpy()]
        np.testing.assert_allclose(Z, expected, atol=1e-12)


@given(lengths, st.integers(1, 2), st.integers(1, 3), st.integers(1, 5), st.integers(0, 5), seeds)
def test_attention(lengths, key_heads, queries_per_key, width, window, seed):
    q, _, _, batch = random_heads(lengths, key_heads * queries_per_key, width, seed)
    k, v = torch.randn(2, sum(lengths), key_heads, width, dtype=torch.float64)
    shared_k, shared_v = (x.repeat_interleave(queries_per_key, dim=1) for x in (k, v))
    views = [View(), View(causal=True), View(causal=True, window=window)]
    results = [attend(q, k, v, batch, batch, view, scaled=True, dropout=0.0) for view in views]
    unscaled = attend(q, k, v, batch, batch, View(), scaled=False, dropout=0.0)
    for _, _, Q, K, V, plain, causal, windowed, U in each_head(batch, q, shared_k, shared_v, *results, unscaled):
        np.testing.assert_allclose(plain, written.attention_head(Q, K, V), atol=1e-12)
        np.testing.assert_allclose(U, written.attention_head(Q * width**0.5, K, V), atol=1e-12)
        np.testing.assert_allclose(causal, written.causal_head(Q, K, V, len(Q)), atol=1e-12)
        np.testing.assert_allclose(windowed, written.causal_head(Q, K, V, window), atol=1e-12)


@given(lengths, st.integers(1, 3), st.integers(1, 4), st.integers(0, 5), seeds)
def test_causal_mask(lengths, heads, width, window, seed):
    q, k, v, batch = random_heads(lengths, heads, width, seed)
    causal, _, _ = with_maps(q, k, v, batch, View(causal=True, window=window))
    _, both_ways, _ = with_maps(q, k, v, batch, View(window=window))
    bias = {n: torch.randn(heads, n, n, dtype=torch.float64) for n in lengths}
    _, _, biased = with_maps(q, k, v, batch, View(bias=bias))
    for number, head, Q, K, V, Z in each_head(batch, q, k, v, causal):
        np.testing.assert_allclose(Z, written.causal_head(Q, K, V, window), atol=1e-12)
        n = len(Q)
        seen = np.array([[written.sees(i, j, window) for j in range(n)] for i in range(n)])
        np.testing.assert_array_equal(both_ways[number][head] > 0, seen | seen.T)
        np.testing.assert_array_equal(visibility_mask(n, window, causal=True), seen)
        np.testing.assert_array_equal(visibility_mask(n, window, causal=False), seen | seen.T)
        np.testing.assert_array_equal(visibility_mask(n, None, causal=True), np.tri(n, dtype=bool))
        np.testing.assert_allclose(biased[number][head], Q @ K.T / width**0.5 + bias[n][head].numpy(), atol=1e-12)


@given(lengths, st.integers(1, 3), st.integers(1, 4), seeds)
def test_multi_head(lengths, heads, width, seed):
    layer, _ = attention_layer(heads, width, seed)
    x = torch.randn(sum(lengths), heads * width, dtype=torch.float64)
    batch = pack([range(length) for length in lengths])
    W, b = matrices(layer, heads, width)
    out = layer(x, batch, View()).detach()
    for X, found in zip(batch.split(x), batch.split(out), strict=True):
        q, k, v = (
            [[written.project(W[kind, h], b[kind, h], one) for one in X.numpy()] for h in range(heads)]
            for kind in range(3)
        )
        q, k, v = (list(map(np.array, side)) for side in (q, k, v))
        expected = written.many_heads(q, k, v, layer.out.weight.detach().numpy(), layer.out.bias.detach().numpy())
        np.testing.assert_allclose(found, expected, atol=1e-12)


@given(lengths, st.integers(1, 3), st.integers(1, 5), seeds)
def test_qk_norm(lengths, heads, width, seed):
    q, k, v, _ = random_heads(lengths, heads, width, seed)
    norms = [make_norm(NormSpec("rms", epsilon=1e-3), width).double() for _ in range(2)]
    for norm in norms:
        torch.nn.init.normal_(norm.weight)
    split = prepare_heads(torch.cat([q, k, v], dim=1), (heads,) * 3, tuple(norms), None)
    for found, given_, norm in zip(split, (q, k), norms, strict=False):
        g = norm.weight.detach().numpy()
        expected = [[written.rms_normalized(one, g, 1e-3) for one in row] for row in given_.numpy()]
        np.testing.assert_allclose(found.detach(), expected, atol=1e-12)
    np.testing.assert_array_equal(split[2], v)
