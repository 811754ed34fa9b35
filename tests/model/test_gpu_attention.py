"""Which kernel computes attention on a GPU, and that it computes attention."""

from dataclasses import replace

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import weft
from pretend_gpu import pretend_gpu, used
from random_models import ENCODERS, SHAPES
from weft.model.attention import View, attend
from weft.model.gpu_attention import why_not_varlen
from weft.model.kernel_report import kernel_lines
from weft.model.loss import logits_of_a_block
from weft.model.network import outline
from weft.model.packed import pack
from weft.objectives.objective import Batch, head_scores, scaled_loss

VARLEN, DENSE = "torch_attn::_varlen_attn", "aten::scaled_dot_product_attention"
LENGTHS = (3, 7, 7, 1)


@pytest.fixture
def gpu():
    with pretend_gpu(is_like_cuda=True) as device:
        yield device


def on_device(device, *lengths):
    """What attends: queries, keys, values and gradients of the output are drawn anew."""
    batch = pack([[0] * length for length in lengths])
    return batch, batch.to(device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, None), (False, 2), (True, 2)])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_attention_and_its_gradients_are_those_of_a_cpu(dtype, causal, window, kv_heads, gpu):
    torch.manual_seed(0)
    batch, there = on_device(gpu, *LENGTHS)
    view, total = View(causal, window), sum(LENGTHS)
    given = [torch.randn(total, heads, 8) for heads in (4, kv_heads, kv_heads)]
    upstream = torch.randn(total, 4, 8)
    found = []
    for device, packed, kind in (("cpu", batch, torch.float32), (gpu, there, dtype)):
        inputs = [x.to(dtype).to(kind).to(device).detach().requires_grad_() for x in given]
        out = attend(*inputs, packed, packed, view, scaled=True, dropout=0.0)
        out.backward(upstream.to(dtype).to(kind).to(device))
        found.append([out.detach(), *(x.grad for x in inputs)])
    assert (VARLEN in used()) == (dtype == torch.bfloat16)
    near = {"atol": 1e-5, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 3e-2, "rtol": 3e-2}
    for ours, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours.cpu().float(), theirs, **near)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cross_attention_of_unequal_lengths_is_that_of_a_cpu(dtype, gpu):
    torch.manual_seed(0)
    (queries, gpu_queries), (keys, gpu_keys) = on_device(gpu, 2, 5, 1), on_device(gpu, 4, 3, 6)
    q, k, v = (torch.randn(length, 2, 8).to(dtype) for length in (8, 13, 13))
    expected = attend(q.float(), k.float(), v.float(), queries, keys, View(), scaled=True, dropout=0.0)
    there = [x.to(gpu).requires_grad_() for x in (q, k, v)]
    found = attend(*there, gpu_queries, gpu_keys, View(), scaled=True, dropout=0.0)
    assert (VARLEN in used()) == (dtype == torch.bfloat16)
    torch.testing.assert_close(found.detach().cpu().float(), expected, atol=2e-2, rtol=2e-2)
    found.sum().backward()
    assert all(x.grad.cpu().isfinite().all() for x in there)  # also where padding is


@pytest.mark.parametrize("family", [*ENCODERS, *SHAPES])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_every_family_takes_its_kernel_on_fake_cuda_tensors(family, precision, monkeypatch):
    """They have no numbers, but CUDA's own rules of dispatch and autocast, and refuse to mix devices or to wait."""
    network = small_outline(family)
    kinds = kernels_of(network, precision, monkeypatch)
    relative, layers = family == "t5", network.architecture.layers
    if family == "lstm":
        assert kinds == []
    elif precision == torch.float32:
        assert set(kinds) == {DENSE}  # flash attention takes 16 bits only
    elif relative:
        assert kinds.count(DENSE) == 2 * layers  # self-attention has a bias, cross-attention has none
        assert kinds.count(VARLEN) == 2 * network.architecture.decoder.layers
    else:
        assert set(kinds) == {VARLEN}


def small_outline(family):
    shape = {"layers": 2, "width": 32} | ({"heads": 2} if family != "lstm" else {})
    shape |= {"key_value_heads": 1} if family in ("llama", "qwen3") else {}
    return outline(weft.create(family, vocabulary=70, **shape).network.architecture).eval()


