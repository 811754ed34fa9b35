"""GGUF files become model folders: the same numbers, the same tokens; damaged files end in a sentence."""

import json
import os
import random
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers

import weft
from export_gguf_proof import random_model
from weft.exports.gguf.file import GgufSource
from weft.exports.gguf.read import import_gguf
from weft.exports.gguf.write import gguf_tensors, write_gguf_file
from weft.exports.samples import TEXTS
from weft.model.positions import LinearScaling, Llama3Scaling

CASES: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", {}),
    ("gpt2", {"tied": False}),
    ("llama", {"key_value_heads": 2}),
    ("llama", {"attention_bias": True, "feedforward_bias": True, "tied": True}),
    ("llama", {"scaling": LinearScaling(4.0)}),
    ("llama", {"scaling": Llama3Scaling(8.0, 1.5, 5.0, 16), "theta": 500.0, "head_width": 32}),
    ("qwen3", {"key_value_heads": 1, "head_width": 32}),
]


def written(model: weft.Model, place: Path, precision: str = "fp32") -> Path:
    write_gguf_file(model, place / f"{precision}.gguf", precision)
    return place / f"{precision}.gguf"


def contents(file: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    source = GgufSource(file)
    return {
        name: (known.stored.name, known.shape, source.stored_bytes(name).tobytes())
        for name, known in source.tensors.items()
    }


@pytest.mark.parametrize(("family", "more"), CASES, ids=[f"{family}-{'-'.join(more)}" for family, more in CASES])
def test_a_file_comes_back_as_the_model_it_was_made_of(family: str, more: dict[str, Any], tmp_path: Path):
    model = random_model(family, "causal", **more)
    facts = import_gguf(written(model, tmp_path), tmp_path / "again")
    again = weft.load(tmp_path / "again")
    assert again.network.architecture == model.network.architecture
    for (name, mine), (_, other) in zip(
        model.network.named_parameters(), again.network.named_parameters(), strict=True
    ):
        assert torch.equal(mine, other), name
    assert [again.tokenizer.encode(text) for text in TEXTS] == [model.tokenizer.encode(text) for text in TEXTS]
    assert again.tokenizer.special == {
        role: token for role, token in model.tokenizer.special.items() if role in ("bos", "eos", "unk")
    }
    assert facts["parameters"] == model.parameters_count
    assert again.format == family


@pytest.mark.parametrize("precision", ["fp32", "f16", "bf16", "q8_0"])
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_file_written_again_is_the_same_to_the_bit(family: str, precision: str, tmp_path: Path):
    first = written(random_model(family, "causal"), tmp_path, precision)
    import_gguf(first, tmp_path / "again")
    (tmp_path / "second").mkdir()
    second = written(weft.load(tmp_path / "again"), tmp_path / "second", precision)
    assert contents(first) == contents(second)
    values = (GgufSource(file).values for file in (first, second))
    mine, other = ({**one, "general.name": None} for one in values)
    assert mine == other


@pytest.mark.parametrize("precision", ["f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"])
def test_numbers_are_those_that_gguf_dequantizes(precision: str, tmp_path: Path):
    file = written(random_model("qwen3", "causal", layers=1), tmp_path, precision)
    import_gguf(file, tmp_path / "again")
    again = dict(gguf_tensors(weft.load(tmp_path / "again").network))
    for tensor in gguf.GGUFReader(file).tensors:
        assert np.array_equal(gguf.dequantize(tensor.data, tensor.tensor_type), again[tensor.name].numpy())


def test_transformers_opens_the_folder(tmp_path: Path):
    model = random_model("llama", "causal", key_value_heads=2)
    import_gguf(written(model, tmp_path), tmp_path / "again")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "again").eval()
    ids = model.tokenizer.encode("Alice was beginning")
    with torch.no_grad():
        difference = theirs(torch.tensor([ids])).logits[0].numpy() - model.logits([ids])[0]
    assert np.abs(difference).max() < 1e-4
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    assert tokenizer("Alice was beginning")["input_ids"] == ids


