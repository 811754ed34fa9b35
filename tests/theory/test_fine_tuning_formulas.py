"""The chapter on fine-tuning: each formula as written gives what weft computes."""

import math
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

import weft
from weft.metrics.baselines.frozen import FrozenClassifier
from weft.metrics.entities import entities_in, entity_counts, entity_figures, entity_figures_from_counts
from weft.model.heads import DenseSpec, Head, HeadSpec
from weft.model.network import create_network
from weft.model.packed import pack
from weft.objectives.answers import ClassAnswers, SpanAnswers
from weft.objectives.objective import Batch, scaled_loss
from weft.tasks.answer import Answer, SpanTargets
from weft.tasks.classify import Classify
from weft.tasks.crf import Crf, allowed_transitions, viterbi
from weft.tasks.example import Example, Input
from weft.tasks.intent import Intent, IntentTargets
from weft.tasks.labelled.hold_out import hold_out
from weft.tasks.labels import balance
from weft.tasks.learning.build import from_folder
from weft.tasks.learning.lora import LORA_SCALE, Adapted
from weft.tasks.rewrite import Summarize, TextTargets
from weft.tasks.tag import WordTargets
from weft.theory.written import fine_tuning as written
from weft.train.budget import read_budget, steps_of

seeds = st.integers(0, 2**31)
KINDS = ("O", "B-A", "I-A", "B-B", "I-B")


def with_head(head):
    """A network of which only the head is needed."""
    return SimpleNamespace(head=lambda kind: head)


def tiny(family, **more):
    return weft.create(family, vocabulary=7, layers=1, width=4, heads=1, positions=12, **more)


@given(st.sampled_from(["masked", "next-sentence", "sequence"]), st.integers(2, 3), st.integers(0, 9))
@settings(max_examples=2)
@example("next-sentence", 2, 0)
@example("sequence", 3, 0)
@example("masked", 3, 0)
def test_start(head, labels, seed):
    before = tiny("bert", head=head, seed=seed + 1)
    with tempfile.TemporaryDirectory() as folder:
        before.save(folder)
        built = from_folder(Path(folder), Classify(tuple("abc"[:labels])), None, seed)
    known = {name.replace(f"heads.{head}.", "heads.sequence."): x for name, x in before.network.state_dict().items()}
    if head == "masked":  # its dense layer has another name in other programs
        known = {name: x for name, x in known.items() if not name.startswith("heads.")}
    if head == "next-sentence":
        known = {name: x for name, x in known.items() if ".sequence.out." not in name}
    fresh = create_network(built.network.architecture, seed).state_dict()
    expected = written.start_from(known, fresh)
    found = built.network.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@given(st.integers(1, 4), st.integers(1, 3), st.lists(st.integers(1, 3), min_size=1, max_size=3), seeds)
def test_head(width, outputs, lengths, seed):
    torch.manual_seed(seed)
    batch = pack([range(length) for length in lengths])
    H = torch.randn(sum(lengths), width, dtype=torch.float64)
    firsts = np.cumsum([0, *lengths[:-1]])
    for dense in (DenseSpec("tanh"), None):
        head = Head(HeadSpec("sequence", outputs, "first", dense), width).double()
        found = head(H, batch).detach().numpy()
        D, a = (x.detach().numpy() for x in ((head.dense.weight, head.dense.bias) if dense else torch.zeros(2, 1)))
        D, a, f = (D, a, math.tanh) if dense else (np.eye(width), np.zeros(width), float)
        W, b = head.out.weight.detach().numpy(), head.out.bias.detach().numpy()
        expected = [written.head_scores_of(H[row].numpy(), W, b, D, a, f) for row in firsts]
        np.testing.assert_allclose(found, expected, atol=1e-12)
    bare = Head(HeadSpec("pooler", 0, "first", DenseSpec("tanh")), width).double()
    assert bare(H, batch).shape == (len(lengths), width)
    by_another_way = Head(HeadSpec("sequence", outputs, "first"), width).double()
    by_another_way.fast = lambda linear, x: torch.full((len(x), outputs), 2.0)
    assert (by_another_way(H, batch) == 2).all()


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(2, 4), st.booleans(), seeds)
def test_classification(lengths, labels, weighted, seed):
    torch.manual_seed(seed)
    batch = pack([range(length) for length in lengths])
    head = Head(HeadSpec("sequence", labels, "first"), 3)
    network, hidden = with_head(head), torch.randn(sum(lengths), 3)
    y = torch.randint(labels, (len(lengths),))
    w = torch.rand(labels) + 0.5 if weighted else None
    z = head(hidden, batch).detach().double().numpy()
    loss = float(ClassAnswers("sequence", y, weights=w).loss(network, hidden, batch, 0.0).detach())
    expected = written.class_loss(z, y.tolist(), [1.0] * labels if w is None else w.tolist())
    assert loss == pytest.approx(len(y) * expected, rel=1e-5, abs=1e-5)
    with torch.no_grad():
        found = Classify(tuple("abcd"[:labels])).pieces(network, hidden, batch, [])
    assert all(isinstance(shares, np.ndarray) for shares in found)
    np.testing.assert_allclose(found, [written.class_shares(row) for row in z], atol=1e-6)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12))
