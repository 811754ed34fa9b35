"""The chapter on exact continuation: each formula as written gives the same bits as weft."""

import copy
import shutil
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.api.model import create
from weft.generate.next_token import uniforms
from weft.model.dropout import dropout_mask
from weft.objectives.causal import Causal
from weft.objectives.objective import HeadObjective
from weft.progress import quieted
from weft.splitmix64 import mix64
from weft.theory.written import exact_continuation as written
from weft.tokens import keyed_shuffle
from weft.tokens.keyed_shuffle import KeyedShuffle, shuffle_epochs
from weft.tokens.order import Order
from weft.train.batches import StepBatches, StepPiece
from weft.train.checkpoints import CHECKPOINTS
from weft.train.engine import Engine
from weft.train.loop import train
from weft.train.schedules import Schedule
from weft.train.spec import TrainSpec
from weft.train.step import Step

words = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=5)
seeds, epochs = st.integers(0, 2**32), st.integers(0, 9)
TOKENS = np.random.default_rng(0).integers(11, size=60)


@given(words)
def test_mixing(xs):
    expected = [written.mixed_bits(x) for x in xs]
    assert mix64(np.array(xs, np.uint64)).tolist() == expected


@given(words, st.lists(st.integers(0, 10**6), min_size=5, max_size=5))
def test_uniforms(keys, steps):
    found = uniforms(keys, steps[: len(keys)])
    assert found == [written.counted_uniform(k, t) for k, t in zip(keys, steps, strict=False)]
    assert all(0 <= u < 1 for u in found)


@contextmanager
def short_walks():
    """A walk that never ends fails instead."""
    steps, permute = count(), keyed_shuffle._permute

    def counted(*args):
        assert next(steps) < 1000
        return permute(*args)

    with patch.object(keyed_shuffle, "_permute", counted):
        yield


@given(st.integers(1, 4), seeds, epochs, st.data())
def test_feistel(half_bits, seed, epoch, data):
    size = 4**half_bits  # the whole domain: nothing falls outside
    x = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=4))
    expected = [written.feistel_permuted(one, written.epoch_keys(seed, epoch), half_bits) for one in x]
    with short_walks():
        assert KeyedShuffle(size, seed, epoch)[x].tolist() == expected


@given(st.one_of(st.integers(1, 40), st.sampled_from([1, 2, 3, 4, 5, 4**5, 4**5 + 1])), seeds, epochs, st.data())
def test_keyed_shuffle(size, seed, epoch, data):
    place = st.tuples(st.integers(0, size - 1), st.integers(epoch, epoch + 2))
    asked = data.draw(st.lists(place, min_size=1, max_size=6))
    asked += [(place, epoch) for place in range(min(size, 40))]
    with short_walks():
        found = shuffle_epochs(size, seed, np.array([e for _, e in asked]), np.array([i for i, _ in asked]))
    assert found.tolist() == [written.keyed_position(i, size, written.epoch_keys(seed, e)) for i, e in asked]
    if size <= 40:
        assert sorted(found[-size:]) == list(range(size))


