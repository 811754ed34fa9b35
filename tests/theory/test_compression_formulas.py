"""The chapter on compression: each formula as written gives what weft computes. Single precision where weft uses it."""

from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import weft
from weft.compress.prune.compensate import LeastSquares
from weft.compress.prune.depth import block_influence
from weft.compress.prune.fisher import fisher_scores
from weft.compress.prune.sparse import zero_weights
from weft.compress.quantize import gptq
from weft.compress.quantize.rounding import limits, round_to_nearest, round_with, search_scales
from weft.model.keep import Keep
from weft.model.packed import pack
from weft.model.quantized import QuantizedLinear, quantize_rows, quantize_weight, weight_bytes
from weft.objectives.answers import ClassAnswers
from weft.objectives.distil_losses import hidden_distance, soft_kl
from weft.objectives.distil_projections import add_projections, in_teacher_width
from weft.objectives.distil_tasks import PredictionDistillation, uniform_mapping
from weft.objectives.distil_vocabulary import vocabulary_kl
from weft.objectives.objective import Batch
from weft.progress import quieted
from weft.theory.written import compression as written

lengths = st.lists(st.integers(1, 5), min_size=1, max_size=3)
seeds = st.integers(0, 2**31)
temperatures = st.floats(0.5, 4)
bits_and_groups = st.sampled_from([(8, 4), (8, 6), (4, 2), (4, 4)])


def normal(*shape, seed=None):
    if seed is not None:
        torch.manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64)


@given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 2), temperatures, seeds)
def test_soft_targets(rows, classes, missing, T, seed):
    u, z = normal(2, rows, classes, seed=seed)
    none = torch.full((rows, missing), -torch.inf, dtype=torch.float64)  # classes that neither of them has
    expected = sum(written.teacher_divergence(a, b, T) for a, b in zip(u.tolist(), z.tolist(), strict=True))
    found = soft_kl(torch.cat([z, none], dim=1)[None], torch.cat([u, none], dim=1)[None], T)
    assert found.item() == pytest.approx(expected, abs=1e-12)


def vocabulary_head(width, classes):
    head = SimpleNamespace(out=nn.Linear(width, classes).double())
    nn.init.normal_(head.out.bias)
    return head


@given(st.integers(1, 3), st.integers(2, 5), temperatures, st.floats(0.1, 3), st.booleans(), seeds)
def test_soft_gradient(rows, classes, T, soft, with_labels, seed):
    torch.manual_seed(seed)
    ours, theirs = vocabulary_head(4, classes), vocabulary_head(3, classes)
    x, y = normal(rows, 4).requires_grad_(), normal(rows, 3)
    targets, hard = torch.randint(classes, (rows,)), 0.7 * with_labels
    loss = vocabulary_kl(ours, x, theirs, y, targets, temperature=T, soft=soft, hard=hard)
    loss.backward()
    z, u = ours.out(x).detach(), theirs.out(y).detach()
    expected, slope = 0.0, np.zeros((rows, classes))
    for n in range(rows):
        expected += soft * written.teacher_divergence(u[n].tolist(), z[n].tolist(), T)
        slope[n] += soft * np.array(written.divergence_gradient(u[n].tolist(), z[n].tolist(), T))
        q = written.warm_softmax(z[n].tolist(), 1)
        expected -= hard * np.log(q[targets[n]])
        slope[n] += hard * (np.array(q) - np.eye(classes)[targets[n]])
    assert loss.item() == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(ours.out.bias.grad, slope.sum(0), atol=1e-12)
    np.testing.assert_allclose(x.grad, slope @ ours.out.weight.detach().numpy(), atol=1e-12)
    only_labels = vocabulary_kl(ours, x, theirs, y, targets, temperature=T, soft=0.0, hard=hard)
    assert only_labels.item() == pytest.approx(hard * nn.functional.cross_entropy(z, targets, reduction="sum").item())


class Sequences:
    """A network that gives back its table, with one head that reads the first token of each sequence."""

    def __init__(self, width, classes):
        self.table, self.out = normal(9, width), normal(width, classes)

    def __call__(self, packed):
        return self.table[packed.tokens]

    def head(self, name):
        return lambda hidden, packed, rows: hidden[packed.starts[:-1]] @ self.out


