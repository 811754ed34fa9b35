import math

import pytest
import torch

import weft
from weft.model import fused_attention
from weft.model.attention import View, attend, visibility_mask
from weft.model.packed import pack

pytestmark = pytest.mark.usefixtures("two_threads")


def by_hand(q, k, v, allowed, scale):
    """softmax(QKᵀ · scale)V, query by query."""
    out = torch.zeros_like(q)
    for head in range(q.shape[1]):
        kv = head * k.shape[1] // q.shape[1]
        for i in range(len(q)):
            keys = [j for j in range(len(k)) if allowed(i, j)]
            weights = torch.softmax(torch.stack([q[i, head] @ k[j, kv] for j in keys]) * scale, 0)
            out[i, head] = sum(w * v[j, kv] for w, j in zip(weights, keys, strict=True))
    return out


@pytest.mark.parametrize("lengths", [(4, 4, 4), (3, 7, 7, 1), (12,)])
@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, None), (False, 2), (True, 2)])
@pytest.mark.parametrize("dropout", [0.0, 1e-12])  # the second runs the code with dropout but drops nothing
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_attend_is_the_formula(lengths, causal, window, dropout, kv_heads):
    torch.manual_seed(0)
    batch = pack([[0] * length for length in lengths])
    total = sum(lengths)
    q, k, v = torch.randn(total, 4, 6), torch.randn(total, kv_heads, 6), torch.randn(total, kv_heads, 6)
    owner = [index for index, length in enumerate(lengths) for _ in range(length)]

    def allowed(i, j):
        near = window is None or abs(i - j) <= window
        return owner[i] == owner[j] and near and (not causal or j <= i)

    ours = attend(q, k, v, batch, batch, View(causal, window), scaled=True, dropout=dropout)
    torch.testing.assert_close(ours, by_hand(q, k, v, allowed, 1 / math.sqrt(6)), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("window", [0, 1, 3, 64])
@pytest.mark.parametrize("length", [1, 2, 5, 130])
def test_a_local_mask_reaches_exactly_the_window(window, length):
    mask = visibility_mask(length, window, causal=False)
    for i in range(length):
        assert mask[i].nonzero().flatten().tolist() == list(range(max(0, i - window), min(length, i + window + 1)))


def test_modernbert_sees_through_its_local_layers_exactly_as_far_as_they_reach():
    """One local layer of window 2 × 3: a change at 20 moves positions 17 to 23 and no other."""
    model = weft.create("modernbert", vocabulary=40, layers=1, width=16, heads=2, window=6, local_layers=(0,), seed=2)
    before = [3] * 40
    after = [*before[:20], 9, *before[21:]]
    a, b = model.hidden([before])[0], model.hidden([after])[0]
    moved = [place for place in range(40) if not (a[place] == b[place]).all()]
    assert moved == list(range(17, 24))


def test_modernbert_alternates_one_global_and_two_local_layers():
    network = weft.create("modernbert", vocabulary=40, layers=7, width=16, heads=2).network
    assert network.architecture.encoder.local.layers == (1, 2, 4, 5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("width", [8, 16])  # by the formula, and by the kernel
def test_dropout_in_attention_keeps_the_mean(causal, width):
    torch.manual_seed(0)
    batch, view = pack([[0] * 32] * 8), View(causal)
    q, k, v = (torch.randn(256, 2, width) for _ in range(3))
    plain = attend(q, k, v, batch, batch, view, scaled=True, dropout=0.0)
    noisy = torch.stack([attend(q, k, v, batch, batch, view, scaled=True, dropout=0.3) for _ in range(300)])
    assert (noisy[0] - plain).abs().max() > 0.01
    torch.testing.assert_close(noisy.mean(0), plain, atol=0.3, rtol=0)


needs_kernels = pytest.mark.skipif(fused_attention.load_attention_kernels() is None, reason="no C compiler")


def batches_of(*lengths):
    return [pack([[0] * length for length in side]) for side in lengths]


@needs_kernels
@pytest.mark.parametrize("lengths", [((70, 33, 16, 1, 17, 129), None), ((5, 40, 1), (30, 2, 50))])
@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, None), (False, 5), (True, 5)])
@pytest.mark.parametrize(("heads", "kv_heads", "width"), [(4, 4, 32), (4, 2, 64), (2, 1, 16), (3, 3, 48)])
def test_the_kernel_and_its_gradient_are_the_formula(lengths, causal, window, heads, kv_heads, width):
    if lengths[1] is not None and (causal or window):
        pytest.skip("cross-attention has no order")
    queries, keys = batches_of(lengths[0], lengths[1] or lengths[0])
    keys = queries if lengths[1] is None else keys
    chance, view = torch.Generator().manual_seed(0), View(causal, window)

    def numbers(batch, heads):
        return torch.randn(len(batch.tokens), heads + 1, width, generator=chance, requires_grad=True)

    leaves = [numbers(queries, heads), numbers(keys, kv_heads), numbers(keys, kv_heads)]
    wanted = torch.randn(len(queries.tokens), heads, width, generator=chance)

    def both(dtype):
        q, k, v = (leaf[:, 1:].to(dtype) for leaf in leaves)  # strided, as in a joint projection
        attended = attend(q, k, v, queries, keys, view, scaled=True, dropout=0.0)
        return [attended, *torch.autograd.grad(attended, leaves, wanted.to(dtype))]

    for ours, formula in zip(both(torch.float32), both(torch.float64), strict=True):
        torch.testing.assert_close(ours.double(), formula.double(), atol=2e-5, rtol=1e-5)