@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 8), st.integers(1, 3), seeds)
def test_step_samples(size, samples, step, parts, seed):
    order = Order((size,), (1.0,), seed)
    expected = written.step_samples(step, samples, size, seed)
    found = order.batch(step, samples)
    assert [one.sample for one in found] == expected
    assert [one.epoch for one in found] == [number // size for number in range(step * samples, (step + 1) * samples)]
    for part in range(min(parts, samples)):
        assert order.batch(step, samples, part=part, parts=parts) == found[part::parts]
    mixed = Order((size, 3), (1.0, 1.0), seed)[range(12)]
    for source, its_size in enumerate((size, 3)):
        its = [one.sample for one in mixed if one.source == source]
        assert its == [written.numbered_sample(m, its_size, seed + source) for m in range(len(its))]


class SeedReader(HeadObjective):
    """Notes torch's seed whenever a loss is computed."""

    def __init__(self):
        object.__setattr__(self, "found", [])  # the class is frozen

    def loss(self, network, batch, totals):
        self.found.append(torch.initial_seed())
        return sum(weight.sum() for weight in network.parameters())


@settings(max_examples=4)
@given(seeds, st.integers(0, 10**6))
def test_step_seed(seed, step):
    reader = SeedReader()
    engine, pieces, _ = fresh_run(seed, reader)
    engine.take_step(pieces(step % 3), step)
    assert reader.found == [written.step_seed(seed, step)]
    engine.pieces = 2
    ((_, batches),) = pieces(0)
    engine.take_step([StepPiece(0, batches), StepPiece(1, batches)], step)
    assert reader.found[1] == reader.found[0] != reader.found[2]
    assert reader.found[2] == int(np.random.SeedSequence([seed, step, 1]).generate_state(1, np.uint64)[0]) // 2


@given(
    st.one_of(st.lists(st.integers(0, 4), min_size=1, max_size=2), st.sampled_from([[5], [3, 3], [17]])),
    st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.999]),
    seeds,
)
def test_dropout_bits(shape, p, seed):
    n = int(np.prod(shape))
    torch.manual_seed(seed)
    drawn = torch.empty(-(-n // 4), dtype=torch.int64).random_(-(2**63), None).tolist()
    after = torch.get_rng_state()
    # Each number has four times sixteen bits, the lowest first, in two's complement.
    c = [((drawn[i // 4] >> 16 * (i % 4)) + 2**15) % 2**16 for i in range(n)]
    torch.manual_seed(seed)
    found = dropout_mask(torch.Size(shape), p, torch.float64)
    np.testing.assert_array_equal(found, np.reshape(written.mask_from_bits(c, p), shape))
    assert torch.equal(torch.get_rng_state(), after)


def fresh_run(seed, objective=None, steps=4):
    """An engine on a new tiny network, what gives it its pieces, and the spec."""
    objective = objective or Causal(TOKENS, 5)
    network = create("gpt2", vocabulary=11, layers=1, width=4, heads=1, positions=5, dropout=0.3, seed=1).network
    schedule = Schedule(steps, "linear", warmup=2)
    spec = TrainSpec(steps, 3, schedule, seed=seed, checkpoint_every=1, keep=9, log_every=100)
    order = Order((len(TOKENS) // 5 - 1,), (1.0,), seed)
    batches = StepBatches([Causal(TOKENS, 5)], order, spec)
    return Engine(Step(network.double().train(), objective), spec.optimizer, seed=seed), batches, spec


def state_of(engine):
    """Weights and what the optimizer remembers."""
    optimizers = [copy.deepcopy(optimizer.state_dict()["state"]) for optimizer in engine.optimizers]
    return copy.deepcopy(engine.step.network.state_dict()), optimizers


def one_step(seed):
    """Step t from a state, in an engine that remembers nothing else."""

    def step(state, t):
        engine, pieces, spec = fresh_run(seed)
        weights, optimizers = copy.deepcopy(state)
        engine.step.network.load_state_dict(weights)
        for optimizer, saved in zip(engine.optimizers, optimizers, strict=True):
            optimizer.load_state_dict({**optimizer.state_dict(), "state": saved})
        torch.manual_seed(t)  # whatever was drawn before
        engine.take_step(pieces(t), t, spec.schedule(t))
        return state_of(engine)

    return step


@settings(max_examples=3)
@given(seeds, st.integers(1, 3))
def test_resume(seed, killed):
    T = 4
    expected, _ = written.continued(state_of(fresh_run(seed)[0]), one_step(seed), 0, T)
    with TemporaryDirectory() as folder:
        whole = trained(seed, Path(folder), resume=False)
        for step in range(killed + 1, T + 1):
            shutil.rmtree(Path(folder) / CHECKPOINTS / f"step-{step:06}")
        resumed = trained(seed, Path(folder), resume=True)
    for name, weight in expected.items():
        assert torch.equal(whole[name], weight), name
        assert torch.equal(resumed[name], weight), name


def trained(seed, folder, *, resume):
    engine, pieces, spec = fresh_run(seed)
    with quieted():
        train(engine.step.network, pieces.objectives, pieces.order, spec, folder, resume=resume)
    return engine.step.network.state_dict()
