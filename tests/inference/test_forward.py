"""Every family's forward pass in C against its modules; packed against one by one; threads; processors."""

import numpy as np
import pytest
import torch
from torch import Tensor

import oracle
from c_builds import BUILDS, build_library
from random_models import ENCODERS, SHAPES, make_random
from weft.inference import forward_kernels
from weft.inference.compiled_forward import compile_forward
from weft.inference.forward_kernels import multiply_rows
from weft.inference.forward_trials import load_forward_kernels
from weft.inference.matrices import KernelMatrix, WeightPrecision
from weft.inference.stack_kernel import StackKernel
from weft.model.network import Network
from weft.model.packed import Packed, pack
from weft.model.quantized import QuantizedLinear, QuantizedWeight, put_quantized, quantize_rows, quantize_weight

FAMILIES = [family for family in (*SHAPES, *ENCODERS) if family != "lstm"]
PRECISIONS: tuple[WeightPrecision, ...] = ("fp32", "bf16", "int8")
LENGTHS = (1, 2, 5, 6, 7, 15, 16, 17, 31, 40)
VOCABULARY = 70

pytestmark = pytest.mark.skipif(load_forward_kernels() is None, reason="there is no C compiler")


def sequences(seed: int = 0, lengths: tuple[int, ...] = LENGTHS) -> list[np.ndarray]:
    chance = np.random.default_rng(seed)
    return [chance.integers(0, VOCABULARY, length) for length in lengths]


def run(network: Network, texts: list[np.ndarray], sources: list[np.ndarray] | None) -> Tensor:
    batch = pack(texts)
    with torch.inference_mode():
        if sources is None:
            return network(batch)
        return network(pack(sources), batch)


def random_network(family: str, **changes) -> Network:
    network = make_random(family, **changes).network.eval()
    assert network.fast is None
    return network


def compiled(network: Network, precision: WeightPrecision) -> Network:
    if precision == "bf16" and not load_forward_kernels().has_bfloat():
        pytest.skip("this processor has no bf16 products")
    compile_forward(network, precision)
    return network


def sources_of(network: Network, seed: int = 1) -> list[np.ndarray] | None:
    return sequences(seed, LENGTHS[::-1]) if network.architecture.is_encoder_decoder else None


