"""The C kernels as torch operators: under compile, export, DTensor and fake tensors they work or are bypassed."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch._subclasses import FakeTensorMode
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.func import functional_call
from torch.library import opcheck

import weft
from weft.model import fused_attention, fused_layers
from weft.model.attention import View, attend
from weft.model.fused_layers import gate, norm_and_input, norm_of_sum
from weft.model.norm import RMSNorm
from weft.model.packed import pack
from weft.model.positions import Rotary, rotary_table

pytestmark = pytest.mark.skipif(
    fused_layers.load_layer_kernels() is None or fused_attention.load_attention_kernels() is None,
    reason="no C compiler",
)
BATCH = pack([[1] * 20, [2] * 13])
ops = torch.ops.weft


def calls():
    """Each operator with valid arguments."""
    x, s, grad = torch.randn(3, 7, 12).unbind()
    gain, bias, heads = torch.randn(12), torch.randn(12), torch.randn(7, 8, 6)
    table = rotary_table(Rotary(10), torch.arange(7), 6, torch.float32)
    scales, stats, seed = torch.ones(7), torch.ones(7, 2), torch.tensor(5)
    q, k, v = torch.randn(33, 4, 32), torch.randn(33, 2, 32), torch.randn(33, 2, 32)
    view = BATCH.starts, None, 20, True, 4, 0.3, 0.1, seed
    out, sums = ops.attention(q, k, v, *view)
    yield ops.rms, (x, gain, 1e-6)
    yield ops.rms_backward, (grad, x, gain, scales, s)
    yield ops.layer, (x, None, gain, None, 1e-6, 0.0, None)
    yield ops.layer, (x, s, gain, bias, 1e-6, 0.2, seed)
    yield ops.layer_backward, (grad, x, gain, stats, None, 0.0, None)
    yield ops.layer_backward, (grad, x, gain, stats, s, 0.2, seed)
    yield ops.gate, (x,)
    yield ops.gate_backward, (grad[:, :6], x)
    yield ops.heads, (heads, gain[:6], bias[:6], *table, 4, 2, 1e-6)
    yield ops.heads_backward, (heads, heads, gain[:6], bias[:6], *table, torch.ones(7, 6), 4, 2)
    yield ops.attention, (q, k, v, *view)
    yield ops.attention_backward, (torch.randn_like(out), q, k, v, out, sums, *view)


@pytest.mark.parametrize("number", range(12))
def test_operators_pass_torchs_own_checks(number):
    torch.manual_seed(0)
    operator, arguments = list(calls())[number]
    opcheck(operator.default, arguments)


def gradients(network, run):
    network.zero_grad()
    hidden = run(BATCH)
    hidden.square().mean().backward()
    return [hidden.detach(), *(weight.grad for weight in network.parameters() if weight.grad is not None)]


@pytest.mark.parametrize("family", ["bert", "qwen3", "modernbert"])
def test_a_compiled_network_calls_the_operators_and_gives_the_same(family):
    network = weft.create(family, vocabulary=50, layers=1, width=64, heads=4, seed=1).network.eval()
    graphs = []

    def keep(graph, inputs):
        graphs.append(graph)
        return graph.forward

    eager = gradients(network, network)
    for backend in (keep, "aot_eager"):
        torch.compiler.reset()
        compiled = torch.compile(network, fullgraph=True, backend=backend)
        for one, other in zip(eager, gradients(network, compiled), strict=True):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-6)
    nodes = {str(node.target) for part in graphs[0].modules() if hasattr(part, "graph") for node in part.graph.nodes}
    assert {"weft.attention.default", "weft.rms.default" if family == "qwen3" else "weft.layer.default"} <= nodes


def test_dropout_is_traced_too():
    network = weft.create("bert", vocabulary=50, layers=1, width=64, heads=4, dropout=0.3, seed=1).network.train()
    torch.compiler.reset()
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    torch.manual_seed(3)
    first = [x.clone() for x in gradients(network, compiled)]
    torch.manual_seed(3)
    assert all(torch.equal(*pair) for pair in zip(first, gradients(network, compiled), strict=True))
    assert not torch.equal(first[0], gradients(network, compiled)[0])


class OfTokens(torch.nn.Module):
    """torch.export takes tensors as arguments."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, tokens):
        return self.network(replace(BATCH, tokens=tokens))


@pytest.mark.parametrize("family", ["bert", "qwen3"])
def test_an_exported_network_gives_the_same_without_the_operators(family):
    network = OfTokens(weft.create(family, vocabulary=50, layers=2, width=64, heads=4, seed=1).network.eval())
    program = torch.export.export(network, (BATCH.tokens,))
    assert not [node for node in program.graph.nodes if "weft" in str(node.target)]
    tokens = torch.randint(50, BATCH.tokens.shape)
    torch.testing.assert_close(program.module()(tokens), network(tokens), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["bert", "qwen3", "modernbert"])
def test_a_network_of_fake_tensors_gives_shapes(family):
    network = weft.create(family, vocabulary=50, layers=1, width=64, heads=4).network
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        weights = {name: mode.from_tensor(weight) for name, weight in network.named_parameters()}
        hidden = functional_call(network, weights, (BATCH,))
        hidden.sum().backward()
        assert hidden.shape == (33, 64)
        assert network(BATCH).shape == (33, 64)  # weights that are real, while all that is new is fake


@pytest.fixture
def mesh(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.parametrize("how", [Shard(0), Replicate()])
def test_dtensors_use_the_formulas(mesh, how):
    torch.manual_seed(0)
    x, s, up = torch.randn(33, 16), torch.randn(33, 16), torch.randn(33, 32)
    norm, rms = torch.nn.LayerNorm(16), RMSNorm(16, eps=1e-6)
    plain = norm_of_sum(norm, x, s, 0.0), norm_and_input(rms, x)[0], gate(up)
    for module in (norm, rms):
        for name, weight in list(module.named_parameters()):
            setattr(module, name, torch.nn.Parameter(distribute_tensor(weight.detach(), mesh, [Replicate()])))
    x, s, up = (distribute_tensor(one, mesh, [how]) for one in (x, s, up))
    ours = norm_of_sum(norm, x, s, 0.0), norm_and_input(rms, x)[0], gate(up)
    for one, other in zip(plain, ours, strict=True):
        assert isinstance(other, DTensor)
        torch.testing.assert_close(one, other.full_tensor(), atol=1e-5, rtol=1e-5)


def test_dtensor_heads_use_the_formula_and_an_operator_refuses_them_with_a_sentence(mesh):
    q, k, v = (distribute_tensor(torch.randn(33, 2, 16), mesh, [Replicate()]) for _ in range(3))
    attended = attend(q, k, v, BATCH, BATCH, View(), scaled=True, dropout=0.0)
    plain = attend(*(x.full_tensor() for x in (q, k, v)), BATCH, BATCH, View(), scaled=True, dropout=0.0)
    torch.testing.assert_close(attended.full_tensor(), plain, atol=1e-5, rtol=1e-5)
    with pytest.raises(NotImplementedError, match=r"weft\.gate"):
        ops.gate(q.flatten(1))
