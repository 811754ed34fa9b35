"""GGUF files in llama.cpp against weft: every family and head, all precisions, models that have learnt something."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import weft
from export_gguf_proof import random_model
from weft.exports.gguf import runtime
from weft.exports.gguf.file import GgufSource
from weft.exports.gguf.runtime import LlamaServer, RuntimeFailed
from weft.exports.run import export_model
from weft.exports.target import ExportResult
from weft.generate.framing import Framing
from weft.interchange.pooling import Pooling
from weft.model.positions import LinearScaling, Llama3Scaling

EXACT = 1e-4  # of log-probabilities, vectors and scores of size 1 to 10
BY_TABLE = 1e-3  # of their scale, where llama.cpp looks GELU up in a table of 16-bit floats

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("llama", "causal", {"key_value_heads": 2}),
    ("llama", "causal", {"attention_bias": True, "feedforward_bias": True, "tied": True}),
    ("llama", "causal", {"scaling": LinearScaling(2.0), "head_width": 32}),
    ("llama", "causal", {"scaling": Llama3Scaling(8.0, 1.0, 4.0, 16), "theta": 500.0}),
    ("llama", "none", {}),
    ("qwen3", "causal", {"key_value_heads": 1, "head_width": 32}),
    ("qwen3", "causal", {"tied": True}),
    ("modernbert", "masked", {"layers": 7, "window": 8}),
    ("modernbert", "none", {"local_layers": ()}),
    ("modernbert", "sequence", {}),
    ("modernbert", "sequence", {"classifier_pooling": "first"}),
    ("t5", "encoder", {}),
    ("t5", "encoder", {"gated": True, "activation": "gelu-tanh"}),
    ("gpt2", "causal", {"inner": 96}),
    ("gpt2", "causal", {"tied": False}),
    ("gpt2", "none", {}),
    ("bert", "masked", {}),
    ("bert", "pooler", {}),
    ("bert", "sequence", {}),
    ("roberta", "none", {"pad": 4}),
    ("roberta", "sequence", {}),
    ("distilbert", "none", {}),
]
LOOKS_UP_GELU = ("gpt2", "bert", "roberta", "distilbert")


def title(case: tuple[str, str, dict[str, Any]]) -> str:
    return "-".join([*case[:2], *case[2]])


def exported(model: weft.Model, place: Path, precision: str = "fp32") -> ExportResult:
    return export_model(model, "gguf", place / precision, precision=precision)


@pytest.mark.parametrize("case", CASES, ids=title)
def test_llama_cpp_computes_what_weft_computes(case: tuple[str, str, dict[str, Any]], tmp_path: Path):
    family, head, more = case
    found = exported(random_model(family, head, **{"positions": 160, **more} if family != "t5" else more), tmp_path)
    compared = found.comparison
    by_table = family in LOOKS_UP_GELU or more.get("gated")
    assert compared.logits <= (BY_TABLE * max(compared.scale, 1.0) if by_table else EXACT)
    assert compared.same_tokens == (1.0 if head == "causal" else None)
    if family != "t5":  # Unigram: see test_export_gguf_tokenizers
        assert compared.notes == ()


@pytest.mark.parametrize(
    "more",
    [{}, {"gated": True, "activation": "gelu-tanh", "tied": False, "output_scaled": False}, {"decoder_layers": 1}],
    ids=["v1.0", "v1.1", "shallow decoder"],
)
def test_llama_cpp_computes_a_t5_as_weft_does(more: dict[str, Any], tmp_path: Path):
    found = exported(random_model("t5", "seq2seq", **more), tmp_path)
    assert found.comparison.logits <= (2e-2 if more.get("gated") else EXACT)
    assert found.comparison.same_tokens == 1.0
    assert any("llama-server does not run encoder–decoders" in note for note in found.facts["notes"])
    assert found.next_step.startswith("llama-completion")


@pytest.mark.parametrize("kind", ["mean", "first", "last"])
def test_vectors_are_pooled_as_the_folder_says(kind: str, tmp_path: Path):
    model = random_model("bert", "none")
    model.pooling = Pooling(kind)
    assert exported(model, tmp_path).comparison.logits <= BY_TABLE * 3


@pytest.mark.parametrize(("precision", "most"), [("f16", 0.01), ("bf16", 0.1), ("q8_0", 0.5), ("q4_0", 3.0)])
def test_coarser_weights_differ_by_more(precision: str, most: float, tmp_path: Path):
    found = exported(random_model("llama", "causal"), tmp_path, precision)
    print(f"{precision}: log-probabilities differ by up to {found.comparison.logits:.3g}")
    assert found.comparison.logits < most
    file = GgufSource(found.folder / "model.gguf")
    stored = {name: known.stored.name for name, known in file.tensors.items()}
    assert stored["blk.0.attn_norm.weight"] == stored["output_norm.weight"] == "F32"
    assert stored["token_embd.weight"] == stored["blk.1.ffn_down.weight"] == precision.upper()


def test_rows_that_are_no_blocks_of_32_are_stored_as_f16_and_counted(tmp_path: Path):
    found = exported(random_model("gpt2", "causal", inner=40), tmp_path, "q8_0")
    assert found.facts["notes"] == ["2 matrices are stored as f16: their rows are not a multiple of 32 numbers long."]
    assert GgufSource(found.folder / "model.gguf").tensors["blk.0.ffn_down.weight"].stored.name == "F16"


def test_a_number_that_f16_cannot_hold_is_refused(tmp_path: Path):
    model = random_model("llama", "causal")
    with torch.no_grad():
        model.network.embed.tokens.weight[3, 3] = 1e6
    with pytest.raises(weft.InputError, match=r"token_embd.weight holds 1e\+06, more than F16 can"):
        exported(model, tmp_path, "f16")
    assert not (tmp_path / "f16").exists()
    assert exported(model, tmp_path, "bf16").comparison.logits < 1


def test_a_model_without_a_tokenizer_takes_ids(tmp_path: Path):
    model = random_model("gpt2", "causal", positions=40)
    model._tokenizer = None
    found = exported(model, tmp_path)
    assert found.comparison.same_tokens == 1.0
    assert "takes prompts as token ids only" in found.facts["notes"][0]


def test_labels_and_settings_are_in_the_file(tmp_path: Path):
    model = random_model("bert", "sequence")
    values = GgufSource(exported(model, tmp_path).folder / "model.gguf").values
    assert values["bert.classifier.output_labels"] == ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert values["bert.pooling_type"] == 4
    assert values["bert.attention.causal"] is False
    assert values["general.name"] == "bert"


def test_sampling_settings_and_end_tokens_of_the_folder_are_kept(tmp_path: Path):
    model = random_model("llama", "causal")
    model.description.generation.update(temperature=0.5, top_k=7, eos_token_id=[2, 5], do_sample=True)
    values = GgufSource(exported(model, tmp_path).folder / "model.gguf").values
    assert values["general.sampling.temp"] == 0.5
    assert values["general.sampling.top_k"] == 7
    assert (values["tokenizer.ggml.eos_token_id"], values["tokenizer.ggml.eot_token_id"]) == (2, 5)


def test_a_model_tuned_to_reply_gets_a_chat_template_that_frames_as_weft_does(tmp_path: Path):
    model = random_model("gpt2", "causal")
    model.facts = {"task": {"name": "reply", "prefix": "Ask's: ", "separator": None}}
    found = exported(model, tmp_path)
    turns = [("Who are you?", "Alice."), ("Why?", "")]
    messages = [{"role": "user", "content": turns[0][0]}, {"role": "assistant", "content": turns[0][1]}]
    messages.append({"role": "user", "content": turns[1][0]})
    engine, end = model.tokenizer.engine, model.tokenizer.id_of("eos")
    framing = Framing.of(model.facts["task"])
    last = engine.encode(framing.source(turns[1][0]), add_special_tokens=False).ids
    with LlamaServer(found.folder / "model.gguf") as server:
        text = server.ask("/apply-template", {"messages": messages})["prompt"]
        assert server.token_ids(text) == framing.conversation(last, turns[:1], 500, engine, end)


def test_a_file_that_llama_cpp_cannot_open_is_an_error_not_a_crash(tmp_path: Path):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(RuntimeFailed, match=r"did not open the file"):
        LlamaServer(tmp_path / "broken.gguf")


def test_the_server_ends_with_the_process_that_started_it(tmp_path: Path):
    """Whose end of the pipe closes, however it ends."""
    file = export_model(random_model("llama", "causal"), "gguf", tmp_path / "out", compare=False).folder / "model.gguf"
    asked = {"file": str(file), "key": "k", "embedding": False, "context": 64, "threads": 1}
    command = [sys.executable, "-I", str(runtime._PROGRAM)]
    early, late = (subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2))
    for server in (early, late):
        server.stdin.write(json.dumps(asked).encode() + b"\n")
        server.stdin.flush()
    early.stdout.close()  # before the server has told its address
    assert late.stdout.readline().startswith(b"http://127.0.0.1:")
    for server in (early, late):
        server.stdin.close()
        assert server.wait(30) == 0


def test_the_export_tells_what_it_is(tmp_path: Path):
    found = exported(random_model("roberta", "masked"), tmp_path)
    facts = json.loads((found.folder / "weft.json").read_text("utf-8"))
    assert facts["target"] == "gguf"
    assert facts["file"] == "model.gguf"
    assert any("masked-LM head is left out" in note for note in facts["notes"])
    assert any("tanh approximation" in note for note in facts["notes"])
    assert np.isfinite(facts["compared"]["logits"])
    assert found.next_step.endswith("--embedding")
