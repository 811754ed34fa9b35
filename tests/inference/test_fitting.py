"""What the kernels cannot compute is left to the modules, which compute it or say what is wrong."""

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from random_models import make_random
from weft.inference.compiled_forward import compile_forward
from weft.inference.forward_trials import load_forward_kernels
from weft.model.network import Network
from weft.model.packed import Packed, pack
from weft.tasks.learning.lora import adapt

BATCH = pack([[1, 2, 3, 4], [5, 6]])
ONE = pack([[1, 2, 3, 4]])

pytestmark = pytest.mark.skipif(load_forward_kernels() is None, reason="there is no C compiler")


def compiled(family: str = "bert", **more) -> Network:
    network = make_random(family, **more).network.eval()
    compile_forward(network, "fp32")
    return network


def equals_modules(network: Network, batch: Packed) -> bool:
    with torch.no_grad():
        return torch.equal(network(batch), copy.deepcopy(network)(batch))


class Wrapper(nn.Module):
    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, *given: object) -> Tensor:
        return 1.5 * self.inside(*given)


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def use_adapters(network: Network) -> None:
    adapt(network, rank=2, seed=0)
    for module in network.modules():
        if hasattr(module, "merged"):
            nn.init.ones_(module.up)


def use_subclass(network: Network) -> None:
    feedforward = network.encoder.blocks[0].feedforward
    layer = Doubled(feedforward.up.in_features, feedforward.up.out_features)
    layer.load_state_dict(feedforward.up.state_dict())
    feedforward.up = layer


def wrap(network: Network, name: str) -> None:
    network.set_submodule(name, Wrapper(network.get_submodule(name)))


UNKNOWN: dict[str, Callable[[Network], object]] = {
    "a wrapped block": lambda network: wrap(network, "encoder.blocks.0"),
    "a wrapped layer": lambda network: wrap(network, "encoder.blocks.0.feedforward.up"),
    "a wrapped encoder": lambda network: wrap(network, "encoder"),
    "a subclass": use_subclass,
    "adapters": use_adapters,
    "no norm": lambda network: network.set_submodule("encoder.blocks.0.attention_norm", nn.Identity()),
    "a norm as a layer": lambda network: network.set_submodule("encoder.blocks.0.attention.out", nn.LayerNorm(48)),
    "a parametrization": lambda network: parametrize.register_parametrization(
        network.encoder.blocks[0].feedforward.up, "weight", nn.Tanh()
    ),
}


@pytest.mark.parametrize("unknown", UNKNOWN)
def test_unknown_modules_compute_themselves(unknown):
    network = compiled()
    with torch.no_grad():
        before = network(BATCH)
    UNKNOWN[unknown](network)
    assert equals_modules(network, BATCH)
    with torch.no_grad():
        assert not torch.allclose(network(BATCH), before, atol=1e-3)


BATCHES: dict[str, tuple[str, Packed]] = {
    "tokens with a stride": ("bert", replace(ONE, tokens=torch.tensor([1, 9, 2, 9, 3, 9, 4, 9])[::2])),
    "positions in int32": ("llama", replace(ONE, positions=ONE.positions.int())),
    "rotary positions beyond the table": ("llama", replace(ONE, positions=ONE.positions + 5000)),
    "negative rotary positions": ("llama", replace(ONE, positions=ONE.positions - 2)),
    "one position for all": ("bert", replace(ONE, positions=ONE.positions[:1])),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_batches_that_c_cannot_read_are_for_the_modules(kind):
    family, batch = BATCHES[kind]
    assert equals_modules(compiled(family), batch)


def test_rotary_positions_within_the_table_are_those_of_the_modules():
    network, batch = compiled("llama"), replace(ONE, positions=ONE.positions + 1000)
    with torch.no_grad():
        found = network.fast.stack("decoder", batch, None, None)
        assert torch.allclose(found, copy.deepcopy(network)(batch), atol=1e-5)


def test_sinusoidal_positions_beyond_the_table_are_for_the_modules():
    network = compiled("bert", positions="sinusoidal")
    assert equals_modules(network, replace(ONE, positions=ONE.positions + 5000))
    with pytest.raises(IndexError, match="is not in the model's table"), torch.no_grad():
        compiled("bert")(replace(ONE, positions=ONE.positions + 5000))


@pytest.mark.parametrize(("sources", "targets"), [(1, 40), (2, 1)])
def test_sources_and_targets_must_be_as_many(sources, targets):
    with pytest.raises(ValueError, match="same sequences"), torch.no_grad():
        compiled("t5")(pack([[4, 5]] * sources), pack([[1, 2, 3]] * targets))


def test_memory_must_be_that_of_the_source():
    network = compiled("t5")
    with torch.no_grad():
        memory = network.encode(BATCH)
        spread = torch.stack([memory, memory], 1)[:, 0]
        assert torch.equal(network.decode(BATCH, spread, BATCH), copy.deepcopy(network).decode(BATCH, memory, BATCH))
        for wrong in (memory[:-1], memory[:, :-1].contiguous()):
            with pytest.raises((ValueError, RuntimeError)):
                network.decode(BATCH, wrong, BATCH)


def test_a_head_takes_rows_of_its_width_only():
    network = compiled()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), torch.no_grad():
        network.head("masked")(torch.zeros(6, 47), BATCH)


def test_the_sizes_are_those_of_the_weights():
    network = compiled()
    network.embed.tokens = nn.Embedding(10, 48)
    with pytest.raises(IndexError), torch.no_grad():
        network(pack([[60, 61]]))
    network = compiled()
    out = network.head("masked").out
    out.weight, out.bias = nn.Parameter(out.weight[:50].detach()), nn.Parameter(out.bias[:50].detach())
    with torch.no_grad():
        hidden = network(BATCH)
        found, expected = (one.head("masked")(hidden, BATCH) for one in (network, copy.deepcopy(network)))
    assert found.shape == (6, 50)
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_layer_of_another_size_is_refused_by_the_modules():
    network = compiled()
    network.encoder.blocks[0].feedforward.down = nn.Linear(500, 48)
    with pytest.raises(RuntimeError), torch.no_grad():
        network(BATCH)


@pytest.mark.parametrize("family", ["bert", "llama", "t5", "transformer"])
def test_the_default_device_does_not_matter(family):
    network = compiled(family)
    given = (BATCH, BATCH) if network.architecture.is_encoder_decoder else (BATCH,)
    head = network.head(next(iter(network.heads)))
    with torch.no_grad():
        expected = copy.deepcopy(network)(*given)
        logits = copy.deepcopy(head)(expected, BATCH)
        with torch.device("meta"):
            found = network(*given)
            assert torch.allclose(found, expected, atol=1e-5)
            assert torch.allclose(head(found, BATCH), logits, atol=1e-4)
