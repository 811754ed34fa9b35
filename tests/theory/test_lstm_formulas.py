"""The chapter on the LSTM: each formula as written gives what weft computes. Double precision, unequal lengths."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.generate.recurrent_rows import RecurrentRows
from weft.model.families import design
from weft.model.initialize import draw_uniform
from weft.model.network import count_parameters, create_network
from weft.model.packed import pack
from weft.model.recurrent import RecurrentPast
from weft.theory.written import lstm as written

lengths = st.lists(st.integers(1, 5), min_size=1, max_size=4)
layer_counts, widths, seeds = st.integers(1, 2), st.integers(1, 4), st.integers(0, 2**31)


def network_of(layers, width, seed=0, **knobs):
    _, architecture = design("lstm", **{"vocabulary": 7, "layers": layers, "width": width} | knobs)
    return create_network(architecture, seed).double().eval()


def weights_of(network):
    """(W, U, b) of each layer; torch has two biases, which are added."""
    found = {name: weight.detach().numpy() for name, weight in network.recurrent.lstm.named_parameters()}
    layers = range(network.architecture.layers)
    return [
        (found[f"weight_ih_l{n}"], found[f"weight_hh_l{n}"], found[f"bias_ih_l{n}"] + found[f"bias_hh_l{n}"])
        for n in layers
    ]


def state_of(seed, *shape):
    torch.manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64)


@given(st.integers(1, 3), st.integers(1, 6), seeds)
@torch.no_grad()
def test_gates(rows, width, seed):
    """One step from any state. The gates are seen through the new state: c = σ(f) c + σ(i) tanh(g)."""
    network = network_of(1, width, seed)
    ((W, U, b),) = weights_of(network)
    (cell,) = RecurrentRows(network).cells
    x, h, c = state_of(seed, 3, rows, width)
    new_h, new_c = cell(x, h, c)
    for row in range(rows):
        i, f, g, o = np.split(written.gate_inputs(W, U, b, x[row].numpy(), h[row].numpy()), 4)
        expected = written.logistic(f) * c[row].numpy() + written.logistic(i) * np.tanh(g)
        np.testing.assert_allclose(new_c[row], expected, atol=1e-12)
        np.testing.assert_allclose(new_h[row], written.logistic(o) * np.tanh(expected), atol=1e-12)


@given(st.integers(1, 3), widths, seeds)
@torch.no_grad()
def test_cell(rows, width, seed):
    network = network_of(1, width, seed)
    ((W, U, b),) = weights_of(network)
    (cell,) = RecurrentRows(network).cells
    x, h, c = state_of(seed, 3, rows, width)
    new_h, new_c = cell(x, h, c)
    for row in range(rows):
        z = written.gate_inputs(W, U, b, x[row].numpy(), h[row].numpy())
        expected = written.next_memory(z, c[row].numpy())
        np.testing.assert_allclose(new_c[row], expected, atol=1e-12)
        np.testing.assert_allclose(new_h[row], written.next_output(z, expected), atol=1e-12)


@given(st.integers(1, 6), widths, seeds)
def test_lstm_memory(steps, width, seed):
    """If the gates do not read the last output, the memory's slope is the product of the forget gates."""
    network = network_of(1, width, seed)
    torch.nn.init.zeros_(network.recurrent.lstm.weight_hh_l0)
    ((W, U, b),) = weights_of(network)
    (cell,) = RecurrentRows(network).cells
    x = state_of(seed, steps, 1, width)
    start = state_of(seed + 1, 1, width).requires_grad_()
    h, c = torch.zeros(1, width, dtype=torch.float64), start
    for one in x:
        h, c = cell(one, h, c)
    c.sum().backward()
    F = [np.split(written.gate_inputs(W, U, b, one[0].numpy(), np.zeros(width)), 4)[1] for one in x]
    np.testing.assert_allclose(start.grad[0], written.memory_slope(F), atol=1e-12)
    memory = start.detach().numpy()[0]
    for one in x:
        memory = written.next_memory(written.gate_inputs(W, U, b, one[0].numpy(), np.zeros(width)), memory)
    np.testing.assert_allclose(c.detach()[0], memory, atol=1e-12)