def test_settings_and_the_chat_template_come_back(tmp_path: Path):
    model = random_model("llama", "causal")
    model.description.generation.update(temperature=0.5, top_k=7, eos_token_id=[2, 5])
    model.tokenizer.files["chat_template.jinja"] = "{{ messages[0]['content'] }} 你好".encode()
    import_gguf(written(model, tmp_path), tmp_path / "again")
    said = json.loads((tmp_path / "again/generation_config.json").read_text("utf-8"))
    assert said == {"bos_token_id": 1, "eos_token_id": [2, 5], "temperature": 0.5, "top_k": 7, "do_sample": True}
    assert (tmp_path / "again/chat_template.jinja").read_text("utf-8") == "{{ messages[0]['content'] }} 你好"


def test_qwen2_is_a_llama_whose_output_bias_is_zero(tmp_path: Path):
    """Rows of queries and keys are not interleaved, as they are in a file of the architecture llama."""
    model = random_model("llama", "causal", attention_bias=True)
    writer = gguf.GGUFWriter(tmp_path / "qwen2.gguf", "qwen2")
    source = GgufSource(written(model, tmp_path))
    for key, value in source.values.items():
        if key.startswith("llama.") and not key.endswith(("key_length", "value_length", "dimension_count")):
            add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
            add(key.replace("llama.", "qwen2."), value)
    with torch.no_grad():
        for block in model.network.decoder.blocks:
            block.attention.out.bias.zero_()
    parameters = dict(model.network.named_parameters())
    for name in source.tensors:
        if name.endswith("attn_output.bias"):
            continue
        values = source.get(name)
        if ".attn_q." in name or ".attn_k." in name:
            rows = parameters[f"decoder.blocks.{name[4]}.attention.qkv.{name.rpartition('.')[2]}"].detach().numpy()
            start = 64 * (".attn_k." in name)
            values = rows[start : start + 64]
        writer.add_tensor(name, np.ascontiguousarray(values))
    facts = import_gguf(finished(writer), tmp_path / "again")
    assert "cannot be read: add a tokenizer.json" in facts["notes"][0]
    ids = [[3, 1, 4, 1, 5]]
    assert np.allclose(weft.load(tmp_path / "again").logits(ids)[0], model.logits(ids)[0], atol=1e-4)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = random_model("llama", "causal", width=32, heads=2, inner=32)
    return written(model, tmp_path_factory.mktemp("small"), "q8_0")


def attempt(data: bytes, place: Path) -> str | None:
    """What is said of the file; None if it is taken."""
    file = place / "bad.gguf"
    file.write_bytes(data)
    try:
        import_gguf(file, place / "out")
    except weft.FolderError as error:
        assert str(file) in str(error)
        assert not (place / "out").exists()
        return str(error)
    return None


def test_a_truncated_file_is_refused_wherever_it_ends(small: Path, tmp_path: Path):
    data = small.read_bytes()
    draw = random.Random(0)
    for end in [*range(64), *(draw.randrange(len(data)) for _ in range(60)), len(data) - 40]:
        assert attempt(data[:end], tmp_path), end


def test_wild_numbers_never_crash_nor_hang(small: Path, tmp_path: Path):
    """Counts, lengths, types and offsets anywhere before the tensors."""
    data, draw = small.read_bytes(), random.Random(0)
    header = GgufSource(small).tensors["token_embd.weight"].start
    refused = 0
    for _ in range(120):
        changed, place = bytearray(data), draw.randrange(4, header - 8)
        if draw.random() < 0.5:
            wild = draw.choice([2**64 - 1, 2**63, 2**40, 2**32 - 1, len(data), 0, 1])
            changed[place : place + 8] = struct.pack("<Q", wild)
        else:
            changed[place] = draw.randrange(256)
        if attempt(bytes(changed), tmp_path):
            refused += 1
        else:
            weft.load(tmp_path / "out")
            for file in (tmp_path / "out").iterdir():
                file.unlink()
            (tmp_path / "out").rmdir()
    assert refused > 10


