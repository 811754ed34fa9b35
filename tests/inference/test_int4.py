"""The product with weights of 4 bits against exact numbers, and a row alone against the same row among others."""

import ctypes
from ctypes import c_int, c_int64, c_void_p

import pytest
import torch
from torch import Tensor

from c_builds import BUILDS, HEADERS, build_library
from weft.inference.int4 import pack_int4
from weft.model.quantized import QuantizedWeight, quantize_rows

SOURCE = f"""
#include "{HEADERS}/int4.h"
struct call {{
    const struct int4_matrix *m; const float *x; uint8_t *q; float *scales; float *out;
    int64_t rows; int add;
}};
static void both(const struct member *me, const void *given)
{{
    const struct call *c = given;
    multiply_int4(c->m, c->x, c->q, c->scales, c->out, c->rows, c->add, me);
}}
void multiply(const struct int4_matrix *m, const float *x, uint8_t *q, float *scales, float *out, int64_t rows, int add,
              int threads)
{{
    struct call c = {{m, x, q, scales, out, rows, add}};
    run_together(both, &c, threads);
}}
"""


class Matrix(ctypes.Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("blocks", "scales", "bias")),
        *((name, c_int64) for name in ("depth", "width", "group")),
    )


@pytest.fixture(scope="module", params=BUILDS)
def library(request, tmp_path_factory) -> ctypes.CDLL:
    found = build_library(SOURCE, request.param, tmp_path_factory.mktemp("int4"))
    found.multiply.argtypes = [*[c_void_p] * 5, c_int64, c_int, c_int]
    return found


class Product:
    def __init__(self, library: ctypes.CDLL, width: int, depth: int, group: int, *, bias: bool = True) -> None:
        values = torch.randint(-8, 8, (width, depth), dtype=torch.int8)
        self.weight = QuantizedWeight(values, torch.rand(width, depth // group) + 0.1, 4)
        self.bias = torch.randn(width) if bias else None
        self.library, self.held = library, pack_int4(self.weight)
        places = (None if part is None else part.data_ptr() for part in (*self.held, self.bias))
        self.matrix = Matrix(*places, depth, width, group)

    def __call__(self, x: Tensor, add_to: Tensor | None = None, threads: int = 2) -> Tensor:
        x, (width, depth) = x.contiguous(), self.weight.values.shape
        out = torch.empty(len(x), width) if add_to is None else add_to.clone()
        stride = depth + 4 * self.weight.scales.shape[1]
        q, scales = torch.zeros(len(x), stride, dtype=torch.uint8), torch.empty(len(x))
        places = [part.data_ptr() for part in (x, q, scales, out)]
        self.library.multiply(ctypes.addressof(self.matrix), *places, len(x), add_to is not None, threads)
        return out

    def exact(self, x: Tensor) -> Tensor:
        q, scales = quantize_rows(x)
        return (q.double() * scales.double()) @ self.weight.dequantized().double().T + (
            0 if self.bias is None else self.bias.double()
        )


@pytest.mark.parametrize(("depth", "group"), [(8, 8), (64, 32), (384, 32), (384, 128), (120, 40)])
@pytest.mark.parametrize("width", [1, 64, 100])
def test_gives_the_product_of_the_rounded_numbers(library, depth, group, width):
    torch.manual_seed(0)
    product = Product(library, width, depth, group, bias=width != 64)
    for rows in (*range(1, 8), 13, 63):
        x, old = torch.randn(rows, depth), torch.randn(rows, width)
        torch.testing.assert_close(product(x).double(), product.exact(x), rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(product(x, old).double(), product.exact(x) + old, rtol=1e-4, atol=1e-3)


def test_a_row_does_not_depend_on_others_or_threads(library):
    torch.manual_seed(0)
    product = Product(library, 200, 96, 32)
    x = torch.randn(101, 96)
    alone = torch.cat([product(row[None], threads=1) for row in x])
    for rows in (*range(1, 14), 47, 48, 49, 101):
        for threads in (1, 2):
            assert torch.equal(product(x[:rows], threads=threads).view(torch.int32), alone[:rows].view(torch.int32))


def test_rows_that_are_not_numbers_stay_alone(library):
    torch.manual_seed(0)
    product, x = Product(library, 70, 64, 32, bias=False), torch.randn(5, 64)
    expected = product(x)
    x[1, 3], x[3] = float("nan"), 0
    result = product(x)
    assert result[1].isnan().all() and (result[3] == 0).all()
    assert torch.equal(result[[0, 2, 4]], expected[[0, 2, 4]])
