"""The chapter on BERT: each formula as written gives what weft computes. Double precision, unequal lengths."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.model.embeddings import Embeddings, EmbeddingSpec
from weft.model.families.bert import Bert
from weft.model.network import count_parameters, create_network, outline
from weft.model.packed import pack
from weft.model.positions import Learned
from weft.objectives.masked import Masked, masked_batch
from weft.objectives.masked_pairs import MaskedPairs
from weft.objectives.masking import MaskSpec, Vocabulary, mask_tokens
from weft.objectives.objective import head_scores, sample_generator
from weft.objectives.sentence_pairs import SentencePairs
from weft.theory.written import bert as written
from weft.train.pending_checkpoint import list_checkpoints, remove_older

SIZE, MASK, CLS, SEP = 11, 0, 1, 2
SPECIAL = frozenset({MASK, CLS, SEP})
VOCABULARY = Vocabulary(SIZE, MASK, SPECIAL)
seeds = st.integers(0, 10**6)
texts = st.lists(st.integers(3, SIZE - 1), min_size=1, max_size=12)


class Dice:
    """A generator whose draws are eighths, so that borders are met, and are remembered."""

    def __init__(self, seed):
        self.rng, self.numbers, self.tokens, self.coins = np.random.default_rng(seed), [], [], []

    def random(self, size=None):
        self.numbers.append(self.rng.integers(8, size=size) / 8)
        return self.numbers[-1]

    def integers(self, low, high=None, size=None):
        if high is None:
            self.coins.append(low)
        self.tokens.append(self.rng.integers(low, high, size=size))
        return self.tokens[-1]

    def permutation(self, values):
        return self.rng.permutation(values)


@given(texts, st.sampled_from([0.25, 0.5]), st.sampled_from([(0.75, 0.125), (0.5, 0.25), (0.25, 0.5)]), seeds)
def test_masked_input(text, share, fates, seed):
    text, dice = np.array([CLS, *text, SEP]), Dice(seed)
    read, places = mask_tokens(text, MaskSpec(share, "token", *fates), VOCABULARY, dice)
    u = dict(zip(places.tolist(), dice.numbers[-1].tolist(), strict=True))
    swapped = [i for i in u if fates[0] <= u[i] < sum(fates)]
    r = dict(zip(swapped, dice.tokens[-1].tolist(), strict=True))
    assert read.tolist() == written.read_instead(text.tolist(), u, r, MASK, *fates)
    assert list(u) == sorted(u) and not SPECIAL & set(text[places].tolist())


def test_masked_input_draws_from_the_whole_vocabulary():
    drawn = [mask_tokens(np.full(40, 3), MaskSpec(0.5, "token", 0.0, 1.0), VOCABULARY, Dice(s))[0] for s in range(9)]
    assert set(np.concatenate(drawn).tolist()) == set(range(SIZE))


@given(texts, st.sampled_from([0.125, 0.25, 0.375]), seeds)
def test_mask_count(text, share, seed):
    dice = Dice(seed)
    _, places = mask_tokens(np.array([CLS, *text, SEP]), MaskSpec(share), VOCABULARY, dice)
    assert len(places) == min(written.mask_count(len(text), share, float(dice.numbers[0])), len(text))
    assert len(set(places.tolist())) == len(places)


@given(st.lists(texts, min_size=1, max_size=3), st.sampled_from([0.15, 0.3, 0.5, 0.7, 1.0]), st.integers(0, 9), seeds)
def test_cover(texts, share, first, seed):
    m = round(1 / share)
    texts, samples = [np.array([CLS, *text, SEP]) for text in texts], list(range(len(texts)))
    seen = [[] for _ in texts]
    for epoch in range(first * m, (first + 1) * m):
        batch = masked_batch(texts, samples, [epoch] * len(texts), seed, MaskSpec(share, "cover"), VOCABULARY)
        rows = set(batch.rows.tolist())
        for text, sample, start in zip(texts, samples, batch.packed.starts.tolist(), strict=False):
            pi = sample_generator(seed, first, sample).permutation(np.arange(1, len(text) - 1)).tolist()
            places = written.cover_masks(pi, m)[epoch % m]
            assert {row - start for row in rows if start <= row < start + len(text)} == places
            seen[sample] += places
    assert all(sorted(places) == list(range(1, len(text) - 1)) for places, text in zip(seen, texts, strict=True))


def tiny_bert(seed, **knobs):
    """With large random weights, so that its predictions differ."""
    family = Bert(
        vocabulary=SIZE, layers=1, width=4, heads=2, positions=16, dropout=0.0, attention_dropout=0.0, **knobs
    )
    network = create_network(family.architecture("masked+next-sentence"), seed).double()
    torch.manual_seed(seed)
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.7)
    return network


def from_both_sides(network, segments=None):
    def p(read, i):
        batch = pack([read], None if segments is None else [np.array(segments)])
        with torch.no_grad():
            return network.head("masked")(network(batch), batch)[i].softmax(-1).numpy()

    return p


@settings(max_examples=15)
@given(st.lists(st.integers(3, SIZE - 1), min_size=4, max_size=16), st.integers(4, 6), seeds)
def test_masked_loss(tape, length, seed):
    objective, network = Masked(np.array(tape), length, VOCABULARY, (CLS, SEP), MaskSpec(0.4)), tiny_bert(seed)
    samples = list(range(len(objective)))
    batch = objective.batch(samples, [3] * len(samples), seed)
    p, expected, count = from_both_sides(network), 0.0, 0
    for sample, start in zip(samples, batch.packed.starts.tolist(), strict=False):
        x = [CLS, *tape[sample * (length - 2) : (sample + 1) * (length - 2)], SEP]
        read = batch.packed.tokens[start : start + length].tolist()
        M = [row - start for row in batch.rows.tolist() if start <= row < start + length]
        expected += len(M) * written.masked_loss(p, x, read, M)
        count += len(M)
    assert batch.counts == {"masked": count} and batch.rows.tolist() == sorted(batch.rows.tolist())
    assert float(head_scores(network, batch)["loss/masked"]) == pytest.approx(expected, abs=1e-4)


@settings(max_examples=15)
@given(st.lists(st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=4), min_size=1, max_size=2), seeds)
def test_masked_head(sequences, seed):
    network, batch = tiny_bert(seed), pack(sequences)
    head, E = network.head("masked"), network.embed.tokens.weight.detach().numpy()
    W, b, g, beta, c = (
        x.detach().numpy()
        for x in (head.dense.weight, head.dense.bias, head.norm.weight, head.norm.bias, head.out.bias)
    )
    with torch.no_grad():
        hidden = network(batch)
        found = head(hidden, batch)
    for h, logits in zip(hidden.numpy(), found.numpy(), strict=True):
        expected = written.masked_logits(h, W, b, (g, beta, head.norm.eps), E, c)
        np.testing.assert_allclose(logits, expected, atol=1e-10)


class Tape(np.ndarray):
    """Tokens with the ends of sentences and documents, as token shards have them."""


def tape_of(documents, seed):
    """`documents`: the lengths of their sentences. A separator ends each document."""
    lengths = [[*sizes[:-1], sizes[-1] + 1] for sizes in documents]
    tape = np.random.default_rng(seed).integers(3, SIZE, sum(map(sum, lengths))).view(Tape)
    tape.sentences, tape.documents = np.cumsum(np.concatenate(lengths)), np.cumsum([sum(sizes) for sizes in lengths])
    tape[tape.documents - 1] = SEP
    return tape


documents = st.lists(st.lists(st.integers(1, 4), min_size=2, max_size=4), min_size=2, max_size=3)


@given(documents, st.sampled_from(["next", "order"]), seeds)
def test_next_sentence(documents, kind, seed):
    tape = tape_of(documents, seed)
    pairs = SentencePairs(tape, kind)
    for sample in range(len(pairs)):
        dice = Dice((seed, sample))
        pair = pairs.pair(sample, 40, dice)
        assert dice.coins[0] == 2  # the label is a fair coin
        A, B = pair.places
        assert pair.label == written.pair_label(A, B)
        owners = [int(np.searchsorted(tape.documents, place.start, side="right")) for place in (A, B)]
        assert (owners[0] != owners[1]) == (kind == "next" and pair.label == 1)
        assert kind == "next" or A.stop == B.start or B.stop == A.start
        if A.stop - A.start + B.stop - B.start < 4:
            continue
        assert SEP not in pair.first and SEP not in pair.second
        np.testing.assert_array_equal(pair.first, tape[A])


@settings(max_examples=20)
@given(documents, seeds)
def test_pair_input(documents, seed):
    tape = tape_of(documents, seed)
    pairs = SentencePairs(tape)
    objective = MaskedPairs(pairs, 30, VOCABULARY, (CLS, SEP), MaskSpec(0.3, "token", 0.0, 0.0))
    samples = list(range(len(objective)))
    batch = objective.batch(samples, [1] * len(samples), seed)
    labels = []
    for sample, found, segments in zip(
        samples, batch.packed.split(batch.packed.tokens), batch.packed.split(batch.packed.segments), strict=True
    ):
        pair = pairs.pair(sample, 27, sample_generator(seed + 1, 1, sample))
        x, g = written.pair_input(pair.first.tolist(), pair.second.tolist(), CLS, SEP)
        assert (found.tolist(), segments.tolist()) == (x, g)
        labels.append(pair.label)
    assert batch.answers["next-sentence"].values.tolist() == labels


@given(
    st.lists(st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=5), min_size=1, max_size=3),
    st.integers(0, 2),
    seeds,
)
def test_segment_vectors(sequences, offset, seed):
    """`offset`: RoBERTa's positions do not begin with the first row of the table."""
    torch.manual_seed(seed)
    embed = Embeddings(EmbeddingSpec(SIZE, 3, Learned(8, offset=offset), segments=2)).double()
    for table in embed.parameters():
        torch.nn.init.normal_(table)
    E, P, G = (t.weight.detach().numpy() for t in (embed.tokens, embed.positions, embed.segments))
    P, segments = P[offset:], [torch.randint(2, (len(x),)).numpy() for x in sequences]
    both, none = (embed(pack(sequences, given)).detach().numpy() for given in (segments, None))
    np.testing.assert_allclose(
        both,
        np.concatenate([written.input_vectors(E, P, G, x, g) for x, g in zip(sequences, segments, strict=True)]),
        atol=1e-12,
    )
    expected = np.concatenate([written.input_vectors(E, P, G, x, [0] * len(x)) for x in sequences])
    np.testing.assert_allclose(none, expected, atol=1e-12)