@given(st.integers(1, 3), st.integers(2, 4), temperatures, st.sampled_from([0.0, 0.3, 1.0]), st.integers(1, 2), seeds)
def test_label_share(rows, classes, T, share, kinds, seed):
    torch.manual_seed(seed)
    student, teacher = Sequences(3, classes), Sequences(3, classes)
    packed = pack([torch.randint(9, (n + 1,)).numpy() for n in range(rows)])
    labels = {str(kind): torch.randint(classes, (rows,)) for kind in range(kinds)}
    answers = {kind: ClassAnswers(kind, y) for kind, y in labels.items()}
    batch = Batch(packed, answers=answers, counts=dict.fromkeys(labels, rows))
    U, Z = (network.head("")(network(packed), packed, None) for network in (teacher, student))
    objective = PredictionDistillation(None, lambda _: {f"logits.{kind}": U.float() for kind in labels}, T, share)
    expected = sum(written.taught_loss(U.numpy(), Z.numpy(), y.tolist(), T, share) for y in labels.values())
    assert objective.loss(student, batch, batch.counts).item() == pytest.approx(expected, rel=1e-4, abs=1e-5)
    nothing = objective.loss(student, batch, dict.fromkeys(labels, 0))  # a step without labels of this kind
    assert nothing.item() == pytest.approx(expected * rows, rel=1e-4, abs=1e-5)
    twice = objective.loss(student, batch, dict.fromkeys(labels, 2 * rows))
    assert twice.item() == pytest.approx(expected / 2, rel=1e-4, abs=1e-5)


@given(st.integers(1, 6), st.integers(1, 12), lengths, st.integers(1, 3), st.integers(1, 4), seeds)
def test_layer_match(M, N, lengths, narrow, wide, seed):
    assert uniform_mapping(M, N) == tuple(written.matched_layer(m, M, N) for m in range(1, M + 1))
    assert uniform_mapping(3, 6) == (2, 4, 6)
    torch.manual_seed(seed)
    batch = pack([range(length) for length in lengths])
    student, teacher = normal(sum(lengths), narrow), normal(sum(lengths), wide)
    network = nn.Linear(narrow, narrow)  # stands for a network of this width
    network.width, P = narrow, np.eye(narrow)
    add_projections(network, ["hidden", "embedding"], wide, None)
    if narrow != wide:
        network.double()
        nn.init.normal_(network.projections["hidden"])
        P = network.projections["hidden"].detach().numpy()
    found = hidden_distance(in_teacher_width(network, "hidden", student), teacher, batch)
    pairs = zip(batch.split(student), batch.split(teacher), strict=True)
    expected = sum(written.hidden_gap(S.numpy(), P, H.numpy()) for S, H in pairs)
    assert found.item() == pytest.approx(expected, rel=1e-6)  # weft takes 1 / length in single precision


def small_decoder(seed, layers=1):
    network = weft.create("gpt2", vocabulary=7, layers=layers, width=4, heads=2, positions=8, seed=seed).network
    torch.manual_seed(seed)
    for parameter in network.double().parameters():
        nn.init.normal_(parameter)
    return network.eval()


def batch_of_tokens(lengths):
    tokens = [torch.randint(7, (length,)).numpy() for length in lengths]
    return Batch(pack(tokens), torch.randint(7, (sum(lengths),)), counts={"causal": sum(lengths)})


@settings(max_examples=10)
@given(st.lists(lengths, min_size=1, max_size=2), seeds)
def test_mask_information(batches, seed):
    network = small_decoder(seed)
    batches = [batch_of_tokens(one) for one in batches]
    with quieted():
        found = fisher_scores(network, batches)
    block, X, G = network.decoder.blocks[0], {}, {}
    matrices = {
        "decoder.blocks.0.attention": block.attention.out,
        "decoder.blocks.0.feedforward": block.feedforward.down,
    }
    read = {}
    for name, matrix in matrices.items():
        matrix.register_forward_pre_hook(lambda _, given, name=name: read.update({name: given[0]}))
    for batch in batches:
        for tokens, targets in zip(
            batch.packed.split(batch.packed.tokens), batch.packed.split(batch.targets), strict=True
        ):
            alone = pack([tokens.numpy()])
            logits = network.head("causal")(network(alone), alone, None)
            loss = nn.functional.cross_entropy(logits, targets, reduction="sum")
            for name, gradient in zip(read, torch.autograd.grad(loss, list(read.values())), strict=True):
                X.setdefault(name, []).append(read[name].detach().numpy())
                G.setdefault(name, []).append(gradient.numpy())
    for name, units in (("decoder.blocks.0.attention", 2), ("decoder.blocks.0.feedforward", 16)):
        parts = [[np.split(one, units, axis=1) for one in side[name]] for side in (X, G)]
        expected = [written.mask_information(*([one[h] for one in side] for side in parts)) for h in range(units)]
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-6)  # the loss is in single precision


