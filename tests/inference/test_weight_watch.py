"""Packed weights follow the network: changed numbers, settings, modules and modes are noticed before the next batch."""

import copy
import gc
import io
import pickle
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import nn

from random_models import make_random
from weft.inference.compiled_forward import compile_forward
from weft.inference.forward_trials import load_forward_kernels
from weft.inference.weight_watch import WeightWatch
from weft.model.dropout import Dropout
from weft.model.network import Network
from weft.model.packed import pack
from weft.model.quantized import put_quantized, quantize_weight

BATCH = pack([[1, 2, 3, 4], [5, 6]])

pytestmark = pytest.mark.skipif(load_forward_kernels() is None, reason="there is no C compiler")


def compiled(family: str = "bert", **more) -> Network:
    network = make_random(family, **more).network.eval()
    compile_forward(network, "fp32")
    return network


def up(network: Network) -> nn.Linear:
    return network.encoder.blocks[0].feedforward.up


def put(network: Network, name: str, value: object) -> None:
    owner, _, last = name.rpartition(".")
    setattr(network.get_submodule(owner), last, value)


def double_in_numpy(network: Network) -> None:
    up(network).weight.detach().numpy()[:] *= 2


CHANGES: dict[str, Callable[[Network], object]] = {
    "through .data": lambda network: up(network).weight.data.mul_(2),
    "through numpy": double_in_numpy,
    "an epsilon": lambda network: put(network, "encoder.blocks.0.attention_norm.eps", 0.5),
    "a bias removed": lambda network: put(network, "encoder.blocks.0.feedforward.up.bias", None),
    "a forward of its own": lambda network: put(network, "encoder.blocks.0.attention.out.forward", torch.zeros_like),
    "the encoder": lambda network: put(network, "encoder", compiled(seed=3).encoder),
    "the embeddings": lambda network: put(network, "embed", compiled(seed=3).embed),
    "a layer dropped": lambda network: network.encoder.blocks.__delitem__(0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_after_the_first_batch_counts(change):
    network = compiled()
    with torch.no_grad():
        before = network(BATCH)
        CHANGES[change](network)
        found, expected = network(BATCH), copy.deepcopy(network)(BATCH)  # a copy computes by its modules
    assert not torch.allclose(found, before, atol=1e-3)
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_bias_that_is_added_later_counts():
    network = compiled()
    up(network).bias = None
    with torch.no_grad():
        network(BATCH)
        up(network).bias = nn.Parameter(torch.ones(up(network).out_features))
        assert torch.allclose(network(BATCH), copy.deepcopy(network)(BATCH), atol=1e-5)


def test_inference_tensors_have_no_version_and_are_noticed():
    network = compiled()
    with torch.inference_mode():
        up(network).weight = nn.Parameter(up(network).weight.clone(), requires_grad=False)
        assert up(network).weight.is_inference()
        network(BATCH)
        up(network).weight.mul_(2)
        assert torch.allclose(network(BATCH), copy.deepcopy(network)(BATCH), atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "llama", "t5"])
def test_the_sample_covers_every_tensor(family):
    network = compiled(family)
    stack = network.encoder or network.decoder
    tensors = [*network.embed.parameters(), *stack.parameters()]
    for tensor in tensors:
        watch = WeightWatch(load_forward_kernels(), network.embed, stack)
        assert watch.is_unchanged()
        tensor.data.add_(1)
        assert not watch.is_unchanged()


def test_a_weight_that_shares_its_numbers_is_read_within_its_memory():
    linear = nn.Linear(64, 64, bias=False)
    linear.weight = nn.Parameter(torch.zeros(1).expand(64, 64), requires_grad=False)
    watch = WeightWatch(load_forward_kernels(), linear)
    assert list(watch.words) == [1]
    assert watch.is_unchanged()


def test_dropout_that_is_switched_on_alone_drops():
    network = compiled(dropout=0.5)
    with torch.no_grad():
        assert torch.equal(network(BATCH), network(BATCH))
        for module in network.modules():
            if isinstance(module, Dropout):
                module.train()
        assert not torch.equal(network(BATCH), network(BATCH))


def test_a_layer_that_is_quantized_in_place_stays_in_eval_mode():
    network = compiled()
    put_quantized(network, "encoder.blocks.0.feedforward.up", quantize_weight(up(network).weight))
    assert not up(network).training
    with torch.no_grad():
        assert network.fast.stack("encoder", BATCH, None, None) is not None


def test_packed_weights_go_with_a_cast():
    network = compiled()
    head = network.head("masked")
    with torch.no_grad():
        head(network(BATCH), BATCH)
        assert network.fast.sides["encoder"].known is not None
        assert len(head.fast.known) == 2
        network.to(torch.bfloat16)
        head(network(BATCH), BATCH)
    assert network.fast.sides["encoder"].known is None
    assert len(head.fast.known) == 0


def test_a_replaced_layer_of_a_head_is_not_kept():
    network = compiled()
    head = network.head("masked")
    old = weakref.ref(head.dense)
    with torch.no_grad():
        head(network(BATCH), BATCH)
    head.dense = nn.Linear(network.width, network.width)
    gc.collect()
    assert old() is None


def test_a_used_network_can_be_pickled_and_computes_by_its_modules():
    network = compiled()
    with torch.no_grad():
        expected = network.head("masked")(network(BATCH), BATCH)
        file = io.BytesIO()
        torch.save(network, file)
        file.seek(0)
        for found in (pickle.loads(pickle.dumps(network)), torch.load(file, weights_only=False)):
            assert found.fast is None
            assert found.head("masked").fast is None
            assert torch.allclose(found.head("masked")(found(BATCH), BATCH), expected, atol=1e-4)
