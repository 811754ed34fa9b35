"""The chapter on positions: each formula as written gives what weft computes. Double precision where weft allows it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.model.attention import View, attend_with_maps
from weft.model.embeddings import Embeddings, EmbeddingSpec
from weft.model.fused_layers import prepare_heads
from weft.model.packed import pack
from weft.model.positions import (
    Learned,
    LinearScaling,
    Llama3Scaling,
    Relative,
    RelativeBias,
    Rotary,
    Sinusoidal,
    relative_bucket,
    rotary_frequencies,
    rotary_table,
    rotate,
    sinusoid_table,
)
from weft.theory.written import positions as written

lengths = st.lists(st.integers(1, 5), min_size=1, max_size=3)
seeds = st.integers(0, 2**31)
bases = st.sampled_from([10_000.0, 500_000.0, 7.0])
# Buckets and longest distance. Powers of two, so that both precisions agree at the edges of buckets.
tables = st.sampled_from([(2, 4), (3, 4), (4, 8), (5, 16), (8, 16), (8, 64), (32, 128), (33, 256)])


def embedded(lengths, width, seed, positions):
    """Embeddings of a random batch, with what was looked up."""
    torch.manual_seed(seed)
    layer = Embeddings(EmbeddingSpec(7, width, positions)).double()
    batch = pack([torch.randint(7, (length,)).numpy() for length in lengths])
    return layer, batch, batch.split(layer(batch).detach())


@given(lengths, st.integers(1, 5), st.integers(0, 2), seeds)
def test_position_vectors(lengths, width, offset, seed):
    layer, batch, found = embedded(lengths, width, seed, Learned(8, offset))
    E, P = layer.tokens.weight.detach().numpy(), layer.positions.weight.detach().numpy()
    for t, x in zip(batch.split(batch.tokens), found, strict=True):
        np.testing.assert_allclose(x, written.with_position_vectors(E, P, t.tolist(), offset), atol=1e-12)
    layer, batch, found = embedded(lengths, width, seed, Sinusoidal(8))
    E, P = layer.tokens.weight.detach().numpy(), sinusoid_table(torch.arange(8), width, torch.float64).numpy()
    for t, x in zip(batch.split(batch.tokens), found, strict=True):
        np.testing.assert_allclose(x, written.with_position_vectors(E, P, t.tolist(), 0), atol=1e-12)
    layer, batch, found = embedded(lengths, width, seed, None)
    torch.testing.assert_close(torch.cat(found), layer.tokens.weight.detach()[batch.tokens])


@given(st.lists(st.integers(0, 60), min_size=1, max_size=4), st.integers(1, 7))
def test_sinusoids(positions, width):
    columns = [*range(0, width, 2), *range(1, width, 2)]  # weft: first all sines, then all cosines
    expected = [[written.sinusoid(p, c, width) for c in columns] for p in positions]
    found = sinusoid_table(torch.tensor(positions), width, torch.float64)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@given(tables, st.booleans(), st.lists(st.integers(-300, 300), min_size=1, max_size=8))
def test_distance_buckets(table, both_ways, distances):
    if both_ways and table[0] < 4:
        table = (4, 8)
    spec = Relative(*table)
    distances += [0, 1, -1, 2, -2, -spec.distance, spec.distance, -4 * spec.distance]
    distances += list(range(-20, 20))
    found = relative_bucket(torch.tensor(distances), spec, both_ways=both_ways)
    assert found.tolist() == [written.distance_bucket(d, *table, both_ways) for d in distances]


@given(lengths, st.integers(1, 3), st.booleans(), seeds)
def test_relative_bias(lengths, heads, both_ways, seed):
    torch.manual_seed(seed)
    spec = Relative(4, 8)
    bias = RelativeBias(spec, heads, both_ways=both_ways).double()
    b = bias.table.weight.detach().numpy()
    batch = pack([range(length) for length in lengths])
    q, k = torch.randn(2, sum(lengths), heads, 3, dtype=torch.float64)
    view = View(causal=not both_ways, bias={length: bias(length).detach() for length in lengths})
    _, _, scores = attend_with_maps(q, k, k, batch, batch, view, scaled=False, dropout=0.0)
    _, _, plain = attend_with_maps(q, k, k, batch, batch, View(causal=True), scaled=False, dropout=0.0)
    for Q, K, found, unbiased in zip(batch.split(q), batch.split(k), scores, plain, strict=True):
        n = len(Q)
        expected = [
            [[written.biased_score(Q[i, h], K[j, h], i, j, b[:, h], 8, both_ways) for j in range(n)] for i in range(n)]
            for h in range(heads)
        ]
        np.testing.assert_allclose(found, expected, atol=1e-12)
        expected = [
            [[written.biased_score(Q[i, h], K[j, h], i, j, 0 * b[:, h], 8, False) for j in range(n)] for i in range(n)]
            for h in range(heads)
        ]
        np.testing.assert_allclose(unbiased, expected, atol=1e-12)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=4), st.integers(1, 4), bases)
def test_rotary_angles(positions, pairs, base):
    """weft computes angles in single precision."""
    width = 2 * pairs
    expected = [[written.rotary_angle(p, i, base, width) for i in range(pairs)] * 2 for p in positions]
    cos, sin = rotary_table(Rotary(64, base), torch.tensor(positions), width, torch.float64)
    np.testing.assert_allclose(cos[:, 0], np.cos(expected), atol=2e-5)
    np.testing.assert_allclose(sin[:, 0], np.sin(expected), atol=2e-5)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=4), st.integers(1, 3), st.integers(1, 4), bases, seeds)
def test_rotation(positions, heads, pairs, base, seed):
    torch.manual_seed(seed)
    q, k, v = torch.randn(3, len(positions), heads, 2 * pairs, dtype=torch.float64, requires_grad=True)
    table = rotary_table(Rotary(64, base), torch.tensor(positions), 2 * pairs, torch.float64)
    rotated = prepare_heads(torch.cat([q, k, v], dim=1), (heads,) * 3, (None, None), table)
    for found, given_ in zip(rotated, (q, k), strict=False):
        expected = [
            [written.rotated_head(x, p, base) for x in row]
            for p, row in zip(positions, given_.detach().numpy(), strict=True)
        ]
        np.testing.assert_allclose(found.detach(), expected, atol=1e-4)
        with torch.no_grad():
            np.testing.assert_allclose(rotate(given_, table), expected, atol=1e-4)
    torch.testing.assert_close(rotated[2], v)
    unrotated = prepare_heads(torch.cat([q, k, v], dim=1), (heads,) * 3, (None, None), None)
    torch.testing.assert_close(unrotated[:2], (q, k))


@given(st.integers(1, 3), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), seeds)
def test_rotated_scores_depend_on_the_distance_only(pairs, i, j, shift, seed):
    q, k = np.random.default_rng(seed).normal(size=(2, 2 * pairs))
    scores = [written.rotated_head(q, i + s, 10_000.0) @ written.rotated_head(k, j + s, 10_000.0) for s in (0, shift)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-9)


@given(st.integers(1, 8), bases, st.floats(1, 16), st.integers(16, 9000), st.floats(0.5, 2), st.floats(0.5, 8))
def test_longer_context(pairs, base, s, size, low, between):
    width, high = 2 * pairs, low + between
    plain = [written.rotary_angle(1, i, base, width) for i in range(pairs)]
    found = {
        scaling: rotary_frequencies(Rotary(64, base, scaling), width, torch.device("cpu"))
        for scaling in (None, LinearScaling(s), Llama3Scaling(s, low, high, size))
    }
    unchanged, linear, llama = (x.numpy() for x in found.values())
    np.testing.assert_allclose(unchanged, plain, rtol=1e-4)
    np.testing.assert_allclose(linear, np.array(plain) / s, rtol=1e-4)
    np.testing.assert_allclose(linear, [written.slowed_frequency(x, s, 0, 1, math.inf) for x in plain], rtol=1e-4)
    expected = [written.slowed_frequency(x, s, size, low, high) for x in plain]
    np.testing.assert_allclose(llama, expected, rtol=2e-3)
