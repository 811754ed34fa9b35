"""The C passes equal their formulas, forward and backward."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import weft
from weft.model import fused_attention, fused_layers
from weft.model.fused_layers import gate, norm_and_input, norm_of_sum, prepare_heads, rms_norm
from weft.model.norm import RMSNorm
from weft.model.packed import pack
from weft.model.positions import Rotary, rotary_table

pytestmark = [
    pytest.mark.skipif(fused_layers.load_layer_kernels() is None, reason="no C compiler"),
    pytest.mark.usefixtures("two_threads"),
]
ROWS = [1, 5, 16, 53]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def check(ours, formula, leaves):
    """Compare two functions of the leaves, the second in float64."""
    leaves = [leaf.requires_grad_() for leaf in leaves]
    doubles = [leaf.detach().double().requires_grad_() for leaf in leaves]
    found, right = ours(*leaves), formula(*doubles)
    found, right = ([out] if isinstance(out, torch.Tensor) else list(out) for out in (found, right))
    wanted = [torch.randn(out.shape) for out in found]
    grads = torch.autograd.grad(found, leaves, wanted)
    right_grads = torch.autograd.grad(right, doubles, [one.double() for one in wanted])
    for a, b in zip([*found, *grads], [*right, *right_grads], strict=True):
        torch.testing.assert_close(a.double(), b, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("width", [3, 64, 100])
def test_rms_norm(rows, width):
    x, gain = torch.randn(rows, width), torch.randn(width)

    def formula(x, gain):
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain

    check(lambda x, gain: rms_norm(x, gain, 1e-6), formula, [x, gain])


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kind", ["rms", "layer", "layer without bias"])
def test_a_norm_and_its_input_with_both_gradients(rows, kind):
    norm = RMSNorm(48, eps=1e-5) if kind == "rms" else nn.LayerNorm(48, bias=kind == "layer")
    names = [name for name, _ in norm.named_parameters()]
    values = [torch.randn(48) for _ in names]

    def with_parameters(x, *values):
        return torch.func.functional_call(
            _Branch(norm), dict(zip([f"norm.{n}" for n in names], values, strict=True)), x
        )

    def formula(x, gain, bias=None):
        if kind == "rms":
            return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain, x * 1
        return F.layer_norm(x, (48,), gain, bias), x * 1

    check(with_parameters, formula, [torch.randn(rows, 48) + 1, *values])


class _Branch(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x):
        return norm_and_input(self.norm, x)


@pytest.mark.parametrize("rows", ROWS)
def test_the_norm_of_a_sum(rows):
    norm = nn.LayerNorm(40)
    gain, bias = torch.randn(40), torch.randn(40)

    def ours(x, s, gain, bias):
        norm.weight, norm.bias = nn.Parameter(gain), nn.Parameter(bias)
        return norm_of_sum(norm, x, s, 0.0)

    x, s = torch.randn(2, rows, 40).unbind()
    check(
        lambda x, s: ours(x, s, gain, bias),
        lambda x, s: F.layer_norm(x + s, (40,), gain.double(), bias.double()),
        [x, s],
    )


def test_a_sum_uses_one_dropout_mask_forward_and_backward():
    norm, (x, s) = nn.LayerNorm(64), torch.randn(2, 50, 64).unbind()
    x.requires_grad_(), s.requires_grad_()
    torch.manual_seed(3)
    ours = norm_of_sum(norm, x, s, 0.25)
    wanted = torch.randn(50, 64)
    grads = torch.autograd.grad(ours, (x, s, norm.weight, norm.bias), wanted)
    kept = torch.where(grads[1] == 0, 0.0, 1 / 0.75)
    assert 0.2 < (kept == 0).float().mean() < 0.3
    assert kept.std(0).min() > 0 and kept.std(1).min() > 0
    formula = norm(x + s * kept)
    both = [[ours, *grads], [formula, *torch.autograd.grad(formula, (x, s, norm.weight, norm.bias), wanted)]]
    for a, b in zip(*both, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=2e-5)
    torch.manual_seed(3)
    assert torch.equal(ours, norm_of_sum(norm, x, s, 0.25))
    assert not torch.equal(ours, norm_of_sum(norm, x, s, 0.25))


@pytest.mark.parametrize("rows", ROWS)
def test_the_gate(rows):
    up = torch.randn(rows, 60) * 8
    up[0, 0], up[0, 1] = 200.0, -200.0
    check(gate, lambda up: F.silu(up[:, :30]) * up[:, 30:], [up])


def test_a_gate_keeps_nan():
    assert gate(torch.full((2, 8), torch.nan)).isnan().all()


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("with_norms", [True, False])
@pytest.mark.parametrize("counts", [(4, 4, 4), (4, 2, 2)])
def test_prepared_heads(rows, with_norms, counts):
    table = rotary_table(Rotary(100), torch.arange(rows) % 7, 16, torch.float32)
    norms = tuple(RMSNorm(16, eps=1e-6) for _ in range(2)) if with_norms else (None, None)
    gains = [torch.randn(16), torch.randn(16)] if with_norms else []

    def ours(heads, *gains):
        for norm, gain in zip(norms, gains, strict=False):
            norm.weight = nn.Parameter(gain)
        return [part * 1 for part in prepare_heads(heads, counts, norms, table)]

    def formula(heads, *gains):
        q, k, v = heads.split(list(counts), dim=1)
        found = []
        for number, x in enumerate((q, k)):
            if gains:
                x = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gains[number]
            a, b = x.chunk(2, -1)
            turned = torch.cat([-b, a], -1)
            found.append(x * table[0] + turned * table[1])
        return [*found, v * 1]

    heads = torch.randn(rows, sum(counts), 16)
    check(lambda heads: ours(heads, *gains), lambda heads: formula(heads, *(g.double() for g in gains)), [heads])


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "qwen3", "modernbert", "t5"])
def test_a_network_is_the_same_with_and_without_kernels(family, monkeypatch):
    network = weft.create(family, vocabulary=50, layers=2, width=64, heads=4, seed=1).network.eval()
    batch = pack([[3, 4, 5], [6] * 20, [7]])
    target = pack([[1, 2], [3], [4, 5, 6]]) if family == "t5" else None

    def both():
        network.zero_grad()
        hidden = network(batch, target) if target else network(batch)
        hidden.square().mean().backward()
        return [hidden, *(p.grad.clone() for p in network.parameters() if p.grad is not None)]

    fused = both()
    monkeypatch.setattr(fused_layers, "load_layer_kernels", lambda: None)
    monkeypatch.setattr(fused_attention, "load_attention_kernels", lambda: None)
    for a, b in zip(fused, both(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_the_number_of_threads_changes_nothing(threads):
    network = weft.create("qwen3", vocabulary=50, layers=2, width=64, heads=4, seed=1).network
    batch = pack([[3, 4, 5] * 9, [6] * 20, [7]])
    norm = network.decoder.blocks[0].attention.query_norm.weight

    def gradient():
        network.zero_grad()
        network(batch).square().mean().backward()
        return norm.grad.clone()

    threads(2)
    several = gradient()
    threads(1)
    torch.testing.assert_close(gradient(), several, atol=0, rtol=1e-6)


def test_tensors_with_more_dimensions_use_the_formula():
    x = torch.randn(2, 3, 8)
    torch.testing.assert_close(gate(x), gate(x.flatten(0, 1)).view(2, 3, 4))
    norm, s = nn.LayerNorm(8), torch.randn(2, 3, 8)
    torch.testing.assert_close(norm_of_sum(norm, x, s, 0.0), norm(x + s))
    torch.testing.assert_close(norm_and_input(norm, x)[0], norm(x))


def test_the_norm_may_be_unused():
    x = torch.randn(4, 8, requires_grad=True)
    for norm in (RMSNorm(8, eps=1e-5), nn.LayerNorm(8)):
        assert torch.equal(torch.autograd.grad(norm_and_input(norm, x)[1].sum(), x)[0], torch.ones(4, 8))


@pytest.mark.parametrize("family", ["bert", "gpt2", "qwen3", "t5"])
def test_with_products_in_bfloat16_the_rest_stays_in_fp32(family):
    """Hidden states differ from fp32 only by the rounding of the products."""
    network = weft.create(family, vocabulary=30, layers=2, width=32, heads=2, seed=3).network.eval()
    batch = pack([list(range(1, 20)), [4, 5, 6]])
    target = (pack([[1, 2, 3], [4, 5]]),) if family == "t5" else ()
    plain = network(batch, *target)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = network(batch, *target)
    assert rounded.dtype == torch.float32
    assert (rounded - plain).norm() / plain.norm() < 0.06