def test_balance(y):
    found = balance(Counter(y), "abc")
    for c, weight in zip("abc", found, strict=True):
        assert weight == pytest.approx(written.class_weight(c, y, 3) if c in y else len(y) / 3)


@given(st.integers(2, 3), st.integers(1, 3), seeds)
@settings(max_examples=4)
def test_maximum_entropy(labels, width, seed):
    generator = np.random.default_rng(seed)
    y = np.array([*range(labels), *generator.integers(labels, size=12)])
    x = 3 * generator.normal(size=(len(y), width)) + 2 + y[:, None]
    x = np.concatenate([x, np.ones((len(y), 1))], 1)  # and a feature that never changes
    model = FrozenClassifier.fit([x], y.tolist(), labels + 1, np.zeros(len(y)))  # one group: no selection
    found = model.probabilities([x])
    f = (x - x.mean(0)) / (x.std(0) + 1e-6)
    lam, b = model.model.coef_, model.model.intercept_
    if labels == 2:  # scikit-learn keeps the difference of the two
        lam, b = np.concatenate([-lam / 2, lam / 2]), np.concatenate([-b / 2, b / 2])
    np.testing.assert_allclose(found[:, :labels], [written.maximum_entropy(row, lam, b) for row in f], atol=1e-9)
    assert (found[:, labels:] == 0).all()
    gap = (np.eye(labels)[y] - found[:, :labels]).T @ f  # observed minus expected features: held back by λ / C
    np.testing.assert_allclose(gap, (2 if labels == 2 else 1) * lam / model.model.C, atol=2e-2)
    unseen = model.probabilities([2 * x])
    np.testing.assert_allclose(
        unseen[:, :labels],
        [written.maximum_entropy((row - x.mean(0)) / (x.std(0) + 1e-6), lam, b) for row in 2 * x],
        atol=1e-9,
    )
    assert model.probabilities([x[:0]]).shape == (0, labels + 1)