class Kernels(TorchDispatchMode):
    """The names of the attention kernels that are called."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, given=(), named=None):
        if function.name() == VARLEN:
            self.names.append(VARLEN)
        return function(*given, **(named or {}))


class DenseCalls(TorchFunctionMode):
    """Without a GPU torch takes scaled_dot_product_attention apart before the mode above sees it."""

    def __init__(self, kernels):
        super().__init__()
        self.kernels = kernels

    def __torch_function__(self, function, types, given=(), named=None):
        if function is torch.nn.functional.scaled_dot_product_attention:
            self.kernels.names.append(DENSE)
        return function(*given, **(named or {}))


def kernels_of(network, precision, monkeypatch):
    """The attention kernels in the forward pass of training, and then of validation."""
    monkeypatch.setattr(torch.Tensor, "__getitem__", indexed)
    batch = pack([[1, 2, 3], [4, 5, 6] if network.recurrent is not None else [4, 5]])
    decoder = pack([[1], [2, 3]]) if network.architecture.is_encoder_decoder else None
    head = next(kind for kind in network.heads if kind in ("masked", "causal", "seq2seq"))
    count, kernels = len((decoder or batch).tokens), Kernels()
    with FakeTensorMode(), torch.no_grad():
        whole = {"dtype": torch.int64, "device": "cuda:0"}
        batch, decoder = (None if one is None else on_fake_cuda(one, whole) for one in (batch, decoder))
        given = Batch(batch, torch.empty(count, **whole), torch.empty(count, **whole), decoder, counts={head: count})
        put_on_fake_cuda(network)
        torch.set_autocast_enabled("cuda", precision == torch.bfloat16)
        torch.set_autocast_dtype("cuda", torch.bfloat16)
        try:
            with kernels, DenseCalls(kernels):
                results = [scaled_loss(network, given, given.counts), *head_scores(network, given).values()]
        finally:
            torch.set_autocast_enabled("cuda", False)
    assert all(one.device == torch.device("cuda:0") for one in results)
    return kernels.names


def put_on_fake_cuda(network):
    made = {}  # tied weights stay tied
    for module in network.modules():
        for name, weight in list(module._parameters.items()):
            if weight is not None:
                fake = torch.nn.Parameter(torch.empty(weight.shape, device="cuda:0"), requires_grad=False)
                module._parameters[name] = made.setdefault(weight, fake)


def on_fake_cuda(batch, kind):
    return replace(
        batch, **{name: torch.empty(getattr(batch, name).shape, **kind) for name in ("tokens", "positions", "starts")}
    )


def indexed(x, key):
    """x[key] by operations: torch's own looks for a CUDA driver first."""
    place = 0
    for one in key if isinstance(key, tuple) else (key,):
        match one:
            case None:
                x, place = x.unsqueeze(place), place + 1
            case slice():
                x, place = torch.ops.aten.slice.Tensor(x, place, one.start, one.stop), place + 1
            case int():
                x = torch.ops.aten.select.int(x, place, one)
            case _:
                x, place = torch.ops.aten.index.Tensor(x, [None] * place + [one]), place + 1
    return x


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"dtype": torch.float32}, "16 bits"),
        ({"is_biased": True}, "no bias"),
        ({"dropout": 0.1}, "no dropout"),
        ({"head_width": 12}, "head width, 12,"),
        ({"head_width": 264}, "head width, 264,"),
    ],
)
def test_the_reason_against_the_kernel_is_said(changes, why, gpu):
    given = {"dtype": torch.bfloat16, "head_width": 64, "is_biased": False, "dropout": 0.0, **changes}
    found = why_not_varlen(torch.zeros(1).to(gpu), **given)
    assert found is None if why is None else why in found
    assert why_not_varlen(torch.zeros(1), **given) == "it needs CUDA"


def test_a_run_says_which_kernel_it_uses(gpu):
    t5 = weft.create("t5", vocabulary=70, layers=1, width=32, heads=2).network.to(gpu).eval()
    bert = weft.create("bert", vocabulary=70, layers=1, width=32, heads=2).network.to(gpu).eval()
    assert kernel_lines(bert, torch.bfloat16) == [f"attention of the encoder on {gpu}: the kernel for variable lengths"]
    assert len(kernel_lines(t5, torch.bfloat16)) == 2 and "no bias" in kernel_lines(t5, torch.bfloat16)[0]
    assert "choose precision bfloat16" in kernel_lines(bert, torch.float32)[0]


def test_blocks_of_logits_grow_with_the_memory_of_the_gpu():
    at_least = logits_of_a_block(None)
    assert logits_of_a_block(2**30) == at_least  # a small GPU
    assert logits_of_a_block(80 * 2**30) == 80 * 2**30 // 64 // 4  # in fp32, a 64th of the memory