@settings(max_examples=10)
@given(st.lists(lengths, min_size=1, max_size=3), seeds)
def test_block_influence(batches, seed):
    network = small_decoder(seed, layers=2)
    batches = [batch_of_tokens(one) for one in batches]
    found = block_influence(network, batches)
    for layer in range(2):
        expected = []
        for batch in batches:
            hidden = network(batch.packed, keep=Keep(hidden=(0, 1, 2)))[1].hidden
            expected.append(written.layer_influence(*(hidden[k].detach().numpy() for k in (layer, layer + 1))))
        assert found["decoder", layer] == pytest.approx(np.mean(expected), abs=1e-9)


class TwoLayers(nn.Module):
    """Stands for a network: two matrices inside a layer."""

    def __init__(self, width, inner):
        super().__init__()
        self.stack = nn.Module()
        self.stack.blocks = nn.ModuleList([nn.Linear(width, inner), nn.Linear(inner, width)])

    def forward(self, x, _):
        for block in self.stack.blocks:
            x = block(x)
        return x


@given(st.integers(1, 5), st.integers(1, 4), lengths, st.floats(0.05, 0.95), seeds)
def test_zeroed_weights(width, inner, lengths, keep, seed):
    torch.manual_seed(seed)
    network = TwoLayers(width, inner).double()
    batches = [SimpleNamespace(packed=normal(length, width), decoder=None) for length in lengths]
    x, before = torch.cat([one.packed for one in batches]), [block.weight.clone() for block in network.stack.blocks]
    read = [x, network.stack.blocks[0](x)]
    with quieted():
        zeros = zero_weights(network, batches, keep)
    expected = [
        written.without_small_weights(W.detach().numpy(), X.detach().numpy(), keep)
        for W, X in zip(before, read, strict=True)
    ]
    for block, W in zip(network.stack.blocks, expected, strict=True):
        np.testing.assert_allclose(block.weight.detach(), W)
    assert zeros == sum(int((W == 0).sum()) for W in expected)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 3), st.booleans(), st.floats(1e-3, 1), seeds)
def test_compensation(rows, inputs, outputs, bias, ridge, seed):
    torch.manual_seed(seed)
    X, Y, W_0 = normal(2 * rows, inputs), normal(2 * rows, outputs), normal(inputs + bias, outputs)
    sums = LeastSquares.empty(inputs, outputs, bias=bias)
    for part in (slice(0, rows), slice(rows, None)):
        sums.add(X[part], Y[part])
    X = np.hstack([X, np.ones((len(X), 1))]) if bias else X.numpy()
    mu = np.full(inputs + bias, ridge * np.mean(np.diag(X.T @ X)))
    mu[inputs:] = 0  # the bias is free
    expected = written.refitted(X, Y.numpy(), W_0.numpy(), mu)
    np.testing.assert_allclose(sums.solve(W_0, ridge), expected, atol=1e-8)
    nothing = LeastSquares.empty(inputs, outputs, bias=bias)
    np.testing.assert_array_equal(nothing.solve(W_0, ridge), W_0)


def candidate_scales(w, bits):
    """Of a group: r · max|w| / c; with 4 bits in bfloat16."""
    shares = torch.linspace(0.8 if bits == 8 else 0.6, 1.0, 21).tolist()
    scales = [torch.tensor(share * w.abs().max().item() / (127 if bits == 8 else 7)) for share in shares]
    return [float(scale.bfloat16() if bits == 4 else scale) for scale in scales]