@given(st.integers(2, 40), st.integers(0, 9), st.floats(0.5, 3), st.integers(1, 40))
@settings(max_examples=4)
@example(5, 0, 3.0, 4)
@example(21_000, 0, 3.0, 32)
def test_held_out_share(count, seed, passes, batch):
    texts = Classify(("a", "b"))
    examples = [Example(f"number{i}", "ab"[i % 2]) for i in range(count)]
    found = hold_out(texts, examples, seed, "here")
    assert len(found.held) == written.held_out(count)
    assert sorted(found.held + found.kept) == list(range(count))
    twice = [Example(f"number{i // 2}", "a") for i in range(20)]  # each text stands there twice
    held = hold_out(texts, twice, seed, "here").held
    assert held and {i // 2 for i in held}.isdisjoint({i // 2 for i in set(range(20)) - set(held)})
    budget = read_budget(f"{passes:.3f} epochs")
    found_steps = steps_of(budget, batch_tokens=10, samples=batch, epoch_samples=count)
    assert found_steps == written.steps_in(budget.amount - 1e-9 * batch / count, count, batch)
    assert steps_of(read_budget("3 epochs"), batch_tokens=1, samples=3, epoch_samples=47) == 47  # 3 / (3/47) is 47.00…1
    assert steps_of(read_budget("70 tokens"), batch_tokens=10, samples=batch, epoch_samples=count) == 7
    assert steps_of(read_budget("7 steps"), batch_tokens=10, samples=batch, epoch_samples=count) == 7


def random_crf(labels, seed):
    torch.manual_seed(seed)
    crf = Crf(labels).double()
    for parameter in crf.parameters():
        nn.init.normal_(parameter)
    T = (crf.transitions + crf.bar).detach().numpy()
    return crf, T, (crf.start + crf.bar_start).detach().numpy(), crf.end.detach().numpy()


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.sampled_from([KINDS[:3], ("X", "Y")]), seeds)
def test_crf(lengths, labels, seed):
    crf, T, s, e = random_crf(labels, seed)
    z = torch.randn(len(lengths), max(lengths), len(labels), dtype=torch.float64)
    y = torch.randint(len(labels), z.shape[:2])
    found = crf.loss(z, y, torch.tensor(lengths))
    expected = sum(written.crf_loss(z[i, :n].numpy(), y[i, :n].tolist(), T, s, e) for i, n in enumerate(lengths))
    assert float(found) == pytest.approx(expected, rel=1e-12, abs=1e-9)  # about 10,000 per forbidden step


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(2, 3), seeds)
def test_forward(lengths, labels, seed):
    crf, T, s, e = random_crf(KINDS[:labels], seed)  # with O, B-A and I-A some steps are forbidden
    z = torch.randn(len(lengths), max(lengths), labels, dtype=torch.float64)
    y = torch.zeros(z.shape[:2], dtype=torch.long)
    for i, n in enumerate(lengths):
        own = z[i, :n].numpy()
        found = float(crf.loss(z[i : i + 1], y[i : i + 1], torch.tensor([n])))
        total = written.forward_sum(own, T, s, e)
        assert found + written.tagging_score(own, [0] * n, T, s, e) == pytest.approx(total)
        every = [written.tagging_score(own, one, T, s, e) for one in written.all_taggings(n, labels)]
        assert total == pytest.approx(math.log(sum(map(math.exp, every))))
    together = float(crf.loss(z, y, torch.tensor(lengths)))
    alone = [float(crf.loss(z[i : i + 1, :n], y[i : i + 1, :n], torch.tensor([n]))) for i, n in enumerate(lengths)]
    assert together == pytest.approx(sum(alone))


@given(st.integers(1, 4), st.sampled_from([KINDS, ("X", "Y", "Z")]), seeds)
def test_viterbi(length, labels, seed):
    crf, T, s, e = random_crf(labels, seed)
    z = torch.randn(length, len(labels), dtype=torch.float64)
    if length > 3 and len(labels) > 3:
        z = z[:3]
    best = written.best_tagging(z.numpy(), T, s, e)
    assert viterbi(z.numpy(), T, s, e) == list(best) == crf.best(z)


@given(st.permutations(KINDS))
def test_well_formed(labels):
    allowed, begins = allowed_transitions(labels)
    expected = [[written.may_follow(a, b) for b in labels] for a in labels]
    np.testing.assert_array_equal(allowed, expected)
    np.testing.assert_array_equal(begins, [written.may_follow("O", b) for b in labels])


tag_rows = st.lists(st.sampled_from(KINDS), max_size=6)


