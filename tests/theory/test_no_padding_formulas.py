"""The chapter on batches without padding: each formula as written gives what weft computes."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import weft
from weft.model.attention import View, attend
from weft.model.flops import forward_flops, stack_weights
from weft.model.gpu_attention import attend_padded, padding_mask
from weft.model.heads import mean_of_each
from weft.model.packed import group_by_tokens, order_by_length, pack
from weft.objectives.masked import masked_batch
from weft.objectives.masking import DEFAULT_MASKING, Vocabulary
from weft.objectives.objective import scaled_loss
from weft.theory.written import no_padding as written

lengths = st.lists(st.integers(1, 5), min_size=1, max_size=4)
seeds = st.integers(0, 2**31)


def texts_of(lengths, seed, vocabulary=9):
    generator = np.random.default_rng(seed)
    return [generator.integers(3, vocabulary, size=length) for length in lengths]


@given(st.lists(st.integers(0, 5), max_size=4), seeds)
def test_flat_batch(lengths, seed):
    texts = texts_of(lengths, seed)
    batch = pack(texts, [text % 2 for text in texts])
    total = sum(lengths)
    assert batch.starts.tolist() == written.starts_of(lengths)
    assert batch.positions.tolist() == [written.position_in_sequence(t, lengths) for t in range(total)]
    assert batch.owner.tolist() == [written.sequence_of(t, lengths) for t in range(total)]
    assert batch.tokens.tolist() == [token for text in texts for token in text]
    assert batch.segments.tolist() == [token % 2 for text in texts for token in text]


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=4),
    st.integers(1, 2),
    st.integers(1, 3),
    seeds,
)
@example([(2, 3), (2, 3), (1, 3), (1, 3), (1, 2), (1, 2)], 1, 2, 0)  # neighbours of equal lengths go together
def test_one_by_one(pairs, heads, width, seed):
    """Queries that look at their own sequence, and queries that look at another one, as in an encoder–decoder."""
    torch.manual_seed(seed)
    n, m = map(list, zip(*pairs, strict=True))
    queries, keys = pack([range(length) for length in n]), pack([range(length) for length in m])
    q, k, v = (torch.randn(size, heads, width, dtype=torch.float64) for size in (sum(n), sum(m), sum(m)))
    both = attend(q, k, v, queries, keys, View(), scaled=True, dropout=0.0)
    own = attend(q, q, q, queries, queries, View(), scaled=True, dropout=0.0)
    for h in range(heads):
        Q, K, V = (x[:, h].numpy() for x in (q, k, v))
        np.testing.assert_allclose(both[:, h], written.attend_within(Q, K, V, n, m), atol=1e-12)
        np.testing.assert_allclose(own[:, h], written.attend_within(Q, Q, Q, n, n), atol=1e-12)


@given(lengths, st.integers(1, 4), seeds)
def test_mean_of_each(lengths, width, seed):
    torch.manual_seed(seed)
    h = torch.randn(sum(lengths), width, dtype=torch.float64)
    found = mean_of_each(h, pack([range(length) for length in lengths]))
    expected = [written.mean_of_sequence(h.numpy(), j, lengths) for j in range(len(lengths))]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@given(lengths, st.integers(1, 2), st.integers(1, 3), seeds)
def test_padding_mask(lengths, heads, width, seed):
    torch.manual_seed(seed)
    batch = pack([range(length) for length in lengths])
    places = [written.place_if_padded(t, lengths) for t in range(sum(lengths))]
    assert batch.padded_rows.tolist() == places
    q, k, v = torch.randn(3, sum(lengths), heads, width, dtype=torch.float64)
    longest = max(lengths)
    all_seen = torch.ones(longest, longest, dtype=torch.bool)
    causal = all_seen.tril()
    bias = torch.randn(heads, longest, longest, dtype=torch.float64)
    masks = [padding_mask(batch, None), padding_mask(batch, all_seen), padding_mask(batch, 0 * bias)]
    found = [attend_padded(q, k, v, batch, batch, mask, width**-0.5, 0.0) for mask in masks]
    K, V = (np.zeros((len(lengths) * longest, heads, width)) for _ in range(2))
    K[places], V[places] = k, v
    for t in range(sum(lengths)):
        j = written.sequence_of(t, lengths)
        rows = slice(j * longest, (j + 1) * longest)
        for h in range(heads):
            expected = written.padded_head(q[t, h].numpy(), K[rows, h], V[rows, h], lengths[j])
            np.testing.assert_allclose([one[t, h] for one in found], [expected] * 3, atol=1e-12)
    for j, length in enumerate(lengths):  # padding sees itself, so no row is empty; a bias stays where it was
        seen = (np.arange(longest) < length)[None] | np.eye(longest, dtype=bool)
        np.testing.assert_array_equal(masks[1][j, 0], seen)
        np.testing.assert_array_equal(padding_mask(batch, causal)[j, 0], causal.numpy() & seen)
        biased = padding_mask(batch, bias)[j].numpy()
        np.testing.assert_array_equal(biased, np.where(seen, bias.numpy(), -np.inf))


@cache
def networks():
    """A GPT of one layer, a BERT of two, and a ModernBERT whose second layer sees 64 tokens to each side."""
    shape = {"vocabulary": 9, "width": 8, "heads": 2, "positions": 16}
    return {
        "gpt2": weft.create("gpt2", layers=1, **shape).network,
        "bert": weft.create("bert", layers=2, **shape).network,
        "modernbert": weft.create("modernbert", layers=2, **shape).network,
    }


@given(st.lists(st.integers(1, 300), min_size=1, max_size=4))
def test_products(lengths):
    windows = {"gpt2": [10**6], "bert": [10**6] * 2, "modernbert": [10**6, 129]}
    batch = pack([range(length) for length in lengths])
    for name, network in networks().items():
        causal = 0.5 if name == "gpt2" else 1.0
        expected = written.flat_products(lengths, stack_weights(network), 8, windows[name], causal)
        assert forward_flops(network, batch, scored=0) == expected


@given(st.lists(st.integers(1, 9), max_size=8), st.integers(1, 12))
def test_cutting(lengths, most):
    found = group_by_tokens(lengths, most)
    assert [list(one) for one in found] == written.cut_by_tokens(lengths, most)
    order = order_by_length([range(length) for length in lengths])
    assert sorted(order) == list(range(len(lengths)))
    assert all((-lengths[a], a) < (-lengths[b], b) for a, b in pairwise(order))


@given(lengths, seeds)
@settings(max_examples=15)
def test_scored_rows(lengths, seed):
    network = weft.create("bert", vocabulary=9, layers=1, width=4, heads=1, positions=8, seed=seed % 99).network
    network = network.double().eval()
    texts = texts_of(lengths, seed)
    samples = list(range(len(texts)))
    batch = masked_batch(texts, samples, samples, seed, DEFAULT_MASKING, Vocabulary(9, 1, frozenset({0, 1, 2})))
    starts = written.starts_of(lengths)
    places = [[row - begin for row in batch.rows.tolist() if begin <= row < end] for begin, end in pairwise(starts)]
    assert all(places)  # every text has a masked token
    flat, rows = np.concatenate(texts), batch.rows.numpy()
    assert batch.rows.tolist() == written.scored_rows(lengths, places)
    assert batch.targets.tolist() == flat[rows].tolist()
    read = batch.packed.tokens.numpy()
    assert set(np.flatnonzero(read != flat)) <= set(rows)
    assert batch.counts == {"masked": len(batch.rows)}
    with torch.no_grad():
        head = network.heads["masked"]
        h = head.prepare(network(batch.packed), batch.packed).numpy()  # of all tokens
        found = scaled_loss(network, batch, batch.counts).item()
    W, b = (weight.detach().numpy() for weight in (head.out.weight, head.out.bias))
    assert found == pytest.approx(written.loss_of_scored(h, W, b, batch.rows.tolist(), batch.targets.tolist()))