@given(bits_and_groups, st.integers(1, 3), st.integers(1, 3), st.booleans(), seeds)
def test_integer_weights(kind, rows, count, with_moments, seed):
    torch.manual_seed(seed)
    (bits, group), low, high = kind, *((-127, 127) if kind[0] == 8 else (-8, 7))
    W = torch.randn(rows, group * count)
    W[0, :group] = 0
    W[-1, -1] = -3.0  # far from the others
    moments = torch.rand(group * count) if with_moments else None
    m = (torch.ones(group * count) if moments is None else moments + moments.mean() * 1e-3).double().numpy()
    found, size = round_to_nearest(W, bits, moments=moments, group=group), group if bits == 4 else group * count
    assert limits(bits) == (low, high) and found.group == size
    for row in range(rows):
        for g in range(group * count // size):
            part = slice(g * size, (g + 1) * size)
            w, s = W[row, part].double().numpy(), found.scales[row, g].item()
            scales = candidate_scales(W[row, part], bits)
            best = written.least_error_scale(w, m[part], scales, low, high)
            errors = [written.rounding_error(w, m[part], one, low, high) for one in (s, best)]
            assert errors[0] == pytest.approx(errors[1], rel=1e-3, abs=1e-9)
            assert min(abs(s - one) for one in scales) <= 1e-6 * s
            assert found.values[row, part].tolist() == [written.to_integer(x, s, low, high) for x in w]
            same = torch.zeros(1) if s == 0 else torch.tensor([s])
            assert torch.equal(round_with(W[row, part], same, bits), found.values[row, part].float())
    np.testing.assert_array_equal(search_scales(W, bits, moments=moments, group=group), found.scales)


@given(bits_and_groups, st.integers(1, 3), st.integers(1, 3), st.booleans(), seeds)
def test_integer_product(kind, outputs, tokens, with_bias, seed):
    torch.manual_seed(seed)
    bits, group = kind
    W, x = torch.randn(outputs, 2 * group), torch.randn(tokens, 2 * group)
    x[0] = 0
    weight = quantize_weight(W) if bits == 8 else round_to_nearest(W, 4, group=group)
    b = torch.randn(outputs)
    found = QuantizedLinear(weight, b if with_bias else None)(x[None])[0]
    expected = [
        [
            written.integer_product(one, v, s, float(b[o]) if with_bias else 0.0)
            for o, (v, s) in enumerate(zip(weight.values.tolist(), weight.scales.tolist(), strict=True))
        ]
        for one in x.double().numpy()
    ]
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-4, atol=1e-5)
    q, scale = quantize_rows(torch.tensor([[1e-35, 0.0]]))  # the smallest numbers that do not count as 0
    assert q.tolist() == [[127, 0]] and scale.item() == pytest.approx(1e-35 / 127)


@given(bits_and_groups, st.integers(1, 3), st.integers(1, 4), seeds)
def test_error_feedback(kind, outputs, block, seed):
    torch.manual_seed(seed)
    bits, group = kind
    W, X = normal(outputs, 2 * group), normal(9, 2 * group)
    H = X.T @ X
    with patch.object(gptq, "_BLOCK", block):
        found = gptq.round_gptq(W, H, bits, group=group)
    order = H.diagonal().argsort(descending=True, stable=True)
    damped = (H + 0.01 * H.diagonal().mean() * torch.eye(len(H))).numpy()[np.ix_(order, order)]
    U = np.linalg.cholesky(np.linalg.inv(damped)).T
    scales = found.scales.repeat_interleave(found.group, dim=1)
    for w, v, s in zip(W[:, order], found.values[:, order], scales[:, order], strict=True):
        assert v.tolist() == written.rounded_with_feedback(w.tolist(), U, s.tolist(), *limits(bits))


@given(bits_and_groups, st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_stored_bytes(kind, rows, count, tied):
    bits, group = kind
    columns = group * count
    weight = round_to_nearest(torch.randn(rows, columns), bits, group=group)
    network = nn.ModuleDict({"a": QuantizedLinear(weight, None), "b": nn.Linear(2, 1).double()})
    if tied:
        network["c"] = QuantizedLinear(weight, None)  # counts once
    expected = written.bytes_of_matrix(rows, columns, bits, columns if bits == 8 else group)
    assert weight_bytes(network) == expected + 3 * 8
