"""Quantized folders: integers survive every trip, transformers with torchao opens them, broken ones are refused."""

import json
import random
import re

import numpy as np
import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import weft
from weft.compress.quantize.rounding import round_to_nearest
from weft.compress.quantize.run import matrix_names
from weft.errors import FolderError
from weft.interchange.torchao import pack_pairs, quantization_config, unpack_pairs
from weft.model.quantized import put_quantized, quantized_modules

SHAPE = {"vocabulary": 60, "layers": 2, "width": 32, "heads": 4}
HEADS = [
    *((family, None) for family in ("bert", "roberta", "distilbert", "modernbert", "llama", "qwen3", "t5", "gpt2")),
    *(("transformer", None), ("lstm", None), ("bert", "sequence"), ("distilbert", "token"), ("llama", "span")),
    *(("bert", "none"), ("llama", "none"), ("t5", "none"), ("modernbert", "sequence"), ("roberta", "sequence")),
]
IDS, TARGETS = [[3, 7, 9, 4], [5, 6, 8, 11]], [[0, 3, 4], [0, 9, 2]]
QUERY = "bert.encoder.layer.1.attention.self.query"


def make(family: str, head: str | None = None, bits: int = 8, **more) -> weft.Model:
    shape = {key: value for key, value in SHAPE.items() if family != "lstm" or key != "heads"}
    model = weft.create(family, head=head, **shape, **more)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.network.parameters():
            scale = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.3
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale + (parameter.dim() == 1) * 0.5)
    for name in matrix_names(model.network):
        layer = model.network.get_submodule(name)
        is_four = bits == 4 and isinstance(layer, nn.Linear) and not name.startswith("heads.")
        put_quantized(model.network, name, round_to_nearest(layer.weight, 4 if is_four else 8, group=16))
    return model


def outputs(model: weft.Model) -> list[np.ndarray]:
    targets = TARGETS if model.network.architecture.is_encoder_decoder else None
    return model.logits(IDS, targets) if model.description.head != "none" else model.hidden(IDS, targets)


