"""Layers of one stack may differ: in heads, head width, inner width, activation."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import weft
import weft.commands.info
from weft.errors import FolderError
from weft.generate import kernels, layer_kernel, layouts, prepare
from weft.generate.decoder import Decoder, TokenChunk
from weft.generate.prepare import prepared
from weft.interchange.folder import Description
from weft.model.families import design
from weft.model.flops import forward_flops, training_flops
from weft.model.initialize import draw_normal
from weft.model.keep import Keep
from weft.model.network import create_network
from weft.model.packed import pack
from weft.train.optimizers import OptimizerSpec, make_optimizers

SHAPE = {"vocabulary": 40, "layers": 3, "width": 32, "heads": 4}
SEQUENCES = [[1, 2, 3, 4, 5], [6, 7], [8, 9, 10]]


def vary(stack, *, heads=True):
    """Each block with another inner width; every second one with fewer and wider heads."""
    blocks = []
    for layer, block in enumerate(stack.blocks):
        inner = replace(block.feedforward, inner=16 * (layer + 1))
        attention = block.attention
        if heads and layer % 2:
            attention = replace(attention, heads=2, head_width=16, key_value_heads=1 if stack.causal else 2)
        blocks.append(replace(block, feedforward=inner, attention=attention))
    return replace(stack, blocks=tuple(blocks))


def unequal(family, seed=1, **settings):
    chosen, architecture = design(family, **{**SHAPE, **settings})
    sides = {
        side: vary(stack, heads=family != "t5")
        for side in ("encoder", "decoder")
        if (stack := getattr(architecture, side)) is not None
    }
    architecture = replace(architecture, **sides)
    network = create_network(architecture, seed).eval()
    return weft.Model(network, Description(chosen, chosen.default_head))


FAMILIES = ["bert", "gpt2", "llama", "qwen3", "modernbert", "t5", "transformer"]


@pytest.mark.parametrize("family", FAMILIES)
def test_an_unequal_stack_trains_saves_and_loads(family, tmp_path):
    model = unequal(family)
    network, batch = model.network.train(), pack(SEQUENCES)
    target = pack(SEQUENCES) if network.architecture.is_encoder_decoder else None
    before = {name: weight.clone() for name, weight in network.named_parameters()}
    optimizers = make_optimizers(network, OptimizerSpec("muon"))
    network(batch, target).square().sum().backward()
    for optimizer in optimizers:
        optimizer.step()
    assert all(not torch.equal(before[f"{name}.weight"], network.get_parameter(f"{name}.weight")) for name in [
        f"{'decoder' if network.encoder is None else 'encoder'}.blocks.{layer}.feedforward.up" for layer in range(3)
    ])  # fmt: skip
    network.eval()
    assert model.save(tmp_path) == "weft"
    loaded = weft.load(tmp_path)
    assert loaded.network.architecture == network.architecture
    targets = SEQUENCES if target is not None else None
    for ours, theirs in zip(loaded.logits(SEQUENCES, targets), model.logits(SEQUENCES, targets), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)  # a loaded model computes in C


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3", "t5", "transformer"])
@pytest.mark.parametrize("has_kernels", [True, False])
def test_generation_with_a_cache_equals_reading_everything_again(family, has_kernels, monkeypatch):
    if not has_kernels:
        for module in (kernels, layer_kernel, layouts, prepare):
            monkeypatch.setattr(module, "load_generation_kernels", lambda: None)
    model = unequal(family)
    with torch.no_grad():  # large enough that every layer matters
        for name, weight in model.network.named_parameters():
            if weight.dim() > 1:
                weight.copy_(draw_normal(2, name, weight.shape) * weight.shape[-1] ** -0.5)
    has_source = model.network.architecture.is_encoder_decoder
    sources, texts = (SEQUENCES, [[0], [0], [0]]) if has_source else (None, [list(row) for row in SEQUENCES])
    with torch.inference_mode():
        decoder = Decoder(prepared(model.network), 2**22)
        rows = [decoder.open_row(None if sources is None else decoder.read_source(sources[row])) for row in range(3)]
        logits = decoder.read([TokenChunk(row, text, 1) for row, text in zip(rows, texts, strict=True)])
        for step in range(8):
            expected = model.logits(sources, texts) if has_source else model.logits(texts)
            np.testing.assert_allclose(logits, np.stack([one[-1] for one in expected]), atol=1e-4)
            if step == 4:
                decoder.close(rows.pop(1))
                texts, sources = [texts[0], texts[2]], None if sources is None else [sources[0], sources[2]]
            texts = [[*text, (7 * step + row) % 40] for row, text in enumerate(texts)]
            logits = decoder.read([TokenChunk(row, text[-1:], 1) for row, text in zip(rows, texts, strict=True)])


def test_beams_move_between_rows_in_all_layers():
    model = unequal("llama")
    settings = {"strategy": "beam", "beams": 3, "max_new_tokens": 6, "min_new_tokens": 6}
    together = model.generate(SEQUENCES, **settings)
    assert together == [model.generate([prompt], **settings)[0] for prompt in SEQUENCES]


def test_flops_and_kept_weights_follow_each_layer():
    network = unequal("bert").network
    batch = pack(SEQUENCES)
    assert training_flops(network, batch) == 3 * forward_flops(network, batch)
    weights = sum(
        weight.numel()
        for name, weight in network.encoder.named_parameters()
        if weight.dim() == 2 and "norm" not in name
    )
    attended = sum(4 * 32 * length**2 for length in batch.lengths) * 3  # heads × head width is 32 in every layer
    head = 2 * (32 * 32 + 32 * 40) * len(batch.tokens)
    assert forward_flops(network, batch) == 2 * weights * len(batch.tokens) + attended + head
    _, kept = network(batch, keep=Keep(attention=(0, 1)))
    assert [kept.attention[layer][0].shape[0] for layer in (0, 1)] == [4, 2]


def test_info_names_each_layer_only_where_they_differ(tmp_path):
    unequal("bert").save(tmp_path / "unequal")
    weft.create("bert", **SHAPE).save(tmp_path / "equal")
    facts = weft.commands.info.describe(tmp_path / "unequal")
    assert facts["encoder"]["inner"] == [16, 32, 48]
    assert facts["encoder"]["heads"] == [4, 2, 4]
    assert weft.commands.info.describe(tmp_path / "equal")["encoder"]["heads"] == 4


def test_equal_layers_are_written_once_as_before(tmp_path):
    weft.create("bert", **SHAPE, positions="rotary").save(tmp_path)
    stack = json.loads((tmp_path / "config.json").read_text())["architecture"]["encoder"]
    assert stack["layers"] == 3
    assert "blocks" not in stack
    assert weft.load(tmp_path).network.architecture.encoder.layers == 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"blocks": []}, "blocks has 0 layers"),
        ({"blocks": [{}]}, r"encoder.blocks\[0\]"),
        ({"blocks": 3}, "blocks is not a list"),
        ({"blocks": [None] * 1001}, "1001 layers"),
    ],
)
def test_broken_layers_in_a_config_are_refused_by_their_path(change, says, tmp_path):
    unequal("bert").save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["architecture"]["encoder"] |= change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(FolderError, match=says):
        weft.load(tmp_path)


def test_relative_positions_need_equal_heads(tmp_path):
    _, architecture = design("t5", **SHAPE)
    with pytest.raises(ValueError, match="same number of heads"):
        create_network(replace(architecture, encoder=vary(architecture.encoder)))


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "gpt2"])
def test_heads_may_be_wider_than_their_share_of_the_width(family, tmp_path):
    model = weft.create(family, **SHAPE, head_width=16)
    assert model.save(tmp_path / "wide") == "weft"  # their Hugging Face formats have no key for it
    for ours, theirs in zip(weft.load(tmp_path / "wide").logits(SEQUENCES), model.logits(SEQUENCES), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    stack = model.network.architecture.encoder or model.network.architecture.decoder
    assert stack.blocks[0].attention.head_width == 16
    assert weft.create(family, **SHAPE, head_width=8).format == family


def test_blocks_with_other_shapes_start_from_their_own_names():
    network = unequal("bert", seed=7).network
    weight = network.encoder.blocks[1].feedforward.up.weight
    drawn = draw_normal(7, "encoder.blocks.1.feedforward.up.weight", weight.shape) * 0.02
    assert torch.equal(weight, drawn)
