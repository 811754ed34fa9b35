"""Cutting a network, the scores that decide on it, and the compensation, against oracles."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import weft
from task_models import scatter
from weft.compress.prune.compensate import LeastSquares, compensate
from weft.compress.prune.cut import KeptParts, cut_network, describe_cut, keep_everything
from weft.compress.prune.depth import block_influence
from weft.compress.prune.fisher import fisher_scores, masked_outputs
from weft.compress.prune.select import best_heads_of_all, best_parts
from weft.compress.prune.sparse import zero_weights
from weft.interchange.folder import save_format
from weft.model.network import Network
from weft.model.packed import pack
from weft.objectives.objective import Batch

SHAPE = {"layers": 3, "width": 32, "heads": 4}
FAMILIES = {
    "bert": {}, "roberta": {}, "distilbert": {}, "modernbert": {}, "gpt2": {},
    "llama": {"key_value_heads": 2}, "qwen3": {"key_value_heads": 2, "head_width": 16}, "t5": {"gated": True},
    "transformer": {},
}  # fmt: skip
FEWER_HEADS = ("llama", "qwen3", "t5")  # in their own formats


def make(family: str, **more) -> weft.Model:
    model = weft.create(family, vocabulary=40, **SHAPE, **{**FAMILIES[family], **more})
    scatter(model.network, 0)
    return model


def batch_for(network: Network, lengths=(5, 3, 7, 4), seed=0) -> Batch:
    """Every token is scored."""
    rng = np.random.default_rng(seed)
    packed = pack([rng.integers(3, 40, length) for length in lengths])
    head = next(iter(network.heads))
    if not network.architecture.is_encoder_decoder:
        targets = torch.from_numpy(rng.integers(3, 40, sum(lengths)))
        return Batch(packed, targets, counts={head: len(targets)})
    decoder = pack([rng.integers(3, 40, length) for length in reversed(lengths)])
    targets = torch.from_numpy(rng.integers(3, 40, sum(lengths)))
    return Batch(packed, targets, decoder=decoder, counts={head: len(targets)})


def some_parts(network: Network) -> KeptParts:
    """Two layers, half of the neurons, half of the heads."""
    scores = fisher_scores(network, [batch_for(network)])
    layers = dict.fromkeys(keep_everything(network.architecture), (0, 2))
    block = (network.architecture.encoder or network.architecture.decoder).blocks[0]
    return best_parts(
        network.architecture, scores, layers, block.feedforward.inner // 2, block.attention.key_value_heads // 2
    )


@torch.no_grad()
def hidden_states(network: Network, batch: Batch) -> torch.Tensor:
    return network(batch.packed, batch.decoder)


@pytest.mark.parametrize("family", FAMILIES)
def test_fisher_scores_equal_gradients_of_masks_sample_by_sample(family: str):
    network = make(family).network.eval()
    batch = batch_for(network)
    found = fisher_scores(network, [batch])
    assert all(parameter.requires_grad for name, parameter in network.named_parameters() if "out.bias" not in name)
    masks, expected = {}, {}
    handles = []
    for name, matrix, units in masked_outputs(network):
        masks[name] = torch.ones(units, requires_grad=True)

        def hook(module, given, mask=masks[name]):
            return (given[0] * mask.repeat_interleave(given[0].shape[1] // len(mask)),)

        handles.append(matrix.register_forward_pre_hook(hook))
    for number in range(len(batch.packed.lengths)):
        one = pack([batch.packed.split(batch.packed.tokens)[number].numpy()])
        reader, decoder = batch.decoder or batch.packed, None
        if batch.decoder is not None:
            decoder = pack([batch.decoder.split(batch.decoder.tokens)[number].numpy()])
        logits = network.head(next(iter(batch.counts)))(network(one, decoder), decoder or one)
        loss = F.cross_entropy(logits, reader.split(batch.targets)[number], reduction="sum")
        for name, grad in zip(masks, torch.autograd.grad(loss, list(masks.values())), strict=True):
            expected[name] = expected.get(name, 0) + grad.double().square()
    for handle in handles:
        handle.remove()
    assert found.keys() == expected.keys()
    for name in found:
        torch.testing.assert_close(found[name], expected[name], rtol=2e-3, atol=1e-6 * float(expected[name].max()))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cut_network_equals_the_masked_one(family: str):
    network = make(family).network.eval()
    kept, batch = some_parts(network), batch_for(network)
    cut = cut_network(network, kept)
    layers = {side: tuple(layer.layer for layer in part) for side, part in kept.items()}
    everything = keep_everything(network.architecture)
    shallow = cut_network(network, {side: tuple(everything[side][n] for n in layers[side]) for side in layers})
    handles = []
    for name, matrix, units in masked_outputs(shallow):
        side, _, number, kind = name.split(".")
        layer = kept[side][int(number)]
        part = {"attention": layer.heads, "cross": layer.cross, "feedforward": layer.neurons}[kind]
        mask = torch.zeros(units)
        mask[part] = 1.0

        def hook(module, given, mask=mask):
            return (given[0] * mask.repeat_interleave(given[0].shape[1] // len(mask)),)

        handles.append(matrix.register_forward_pre_hook(hook))
    expected = hidden_states(shallow, batch)
    for handle in handles:
        handle.remove()
    torch.testing.assert_close(hidden_states(cut, batch), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_format_of_the_family_stays_where_it_knows_the_shape(family: str):
    model = make(family)
    kept = some_parts(model.network)
    if family not in FEWER_HEADS:
        heads = {side: part[0] for side, part in keep_everything(model.network.architecture).items()}
        kept = {
            side: tuple(replace(one, heads=heads[side].heads, cross=heads[side].cross) for one in part)
            for side, part in kept.items()
        }
    cut = cut_network(model.network, kept)
    assert save_format(cut, describe_cut(model.description, cut.architecture)) == model.format != "weft"


def test_uneven_heads_are_saved_in_wefts_own_format():
    model = make("bert")
    scores = fisher_scores(model.network, [batch_for(model.network)])
    kept = best_heads_of_all(model.network.architecture, scores, 0.5)
    assert sum(len(layer.heads) for layer in kept["encoder"]) == 6
    cut = cut_network(model.network, kept)
    if len({len(layer.heads) for layer in kept["encoder"]}) > 1:
        assert not cut.architecture.encoder.is_uniform
    assert save_format(cut, describe_cut(model.description, cut.architecture)) == "weft"


def test_least_squares_equal_numpys():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 7)), rng.normal(size=(200, 3))
    sums = LeastSquares.empty(7, 3, bias=True)
    for part in range(0, 200, 50):
        sums.add(torch.from_numpy(x[part : part + 50]), torch.from_numpy(y[part : part + 50]))
    start = torch.zeros(8, 3, dtype=torch.float64)
    expected, residual, *_ = np.linalg.lstsq(np.hstack([x, np.ones((200, 1))]), y, rcond=None)
    found = sums.solve(start, 0.0)
    np.testing.assert_allclose(found, expected, atol=1e-8)
    assert sums.error(found) == pytest.approx(residual.sum())
    # A ridge is the same as rows of the square root of the penalty that ask for the start.
    start = torch.from_numpy(rng.normal(size=(8, 3)))
    ridge = 0.3 * float(sums.xx.diagonal().mean())
    rows = np.hstack([np.sqrt(ridge) * np.eye(7), np.zeros((7, 1))])
    more = np.vstack([np.hstack([x, np.ones((200, 1))]), rows])
    expected, *_ = np.linalg.lstsq(more, np.vstack([y, rows @ start.numpy()]), rcond=None)
    np.testing.assert_allclose(sums.solve(start, 0.3), expected, atol=1e-8)


@pytest.mark.parametrize("family", FAMILIES)
def test_compensation_brings_the_hidden_states_nearer(family: str):
    network = make(family).network.eval()
    kept = some_parts(network)
    batches = [batch_for(network, (9, 8, 7, 6) * 8, seed) for seed in range(1, 9)]
    cut, fitted = cut_network(network, kept), cut_network(network, kept)
    compensate(network, fitted, kept, batches)
    new = batch_for(network, (9, 8, 7, 6) * 8, 99)
    whole = hidden_states(network, new)
    before, after = ((hidden_states(one, new) - whole).square().mean() for one in (cut, fitted))
    assert after < before


def test_compensation_leaves_a_whole_network_alone():
    network = make("bert").network.eval()
    kept = keep_everything(network.architecture)
    fitted, batches = cut_network(network, kept), [batch_for(network, seed=seed) for seed in range(6)]
    compensate(network, fitted, kept, batches)
    torch.testing.assert_close(hidden_states(fitted, batches[0]), hidden_states(network, batches[0]))


def test_block_influence_is_one_minus_the_cosine():
    model = make("gpt2")
    sequences = [[5, 6, 7, 8], [9, 10, 11]]
    found = block_influence(model.network, [Batch(pack(sequences))])
    for layer in range(2):  # the last output has passed the final norm
        x, y = (np.concatenate([h[0] for h in model.hidden(sequences, layers=[n])]) for n in (layer, layer + 1))
        cosine = (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
        assert found["decoder", layer] == pytest.approx(1 - cosine.mean(), abs=1e-5)


def test_zeroed_weights_are_the_smallest_by_weight_and_input():
    network = make("bert").network.eval()
    batch = batch_for(network)
    inputs = []
    handle = network.encoder.blocks[0].feedforward.up.register_forward_pre_hook(
        lambda _, given: inputs.append(given[0])
    )
    hidden_states(network, batch)
    handle.remove()
    before = network.encoder.blocks[0].feedforward.up.weight.detach().clone()
    zeros = zero_weights(network, [batch], 0.25)
    after = network.encoder.blocks[0].feedforward.up.weight
    scores = before.abs() * inputs[0].norm(dim=0)
    smallest = scores.argsort(dim=1)[:, :24]
    assert (after.gather(1, smallest) == 0).all() and int((after == 0).sum()) == smallest.numel()
    assert zeros == sum(
        int((m.weight == 0).sum()) for n, m in network.named_modules() if ".blocks." in n and hasattr(m, "in_features")
    )
