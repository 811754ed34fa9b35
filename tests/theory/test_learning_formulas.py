"""The chapter on learning: each formula as written gives what weft computes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.model.heads import Head, HeadSpec
from weft.model.loss import vocabulary_loss
from weft.model.packed import pack
from weft.objectives.answers import ClassAnswers
from weft.objectives.causal import Causal
from weft.objectives.objective import Batch, scaled_loss
from weft.theory.written import learning as written
from weft.train.engine import Engine
from weft.train.exact_update import ExactAdamW, clip_gradients
from weft.train.loop import patience_rule
from weft.train.optimizers import OptimizerSpec, make_optimizers, orthogonal, set_rate
from weft.train.schedules import Schedule
from weft.train.state import TrainState
from weft.train.step import Step

seeds = st.integers(0, 2**31)
smoothings = st.sampled_from([0.0, 0.1, 0.4])


def losses_and_gradients(rows, vocabulary, smoothing, scale, seed):
    """The summed loss of random logits, their gradients, and what they were."""
    torch.manual_seed(seed)
    head = Head(HeadSpec("causal", vocabulary, bias="none"), vocabulary).double()
    head.out.weight.data = torch.eye(vocabulary, dtype=torch.float64)  # so that the input is the logits
    size = 3 if seed % 2 else 60  # fp32 overflows above e^88, unless the maximum is subtracted first
    logits = (size * torch.randn(rows, vocabulary, dtype=torch.float32)).double().requires_grad_()
    targets = torch.randint(vocabulary, (rows,))
    loss = vocabulary_loss(head, logits, targets, scale=scale, smoothing=smoothing)
    loss.backward()
    return loss.item(), logits.grad.numpy(), logits.detach().tolist(), targets.tolist()


@given(st.integers(1, 5), st.integers(2, 8), seeds)
def test_cross_entropy(rows, vocabulary, seed):
    loss, _, logits, targets = losses_and_gradients(rows, vocabulary, 0.0, 1.0, seed)
    expected = sum(written.cross_entropy(z, y) for z, y in zip(logits, targets, strict=True))
    assert loss == pytest.approx(expected, rel=1e-5, abs=1e-5)
    smoothed, _, logits, targets = losses_and_gradients(rows, vocabulary, 0.3, 1.0, seed)
    expected = sum(written.smoothed_cross_entropy(z, y, 0.3) for z, y in zip(logits, targets, strict=True))
    assert smoothed == pytest.approx(expected, rel=1e-5, abs=1e-5)


@given(st.integers(1, 5), st.integers(2, 8), smoothings, seeds)
def test_label_smoothing(rows, vocabulary, smoothing, seed):
    loss, _, logits, targets = losses_and_gradients(rows, vocabulary, smoothing, 1.0, seed)
    expected = sum(written.smoothed_cross_entropy(z, y, smoothing) for z, y in zip(logits, targets, strict=True))
    assert loss == pytest.approx(expected, rel=1e-5, abs=1e-5)


@given(st.integers(1, 5), st.integers(2, 8), smoothings, st.floats(0.1, 2), seeds)
def test_loss_gradient(rows, vocabulary, smoothing, scale, seed):
    _, gradients, logits, targets = losses_and_gradients(rows, vocabulary, smoothing, scale, seed)
    for found, z, y in zip(gradients, logits, targets, strict=True):
        np.testing.assert_allclose(found, scale * np.array(written.loss_gradient(z, y, smoothing)), atol=1e-5)


@given(st.integers(1, 4), st.integers(1, 4), st.floats(0.001, 0.5), st.floats(0, 0.9), st.floats(0, 0.9), seeds)
def test_adamw(size, steps, rate, beta1, beta2, seed):
    generator = np.random.default_rng(seed)
    w, *gradients = generator.normal(size=(steps + 1, size))
    weight = torch.nn.Parameter(torch.tensor(w))
    groups = [{"params": [weight], "weight_decay": 0.3}]
    optimizer = ExactAdamW(groups, lr=rate, betas=(beta1, beta2), eps=1e-2)
    for gradient in gradients:
        weight.grad = torch.tensor(gradient)
        optimizer.step()
    expected = written.adamw(w, gradients, rate, beta1, beta2, 1e-2, 0.3)
    np.testing.assert_allclose(weight.detach(), expected, rtol=1e-6, atol=1e-9)


def tiny_network(width=2, vocabulary=3, layers=1):
    model = weft.create("gpt2", vocabulary=vocabulary, layers=layers, width=width, heads=1, positions=16)
    return model.network.double()


@given(st.integers(1, 3), st.integers(1, 3), st.floats(0.01, 0.5), st.floats(0, 0.5), seeds)
def test_muon(width, steps, rate, decay, seed):
    """Queries, keys and values are three maps in one matrix; the feed-forward layer has a tall map and a wide one."""
    network = tiny_network(width)
    spec = OptimizerSpec("muon", matrix_rate=rate, weight_decay=decay)
    optimizers = make_optimizers(network, spec, torch.float64)
    generator = np.random.default_rng(seed)
    block = "decoder.blocks.0."
    names = {
        "attention.qkv.weight": 3,
        "attention.out.weight": 1,
        "feedforward.up.weight": 1,
        "feedforward.down.weight": 1,
    }
    weights = {name: network.get_parameter(block + name) for name in names}
    gradients = {name: generator.normal(size=(steps, *weight.shape)) for name, weight in weights.items()}
    before = {name: weight.detach().numpy().copy() for name, weight in weights.items()}
    for step in range(steps):
        for name, weight in weights.items():
            weight.grad = torch.tensor(gradients[name][step])
        set_rate(optimizers, 1.0, 10_000)  # a late step: the momentum is 0.95
        optimizers[0].step()
    for name, count in names.items():
        maps = np.split(before[name], count), *([np.split(one, count) for one in gradients[name]])
        expected = [written.muon(W, each, rate, 0.95, decay) for W, *each in zip(*maps, strict=True)]
        np.testing.assert_allclose(weights[name].detach(), np.concatenate(expected), rtol=1e-5, atol=1e-5)
    two, four = generator.normal(size=(2, 3)), generator.normal(size=(2, 2, 3, 2))
    np.testing.assert_allclose(orthogonal(torch.tensor(two)), written.newton_schulz(two), atol=1e-5)
    found = orthogonal(torch.tensor(four))[1, 0]
    np.testing.assert_allclose(found, 1.5**0.5 * written.newton_schulz(four[1, 0]), atol=1e-5)


@given(
    st.sampled_from(["cosine", "linear", "wsd"]),
    st.integers(1, 12),
    st.integers(0, 6),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_schedule(kind, steps, warmup, decay, floor):
    schedule = Schedule(steps, kind, warmup, decay, floor)
    begin = max(warmup, steps - round(steps * decay)) if kind == "wsd" else warmup
    for t in range(steps):
        if t < warmup:
            expected = written.warm_up(t, warmup)
        elif t < begin:
            expected = 1.0
        else:
            fall = written.cosine_decay if kind == "cosine" else written.linear_decay
            expected = fall(t, begin, steps, floor)
        assert schedule(t) == pytest.approx(expected)
    assert schedule(max(steps, warmup) + 1) == pytest.approx(floor)
    assert schedule.decay_begins == begin


@given(st.floats(0.1, 20), st.sampled_from([1, 2]), seeds)
def test_clipping(limit, pieces, seed):
    """In one piece by torch, in several by weft's own function."""
    network = tiny_network()
    engine = Engine(Step(network, Causal(np.arange(3), 2)), OptimizerSpec("adamw"), clip=limit, pieces=pieces)
    engine.optimizers = []  # the gradients stay as they are
    torch.manual_seed(seed)
    for weight in engine.weights:
        weight.grad = torch.randn_like(weight)
    gradients = [weight.grad for weight in engine.weights]
    whole = torch.cat([one.flatten() for one in gradients])
    norm = whole.norm()
    engine.clip = 0  # no limit
    engine._update(gradients, norm, float(norm), 0, 1.0)
    np.testing.assert_array_equal(torch.cat([one.flatten() for one in gradients]), whole)
    engine.clip = limit
    engine._update(gradients, norm, float(norm), 0, 1.0)
    expected = written.clipped(whole.numpy(), limit)
    np.testing.assert_allclose(torch.cat([one.flatten() for one in gradients]), expected, rtol=1e-4)
    again = [torch.tensor(expected)]
    clip_gradients(again, limit, float(again[0].norm()))
    np.testing.assert_allclose(again[0], expected, rtol=1e-4)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), smoothings, seeds)
