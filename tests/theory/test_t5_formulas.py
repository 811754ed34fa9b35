"""The chapter on T5: each formula as written gives what weft computes. Double precision, unequal lengths."""

from collections import Counter
from dataclasses import replace
from itertools import groupby, permutations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.model.families import design
from weft.model.initialize import InitSpec
from weft.model.network import create_network
from weft.model.packed import pack
from weft.objectives.span_corruption import SpanCorruption
from weft.objectives.spans import corrupt_spans, restore_spans
from weft.theory.written import t5 as written

SENTINELS = list(range(100, 108))
texts = st.lists(st.integers(0, 9), min_size=0, max_size=14)
shares = st.sampled_from([0.05, 0.15, 0.3, 0.5, 0.8, 1.0])
means = st.sampled_from([1.0, 1.5, 3.0, 5.0])
seeds = st.integers(0, 2**31)
TINY = {"vocabulary": 20, "layers": 1, "heads": 2, "dropout": 0.0, "buckets": 4, "distance": 8}


def corrupted(ids, seed, share=0.15, mean=3.0, sentinels=SENTINELS):
    rng = np.random.default_rng(seed)
    source, target = corrupt_spans(np.asarray(ids, np.uint16), sentinels, rng, share=share, mean_length=mean)
    assert source.dtype == target.dtype == np.uint16  # as they are stored
    return source.tolist(), target.tolist()


def cut_of(length, *settings):
    """Which tokens are cut: 1 for each. Cut are those that the source lacks."""
    source, _ = corrupted(range(length), *settings)
    return [int(place not in source) for place in range(length)]


def pieces(ids, cut):
    """What is kept, and what is cut: k_0 c_0 k_1 … c_{m-1} k_m."""
    k, c, rest = [[]], [], list(ids)
    for is_cut, group in groupby(cut):
        piece = [rest.pop(0) for _ in group]
        if is_cut:
            c.append(piece)
            k.append([])
        else:
            k[-1] = piece
    return k, c


def network_of(init="t5", **knobs):
    """A tiny T5 in double precision."""
    _, architecture = design("t5", **TINY | {"width": 4, "head_width": 3} | knobs)
    return create_network(replace(architecture, init=InitSpec(init)), seed=1).double().eval()


@given(texts, shares, means, seeds)
def test_sentinels(ids, share, mean, seed):
    cut = cut_of(len(ids), seed, share, mean)
    k, c = pieces(ids, cut)
    source, target = corrupted(ids, seed, share, mean)
    assert (source, target) == written.source_and_target(k, c, SENTINELS)
    assert len(source) == len(ids) - sum(cut) + len(c) and len(target) == sum(cut) + len(c) + 1


@given(texts, shares, means, seeds)
def test_restored(ids, share, mean, seed):
    k, c = pieces(ids, cut_of(len(ids), seed, share, mean))
    source, target = corrupted(ids, seed, share, mean)
    restored = restore_spans(np.array(source, np.int64), np.array(target, np.int64), SENTINELS)
    assert restored.tolist() == ids == written.joined_text(k, c)


@given(st.integers(2, 40), shares, means, st.integers(2, 8), seeds)
def test_how_many_spans(length, share, mean, sentinels, seed):
    for L in (length, 2, 3):
        source, target = corrupted(range(L), seed, share, mean, SENTINELS[:sentinels])
        n = written.tokens_cut(L, share)
        m = written.spans_cut(L, n, mean, sentinels)
        assert sum(token < 100 for token in target) == n == L - sum(token < 100 for token in source)
        assert sum(token >= 100 for token in source) == m


class Chosen:
    """A generator that draws given permutations, one after the other."""

    def __init__(self, drawn):
        self.drawn = list(drawn)

    def permutation(self, count):
        order = self.drawn.pop(0)
        assert len(order) == count
        return np.array(order, np.int64)


@given(st.integers(2, 5), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=12)
def test_which_spans(L, n, m):
    """Over all permutations that can be drawn, each cut comes up equally often."""
    n = min(n, L - 1)
    m = min(m, n, L - n)
    found = Counter()
    for drawn in product(permutations(range(L - n + 1)), permutations(range(n - 1))):
        source, _ = corrupt_spans(np.arange(L), SENTINELS, Chosen(drawn), share=n / L, mean_length=n / m)
        found[tuple(int(place not in source) for place in range(L))] += 1
    assert sorted(found) == sorted(written.all_cuts(L, n, m))
    for count in found.values():
        assert count / found.total() == pytest.approx(written.chance_of_a_cut(L, n, m))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=3), st.integers(1, 6), st.integers(0, 3), seeds)
