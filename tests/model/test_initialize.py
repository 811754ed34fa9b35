"""Initial weights are a function of (seed, parameter name)."""

import pytest
import torch
from torch import nn

import weft
from weft.model.families import design
from weft.model.initialize import InitSpec, draw_normal, initialize
from weft.model.network import Network, create_network

SHAPE = {"vocabulary": 60, "width": 32, "heads": 2}
FAMILIES = ["bert", "gpt2", "llama", "qwen3", "t5", "transformer", "modernbert", "lstm"]


def weights(family, seed=1, head=None, **settings):
    _, architecture = design(family, head=head, **{**SHAPE, "layers": 2, **settings})
    return create_network(architecture, seed).state_dict()


def assert_shared_are_equal(ours, others, but=()):
    shared = [name for name in ours if name in others and name not in but]
    assert shared
    for name in shared:
        assert torch.equal(ours[name], others[name]), name


@pytest.mark.parametrize(
    ("family", "one", "other"),
    [("bert", "masked", "sequence"), ("bert", "masked", "masked+next-sentence"), ("gpt2", "causal", "token")],
)
def test_another_head_leaves_the_backbone_as_it_was(family, one, other):
    ours, others = weights(family, head=one), weights(family, head=other)
    assert ours.keys() != others.keys()
    assert_shared_are_equal(ours, others)


def test_one_more_layer_leaves_the_others_as_they_were():
    assert_shared_are_equal(weights("bert", layers=2), weights("bert", layers=3))
    # What writes to the residual stream is scaled by depth: the same draw in other units.
    ours, others = weights("gpt2", layers=2), weights("gpt2", layers=8)
    writers = {name for name in ours if name.endswith((".out.weight", ".down.weight")) and "blocks" in name}
    assert_shared_are_equal(ours, others, but=writers)
    for name in writers:
        torch.testing.assert_close(ours[name], others[name] * 2)


def test_the_order_of_modules_does_not_matter():
    class Two(nn.Module):
        def __init__(self, names):
            super().__init__()
            for name in names:
                self.add_module(name, nn.Linear(5, 7))

    one, other = Two(["a", "b"]), Two(["b", "a"])
    for network in (one, other):
        initialize(network, InitSpec(), layers=1, seed=4)
    assert_shared_are_equal(one.state_dict(), other.state_dict())
    assert not torch.equal(one.a.weight, one.b.weight)


def test_values_are_drawn_in_float32_whatever_the_network_holds():
    _, architecture = design("bert", **SHAPE, layers=1)
    half = Network(architecture).to(torch.bfloat16)
    initialize(half, architecture.init, layers=1, seed=3)
    for name, weight in create_network(architecture, 3).state_dict().items():
        assert torch.equal(half.state_dict()[name], weight.to(torch.bfloat16)), name


@pytest.mark.parametrize("family", FAMILIES)
def test_seeds_and_names_have_streams_of_their_own(family):
    drawn = [weight for weight in weights(family).values() if weight.std() > 0]
    assert len({tuple(weight.flatten()[:8].tolist()) for weight in drawn}) == len({w.data_ptr() for w in drawn})
    ours, others = weights(family, seed=1), weights(family, seed=1 + 2**32)
    assert any(not torch.equal(ours[name], others[name]) for name in ours)
    assert_shared_are_equal(ours, weights(family, seed=1))


@pytest.mark.parametrize(
    ("family", "pattern", "std"),
    [
        ("bert", "blocks.0.attention.qkv.weight", 0.02),
        ("gpt2", "blocks.0.attention.out.weight", 0.02 / 2),  # √(2 · 2 layers)
        ("gpt2", "blocks.0.feedforward.down.weight", 0.02 / 2),
        ("lstm", "lstm.weight_ih_l0", 3**-0.5 * 256**-0.5),
        ("t5", "embed.tokens.weight", 0.02 * 16),  # √W
        ("t5", "encoder.blocks.0.attention.out.weight", 0.02),
    ],
)
def test_matrices_have_their_published_spread(family, pattern, std):
    found = weights(family, width=256)
    (name,) = (name for name in found if name.endswith(pattern))
    assert abs(found[name].mean()) < std / 10
    assert found[name].std().item() == pytest.approx(std, rel=0.03)


def test_norms_start_at_one_and_biases_at_zero():
    for name, weight in weights("bert").items():
        if "norm" in name and name.endswith("weight"):
            assert (weight == 1).all(), name
        elif name.endswith("bias"):
            assert (weight == 0).all(), name


def test_t5s_queries_are_smaller_by_the_root_of_the_head_width():
    qkv = weights("t5", width=256, head_width=64)["encoder.blocks.0.attention.qkv.weight"]
    queries, keys = qkv[:128], qkv[128:256]
    assert queries.std().item() == pytest.approx(0.02 / 8, rel=0.03)
    assert keys.std().item() == pytest.approx(0.02, rel=0.03)


def test_a_tied_matrix_is_drawn_once_under_its_first_name():
    network = weft.create("bert", **SHAPE, layers=1, seed=5).network
    drawn = draw_normal(5, "embed.tokens.weight", network.embed.tokens.weight.shape) * 0.02
    assert torch.equal(network.heads["masked"].out.weight, drawn)