@given(st.lists(st.tuples(tag_rows, tag_rows), min_size=1, max_size=3), st.booleans())
@settings(max_examples=60)
def test_entity_f1(pairs, copied):
    gold = [tuple(a) for a, _ in pairs]
    predicted = [tuple(reversed(a)) if copied else (*b, *"O" * len(a))[: len(a)] for a, b in pairs]
    for tags in (*gold, *predicted):
        assert {tuple(span) for span in entities_in(tags)} == written.spans_of(tags)
    G, P = ([written.spans_of(tags) for tags in side] for side in (gold, predicted))
    figures = entity_figures(gold, predicted)
    hits, said, true = (sum(map(len, side)) for side in ([g & p for g, p in zip(G, P, strict=True)], P, G))
    assert figures["f1"] == pytest.approx(written.entity_f1(G, P))
    assert figures["precision"] == pytest.approx(hits / max(said, 1))
    assert figures["recall"] == pytest.approx(hits / max(true, 1))
    kinds = sorted({span[2] for side in (*G, *P) for span in side})
    of_each = [[[{s for s in one if s[2] == kind} for one in side] for side in (G, P)] for kind in kinds]
    mean = sum(written.entity_f1(*sides) for sides in of_each) / max(len(kinds), 1)
    assert figures["f1_macro"] == pytest.approx(mean)
    assert entity_counts(gold, predicted)[0] == kinds
    counts = entity_counts(gold, predicted)[1].sum(0)
    assert counts.tolist() == [
        [sum(len(p & g) for g, p in zip(*both, strict=True)), sum(len(p - g) for g, p in zip(*both, strict=True)),
         sum(len(g - p) for g, p in zip(*both, strict=True))] for both in of_each
    ]  # fmt: skip
    # As the bootstrap does it: a stack, in which a type may have no entities left.
    without = counts * (np.arange(len(kinds)) > 0)[:, None]
    stack = entity_figures_from_counts(np.stack([counts, without])[:, None])
    rest = sum(written.entity_f1(*both) for both in of_each[1:]) / max(len(kinds) - 1, 1)
    np.testing.assert_allclose(stack["f1_macro"], [[mean], [rest]])
    # The schemes that also mark the last word, and entities of one word.
    found = entities_in(("S-A", "B-A", "E-A", "O", "B-B", "I-B", "E-B", "E-A"))
    assert found == [(0, 1, "A"), (1, 3, "A"), (4, 7, "B"), (7, 8, "A")]


