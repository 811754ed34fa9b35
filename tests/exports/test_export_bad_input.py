"""What users and disks do to exports: broken weights, odd names and settings, models in the midst of training."""

import json
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import safetensors.numpy
import torch

import weft
from random_models import make_random
from small_tasks import weft as command
from task_models import tokenizer_of
from weft.commands.export import verdict_of
from weft.exports.catalog import TARGETS
from weft.exports.gguf.file import GgufSource
from weft.exports.onnx import ONNX
from weft.exports.run import export_model
from weft.exports.target import Comparison
from weft.interchange.folder import Description
from weft.model.network import outline

NOT_UTF8 = os.fsdecode(b"name-\xff")
SHAPE = {"layers": 1, "width": 32, "heads": 4}


def with_weight(model: weft.Model, name: str, value: float) -> weft.Model:
    model.network.get_parameter(name).data.view(-1)[0] = value
    return model


@pytest.mark.parametrize("to", TARGETS)
def test_weights_that_no_program_can_use_are_refused(to: str, tmp_path: Path):
    broken = with_weight(make_random("gpt2"), "decoder.norm.weight", float("nan"))
    empty = weft.Model(outline(broken.network.architecture), Description(None, "causal"))
    for model, reason in ((broken, r"decoder\.norm\.weight holds NaN"), (empty, "its weights are not loaded")):
        with pytest.raises(weft.InputError, match=f"^This gpt2 cannot be exported to .*: {reason}"):
            export_model(model, to, tmp_path / "out")
    with pytest.raises(weft.InputError, match=r"that weft\.load or weft\.create gives, not str"):
        export_model("model", to, tmp_path / "out")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("to", TARGETS)
def test_neither_dropout_nor_16_bits_of_the_model_blur_the_comparison(to: str, tmp_path: Path):
    model = weft.create("gpt2", vocabulary=70, dropout=0.5, **SHAPE)
    model.network.to(torch.bfloat16).train()
    found = export_model(model, to, tmp_path / "out").comparison
    assert found.logits < 1e-4
    assert found.notes == ()
    assert model.network.training
    assert {weight.dtype for weight in model.network.parameters()} == {torch.bfloat16}


def test_outputs_that_are_not_finite_are_said_and_leave_valid_json(tmp_path: Path):
    model = weft.create("bert", head="sequence", vocabulary=70, **SHAPE)
    model.network.head("sequence").out.weight.data.fill_(3e38)
    model.network.head("sequence").dense.bias.data.fill_(3.0)
    found = export_model(model, "onnx", tmp_path / "out").comparison
    assert found.logits is None
    assert "NaN or infinity" in found.notes[-1]
    json.loads((tmp_path / "out/weft.json").read_text(), parse_constant=pytest.fail)


def test_numbers_beyond_16_bits_are_refused_or_kept_in_32(tmp_path: Path):
    large = with_weight(weft.create("bert", head="sequence", vocabulary=70, **SHAPE), "heads.sequence.out.weight", 1e6)
    with pytest.raises(weft.InputError, match=r"holds 1e\+06, more than a 16-bit float can; use fp32 or --int8\."):
        export_model(large, "ctranslate2", tmp_path / "out", precision="f16")
    export_model(large, "ctranslate2", tmp_path / "out", precision="int8", compare=False)
    arrays = safetensors.numpy.load_file(tmp_path / "out/heads.safetensors")
    assert np.isfinite(arrays["sequence.out.weight"]).all()
    model = with_weight(make_random("llama"), "embed.tokens.weight", 1e7)  # the scale of its block is beyond
    with pytest.raises(weft.InputError, match=r"token_embd\.weight holds 1e\+07, more than Q8_0 can"):
        export_model(model, "gguf", tmp_path / "gguf", precision="q8_0")


@pytest.mark.parametrize("files", [{"": 1}, {"/mine": 1}, {"*": 1}, {"../mine": 1}, {"[": 1}, ["mine"]], ids=str)
def test_a_list_of_files_that_weft_did_not_write_deletes_nothing(files: Any, tmp_path: Path):
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "weft.json").write_text(json.dumps({"kind": "export", "files": files}))
    export_model(make_random("gpt2"), "gguf", tmp_path, compare=False)
    assert (tmp_path / "mine").read_text() == "kept"


