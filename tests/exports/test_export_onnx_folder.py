"""The folder of an ONNX export: files that other programs look for, large weights, refusals, the command."""

import json
import shlex
import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest
import transformers
from test_export_onnx import make_model, sequences

import weft
from small_tasks import weft as command
from task_models import make, save, tokenizer_of
from weft.errors import InputError, WeftError
from weft.exports.onnx import ONNX, graph
from weft.exports.onnx.runtime import GraphReader, GraphWriter
from weft.exports.run import export_model
from weft.model.heads import HeadSpec
from weft.model.network import outline
from weft.tasks.classify import Classify
from weft.tasks.tag import Tag

SHAPE = {"layers": 2, "width": 32, "heads": 4}
LABELS = ("bad", "good", "so so")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    task = Classify(LABELS)
    return weft.load(save(task, *make(task, "bert"), tmp_path_factory.mktemp("model")), "cpu")


def writer_of(family, **more):
    limit = {"t5": {"head_width": 8}, "lstm": {}}.get(family, {"positions": 100})
    return weft.create(family, tokenizer=tokenizer_of(family), seed=1, **SHAPE, **limit, **more)


def facts_of(folder):
    return json.loads((folder / "weft.json").read_text())


def test_transformers_opens_config_and_tokenizer_with_the_labels(classifier, tmp_path):
    export_model(classifier, "onnx", tmp_path / "out")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "out")
    assert config.model_type == "bert"
    assert tuple(config.id2label.values()) == LABELS
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer("Down, down").input_ids == classifier.tokenizer.encode("Down, down")
    assert not list((tmp_path / "out").rglob("*.safetensors"))


@pytest.mark.parametrize("family", ["gpt2", "t5", "transformer"])
def test_a_model_that_writes_keeps_its_generation_config_and_special_tokens(family, tmp_path):
    model = writer_of(family)
    export_model(model, "onnx", tmp_path / "out", compare=False)
    written = json.loads((tmp_path / "out/generation_config.json").read_text())
    assert written["eos_token_id"] == model.tokenizer.id_of("eos")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert set(tokenizer.all_special_ids) == set(model.tokenizer.special_ids)
    # What transformers 4 opens; optimum uses it.
    config = json.loads((tmp_path / "out/tokenizer_config.json").read_text())
    assert not isinstance(config.get("extra_special_tokens"), list)


def test_the_facts_name_graphs_inputs_outputs_and_the_comparison(tmp_path):
    result = export_model(writer_of("t5"), "onnx", tmp_path / "out")
    facts = facts_of(tmp_path / "out")
    decoder = facts["graphs"]["onnx/decoder_model_merged.onnx"]
    assert "past_key_values.{layer}.encoder.value" in decoder["inputs"]
    assert "present.{layer}.decoder.key" in decoder["outputs"]
    assert facts["graphs"]["onnx/encoder_model.onnx"]["outputs"] == ["last_hidden_state"]
    assert result.comparison.same_tokens == 1.0
    assert result.comparison.logits < 1e-4
    assert facts["compared"]["logits"] == result.comparison.logits
    assert "notes" not in facts  # nothing to tell about a family that all programs know


def test_pooling_files_and_embeddings_of_a_sentence_model_go_along(minilm, tmp_path):
    model = weft.load(minilm, "cpu")
    export_model(model, "onnx", tmp_path / "out", precision="int8", compare=False)
    assert (tmp_path / "out/1_Pooling/config.json").read_bytes() == (minilm / "1_Pooling/config.json").read_bytes()
    texts = ["The rabbit-hole went straight on.", "Curiouser!", "爱丽丝 and the rabbit"]
    rows = model.tokenizer.encode_many(texts)
    found = np.stack(GraphReader(tmp_path / "out/onnx/model.onnx").read(rows)["sentence_embedding"])
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert (found * model.embed(texts)).sum(1).min() > 0.98  # cosines


def test_the_weights_of_a_crf_stay_beside_the_graph_and_are_explained(tmp_path):
    task = Tag(("O", "B-PER", "I-PER"), entities=True, crf=True)
    built, reader = make(task, "bert")
    task.prepare(built.network, [])
    folder = save(task, built, reader, tmp_path / "model")
    result = export_model(weft.load(folder, "cpu"), "onnx", tmp_path / "out")
    assert (tmp_path / "out/crf.safetensors").read_bytes() == (folder / "crf.safetensors").read_bytes()
    assert any("crf.safetensors" in note for note in result.facts["notes"])