def unpacked(model: weft.Model) -> weft.Model:
    config = quantization_config(quantized_modules(model.network).values(), packed=False)
    model.description.config["quantization_config"] = config
    return model


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize(("family", "head"), HEADS)
def test_a_quantized_model_is_the_same_after_saving_and_loading(family, head, bits, tmp_path):
    model = make(family, head, bits)
    model.save(tmp_path / "a")
    again = weft.load(tmp_path / "a")
    assert again.parameters_count == model.parameters_count
    found, expected = quantized_modules(again.network), quantized_modules(model.network)
    assert found.keys() == expected.keys()
    for name, layer in found.items():
        assert torch.equal(layer.values, expected[name].values)
        assert torch.equal(layer.scales, expected[name].scales)
        assert layer.quantized.bits == expected[name].quantized.bits
    again.save(tmp_path / "b")
    for ours, theirs in zip(outputs(weft.load(tmp_path / "b")), outputs(again), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_unpacked_four_bits_stay_unpacked(tmp_path):
    unpacked(make("llama", bits=4)).save(tmp_path / "a")
    weft.load(tmp_path / "a").save(tmp_path / "b")
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()
    make("llama", bits=4).save(tmp_path / "c")
    for ours, theirs in zip(outputs(weft.load(tmp_path / "a")), outputs(weft.load(tmp_path / "c")), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in "ac"]
    assert sizes[1] < 0.8 * sizes[0]


def test_pairs_of_values_share_a_byte():
    values = torch.randint(-8, 8, (6, 10), generator=torch.Generator().manual_seed(0)).to(torch.int8)
    assert pack_pairs(values).shape == (6, 5)
    assert torch.equal(unpack_pairs(pack_pairs(values)), values)
    assert pack_pairs(torch.tensor([[1, -1]], dtype=torch.int8)).view(torch.uint8).item() == 0xF1


@pytest.mark.parametrize("family", ["gpt2", "lstm"])
def test_what_transformers_cannot_open_quantized_is_in_wefts_own_format(family, tmp_path, capfd):
    assert make(family).save(tmp_path) == "weft"
    assert "weft's own format" in capfd.readouterr().err
    with pytest.raises(ValueError, match="weft"):
        transformers.AutoModel.from_pretrained(tmp_path)


OPENED = [(family, head) for family, head in HEADS if family not in ("gpt2", "lstm")]


def opened(model: weft.Model, folder) -> np.ndarray:
    """What transformers computes with the folder."""
    cls = getattr(transformers, json.loads((folder / "config.json").read_text())["architectures"][0])
    theirs, report = cls.from_pretrained(folder, output_loading_info=True)
    assert not report["unexpected_keys"] and not report["mismatched_keys"]
    assert all(key.startswith("pooler.") for key in report["missing_keys"]), "weft's BERT without a head has no pooler"
    extra = {}
    if model.network.architecture.is_encoder_decoder:
        extra["decoder_input_ids"] = torch.tensor(TARGETS)
    with torch.no_grad():
        found = theirs.eval()(input_ids=torch.tensor(IDS), **extra)
    if model.description.head == "span":
        return torch.stack([found.start_logits, found.end_logits], -1).numpy()
    return (found.logits if "logits" in found else found.last_hidden_state).numpy()


@pytest.mark.parametrize(("family", "head"), OPENED)
def test_transformers_with_torchao_opens_an_int8_folder(family, head, tmp_path):
    model = make(family, head)
    model.description.config["pad_token_id"] = 1
    model.save(tmp_path)
    ours, theirs = np.stack(outputs(model)), opened(model, tmp_path)
    # torchao divides inputs by max/127.5 where weft divides by max/127, so roundings differ.
    assert np.abs(ours - theirs).max() < 0.1 * np.abs(ours).max()
    assert np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.999


@pytest.mark.parametrize(
    ("family", "head"), [("bert", None), ("llama", None), ("t5", None), ("modernbert", "sequence")]
)
def test_transformers_with_torchao_opens_an_unpacked_int4_folder(family, head, tmp_path):
    model = unpacked(make(family, head, bits=4))
    model.save(tmp_path)
    ours, theirs = np.stack(outputs(model)), opened(model, tmp_path)
    assert np.abs(ours - theirs).max() < 0.03 * np.abs(ours).max()


def test_torchao_reads_packed_pairs_as_weft_does(tmp_path):
    """It computes with them on CUDA only, so this compares what it loads."""
    make("llama", bits=4).save(tmp_path)
    theirs = transformers.LlamaForCausalLM.from_pretrained(tmp_path)
    weight = theirs.model.layers[1].mlp.down_proj.weight
    assert type(weight).__name__ == "Int4Tensor" and tuple(weight.shape) == (32, weight.qdata.shape[1] * 2)
    scales = weight.scale.float().T.repeat_interleave(weight.block_size[1], 1)
    layer = weft.load(tmp_path).network.get_submodule("decoder.blocks.1.feedforward.down")
    assert torch.equal(unpack_pairs(weight.qdata) * scales, layer.weight)


def test_weft_opens_what_transformers_and_torchao_quantized(tmp_path, capfd):
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig

    weft.create("llama", **SHAPE).save(tmp_path / "plain")
    config = transformers.TorchAoConfig(Int8DynamicActivationInt8WeightConfig())
    theirs = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "plain", quantization_config=config)
    theirs.save_pretrained(tmp_path / "theirs")
    model = weft.load(tmp_path / "theirs")
    assert "are read as -127" in capfd.readouterr().err
    assert model.network.decoder.blocks[0].attention.qkv.bits == 8
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor(IDS)).logits.numpy()
    assert np.corrcoef(np.stack(model.logits(IDS)).ravel(), expected.ravel())[0, 1] > 0.999


@pytest.fixture
def folder(tmp_path):
    make("bert").save(tmp_path / "model")
    return tmp_path / "model"