def patched(file: Path, place: Path, **changes: Any) -> bytes:
    """The file with settings changed, added, or removed (None). __ stands for a dot in a key."""
    source = GgufSource(file)
    values = {**source.values, **{key.replace("__", "."): value for key, value in changes.items()}}
    writer = gguf.GGUFWriter(place / "patched.gguf", values.pop("general.architecture"))
    kinds = {bool: "BOOL", int: "UINT32", float: "FLOAT32", str: "STRING", list: "ARRAY"}
    for key, value in values.items():
        if value is not None:
            writer.add_key_value(key, value, gguf.GGUFValueType[kinds[type(value)]])
    for name, known in source.tensors.items():
        raw = source.stored_bytes(name)
        if known.stored == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(name, raw.view(np.float32).reshape(known.shape))
        else:
            shape = gguf.quant_shape_to_byte_shape(known.shape, known.stored)
            writer.add_tensor(name, raw.reshape(shape), raw_dtype=known.stored)
    return finished(writer).read_bytes()


def finished(writer: gguf.GGUFWriter) -> Path:
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()
    return writer.path


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"general__architecture": "mamba"}, "the architecture 'mamba' cannot be imported"),
    ({"llama__block_count": None}, "it has no setting llama.block_count"),
    ({"llama__block_count": 3}, "it has no blk.2."),
    ({"llama__block_count": 1}, "it holds blk.1."),
    ({"llama__block_count": "two"}, "llama.block_count is 'two', not a number"),
    ({"llama__block_count": 900_000_000}, "not a number from 1 to 10,000,000"),
    ({"llama__block_count": 5_000_000}, "layers 5,000,000 is more than 1,000"),
    ({"llama__embedding_length": 64}, "has the shape (500, 32); the settings make it (500, 64)"),
    ({"llama__attention__head_count": 3}, "its settings make no model"),
    ({"llama__attention__head_count": [2, 1]}, "is a list of 2, not a number"),
    ({"llama__attention__layer_norm_rms_epsilon": float("nan")}, "is nan, not a number"),
    ({"llama__expert_count": 8}, "llama.expert_count is 8, not 0: weft has no such variant"),
    ({"llama__attention__sliding_window": 512}, "weft has no such variant"),
    ({"llama__rope__dimension_count": 8}, "the head width: weft has no such variant"),
    ({"llama__rope__scaling__type": "yarn"}, "scaled in a way that weft does not have"),
    ({"llama__rope__scaling__attn_factor": 2.0}, "weft has no such variant"),
    ({"split__count": 3}, "it is one of 3 files of a model. Join them first"),
    ({"llama__rope__freq_base": -1.0}, "no base of frequencies"),
    ({"tokenizer__ggml__tokens": ["a", "b"]}, "tokenizer.ggml.tokens has 2 items; the embedding has 500 rows"),
    ({"tokenizer__ggml__tokens": ["a"] * 500}, "has the token 'a' twice"),
    ({"tokenizer__ggml__tokens": 7}, "tokenizer.ggml.tokens is not a list"),
    ({"tokenizer__ggml__eos_token_id": 500}, "tokenizer.ggml.eos_token_id is 500; ids are from 0 to 499"),
    ({"tokenizer__ggml__merges": [7]}, "tokenizer.ggml.merges is not a list"),
    ({"tokenizer__ggml__model": 3}, "tokenizer.ggml.model is not a text"),
    ({"tokenizer__ggml__add_bos_token": 3}, "is neither true nor false"),
    ({"general__alignment": 3}, "general.alignment is 3, which is not a power of two"),
]