def test_accumulation(sizes, smoothing, seed):
    """Pieces with unequally many targets, as tokens of the language head and as labels of another head."""
    model = weft.create("gpt2", vocabulary=9, layers=1, width=8, heads=2, positions=16, seed=seed % 1000)
    model.network.double()
    torch.manual_seed(seed)
    pieces = []
    for size in sizes:
        packed = pack([torch.randint(9, (size + 2,)).numpy()])
        rows, labelled = torch.arange(size), torch.arange(size + 1)
        answers = {"labels": ClassAnswers("causal", torch.randint(9, (size + 1,)), labelled)}
        pieces.append(Batch(packed, torch.randint(9, (size,)), rows, answers=answers))
    totals = {"causal": sum(sizes), "labels": sum(sizes) + len(sizes)}
    reversed_totals = dict(reversed(totals.items()))
    found, again = (
        sum(scaled_loss(model.network, piece, order, smoothing).item() for piece in pieces)
        for order in (totals, reversed_totals)
    )
    each = {"causal": [], "labels": []}
    for piece in pieces:
        with torch.no_grad():
            z = model.network.head("causal")(model.network(piece.packed), piece.packed).tolist()
        for kind, targets in (("causal", piece.targets), ("labels", piece.answers["labels"].values)):
            losses = [written.smoothed_cross_entropy(z[i], y, smoothing) for i, y in enumerate(targets.tolist())]
            each[kind].append(losses)
    assert [found, again] == pytest.approx([sum(map(written.accumulated_loss, each.values()))] * 2, rel=1e-5)


@given(st.lists(st.sampled_from([1.0, 1.5, 2.0, 2.5, 3.0]), min_size=1, max_size=8), st.integers(1, 4))
def test_early_stopping(losses, patience):
    for best_by in (None, "accuracy"):
        state, rule, stopped = TrainState(), patience_rule(patience), None
        for number, loss in enumerate(losses, 1):
            state.step = number
            state.judge({"validation_loss": loss, "accuracy": -loss}, best_by)
            if rule({}, state) is not None and stopped is None:
                stopped = number
        assert stopped == written.stops_after(losses, patience)
        assert state.best == losses.index(min(losses)) + 1
        assert (state.best_cost, state.best_loss) == (min(losses), min(losses))
    tied = TrainState()  # with equal accuracy the lower loss is better
    for loss in losses:
        tied.judge({"validation_loss": loss, "accuracy": 0.5}, "accuracy")
    assert (tied.best_cost, tied.best_loss) == (-0.5, min(losses))