def rewrite(folder, change) -> None:
    """`change(tensors, metadata)` changes both in place."""
    file = folder / "model.safetensors"
    with safe_open(file, framework="pt") as stored:
        metadata, tensors = dict(stored.metadata()), {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    change(tensors, metadata)
    save_file(tensors, file, metadata=metadata)


def described(metadata, **changes):
    facts = json.loads(metadata[f"{QUERY}.weight"])
    facts["_data"] |= changes
    metadata[f"{QUERY}.weight"] = json.dumps(facts)


def _put(key, value):
    return lambda tensors, metadata: tensors.__setitem__(f"{QUERY}._weight_{key}", value)


BROKEN = {
    "lack .*query._weight_scale": lambda tensors, metadata: tensors.pop(f"{QUERY}._weight_scale"),
    "lack .*query._weight_qdata": lambda tensors, metadata: tensors.pop(f"{QUERY}._weight_qdata"),
    r"query._weight_scale has shape \(31, 1\); its matrix makes it \(32, 1\)": _put("scale", torch.ones(31, 1)),
    "query._weight_qdata is stored as F32": _put("qdata", torch.ones(32, 32)),
    "query._weight_scale is stored as I8": _put("scale", torch.ones(32, 1, dtype=torch.int8)),
    "query.weight has shape": lambda tensors, metadata: (
        tensors.update({f"{QUERY}._weight_qdata": torch.ones(32, 30, dtype=torch.int8)}),
        described(metadata, block_size=[1, 30]),
    ),
    "scales that are negative, infinite or NaN": _put("scale", torch.full((32, 1), torch.nan)),
    "zero points other than 0": _put("zero_point", torch.ones(32, 1, dtype=torch.int8)),
    "has 3 dimensions": _put("qdata", torch.ones(32, 32, 1, dtype=torch.int8)),
    "twice, quantized and not": lambda tensors, metadata: tensors.update({f"{QUERY}.weight": torch.ones(32, 32)}),
    "quantized as Float8Tensor": lambda tensors, metadata: metadata.update(
        {f"{QUERY}.weight": metadata[f"{QUERY}.weight"].replace("Int8Tensor", "Float8Tensor")}
    ),
    "block size": lambda tensors, metadata: described(metadata, block_size=[1, 16]),
    "does not describe": lambda tensors, metadata: metadata.update(tensor_names="{"),
    r"lack \{x\}._weight_qdata": lambda tensors, metadata: metadata.update(
        {"tensor_names": '["{x}.weight"]', "{x}.weight": metadata[f"{QUERY}.weight"]}
    ),
    "as torchao does": lambda tensors, metadata: metadata.update({f"{QUERY}.weight": "[]"}),
    "must be quantized alike": lambda tensors, metadata: (
        metadata.update({f"{QUERY}.weight": '{"_type": "Tensor"}'}),
        [tensors.pop(f"{QUERY}._weight_{part}") for part in ("qdata", "scale", "zero_point")],
        tensors.update({f"{QUERY}.weight": torch.ones(32, 32)}),
    ),
}


@pytest.mark.parametrize("says", BROKEN)
def test_a_broken_quantized_folder_is_refused_by_one_sentence(says, folder):
    rewrite(folder, BROKEN[says])
    with pytest.raises(FolderError, match=says) as refusal:
        weft.load(folder)
    assert str(refusal.value).startswith(f"{folder}: ")
    assert str(refusal.value).endswith(".") and "\n" not in str(refusal.value)


def test_values_outside_four_bits_are_refused(tmp_path):
    unpacked(make("llama", bits=4)).save(tmp_path)
    name = "model.layers.0.mlp.down_proj._weight_qdata"
    rewrite(tmp_path, lambda tensors, metadata: tensors[name].fill_(8))
    with pytest.raises(FolderError, match="from 8 to 8; 4 bits reach from -8 to 7"):
        weft.load(tmp_path)


def test_a_quantized_position_table_is_refused(folder):
    name = "bert.embeddings.position_embeddings"

    def change(tensors, metadata):
        rows = len(tensors.pop(f"{name}.weight"))
        tensors[f"{name}._weight_qdata"] = torch.ones(rows, 32, dtype=torch.int8)
        tensors[f"{name}._weight_scale"] = torch.ones(rows, 1)
        metadata[f"{name}.weight"] = metadata[f"{QUERY}.weight"]

    rewrite(folder, change)
    with pytest.raises(FolderError, match="weft reads quantized linear layers and token embeddings"):
        weft.load(folder)


def test_random_damage_to_the_header_gives_a_sentence_or_the_same_model(folder):
    """No traceback, whatever stands in the descriptions."""
    file = folder / "model.safetensors"
    whole, expected = file.read_bytes(), outputs(weft.load(folder))
    chance = random.Random(0)
    pieces = [
        match.span() for match in re.finditer(rb"block_size|Int8Tensor|_type|_data|\[1, 32\]|tensor_names|null", whole)
    ]
    for _ in range(150):
        begin, end = chance.choice(pieces)
        damaged = bytearray(whole)
        damaged[chance.randrange(begin, end)] = chance.choice(b'x0"[]{},:9')
        file.write_bytes(damaged)
        try:
            model = weft.load(folder)
        except FolderError as error:
            assert "\n" not in str(error)
        else:
            for ours, theirs in zip(outputs(model), expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)