@settings(max_examples=12)
@given(documents, st.integers(1, 4), seeds)
def test_joint_loss(documents, count, seed):
    pairs, network = SentencePairs(tape_of(documents, seed)), tiny_bert(seed)
    objective = MaskedPairs(pairs, 15, VOCABULARY, (CLS, SEP), MaskSpec(0.3))
    samples = list(range(len(objective)))[:count]
    batch = objective.batch(samples, [0] * len(samples), seed)
    packed, rows, targets = batch.packed, batch.rows.tolist(), batch.targets.tolist()
    l_masked, l_pairs = [], []
    labels = batch.answers["next-sentence"].values.tolist()
    pieces, segments = packed.split(packed.tokens), packed.split(packed.segments)
    parts = zip(pieces, segments, packed.starts.tolist(), labels, strict=False)
    for read, g, start, y in parts:
        p = from_both_sides(network, g.tolist())
        M = {row - start: right for row, right in zip(rows, targets, strict=True) if 0 <= row - start < len(read)}
        l_masked += [-np.log(p(read.tolist(), i)[right]) for i, right in M.items()]
        one = pack([read.tolist()], [g.numpy()])
        z = network.head("next-sentence")(network(one), one).detach()[0].tolist()
        l_pairs.append(written.pair_loss(z, y))
    found = float(objective.loss(network, batch, batch.counts).detach())
    assert found == pytest.approx(written.joint_loss(l_masked, l_pairs), abs=1e-4)
    # A part of a step is divided by the counts of the whole step.
    totals = {kind: 3 * batch.counts[kind] for kind in ("next-sentence", "masked")}
    share = float(objective.loss(network, batch, totals).detach())
    assert share == pytest.approx(found / 3, abs=1e-4)


@settings(max_examples=15)
@given(st.integers(3, 40), st.integers(1, 9), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
def test_bert_size(vocabulary, positions, segments, layers, heads):
    family = Bert(
        vocabulary=vocabulary, positions=positions, segments=segments, layers=layers, width=4 * heads, heads=heads
    )
    counted = count_parameters(outline(family.architecture()))
    assert counted == written.bert_weights(vocabulary, positions, segments, 4 * heads, layers)
    headless = count_parameters(outline(family.architecture("none")))
    assert counted - headless == (4 * heads) ** 2 + 3 * 4 * heads + vocabulary
    block = family.architecture().encoder.blocks[0]
    assert (block.order, block.feedforward.inner, block.attention.head_width) == ("post", 16 * heads, 4)


@settings(max_examples=30)
@given(st.sets(st.integers(1, 9), min_size=1), st.integers(1, 4), st.integers(1, 9))
def test_checkpoints(saved, keep, best):
    step = max(saved)
    with tempfile.TemporaryDirectory() as place:
        for one in saved:
            (Path(place) / f"step-{one:06}").mkdir()
        remove_older(Path(place), step, keep, best)
        assert set(list_checkpoints(Path(place))) == written.kept_checkpoints(saved, step, keep, best)
