"""ONNX graphs of models from transformers give the numbers of transformers, under the names of its outputs."""

import numpy as np
import pytest
import torch

import oracle
import weft
from weft.exports.onnx import ONNX
from weft.exports.onnx.runtime import GraphReader, GraphWriter

# One random shape of each class, and every variant: untied, gated, grouped heads, scaled positions, local attention …
# Task heads have the same outputs in all families, so they are tried on one encoder and one encoder–decoder.
CASES = [
    case
    for case in oracle.CASES
    if case.extra
    or (case.seed == 0 and (not case.class_name.endswith(oracle.TASKS) or case.class_name.startswith(("Bert", "T5"))))
]
WITH_TARGETS = ("T5ForConditionalGeneration", "T5Model", "MarianMTModel", "MarianModel")


def close(theirs, ours):
    for a, b in zip(theirs, ours, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, atol=1e-4, rtol=0)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_export_gives_the_numbers_of_transformers(case, tmp_path):
    theirs = oracle.build(case)
    model = weft.load(oracle.save(theirs, tmp_path / "model"), "cpu")
    folder = tmp_path / "export"
    folder.mkdir()
    ONNX.write(model, folder, "fp32")
    end = 1 if case.class_name.startswith("T5") else 9  # where T5 reads a sequence's label
    sources = oracle.sequences(theirs.config.vocab_size, case.seed, end=end, count=3)
    targets = oracle.sequences(theirs.config.vocab_size, 100, count=3) if case.class_name in WITH_TARGETS else None
    segments = None
    if model.network.architecture.embedding.segments > 1:
        segments = [[int(place > len(row) // 2) for place in range(len(row))] for row in sources]
    with torch.no_grad():
        output = oracle.run(theirs, sources, targets, segments)
    lengths = [len(row) for row in targets or sources]
    if targets is not None or "causal" in model.network.heads:
        writer = GraphWriter(folder)
        found = writer.read(targets or sources, sources if targets else None)
        close(found, oracle.rows(output[writer.outputs[0]], lengths))
        return
    reader = GraphReader(folder / "onnx/model.onnx")
    found = reader.read(sources, segments)
    found.pop("sentence_embedding", None)
    assert found
    for name, arrays in found.items():
        by_token = name in reader.by_token
        close(arrays, oracle.rows(output[name], lengths) if by_token else list(output[name].numpy()))