@needs_kernels
@pytest.mark.parametrize("causal", [False, True])
def test_the_kernel_uses_one_dropout_mask_forward_and_backward(causal):
    """With the identity matrix as values, the output is the weights: it shows the dropout mask."""
    torch.manual_seed(0)
    (batch,) = batches_of([32, 20])
    q, k, v = (torch.randn(52, 3, 32, requires_grad=True) for _ in range(3))
    identity = torch.cat([torch.eye(32), torch.eye(20, 32)])[:, None].expand(-1, 3, -1)

    def attended(values, dropout):
        torch.manual_seed(7)
        return attend(q, k, values, batch, batch, View(causal), scaled=True, dropout=dropout)

    plain, dropped = attended(identity, 0.0).detach(), attended(identity, 0.3).detach()
    kept = torch.where(plain > 0, dropped / plain, 0)
    assert set(kept[plain > 1e-6].mul(0.7).round(decimals=4).tolist()) == {0.0, 1.0}
    assert 0.25 < (kept[plain > 0] == 0).float().mean() < 0.35
    for one in range(2):  # each head and each sequence has a mask of its own
        assert not torch.equal(kept[:, one] == 0, kept[:, one + 1] == 0)
    assert not torch.equal(kept[:20, 0, :20] == 0, kept[32:, 0, :20] == 0)
    by_formula = []
    for rows in (slice(0, 32), slice(32, 52)):
        a, b, c = (x[rows].transpose(0, 1) for x in (q, k, v))
        scores = a @ b.mT / math.sqrt(32)
        if causal:
            scores = scores.masked_fill(~visibility_mask(scores.shape[1], None, causal=True), -math.inf)
        mask = kept[rows, :, : scores.shape[1]].transpose(0, 1)
        by_formula.append(((scores.softmax(-1) * mask) @ c).transpose(0, 1))
    wanted = torch.randn(52, 3, 32)
    both = [[one, *torch.autograd.grad(one, (q, k, v), wanted)] for one in (attended(v, 0.3), torch.cat(by_formula))]
    for ours, formula in zip(*both, strict=True):
        torch.testing.assert_close(ours, formula, atol=1e-5, rtol=1e-5)


@needs_kernels
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_and_infinity_give_nan(bad):
    (batch,) = batches_of([20, 5])
    q, k, v = (torch.ones(25, 1, 16) for _ in range(3))
    k[3, 0, 2] = bad
    attended = attend(q, k, v, batch, batch, View(), scaled=True, dropout=0.0)
    assert attended[:20].isnan().all() and attended[20:].isfinite().all()


@needs_kernels
def test_a_gradient_may_come_in_any_layout():
    torch.manual_seed(0)
    (batch,) = batches_of([30, 11])
    q, k, v = (torch.randn(41, 2, 32, requires_grad=True) for _ in range(3))
    attended = attend(q, k, v, batch, batch, View(True), scaled=True, dropout=0.0)
    spread = torch.randn(1).expand(41, 2, 32)
    ours = torch.autograd.grad(attended, (q, k, v), spread, retain_graph=True)
    for one, other in zip(ours, torch.autograd.grad(attended, (q, k, v), spread.contiguous()), strict=True):
        assert torch.equal(one, other)


@needs_kernels
def test_batches_of_different_sequences_are_refused():
    q, k = torch.randn(10, 2, 16), torch.randn(12, 2, 16)
    two, three = (pack([[0] * length for length in lengths]) for lengths in ((5, 5), (4, 4, 4)))
    with pytest.raises(ValueError, match="same sequences"):
        attend(q, k, k, two, three, View(), scaled=True, dropout=0.0)
    with pytest.raises(ValueError, match="same sequences"):
        attend(q, k, k, two, two, View(), scaled=True, dropout=0.0)


@needs_kernels
def test_a_sequence_is_the_same_with_any_neighbours():
    torch.manual_seed(0)
    q, k, v = (torch.randn(40, 2, 32) for _ in range(3))

    def attended(lengths, rows):
        (batch,) = batches_of(lengths)
        return attend(q[rows], k[rows], v[rows], batch, batch, View(True), scaled=True, dropout=0.0)

    assert torch.equal(attended([7, 30, 3], slice(0, 40))[7:37], attended([30], slice(7, 37)))


@pytest.mark.parametrize("family", ["gpt2", "qwen3"])
def test_dropout_in_attention_works_under_autocast(family):
    network = weft.create(family, vocabulary=20, layers=1, width=16, heads=2, attention_dropout=0.2).network.train()
    with torch.autocast("cpu", torch.bfloat16):
        hidden = network(pack([[1, 2, 3, 4, 5]]))
    hidden.float().square().sum().backward()
    gradient = network.decoder.blocks[0].attention.qkv.weight.grad
    assert gradient.abs().sum() > 0 and gradient.isfinite().all()


@needs_kernels
def test_long_sequences_with_a_window_take_our_kernel_and_without_one_torchs():
    def is_ours(length, window, dropout=0.0):
        q, (batch,) = torch.empty(length, 1, 16), batches_of([length])
        return fused_attention.can_attend_fused(q, q, q, batch, window=window, dropout=dropout)

    assert is_ours(2048, 64) and is_ours(512, None) and is_ours(2048, None, dropout=0.1)
    assert not is_ours(2048, None)
    assert not is_ours(2048, 2047)  # a window over everything is no window


@needs_kernels
def test_a_window_over_a_long_sequence_is_the_formula():
    torch.manual_seed(0)
    (batch,), view = batches_of([700, 30]), View(window=9)
    q, k, v = (torch.randn(730, 2, 16) for _ in range(3))
    ours = attend(q, k, v, batch, batch, view, scaled=True, dropout=0.0)
    formula = attend(q.double(), k.double(), v.double(), batch, batch, view, scaled=True, dropout=0.0)
    torch.testing.assert_close(ours.double(), formula, atol=2e-5, rtol=1e-5)
