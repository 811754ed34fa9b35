from dataclasses import replace

import pytest
import torch

import weft
from weft.model.loss import vocabulary_loss
from weft.model.network import Network
from weft.model.packed import pack
from weft.train.optimizers import OptimizerSpec, make_optimizers, orthogonal, set_rate

SHAPE = {"vocabulary": 50, "layers": 2, "width": 16, "heads": 2}


@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "t5", "transformer", "modernbert", "lstm"])
def test_every_parameter_is_in_exactly_one_group(kind, family):
    shape = SHAPE if family != "lstm" else {"vocabulary": 50, "layers": 2, "width": 16}
    network = weft.create(family, **shape).network
    optimizers = make_optimizers(network, OptimizerSpec(kind))
    grouped = [p for o in optimizers for group in o.param_groups for p in group["params"]]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == {p for p in network.parameters() if p.requires_grad}


def test_norms_and_biases_do_not_decay():
    network = weft.create("bert", **SHAPE).network
    names = {p: name for name, p in network.named_parameters()}
    for group in make_optimizers(network, OptimizerSpec())[0].param_groups:
        for parameter in group["params"]:
            is_vector = "norm" in names[parameter] or names[parameter].endswith("bias")
            assert (group["weight_decay"] == 0) == is_vector, names[parameter]


def test_muon_takes_the_matrices_in_the_blocks_and_nothing_else():
    network = weft.create("llama", **SHAPE, key_value_heads=1).network
    muon, _ = make_optimizers(network, OptimizerSpec("muon"))
    names = {p: name for name, p in network.named_parameters()}
    taken = {names[group["params"][0]]: group["rows"] for group in muon.param_groups}
    assert taken["decoder.blocks.0.attention.qkv.weight"] == (16, 8, 8)
    assert all(".blocks." in name and "norm" not in name for name in taken)
    assert len(taken) == 8


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(16, 16), (8, 40), (64, 16)])
def test_an_orthogonal_update_has_singular_values_near_one(shape, precision):
    torch.manual_seed(0)
    update = orthogonal(torch.randn(shape).to(precision)) / max(1.0, shape[0] / shape[1]) ** 0.5
    values = torch.linalg.svdvals(update.float())
    assert values.min() > 0.5
    assert values.max() < 1.3
    assert update.dtype == precision


def test_weights_stay_fp32_and_go_the_same_way_with_products_in_bfloat16():
    moved = {}
    for precision in (torch.float32, torch.bfloat16):
        network = weft.create("gpt2", **SHAPE, seed=1).network
        before = {name: weight.detach().clone() for name, weight in network.named_parameters()}
        optimizers = make_optimizers(network, OptimizerSpec("muon"), precision)
        generator = torch.Generator().manual_seed(0)
        for weight in network.parameters():
            weight.grad = torch.randn(weight.shape, generator=generator)
        set_rate(optimizers, 1.0, 1)
        for optimizer in optimizers:
            optimizer.step()
        assert all(weight.dtype == torch.float32 for weight in network.parameters())
        moved[precision] = {name: weight.detach() - before[name] for name, weight in network.named_parameters()}
    for name, change in moved[torch.float32].items():
        other = moved[torch.bfloat16][name]
        assert torch.cosine_similarity(change.flatten(), other.flatten(), 0) > 0.999, name


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_both_learn(kind):
    torch.manual_seed(0)
    network = weft.create("gpt2", **SHAPE, dropout=0.0, seed=1).network
    optimizers = make_optimizers(network, OptimizerSpec(kind, learning_rate=3e-3))
    batch = pack([[1, 2, 3, 4, 5, 6, 7, 8]])
    head, losses = network.heads["causal"], []
    for _ in range(80):
        loss = vocabulary_loss(head, head.prepare(network(batch), batch)[:-1], batch.tokens[1:], scale=1 / 7)
        loss.backward()
        set_rate(optimizers, 1.0, 0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_the_schedule_multiplies_each_groups_own_peak():
    network = weft.create("gpt2", **SHAPE).network
    optimizers = make_optimizers(network, OptimizerSpec("muon", learning_rate=0.01, matrix_rate=0.04))
    set_rate(optimizers, 0.5, 0)
    assert {group["lr"] for o in optimizers for group in o.param_groups} == {0.005, 0.02}


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_t5_learns_as_fast_as_if_its_embeddings_and_not_its_predictions_were_scaled(kind):
    """√W · E read and E · h predicted, as in the original Transformer, is the same function with a table that is √W
    times smaller: it must also be the same a few steps later.
    """
    first = weft.create("t5", **SHAPE, dropout=0.0, seed=1).network
    architecture = first.architecture
    heads = tuple(replace(head, scale=None) for head in architecture.heads)
    embedding = replace(architecture.embedding, scaled=True)
    second = Network(replace(architecture, embedding=embedding, heads=heads))
    second.load_state_dict(first.state_dict())
    with torch.no_grad():
        second.embed.tokens.weight /= 4.0  # √16

    source, target = pack([[1, 2, 3, 4, 5]]), pack([[0, 6, 7, 8]])
    answers = torch.tensor([6, 7, 8, 1])
    losses: list[list[float]] = []
    for network in (first, second):
        head = network.heads["seq2seq"]
        spec = OptimizerSpec(kind, learning_rate=3e-3, weight_decay=0.1, epsilon=1e-16)
        optimizers = make_optimizers(network, spec)
        losses.append([])
        for step in range(10):
            loss = vocabulary_loss(head, head.prepare(network(source, target), target), answers, scale=1 / 4)
            loss.backward()
            set_rate(optimizers, 1.0, step)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            losses[-1].append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert losses[0][-1] < 0.9 * losses[0][0]