def test_large_weights_go_into_a_second_file(tmp_path, monkeypatch):
    monkeypatch.setattr(graph, "_MOST_INLINE_BYTES", 50_000)
    model = make_model("llama", vocabulary=500)
    ONNX.write(model, tmp_path, "fp32")
    file, data = tmp_path / "onnx/model.onnx", tmp_path / "onnx/model.onnx_data"
    assert data.stat().st_size > 4 * 500 * 32 * 2 > 2 * file.stat().st_size
    onnx.checker.check_model(str(file), full_check=True)
    rows = sequences((3, 9))
    for theirs, ours in zip(GraphWriter(tmp_path).read(rows), model.logits(rows), strict=True):
        np.testing.assert_allclose(theirs, ours, atol=2e-5)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["transformers.js_config"]["use_external_data_format"] == {"model.onnx": True}


@pytest.mark.parametrize("family", ["gpt2", "lstm", "qwen3"])
def test_the_next_step_runs(family, tmp_path, capsys, monkeypatch):
    """Of a model that reads, of one that writes and is known to weft only, and of one that writes, without optimum."""
    monkeypatch.setattr("weft.exports.onnx.usage._has_optimum", lambda: False)
    model = writer_of(family) if family != "gpt2" else weft.create(
        family, head="none", tokenizer=tokenizer_of(family), positions=100, **SHAPE
    )  # fmt: skip
    result = export_model(model, "onnx", tmp_path / "it's out", compare=False)
    python, option, code = shlex.split(result.next_step)
    assert (python, option) == ("python", "-c")
    exec(compile(code, "next step", "exec"), {})
    said = capsys.readouterr().out
    assert said.startswith("[array(") if family == "gpt2" else said.strip()


@pytest.mark.parametrize(("family", "kind"), [("gpt2", "ORTModelForCausalLM"), ("t5", "ORTModelForSeq2SeqLM")])
def test_the_next_step_of_a_model_that_writes_uses_optimum(family, kind, tmp_path, monkeypatch):
    monkeypatch.setattr("weft.exports.onnx.usage._has_optimum", lambda: True)
    _, _, code = shlex.split(ONNX.next_step(writer_of(family), tmp_path))
    compile(code, "next step", "exec")
    assert f"from optimum.onnxruntime import {kind}" in code


def test_an_architecture_of_wefts_own_says_who_opens_it(tmp_path):
    result = export_model(writer_of("lstm"), "onnx", tmp_path / "out", compare=False)
    assert any("onnxruntime runs the graph" in note for note in result.facts["notes"])
    assert "transformers.js_config" not in json.loads((tmp_path / "out/config.json").read_text())


def test_heads_that_optimum_does_not_expect_are_told_and_run_otherwise(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.exports.onnx.usage._has_optimum", lambda: True)
    result = export_model(writer_of("qwen3", head_width=16), "onnx", tmp_path / "out")
    assert result.comparison.same_tokens == 1.0
    assert any("optimum" in note for note in result.facts["notes"])
    assert "optimum.onnxruntime" not in result.next_step
    assert "optimum.onnxruntime" in ONNX.next_step(writer_of("qwen3", head_width=8), tmp_path)


def test_without_the_package_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(WeftError, match=r"weft\[onnx\]"):
        export_model(make_model("bert"), "onnx", tmp_path / "out")


def test_what_cannot_be_exported_is_refused_with_the_reason(tmp_path):
    model = make_model("bert")
    empty = weft.Model(outline(model.network.architecture), model.description)
    with pytest.raises(InputError, match="weights are not loaded"):
        export_model(empty, "onnx", tmp_path / "out")

    def with_two_heads(architecture):
        return replace(architecture, heads=(*architecture.heads, HeadSpec("token", 3)))

    with pytest.raises(InputError, match="heads beside the one that writes: causal, token"):
        export_model(make_model("gpt2", change=with_two_heads), "onnx", tmp_path / "out")
    model.network.embed.tokens.weight.data[3, 4] = float("nan")
    with pytest.raises(InputError, match=r"embed\.tokens\.weight holds NaN or infinity"):
        export_model(model, "onnx", tmp_path / "out", precision="int8")
    assert not (tmp_path / "out").exists()


def test_the_command_exports_and_prints_what_it_found(classifier, tmp_path):
    said = command("export", classifier.folder, "--to", "onnx", "-o", tmp_path / "out", "--int8", "--json")
    assert said.code == 0, said.err
    (facts,) = said.lines
    assert facts["precision"] == "int8"
    assert facts["compared"]["runtime"].startswith("onnxruntime")
    assert facts["graphs"] == {
        "onnx/model.onnx": {"inputs": ["input_ids", "attention_mask", "token_type_ids"], "outputs": ["logits"]}
    }
    again = command("export", classifier.folder, "--to", "onnx", "-o", tmp_path / "out", "--json")
    assert again.lines[0]["precision"] == "fp32"  # an export replaces an export