@pytest.mark.parametrize("to", TARGETS)
def test_a_folder_whose_name_is_no_text_is_refused(to: str, tmp_path: Path):
    with pytest.raises(weft.InputError, match="The folder's name is not valid text"):
        export_model(make_random("gpt2"), to, tmp_path / NOT_UTF8)


@pytest.mark.parametrize("to", ["onnx", "gguf"])
def test_next_steps_are_commands_for_any_name(to: str, tmp_path: Path):
    folder = tmp_path / "it's $HOME"
    result = export_model(make_random("llama"), to, folder, compare=False)
    assert any(str(folder) in word for word in shlex.split(result.next_step))


def test_a_next_step_begins_with_the_start_token(tmp_path: Path):
    """Of a model with an architecture that only weft knows."""
    model = make_random("transformer", positions="rotary")
    model.description = replace(model.description, generation={"decoder_start_token_id": 7})
    assert ".write([7], 64, source=ids)" in ONNX.next_step(model, tmp_path)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"top_k": 50.0, "temperature": 0.5}, {"top_k": 50, "temp": 0.5}),
        ({"top_k": 2**40, "temperature": 1e300, "top_p": "x", "min_p": float("inf")}, {}),
        ({"top_k": True, "top_p": 0.25}, {"top_p": 0.25}),
    ],
    ids=str,
)
def test_settings_that_gguf_has_no_room_for_are_left_out(said: dict[str, Any], kept: dict[str, Any], tmp_path: Path):
    model = make_random("gpt2")
    model.description.generation.update(said)
    export_model(model, "gguf", tmp_path / "out", compare=False)
    with GgufSource(tmp_path / "out/model.gguf") as source:
        found = {key.rpartition(".")[2]: value for key, value in source.values.items() if ".sampling." in key}
    assert found == kept


def test_recommended_penalties_and_banned_tokens_are_no_difference(tmp_path: Path):
    model = make_random("gpt2", tied=False)
    banned = model.generate([5, 6, 7], strategy="greedy", max_new_tokens=1)[0]
    model.description.generation.update(repetition_penalty=1.5, bad_words_ids=[[banned]])
    found = export_model(model, "gguf", tmp_path / "out")
    assert found.comparison.same_tokens == 1.0
    assert any("bad_words_ids" in note for note in found.facts["notes"])


@pytest.mark.parametrize("family", ["gpt2", "bert", "transformer"])
@pytest.mark.parametrize("size", [{"vocabulary": 1}, {"positions": 1}], ids=str)
def test_the_smallest_models_are_compared(family: str, size: dict[str, int], tmp_path: Path):
    model = weft.create(family, **{"vocabulary": 9, **SHAPE, **size})
    assert export_model(model, "onnx", tmp_path / "out").comparison.logits < 1e-5


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any) -> None:
        raise OSError("1000 requested and 10 written")  # all that numpy says

    monkeypatch.setattr(gguf.GGUFWriter, "write_tensor_data", fail)
    with pytest.raises(weft.FolderError, match="No space left on the disk"):
        export_model(make_random("gpt2"), "gguf", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_the_verdict_does_not_hide_that_nothing_was_compared():
    found = Comparison("llama.cpp", notes=("The file could not be compared.",))
    assert verdict_of(found, asked=True) == "Written. Not compared with weft in llama.cpp: see the notes."


def test_mistakes_on_the_command_line_are_sentences(tmp_path: Path):
    weft.create("gpt2", tokenizer=tokenizer_of("gpt2"), **SHAPE).save(tmp_path / "model")
    for arguments, words in {
        ("--to", "onxn"): "is not a target (did you mean onnx?)",
        ("--to", "gguf", "--q8_0", "--f16"): "do not go together",
        ("--to", "onnx", "--q4_1"): "ONNX has no q4_1",
    }.items():
        assert words in command("export", tmp_path / "model", "-o", tmp_path / "out", *arguments).sentence
    assert (
        "is a model of weft" in command("export", tmp_path / "model", "--to", "onnx", "-o", tmp_path / "model").sentence
    )
