"""A real checkpoint that somebody else trained: all-MiniLM-L6-v2."""

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

import weft

SENTENCES = [
    "The cat sat on the mat.",
    "A feline was resting on a rug.",
    "Stock prices fell sharply on Monday after the central bank raised interest rates by half a point.",
    "naïve café – “quotes”, emoji 🙂 and 中文 text",
    "x",
    "",
    "word " * 400,
]


@pytest.fixture(scope="module")
def model(minilm):
    return weft.load(minilm)


def test_its_embeddings_agree_with_transformers(model, minilm):
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    theirs = transformers.AutoModel.from_pretrained(minilm).eval()
    batch = tokenizer(SENTENCES, padding=True, truncation=True, max_length=512, return_tensors="pt")
    with torch.no_grad():
        hidden = theirs(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    mean = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)  # as its model card says
    np.testing.assert_allclose(model.embed(SENTENCES), mean.numpy(), atol=1e-5)
    ids = [row[: len(row)] for row in tokenizer(SENTENCES, truncation=True, max_length=512)["input_ids"]]
    for ours, row, length in zip(model.hidden(ids), hidden, map(len, ids), strict=True):
        np.testing.assert_allclose(ours, row[:length].numpy(), atol=1e-4)


def test_like_sentences_are_near(model):
    cat, feline, stocks = model.embed(SENTENCES[:3])
    assert cat @ feline > 0.5 > cat @ stocks


def test_a_round_trip_is_byte_identical_in_the_weights_and_embeds_the_same(model, minilm, tmp_path):
    model.save(tmp_path)
    before, after = load_file(minilm / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    assert set(before) - set(after) == {"embeddings.position_ids"}  # a buffer, not a weight
    for name, tensor in after.items():
        assert tensor.numpy().tobytes() == before[name].numpy().tobytes(), name
    again = weft.load(tmp_path)
    np.testing.assert_array_equal(again.embed(SENTENCES), model.embed(SENTENCES))
    _, report = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())


def test_token_ids_equal_those_of_transformers(model, minilm):
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    for text in [*SENTENCES, "\x00\u200b\ufeff tabs\tand\nnewlines", "ﬁ ½ Å"]:
        assert model.tokenizer.encode(text) == tokenizer(text)["input_ids"]
    assert model.tokenizer.encode_many(SENTENCES) == tokenizer(SENTENCES)["input_ids"]
