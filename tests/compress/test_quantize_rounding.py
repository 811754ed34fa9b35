"""Rounding with searched scales, GPTQ and the integers of a product, each against its definition."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.compress.quantize.gptq import round_gptq
from weft.compress.quantize.rounding import group_size, limits, round_to_nearest, search_scales
from weft.model.quantized import QuantizedEmbedding, QuantizedLinear, quantize_rows, quantize_weight


def some(*shape: int, seed: int = 0) -> torch.Tensor:
    """Weights with heavy tails, as trained ones have."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator) * torch.rand(shape, generator=generator).pow(2)


def correlated_inputs(rows: int, inputs: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(inputs, inputs, generator=generator) * (torch.rand(inputs, generator=generator) ** 3)
    return torch.randn(rows, inputs, generator=generator) @ mix.T


@pytest.mark.parametrize("bits", [8, 4])
def test_searched_scales_are_the_best_of_all_tried_ones_in_every_group(bits):
    weight, moments = some(7, 64), torch.rand(64) + 0.01
    group = 64 if bits == 8 else 16
    scales = search_scales(weight, bits, moments=moments, group=group)
    importance = moments + moments.mean() * 1e-3
    low, high = limits(bits)
    for row in range(7):
        for number in range(64 // group):
            part = slice(number * group, (number + 1) * group)
            w, m, largest = weight[row, part], importance[part], weight[row, part].abs().max()

            def error(scale, w=w, m=m):
                return float((m * (w - scale * (w / scale).round().clamp(low, high)).square()).sum())

            tried = [largest * share / high for share in torch.linspace(0.8 if bits == 8 else 0.6, 1.0, 21)]
            tried = [scale.bfloat16().float() if bits == 4 else scale for scale in tried]
            assert error(scales[row, number]) == pytest.approx(min(map(error, tried)), rel=1e-5)


@pytest.mark.parametrize("bits", [8, 4])
def test_searched_scales_lose_less_than_those_of_the_largest_weight(bits):
    weight = some(32, 128)
    found = round_to_nearest(weight, bits)
    low, high = limits(bits)
    group = found.group
    largest = weight.unflatten(1, (-1, group)).abs().amax(-1, keepdim=True) / high
    plain = ((weight.unflatten(1, (-1, group)) / largest).round().clamp(low, high) * largest).flatten(1)
    share = (found.dequantized() - weight).norm() / (plain - weight).norm()
    assert share <= (1.0 if bits == 8 else 0.95)  # 8 bits gain from it only where single weights stand out
    assert found.values.min() >= low and found.values.max() <= high


def test_a_matrix_of_zeros_stays_zero():
    for bits in (8, 4):
        assert not round_to_nearest(torch.zeros(4, 32), bits).dequantized().any()
    assert not round_gptq(torch.zeros(4, 32), torch.eye(32)).dequantized().any()


@given(st.integers(1, 5000), st.integers(8, 256))
def test_groups_divide_the_inputs_and_hold_whole_bytes(inputs, wanted):
    size = group_size(inputs, wanted)
    assert inputs % size == 0 and size <= max(wanted, 1)
    assert size % 2 == 0 or size == 1
    assert size % 8 == 0 or inputs % 8, "the int4 kernel takes multiples of 8"


@pytest.mark.parametrize(("inputs", "size"), [(384, 32), (312, 24), (1200, 24), (400, 16), (200, 8), (36, 18), (7, 1)])
def test_a_group_is_the_largest_that_the_kernel_takes(inputs, size):
    assert group_size(inputs) == size


def gptq_by_elimination(weight, hessian, scales, group):
    """Frantar et al. 2023, section 3, without its numerical tricks: after each column the inverse Hessian loses that
    row and column by one step of Gaussian elimination (its eq. 3), and all weights that are left take up the error.
    """
    w, h = weight.double().clone(), hessian.double().clone()
    h += 0.01 * h.diagonal().mean() * torch.eye(len(h), dtype=torch.float64)
    inverse = torch.linalg.inv(h)
    values = torch.zeros_like(w)
    for j in hessian.diagonal().argsort(descending=True, stable=True).tolist():
        scale = scales[:, j // group].double()
        values[:, j] = (w[:, j] / scale).round().clamp(-8, 7)
        error = (w[:, j] - values[:, j] * scale) / inverse[j, j]
        w -= error[:, None] * inverse[j]
        inverse = inverse - inverse[:, j, None] * inverse[None, j] / inverse[j, j]
        inverse[j, :] = inverse[:, j] = 0
        inverse[j, j] = 1  # never used again
    return values


@pytest.mark.parametrize("seed", range(4))
def test_gptq_gives_the_integers_of_the_paper(seed):
    weight, x = some(24, 160, seed=seed), correlated_inputs(500, 160, seed)
    hessian = x.T @ x
    found = round_gptq(weight, hessian, group=32)
    expected = gptq_by_elimination(weight, hessian, found.scales, 32)
    assert torch.equal(found.values.double(), expected)


@pytest.mark.parametrize("seed", range(4))
def test_gptq_loses_less_than_rounding_to_nearest(seed):
    weight, x = some(48, 192, seed=seed), correlated_inputs(600, 192, seed)
    hessian = x.T @ x
    nearest = round_to_nearest(weight, 4, moments=hessian.diagonal() / len(x), group=32)
    found = round_gptq(weight, hessian, group=32)
    exact = x @ weight.T
    errors = [float((x @ one.dequantized().T - exact).norm()) for one in (nearest, found)]
    assert errors[1] < 0.7 * errors[0]


def test_gptq_takes_inputs_that_are_always_zero_and_too_few_samples():
    weight, x = some(8, 64), correlated_inputs(5, 64)
    x[:, 7] = 0
    found = round_gptq(weight, x.T @ x, group=32)
    assert torch.isfinite(found.dequantized()).all()
    assert not found.values[:, 7].any()


@given(st.integers(1, 9), st.integers(1, 2000), st.integers(1, 9), st.integers(0, 10**6))
def test_a_product_is_the_exact_sum_of_integers(rows, inputs, outputs, seed):
    """The module's float64 product equals the sum in Python's unlimited integers, so it is the same everywhere."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, inputs, generator=generator) * 10 ** float(torch.randn((), generator=generator))
    layer = QuantizedLinear(quantize_weight(torch.randn(outputs, inputs, generator=generator)), torch.randn(outputs))
    q, row_scales = quantize_rows(x)
    whole, weights = q.to(torch.int64).tolist(), layer.values.to(torch.int64).tolist()
    sums = [[sum(a * b for a, b in zip(one, other, strict=True)) for other in weights] for one in whole]
    expected = torch.tensor(sums, dtype=torch.float32) * (row_scales * layer.scales.T) + layer.bias
    assert torch.equal(layer(x), expected)


def test_a_product_does_not_depend_on_threads_or_on_the_other_rows(threads):
    x, layer = some(40, 3000), QuantizedLinear(quantize_weight(some(70, 3000, seed=1)), None)
    threads(1)
    alone = torch.cat([layer(row[None]) for row in x])
    threads(2)
    assert torch.equal(layer(x), alone)
    shuffled = torch.randperm(3000, generator=torch.Generator().manual_seed(0))
    other = QuantizedLinear(quantize_weight(some(70, 3000, seed=1)[:, shuffled]), None)
    assert torch.equal(other(x[:, shuffled]), alone), "nor on the order of the sum"


def test_an_embedding_gives_its_own_rows():
    weight = quantize_weight(some(20, 16))
    tokens = torch.tensor([3, 0, 19, 3])
    assert torch.equal(QuantizedEmbedding(weight)(tokens), weight.dequantized()[tokens])
