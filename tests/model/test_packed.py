"""A flat batch computes what its sequences compute alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode

import weft
from weft.model.packed import group_by_tokens, order_by_length, pack

SHAPE = {"vocabulary": 50, "layers": 3, "width": 16, "heads": 2}
MODELS = {
    "bert": weft.create("bert", **SHAPE, seed=1),
    "roberta": weft.create("roberta", **SHAPE, seed=1),
    "distilbert": weft.create("distilbert", **SHAPE, seed=1),
    "gpt2": weft.create("gpt2", **SHAPE, seed=1),
    "llama": weft.create("llama", **SHAPE, seed=1, key_value_heads=1),
    "qwen3": weft.create("qwen3", **SHAPE, seed=1),
    "modernbert": weft.create("modernbert", **SHAPE, seed=1, window=4),
    "lstm": weft.create("lstm", vocabulary=50, layers=2, width=16, seed=1),
    "relative gpt2": weft.create("gpt2", **SHAPE, seed=1, positions="relative"),
    "sinusoidal bert": weft.create("bert", **SHAPE, seed=1, positions="sinusoidal"),
}
PAIRED = {
    "t5": weft.create("t5", **SHAPE, seed=1, head_width=4, buckets=8, distance=10),
    "transformer": weft.create("transformer", **SHAPE, seed=1),
}
CAUSAL = ["gpt2", "llama", "qwen3", "lstm", "relative gpt2"]
texts = st.lists(st.lists(st.integers(0, 49), min_size=1, max_size=20), min_size=1, max_size=6)


@pytest.mark.parametrize("name", MODELS)
@given(sequences=texts)
def test_packed_equals_one_by_one(name, sequences):
    model = MODELS[name]
    together = model.logits(sequences)
    for sequence, logits in zip(sequences, together, strict=True):
        np.testing.assert_allclose(logits, model.logits([sequence])[0], atol=1e-5)


@pytest.mark.parametrize("name", PAIRED)
@given(sources=texts, data=st.data())
def test_packed_pairs_equal_one_by_one(name, sources, data):
    targets = data.draw(st.lists(texts.map(lambda rows: rows[0]), min_size=len(sources), max_size=len(sources)))
    together = PAIRED[name].logits(sources, targets)
    for source, target, logits in zip(sources, targets, together, strict=True):
        np.testing.assert_allclose(logits, PAIRED[name].logits([source], [target])[0], atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
@given(sequences=texts.filter(lambda rows: len(rows) > 1), data=st.data())
def test_a_change_in_one_sequence_changes_no_other(name, sequences, data):
    changed = data.draw(st.integers(0, len(sequences) - 1))
    place = data.draw(st.integers(0, len(sequences[changed]) - 1))
    others = [list(row) for row in sequences]
    others[changed][place] = (others[changed][place] + 1) % 50
    # The order of the batch does not change, so neither does a single bit.
    before, after = MODELS[name].hidden(sequences), MODELS[name].hidden(others)
    for index, (a, b) in enumerate(zip(before, after, strict=True)):
        assert np.array_equal(a, b) == (index != changed)


@pytest.mark.parametrize("name", CAUSAL)
@given(sequences=texts, data=st.data())
def test_causal_models_never_look_ahead(name, sequences, data):
    sequence = sequences[0]
    place = data.draw(st.integers(0, len(sequence) - 1))
    other = [*sequence[:place], (sequence[place] + 1) % 50, *sequence[place + 1 :]]
    before, after = MODELS[name].hidden([sequence])[0], MODELS[name].hidden([other])[0]
    np.testing.assert_array_equal(before[:place], after[:place])
    assert not np.array_equal(before[place:], after[place:])


@pytest.mark.parametrize("name", PAIRED)
def test_decoders_never_look_ahead_but_see_the_whole_source(name):
    model, source, target = PAIRED[name], [5, 6, 7, 8], [1, 2, 3, 4]
    before = model.hidden([source], [target])[0]
    after = model.hidden([source], [[1, 2, 9, 4]])[0]
    np.testing.assert_array_equal(before[:2], after[:2])
    assert not np.array_equal(before[2], after[2])
    assert not np.allclose(before[0], model.hidden([[5, 6, 7, 9]], [target])[0][0])


def test_a_gradient_through_a_packed_batch_is_the_sum_of_the_sequences_gradients():
    network = MODELS["bert"].network
    sequences = [[1, 2, 3], [4, 5, 6], [7, 8], [9] * 15]

    def gradient(rows):
        network.zero_grad()
        batch = pack(rows)
        network.heads["masked"](network(batch), batch).square().sum().backward()
        return [parameter.grad.clone() for parameter in network.parameters()]

    together = gradient(sequences)
    apart = [sum(parts) for parts in zip(*(gradient([row]) for row in sequences), strict=True)]
    for a, b in zip(together, apart, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_positions_starts_and_runs_describe_the_batch():
    batch = pack([[7, 8], [9, 9], [5], [6, 6, 6]], [[0, 1], [0, 0], [0], [1, 1, 1]])
    assert batch.positions.tolist() == [0, 1, 0, 1, 0, 0, 1, 2]
    assert batch.starts.tolist() == [0, 2, 4, 5, 8]
    assert batch.runs == ((2, 2), (1, 1), (1, 3))
    assert batch.first.tolist() == [0, 2, 4, 5]
    assert batch.last.tolist() == [1, 3, 4, 7]
    assert batch.segments.tolist() == [0, 1, 0, 0, 0, 1, 1, 1]


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 60))
def test_batches_hold_every_sequence_once_and_respect_the_token_limit(lengths, most):
    parts = group_by_tokens(lengths, most)
    assert [index for part in parts for index in part] == list(range(len(lengths)))
    assert all(len(part) == 1 or sum(lengths[i] for i in part) <= most for part in parts)
    order = order_by_length([[0] * length for length in lengths])
    assert sorted(order) == list(range(len(lengths)))


def test_results_come_in_the_order_given_however_they_are_batched(monkeypatch):
    monkeypatch.setattr("weft.api.arrays._MOST_BATCH_TOKENS", 7)
    sequences = [[1] * 5, [2], [3] * 9, [4, 4]]
    for sequence, hidden in zip(sequences, MODELS["bert"].hidden(sequences), strict=True):
        np.testing.assert_allclose(hidden, MODELS["bert"].hidden([sequence])[0], atol=1e-5)


def test_a_batch_on_a_gpu_has_its_offsets_once_as_the_kernel_takes_them():
    batch = pack([[1, 2, 3], [4, 5], []])
    assert batch.longest == 3
    assert batch.cuda_starts is batch.starts  # not on a CPU
    with FakeTensorMode(), torch.device("cuda"):
        moved = replace(batch, starts=torch.empty(4, dtype=torch.int64))
        assert moved.cuda_starts.dtype == torch.int32
    assert pack([]).longest == 0