@pytest.mark.parametrize(("changes", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_settings_that_weft_cannot_follow_are_refused(
    changes: dict[str, Any], reason: str, small: Path, tmp_path: Path
):
    said = attempt(patched(small, tmp_path, **changes), tmp_path)
    assert said is not None
    assert reason in said


def test_a_patched_file_without_changes_is_taken(small: Path, tmp_path: Path):
    assert attempt(patched(small, tmp_path), tmp_path) is None


def test_other_files_are_refused_by_what_they_are(tmp_path: Path):
    assert "does not begin with GGUF" in attempt(b"PK\x03\x04" + bytes(50), tmp_path)
    assert "is empty" in attempt(b"", tmp_path)
    assert "big-endian" in attempt(b"GGUF" + (3).to_bytes(4, "big") + bytes(50), tmp_path)
    assert "its version is 1" in attempt(b"GGUF" + (1).to_bytes(4, "little") + bytes(50), tmp_path)
    with pytest.raises(weft.FolderError, match="does not exist"):
        import_gguf(tmp_path / "none.gguf", tmp_path / "out")
    with pytest.raises(weft.FolderError, match=r"is a folder\. Name the GGUF file in it"):
        import_gguf(tmp_path, tmp_path / "out")


def test_a_tensor_with_nan_is_refused(small: Path, tmp_path: Path):
    data, known = bytearray(small.read_bytes()), GgufSource(small).tensors["output_norm.weight"]
    data[known.start : known.start + 4] = struct.pack("<f", float("nan"))
    assert "output_norm.weight holds NaN or infinity" in attempt(bytes(data), tmp_path)


def test_a_folder_with_other_things_is_left_alone(small: Path, tmp_path: Path):
    (tmp_path / "mine.txt").write_text("mine", "utf-8")
    with pytest.raises(weft.FolderError, match="holds other things"):
        import_gguf(small, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]


def test_tensors_that_lie_upon_each_other_are_refused(small: Path, tmp_path: Path):
    data, first = bytearray(small.read_bytes()), GgufSource(small).tensors
    name = b"blk.1.attn_q.weight"
    place = data.index(name) + len(name) + 4 + 2 * 8 + 4  # after dimensions and type
    begin = min(known.start for known in first.values())
    data[place : place + 8] = struct.pack("<Q", first["blk.0.attn_q.weight"].start - begin)
    assert "'blk.0.attn_q.weight' and 'blk.1.attn_q.weight' lie upon each other" in attempt(bytes(data), tmp_path)


def test_a_file_that_is_shortened_while_it_is_read_is_refused(small: Path, tmp_path: Path):
    file = tmp_path / "short.gguf"
    file.write_bytes(small.read_bytes())
    with GgufSource(file) as source:
        file.write_bytes(small.read_bytes()[:5000])
        with pytest.raises(weft.FolderError, match="was shortened while it was read"):
            source.get("output_norm.weight")


SCALED = [
    ({"llama__rope__scaling__factor": 4.0}, LinearScaling(4.0)),  # linear, if the file does not say
    ({"llama__rope__scale_linear": 4.0}, LinearScaling(4.0)),
    ({"llama__rope__scaling__type": "none", "llama__rope__scaling__factor": 4.0}, None),
    ({"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 0.0}, None),
]


@pytest.mark.parametrize(("changes", "scaling"), SCALED, ids=[str(changes) for changes, _ in SCALED])
def test_positions_are_scaled_as_llama_cpp_scales_them(changes: dict[str, Any], scaling: Any, small: Path, tmp_path):
    assert attempt(patched(small, tmp_path, **changes), tmp_path) is None
    assert weft.load(tmp_path / "out").network.architecture.embedding.positions.scaling == scaling


def test_sampling_settings_that_make_no_sense_are_left_out(small: Path, tmp_path: Path):
    wild = {"temp": float("nan"), "top_k": -1.0, "top_p": 7.0, "min_p": 0.5, "penalty_repeat": float("inf")}
    changes = {f"general__sampling__{key}": value for key, value in wild.items()}
    assert attempt(patched(small, tmp_path, **changes), tmp_path) is None
    said = json.loads((tmp_path / "out/generation_config.json").read_text("utf-8"))
    assert {key: said.get(key) for key in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")} == {
        "temperature": None, "top_k": None, "top_p": None, "min_p": 0.5, "repetition_penalty": None,
    }  # fmt: skip


def test_names_that_are_no_text_and_folders_of_another_kind(small: Path, tmp_path: Path):
    odd = tmp_path / os.fsdecode(b"odd-\xff.gguf")
    odd.write_bytes(small.read_bytes())
    import_gguf(odd, tmp_path / "out")
    assert json.loads((tmp_path / "out/weft.json").read_text("utf-8"))["imported"] == "odd-\ufffd.gguf"
    with pytest.raises(weft.InputError, match="The folder's name is not valid text"):
        import_gguf(small, tmp_path / os.fsdecode(b"out-\xff"))
    weft.export(weft.load(tmp_path / "out"), "onnx", tmp_path / "export", compare=False)
    with pytest.raises(weft.FolderError, match=r"is of another kind \(export\)"):
        import_gguf(small, tmp_path / "export")