@pytest.mark.parametrize("family", FAMILIES)
def test_fp32_equals_the_modules(family):
    network = random_network(family)
    expected = run(network, sequences(), sources_of(network))
    found = run(compiled(network, "fp32"), sequences(), sources_of(network))
    assert (found - expected).norm() <= 1e-5 * expected.norm()
    assert not torch.equal(found, expected)  # it was computed in another way


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "relative"])
@pytest.mark.parametrize("family", ["bert", "gpt2", "transformer"])
def test_fp32_equals_the_modules_whatever_tells_positions(family, positions):
    network = random_network(family, positions=positions)
    expected = run(network, sequences(), sources_of(network))
    found = run(compiled(network, "fp32"), sequences(), sources_of(network))
    assert (found - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize("precision", ["bf16", "int8"])
@pytest.mark.parametrize("family", FAMILIES)
def test_bf16_and_int8_are_near_the_modules(family, precision):
    network = random_network(family)
    expected = run(network, sequences(), sources_of(network))
    found = run(compiled(network, precision), sequences(), sources_of(network))
    cosines = torch.nn.functional.cosine_similarity(found, expected)
    assert cosines.mean() > (0.999 if precision == "bf16" else 0.98)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_packed_batch_equals_one_by_one_to_the_bit(family, precision):
    network = compiled(random_network(family), precision)
    texts, sources = sequences() * 3, sources_of(network)
    sources = None if sources is None else sources * 3
    packed = pack(texts).split(run(network, texts, sources))
    for place, text in enumerate(texts):
        alone = run(network, [text], None if sources is None else [sources[place]])
        assert torch.equal(packed[place], alone), place


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("family", ["bert", "llama", "t5"])
def test_the_number_of_threads_changes_no_bit(family, precision, threads):
    network = compiled(random_network(family), precision)
    texts, sources = sequences() * 3, sources_of(network)
    found = []
    for count in (1, 2, 3):
        threads(count)
        found.append(run(network, texts, None if sources is None else sources * 3))
        found.append(run(network, texts[:4], None if sources is None else sources[:4]))
    for later in range(2, 6):
        assert torch.equal(found[later], found[later % 2])


def stored_in_int8(network: Network) -> Network:
    names = [name for name, part in network.named_modules() if isinstance(part, torch.nn.Linear)]
    for name in names:
        if not name.startswith("heads."):
            put_quantized(network, name, quantize_weight(network.get_submodule(name).weight))
    return network


@pytest.mark.parametrize("family", ["bert", "llama", "t5"])
def test_int8_sums_are_the_integers_of_the_modules(family):
    """With attention in fp32 nothing is rounded but in the modules' own way, so few values differ at all."""
    network = stored_in_int8(random_network(family))
    assert any(isinstance(part, QuantizedLinear) for part in network.modules())
    expected = run(network, sequences(), sources_of(network))
    found = run(compiled(network, "fp32"), sequences(), sources_of(network))
    assert (found - expected).norm() <= 2e-3 * expected.norm()


@pytest.mark.parametrize("rows", [1, 5, 6, 7, 13, 100])
def test_an_int8_product_is_that_of_its_integers(rows):
    """To the last rounding: the kernel multiplies and adds at once, torch does not."""
    chance = torch.Generator().manual_seed(rows)
    weight, bias = torch.randn(70, 37, generator=chance), torch.randn(70, generator=chance)
    layer = QuantizedLinear(quantize_weight(weight), bias)
    x = torch.randn(rows, 37, generator=chance) * torch.logspace(-3, 3, rows)[:, None]
    found = multiply_rows(load_forward_kernels(), KernelMatrix(layer, "fp32"), x)
    assert torch.allclose(found, layer(x), rtol=1e-6, atol=1e-6)


def test_rows_are_quantized_to_the_integers_of_the_modules():
    """Between two integers, where another rounding of the scale would show. The weights are the identity matrix."""
    largest = torch.rand(200, 1, generator=torch.Generator().manual_seed(0)) + 0.5
    x = torch.cat([largest, largest * (torch.arange(127) + 0.5) / 127], dim=1)
    identity = QuantizedWeight(torch.eye(128, dtype=torch.int8), torch.ones(128, 1), 8)
    found = multiply_rows(load_forward_kernels(), KernelMatrix(QuantizedLinear(identity, None), "fp32"), x)
    q, scales = quantize_rows(x)
    assert torch.equal(found, q * scales)


@pytest.mark.parametrize("is_stored", [True, False])
def test_sums_that_exceed_32_bits_are_made_in_fp32(is_stored):
    depth = 140_000
    layer = torch.nn.Linear(depth, 1, bias=False)
    torch.nn.init.ones_(layer.weight)
    given = QuantizedLinear(quantize_weight(layer.weight), None) if is_stored else layer
    found = multiply_rows(load_forward_kernels(), KernelMatrix(given, "int8"), torch.ones(1, depth))
    assert found.item() == pytest.approx(depth, rel=1e-3)


def test_stored_int8_equals_int8_made_in_memory():
    plain, stored = random_network("bert"), stored_in_int8(random_network("bert"))
    found = [run(compiled(network, "int8"), sequences(), None) for network in (plain, stored)]
    assert torch.equal(*found)


def test_four_bits_in_groups_are_multiplied_as_the_modules_do():
    network = random_network("bert")
    for name in [name for name, part in network.encoder.named_modules() if isinstance(part, torch.nn.Linear)]:
        weight = network.encoder.get_submodule(name).weight.detach()
        groups = weight.unflatten(1, (-1, 8))
        scales = (groups.abs().amax(-1) / 7).clamp(min=1e-9)
        values = (groups / scales[..., None]).round().flatten(1).to(torch.int8)
        put_quantized(network.encoder, name, QuantizedWeight(values, scales, 4))
    expected = run(network, sequences(), None)
    found = run(compiled(network, "int8"), sequences(), None)
    assert torch.nn.functional.cosine_similarity(found, expected).min() > 0.999


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_row_of_nan_stays_in_its_sequence(precision):
    network = compiled(random_network("bert"), precision)
    texts = [text[text != 3] for text in sequences()]
    before = run(network, [*texts, np.array([4, 5])], None)
    with torch.no_grad():
        network.embed.tokens.weight[3] = float("nan")
    after = run(network, [*texts, np.array([4, 3])], None)
    assert torch.equal(after[:-2], before[:-2])
    assert after[-2:].isnan().all()


def test_ids_outside_of_the_tables_are_an_error_not_a_crash():
    network = compiled(random_network("bert"), "fp32")
    with pytest.raises(IndexError):
        run(network, [np.array([VOCABULARY + 7])], None)
    with pytest.raises(IndexError):
        run(network, [np.array([-1])], None)
    with pytest.raises(IndexError):
        run(network, [np.zeros(4000, np.int64)], None)


@pytest.mark.parametrize("build", BUILDS)
def test_every_kind_of_processor_computes_the_same(build, tmp_path, monkeypatch):
    """int8 layers with fp32 attention: near the native build; the integer sums themselves are in test_int8.py."""
    folder = forward_kernels.__file__.rpartition("/")[0]
    library = build_library(f'#include "{folder}/forward.c"\n', build, tmp_path)
    monkeypatch.setattr(forward_kernels, "open_library", lambda source: library)
    kernels = forward_kernels.open_forward_kernels()
    for family in ("bert", "llama"):
        network = random_network(family)
        batch = pack(sequences())
        stack = network.encoder or network.decoder
        for precision in ("fp32", "int8"):
            found, native = (
                StackKernel(network.embed, stack, one, precision).run(batch, None, None)
                for one in (kernels, load_forward_kernels())
            )
            assert (found - native).norm() <= (1e-5 if precision == "fp32" else 2e-3) * native.norm(), precision


def test_an_empty_batch_has_no_rows():
    network = compiled(random_network("bert"), "fp32")
    batch: Packed = pack([])
    with torch.inference_mode():
        assert network(batch).shape == (0, network.width)


def test_neighbours_of_minilm_are_as_good_in_int8(minilm):
    from weft.interchange.folder import read_model

    network, _ = read_model(minilm)
    texts = oracle.sequences(30_000, 5, count=12, longest=200)
    expected = run(network.eval(), texts, None)
    for precision, least in (("fp32", 0.999999), ("bf16", 0.9995), ("int8", 0.99)):
        found = run(compiled(network, precision), texts, None)
        assert torch.nn.functional.cosine_similarity(found, expected).mean() > least