@given(st.lists(st.integers(2, 5), min_size=1, max_size=3), seeds)
@settings(max_examples=30)
def test_span(lengths, seed):
    torch.manual_seed(seed)
    batch = pack([range(length) for length in lengths])
    head = Head(HeadSpec("span", 2), 3)
    hidden = torch.randn(sum(lengths), 3)
    z = [rows.detach().double().numpy() for rows in batch.split(head(hidden, batch))]
    gold = torch.stack([torch.randint(length, (2,)) for length in lengths])
    loss = float(SpanAnswers("span", gold).loss(with_head(head), hidden, batch, 0.0))
    assert loss == pytest.approx(
        sum(written.span_loss(*one) for one in zip(z, *gold.T.tolist(), strict=True)), rel=1e-5
    )
    for n in (lengths[0], 34):  # longer than the longest answer
        scores = np.random.default_rng(seed).normal(size=(n, 2))
        offsets = np.stack([np.arange(n), np.arange(n) + 1], 1)
        if n == 34:
            scores[0, 0] = scores[-1, 1] = 9  # the two best tokens are too far apart
        (best, *_) = Answer().join(
            Example(("?", "abcdefgh" * 5), None), [(Input(0, offsets, None, SpanTargets(offsets, (0, 0))), scores)]
        )
        i, j = written.best_span(scores, 30)
        assert (best.start, best.end, best.score) == (i, j + 1, pytest.approx(scores[i, 0] + scores[j, 1]))


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3), seeds)
@settings(max_examples=10)
def test_written_text(sizes, seed):
    generator = np.random.default_rng(seed)
    pairs = [tuple(generator.integers(7, size=size, dtype=np.int32) for size in pair) for pair in sizes]
    network = tiny("gpt2", seed=seed % 100).network.double()
    inputs = [
        Input(i, np.array([*x, *y[:-1]], np.int32), None, TextTargets(y, None, len(x)))
        for i, (x, y) in enumerate(pairs)
    ]
    batch = Summarize(head="causal").batch(inputs, pack([one.ids for one in inputs]))
    total = sum(len(y) for _, y in pairs)
    assert batch.counts == {"causal": total} and batch.targets.dtype == torch.int64
    found = float(scaled_loss(network, batch, batch.counts))

    def p(tokens):
        with torch.no_grad():
            packed = pack([tokens])
            return network.head("causal")(network(packed), packed)[-1].softmax(-1).numpy()

    expected = sum(len(y) * written.written_loss(p, x.tolist(), y.tolist()) for x, y in pairs) / total
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)
    source = [Input(i, x, None, TextTargets(y, np.array([0, *y[:-1]]))) for i, (x, y) in enumerate(pairs)]
    batch = Summarize(head="seq2seq").batch(source, pack([one.ids for one in source]))
    assert batch.rows is None and batch.counts == {"seq2seq": total}
    assert batch.targets.tolist() == [token for _, y in pairs for token in y]
    assert batch.decoder.tokens.tolist() == [token for _, y in pairs for token in (0, *y[:-1])]


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), min_size=1, max_size=3), st.integers(0, 1), seeds)
@settings(max_examples=10)
def test_command(slots, row, seed):
    generator = np.random.default_rng(seed)
    task = Intent(("O", "B-A", "I-A", "intent:x", "intent:y"))
    network = tiny("bert", head="token", labels=5, seed=seed % 100).network.double()
    nn.init.normal_(network.head("token").out.weight)
    wanted = generator.integers(2, size=len(slots)).tolist()
    inputs = []
    for i, (y, a) in enumerate(zip(slots, wanted, strict=True)):
        rows = 1 + np.arange(len(y))  # the intent is told by the token before them, or by the one after
        words = WordTargets(range(len(y)), rows, np.arange(len(y)), np.array(y))
        ids = generator.integers(7, size=len(y) + 2)
        inputs.append(Input(i, ids, None, IntentTargets(words, row * (len(ids) - 1), a)))
    packed = pack([one.ids for one in inputs])
    batch = task.batch(inputs, packed)
    assert batch.counts == {"slots": sum(map(len, slots)), "intent": len(slots)}
    with torch.no_grad():
        found = float(scaled_loss(network, batch, batch.counts))
        z = [rows.numpy() for rows in packed.split(network.head("token")(network(packed), packed))]
    expected = written.command_loss(
        [rows[-row, 3:] for rows in z],
        wanted,
        [rows[1 : 1 + len(y), :3] for rows, y in zip(z, slots, strict=True)],
        slots,
    )
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)
    half = {name: 2 * count for name, count in batch.counts.items()}  # a piece of a step of twice the size
    with torch.no_grad():
        assert float(scaled_loss(network, batch, half)) == pytest.approx(expected / 2, rel=1e-5, abs=1e-5)
        assert float(scaled_loss(network, Batch(packed), {})) == 0
        one = [rows[-row, 3:] for rows in z]
        alone = len(wanted) * written.class_loss(one, wanted, [1, 1])
        assert float(scaled_loss(network, batch, {"intent": 0})) == pytest.approx(
            alone, rel=1e-5, abs=1e-5
        )  # not divided by 0


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 2), seeds)
def test_adapters(width, outputs, rank, seed):
    torch.manual_seed(seed)
    linear = nn.Linear(width, outputs).double()
    layer = Adapted(linear, rank, torch.Generator().manual_seed(seed)).double()
    x = torch.randn(3, width, dtype=torch.float64)
    np.testing.assert_allclose(layer(x).detach(), linear(x).detach())  # B begins with zeros
    nn.init.normal_(layer.up)
    W, b, A, B = (part.detach().numpy() for part in (linear.weight, linear.bias, layer.down, layer.up))
    expected = [written.adapted(row, W, b, A, B, LORA_SCALE) for row in x.numpy()]
    np.testing.assert_allclose(layer(x).detach(), expected, atol=1e-12)
    np.testing.assert_allclose(x @ layer.merged().detach().T + b, expected, atol=1e-12)