@settings(max_examples=15)
def test_denoising_loss(samples, length, epoch, seed):
    torch.manual_seed(seed)
    tape, sentinels, end, start = torch.randint(9, (40,)).numpy(), (10, 11, 12), 13, 14
    objective = SpanCorruption(tape, length, sentinels, end=end, start=start, share=0.5, mean_length=1.0)
    batch = objective.batch(samples, [epoch + place for place in range(len(samples))], seed)
    sources = [one.tolist() for one in batch.packed.split(batch.packed.tokens)]
    targets = [one.tolist() for one in batch.decoder.split(batch.targets)]
    reads = [one.tolist() for one in batch.decoder.split(batch.decoder.tokens)]
    assert len(sources) == len(samples)
    for sample, source, y, read in zip(samples, sources, targets, reads, strict=True):
        assert source[-1] == y[-1] == end and end not in source[:-1] + y[:-1]
        text = restore_spans(np.array(source[:-1]), np.array(y[:-1]), sentinels)
        assert text.tolist() == tape[sample * length : (sample + 1) * length].tolist()
        n = written.tokens_cut(length, 0.5) if length > 1 else 0
        m = written.spans_cut(length, n, 1.0, 3) if length > 1 else 0
        assert (len(source), len(y)) == (length - n + m + 1, n + m + 2)
        assert read == written.decoder_reads(y, start)
    network = network_of()
    with torch.no_grad():
        log_p = network.head("seq2seq")(network(batch.packed, batch.decoder), batch.decoder).log_softmax(-1).numpy()
        loss = objective.loss(network, batch, batch.counts)
    assert float(loss) == pytest.approx(written.denoising_loss(log_p, [t for y in targets for t in y]), rel=1e-5)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(1, 3), st.integers(1, 4), seeds)
@settings(max_examples=15)
def test_unscaled(lengths, heads, D, seed):
    network = network_of(heads=heads, head_width=D)
    plain = network_of("normal", heads=heads, head_width=D)
    assert not any(name.endswith("bias") for name in network.state_dict())
    for name, weight in plain.state_dict().items():
        expected, found = weight.numpy(), network.state_dict()[name].numpy()
        if name.endswith(("attention.qkv.weight", "cross.query.weight")):
            rows = heads * D
            expected = np.concatenate([written.first_query_weight(expected[:rows] / 0.02, 0.02, D), expected[rows:]])
        if "attention" in name or "cross" in name:
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    torch.manual_seed(seed)
    batch, layer, maps = pack([range(n) for n in lengths]), network.encoder.blocks[0].attention, {}
    maps["heads"], maps["scores"] = [], []
    (view,) = network.encoder.views(batch, torch.float64)
    layer(torch.randn(sum(lengths), 4, dtype=torch.float64), batch, view, maps=maps)
    q, k = (batch.split(x.detach()) for x in maps["heads"][:2])
    for Q, K, scores in zip(q, k, maps["scores"], strict=True):
        b = network.encoder.relative(len(Q)).detach().numpy()
        expected = [
            [[written.unscaled_score(x[h], y[h], b[h, i, j]) for j, y in enumerate(K.numpy())] for i, x in enumerate(Q)]
            for h in range(heads)
        ]
        np.testing.assert_allclose(scores.detach(), expected, atol=1e-12)


@given(st.integers(1, 5), st.integers(1, 4), seeds)
@settings(max_examples=15)
def test_tied_head(width, tokens, seed):
    torch.manual_seed(seed)
    h, batch = torch.randn(tokens, width, dtype=torch.float64), pack([range(tokens)])
    for tied in (True, False):
        network = network_of(width=width, tied=tied)
        start = network_of("normal", width=width, tied=tied).state_dict()["heads.seq2seq.out.weight"].numpy()
        E = network.head("seq2seq").out.weight.detach().numpy()
        np.testing.assert_allclose(E, written.first_tied_weight(start / 0.02, 0.02, width), rtol=1e-6)
        logits = network.head("seq2seq")(h, batch).detach()
        np.testing.assert_allclose(logits, [written.tied_logits(E, one) for one in h.numpy()], atol=1e-12)
    later = network_of(width=width, tied=False, output_scaled=False)
    E = later.head("seq2seq").out.weight.detach().numpy()
    np.testing.assert_allclose(E, start, rtol=1e-6)
    np.testing.assert_allclose(later.head("seq2seq")(h, batch).detach(), h.numpy() @ E.T, atol=1e-12)
