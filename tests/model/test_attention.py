import math

import pytest
import torch
from torch.nn import functional as F

import weft
from weft.model import dropping
from weft.model.attention import View, attend, visible
from weft.model.packed import pack


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
@pytest.mark.parametrize("dropout", [0.0, 1e-12])  # the second takes the path with dropout, and drops nothing
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
    mask = visible(length, window, causal=False)
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
def test_dropout_in_attention_keeps_the_mean(causal):
    torch.manual_seed(0)
    batch, view = pack([[0] * 32] * 8), View(causal)
    q, k, v = (torch.randn(256, 2, 8) for _ in range(3))
    plain = attend(q, k, v, batch, batch, view, scaled=True, dropout=0.0)
    noisy = torch.stack([attend(q, k, v, batch, batch, view, scaled=True, dropout=0.3) for _ in range(300)])
    assert (noisy[0] - plain).abs().max() > 0.01
    torch.testing.assert_close(noisy.mean(0), plain, atol=0.15, rtol=0)


@pytest.mark.parametrize("length", [1, 3, 4, 10])
def test_causal_attention_with_dropout_by_tiles(monkeypatch, length):
    """Tiles change nothing, ragged ones included, and the gradient is that of the very same mask."""
    monkeypatch.setattr(dropping, "TILE", 4)
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, length, 5, dtype=torch.float64, requires_grad=True) for _ in range(3))
    whole = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)
    torch.testing.assert_close(dropping.causal_dropping(q, k, v, 1e-12), whole)

    def seeded(q, k, v):
        torch.manual_seed(1)
        return dropping.causal_dropping(q, k, v, 0.4)

    assert torch.autograd.gradcheck(seeded, (q, k, v))


@pytest.mark.parametrize("family", ["gpt2", "qwen3"])
def test_dropout_in_attention_works_under_autocast(family):
    """Rotation leaves queries and keys in fp32 beside values in bfloat16."""
    network = weft.create(family, vocabulary=20, layers=1, width=16, heads=2, attention_dropout=0.2).network.train()
    with torch.autocast("cpu", torch.bfloat16):
        hidden = network(pack([[1, 2, 3, 4, 5]]))
    hidden.float().square().sum().backward()
    gradient = network.decoder.blocks[0].attention.qkv.weight.grad
    assert gradient.abs().sum() > 0 and gradient.isfinite().all()
