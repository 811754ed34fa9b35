"""The int8 product against exact integers, and a row alone against the same row among others, to the bit."""

import ctypes
from ctypes import c_int, c_int64, c_void_p

import pytest
import torch
from torch import Tensor

from c_builds import BUILDS, HEADERS, build_library
from weft.inference.matrices import pack_int8
from weft.model.quantized import quantize_weight

SOURCE = f"""
#include "{HEADERS}/int8.h"
struct call {{
    const struct int8_matrix *m; const float *x; uint8_t *q; float *scales, *out; int64_t rows, depth, padded; int add;
}};
static void do_quantize(const struct member *me, const void *given)
{{
    const struct call *c = given;
    quantize_rows(c->x, c->q, c->scales, c->rows, c->depth, c->padded, me);
}}
static void do_multiply(const struct member *me, const void *given)
{{
    const struct call *c = given;
    multiply_int8(c->m, c->q, c->scales, c->out, c->rows, c->add, me);
}}
void quantize(const float *x, uint8_t *q, float *scales, int64_t rows, int64_t depth, int64_t padded, int threads)
{{
    struct call c = {{0, x, q, scales, 0, rows, depth, padded, 0}};
    run_together(do_quantize, &c, threads);
}}
void multiply(const struct int8_matrix *m, const uint8_t *q, const float *scales, float *out, int64_t rows, int add,
              int threads)
{{
    struct call c = {{m, 0, (uint8_t *)q, (float *)scales, out, rows, 0, 0, add}};
    run_together(do_multiply, &c, threads);
}}
"""


class Matrix(ctypes.Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("blocks", "scales", "sums", "bias")),
        ("depth", c_int64),
        ("width", c_int64),
    )


@pytest.fixture(scope="module", params=BUILDS)
def library(request, tmp_path_factory) -> ctypes.CDLL:
    found = build_library(SOURCE, request.param, tmp_path_factory.mktemp("int8"))
    found.quantize.argtypes = [*[c_void_p] * 3, *[c_int64] * 3, c_int]
    found.multiply.argtypes = [*[c_void_p] * 4, c_int64, c_int, c_int]
    return found


class Product:
    def __init__(self, library: ctypes.CDLL, weight: Tensor, bias: Tensor | None = None) -> None:
        self.library, self.weight, self.bias = library, weight, bias
        self.held = pack_int8(quantize_weight(weight))
        width, self.depth = weight.shape
        places = (None if part is None else part.data_ptr() for part in (*self.held, bias))
        self.matrix = Matrix(*places, self.depth, width)

    def quantize(self, x: Tensor, threads: int = 2) -> tuple[Tensor, Tensor]:
        padded = self.depth + -self.depth % 4
        q, scales = torch.zeros(len(x), padded, dtype=torch.uint8), torch.empty(len(x))
        place = x.data_ptr(), q.data_ptr(), scales.data_ptr()
        self.library.quantize(*place, len(x), self.depth, padded, threads)
        return q, scales

    def __call__(self, x: Tensor, add_to: Tensor | None = None, threads: int = 2) -> Tensor:
        x = x.contiguous()
        q, scales = self.quantize(x, threads)
        out = torch.empty(len(x), len(self.weight)) if add_to is None else add_to.clone()
        place = ctypes.addressof(self.matrix), q.data_ptr(), scales.data_ptr(), out.data_ptr()
        self.library.multiply(*place, len(x), add_to is not None, threads)
        return out

    def exact(self, x: Tensor) -> Tensor:
        """x W from the same rounded numbers, in float64, which holds these integers exactly."""
        q, scales = self.quantize(x)
        column = self.held[1].double()
        w = (self.weight / self.held[1].clamp(min=1e-30)[:, None]).round().double()
        product = (q[:, : self.depth].double() - 128) @ w.T * scales.double()[:, None] * column
        return product if self.bias is None else product + self.bias


def bits(x: Tensor) -> Tensor:
    return x.view(torch.int32)


@pytest.mark.parametrize("depth", [1, 3, 4, 37, 384])
@pytest.mark.parametrize("width", [1, 63, 64, 100])
def test_gives_the_sums_of_exact_integers(library, depth, width):
    torch.manual_seed(0)
    product = Product(library, torch.randn(width, depth) * torch.rand(width, 1), torch.randn(width))
    for rows in (*range(1, 15), 63, 200):
        x, old = torch.randn(rows, depth) * torch.rand(rows, 1).exp(), torch.randn(rows, width)
        torch.testing.assert_close(product(x).double(), product.exact(x), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(product(x, old).double(), product.exact(x) + old, rtol=1e-6, atol=1e-6)


def test_quantizes_each_row_by_its_largest_number(library):
    torch.manual_seed(0)
    x = torch.randn(70, 37) * torch.logspace(-30, 30, 70)[:, None]
    q, scales = Product(library, torch.ones(1, 37)).quantize(x)
    most = x.abs().amax(dim=1)
    assert torch.equal(scales, most / 127)
    assert torch.equal(q[:, :37].int() - 128, (x * (127 / most)[:, None]).round().int())
    assert q[:, :37].min() == 1 and q[:, :37].max() == 255


@pytest.mark.parametrize("width", [65, 1000])
def test_a_row_does_not_depend_on_others_or_threads(library, width):
    torch.manual_seed(0)
    product = Product(library, torch.randn(width, 130), torch.randn(width))
    x, old = torch.randn(131, 130), torch.randn(131, width)
    alone = torch.cat([product(x[i : i + 1], old[i : i + 1], threads=1) for i in range(len(x))])
    for rows in (*range(1, 20), 47, 48, 49, 100, 131):
        for threads in (1, 2):
            assert torch.equal(bits(product(x[:rows], old[:rows], threads)), bits(alone[:rows]))


def test_the_largest_sums_are_exact(library):
    depth = 100_000  # Σ q w does not fit 32 bits, Σ (q − 128) w does
    signs = torch.tensor([[1.0], [-1.0]])
    result = Product(library, signs.expand(2, depth).contiguous())(signs.expand(2, depth))
    torch.testing.assert_close(result, signs @ signs.T * depth)


def test_rows_that_are_not_numbers_stay_alone(library):
    torch.manual_seed(0)
    product = Product(library, torch.randn(70, 20))
    x = torch.randn(8, 20)
    expected = product(x)
    x[1, 3], x[2, 19], x[4], x[5] = float("nan"), float("-inf"), 0, 1e-40
    result = product(x)
    assert result[[1, 2]].isnan().all()
    assert (result[[4, 5]] == 0).all()
    assert torch.equal(bits(result[[0, 3, 6, 7]]), bits(expected[[0, 3, 6, 7]]))
