"""A model that has learnt something, in all runtimes: the same text, and little changed by smaller weights."""

from pathlib import Path

import numpy as np
import pytest
from test_export_ctranslate2 import far, opened, written
from test_export_onnx import write

import weft
from trained import EXAMPLES, train
from weft.exports.gguf.runtime import LlamaServer
from weft.exports.onnx.runtime import GraphWriter
from weft.exports.run import export_model


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> weft.Model:
    return train(tmp_path_factory.mktemp("taught"), "bpe", "llama", "300", steps=24)


def passages(model: weft.Model, length: int = 60) -> list[list[int]]:
    ids = model.tokenizer.encode((EXAMPLES / "alice.txt").read_text()[:6000])
    return [ids[place : place + length] for place in range(0, len(ids) - length, length)]


def loss(logits: list[np.ndarray], rows: list[list[int]]) -> float:
    """Cross-entropy per token."""
    scores = np.concatenate([array[:-1] for array in logits]).astype(np.float64)
    gold = np.concatenate([row[1:] for row in rows])
    return float(np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(len(gold)), gold]))


def test_onnxruntime_writes_the_text_of_a_trained_model(taught: weft.Model, tmp_path: Path):
    writer = GraphWriter(write(taught, tmp_path))
    for prompt in passages(taught, 20)[:3]:
        most = {"max_new_tokens": 40, "min_new_tokens": 40}
        wanted = taught.generate([prompt], strategy="greedy", repetition_penalty=1.0, **most)[0]
        assert writer.write(prompt, 40, taught.start_end.end_ids) == wanted


def test_a_trained_model_predicts_nearly_the_same_in_int8(taught: weft.Model, tmp_path: Path):
    writer, rows = GraphWriter(write(taught, tmp_path, "int8")), passages(taught)
    ours, theirs = taught.logits(rows), writer.read(rows)
    same = np.concatenate([a.argmax(-1) == b.argmax(-1) for a, b in zip(theirs, ours, strict=True)])
    assert same.mean() > 0.95
    assert abs(loss(theirs, rows) - loss(ours, rows)) < 0.02


def test_llama_cpp_writes_the_text_of_a_trained_model(taught: weft.Model, tmp_path: Path):
    found = export_model(taught, "gguf", tmp_path / "export")
    assert found.comparison.logits < 2e-3
    assert found.comparison.same_tokens == 1.0
    with LlamaServer(found.folder / "model.gguf") as server:
        asked = {"prompt": "Alice was ", "n_predict": 40, "temperature": 0.0, "cache_prompt": False}
        said = server.ask("/completion", asked)["content"]
    assert said == taught.generate("Alice was ", strategy="greedy", max_new_tokens=40)


def test_a_trained_model_is_little_changed_by_q8_0(taught: weft.Model, tmp_path: Path):
    found = export_model(taught, "gguf", tmp_path / "export", precision="q8_0").comparison
    print(f"q8_0: {found.logits:.3g} of {found.scale:.3g}, {found.same_tokens:.0%} of greedy tokens")
    assert found.logits < 0.5


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_ctranslate2_writes_the_text_of_a_trained_model(taught: weft.Model, precision: str, tmp_path: Path):
    generator, tokens, result = opened(taught, tmp_path / "export", precision)
    prompts = [taught.tokenizer.encode(text) for text in ("Alice was", "'I don't know,' said the", "The Queen")]
    assert result.comparison.logits < (1e-4 if precision == "fp32" else 0.3)
    same = np.mean(
        [
            a == b
            for ours, theirs in zip(
                taught.generate(prompts, strategy="greedy", max_new_tokens=40),
                written(generator, prompts, tokens),
                strict=True,
            )
            for a, b in zip(ours, theirs, strict=False)
        ]
    )
    assert same == 1.0 if precision == "fp32" else same > 0.3
    ids = taught.tokenizer.encode("Alice was beginning to get very tired of sitting by her sister on the bank.")
    logits = np.array(generator.forward_batch([ids]))[0]
    assert far([taught.logits([ids])[0]], [logits]) < (1e-4 if precision == "fp32" else 0.3)