@given(lengths, layer_counts, widths, seeds, st.data())
@settings(max_examples=30)
@torch.no_grad()
def test_recurrence(lengths, layers, width, seed, data):
    """Read in two pieces, as a prompt and what follows, in slots in any order."""
    network, rows = network_of(layers, width, seed), None
    more = [data.draw(st.integers(1, 3)) for _ in lengths]
    slots = data.draw(st.permutations(range(len(lengths))))
    first, second = (state_of(seed + n, sum(counts), width) for n, counts in enumerate((lengths, more)))
    rows = RecurrentRows(network)
    for slot in slots:
        rows.open_row(slot)
    found = [rows.read(first, slots, lengths).split(lengths), rows.read(second, slots, more).split(more)]
    texts = zip(first.split(lengths), second.split(more), *found, strict=True)
    for x, x_later, h, h_later in texts:
        expected = written.lstm_stack(weights_of(network), torch.cat([x, x_later]).numpy())
        np.testing.assert_allclose(torch.cat([h, h_later]), expected, atol=1e-12)


@given(lengths, st.booleans(), layer_counts, widths, seeds)
@settings(max_examples=30)
@torch.no_grad()
def test_by_position(lengths, equal, layers, width, seed):
    lengths = [lengths[0]] * len(lengths) if equal else lengths
    network = network_of(layers, width, seed)
    read = []
    network.recurrent.lstm.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    past, whole = RecurrentPast(), []
    for piece in range(2):
        flat, batch = state_of(seed + piece, sum(lengths), width), pack([range(n) for n in lengths])
        whole.append(zip(batch.split(flat), batch.split(network.recurrent(flat, batch, past)), strict=True))
    for (x, h), (x_later, h_later) in zip(*whole, strict=True):
        expected = written.lstm_stack(weights_of(network), torch.cat([x, x_later]).numpy())
        np.testing.assert_allclose(torch.cat([h, h_later]), expected, atol=1e-12)
    if len(set(lengths)) > 1:
        assert read[1].batch_sizes.tolist() == [written.still_reading(lengths, t) for t in range(max(lengths))]
        expected = [batch.split(flat)[s][t].tolist() for t, s in written.reading_order(lengths)]
        assert read[1].data.tolist() == expected
    elif len(lengths) > 1:
        assert isinstance(read[0], torch.Tensor) and read[0].shape == (len(lengths), lengths[0], width)


@given(layer_counts, widths, st.integers(0, 99))
@settings(max_examples=15)
def test_lstm_start(layers, width, seed):
    network = network_of(layers, width, seed)
    for name, weight in network.named_parameters():
        if name.startswith("recurrent"):
            u = draw_uniform(seed, name, weight.shape).numpy()
            np.testing.assert_allclose(weight.detach(), written.first_cell_weight(u, width), atol=1e-6)


@given(layer_counts, widths, st.integers(1, 9), seeds)
@settings(max_examples=15)
@torch.no_grad()
def test_lstm_size(layers, width, vocabulary, seed):
    network = network_of(layers, width, seed, vocabulary=vocabulary)
    N = written.lstm_parameters(layers, width, vocabulary)
    assert count_parameters(network) == N
    assert (
        count_parameters(network_of(layers, width, seed, vocabulary=vocabulary, tied=False)) == N + vocabulary * width
    )
    x = state_of(seed, 6, width)
    h = network.recurrent(x, pack([range(3)] * 2))
    for one, found in zip(x.split(3), h.split(3), strict=True):
        np.testing.assert_allclose(found, written.lstm_stack(weights_of(network), one.numpy()), atol=1e-12)


@given(layer_counts, widths, seeds)
@settings(max_examples=15)
@torch.no_grad()
def test_lstm_state(layers, width, seed):
    rows = RecurrentRows(network_of(layers, width, seed))
    for slot in range(8):
        rows.open_row(slot)
    assert rows.state.shape == (2, layers, 8, width) and not rows.state.any()
    rows.open_row(8)  # there is room for eight; now for sixteen
    assert rows.state.shape == (2, layers, 16, width) and not rows.state.any()
    rows.read(state_of(seed, 3, width), [8], [3])
    kept = rows.state[:, :, 8].clone()
    assert kept.numel() == written.lstm_state(layers, width) and kept.all()
    rows.copy(8, 5)
    np.testing.assert_array_equal(rows.state[:, :, 5], kept)
    np.testing.assert_array_equal(rows.state[:, :, 8], kept)
    rows.open_row(8)
    assert not rows.state[:, :, 8].any() and not rows.state[:, :, 9:].any() and rows.state[:, :, 5].all()
