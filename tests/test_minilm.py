"""A real checkpoint that somebody else trained: all-MiniLM-L6-v2."""

import json
import shutil

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

import weft
from weft.tokenizer.read import read_tokenizer

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
    # Its folder says that it reads 256 tokens at most.
    batch = tokenizer(SENTENCES, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.no_grad():
        hidden = theirs(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    mean = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)  # as its model card says
    np.testing.assert_allclose(model.embed(SENTENCES), mean.numpy(), atol=1e-5)
    ids = [list(row) for row in tokenizer(SENTENCES, truncation=True, max_length=256)["input_ids"]]
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


@pytest.mark.parametrize(
    ("pooling", "modules"),
    [
        ({"pooling_mode": "cls"}, ["Transformer", "Pooling", "Normalize"]),
        ({"pooling_mode": "lasttoken"}, ["Transformer", "Pooling"]),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, ["Transformer", "Pooling"]),
    ],
)
def test_a_sentence_folder_pools_as_it_says(model, minilm, tmp_path, pooling, modules):
    model.save(tmp_path)
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps({"embedding_dimension": 384, **pooling}))
    (tmp_path / "modules.json").write_text(
        json.dumps([{"type": f"sentence_transformers.x.{name}"} for name in modules])
    )
    vectors = weft.load(tmp_path).embed(SENTENCES[:3])
    ids = model.tokenizer.encode_many(SENTENCES[:3])
    place = -1 if "lasttoken" in str(pooling) else 0
    expected = np.stack([hidden[place] for hidden in model.hidden(ids)])
    if "Normalize" in modules:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_embeddings_are_those_of_sentence_transformers(model, minilm):
    theirs = pytest.importorskip("sentence_transformers").SentenceTransformer(str(minilm), device="cpu")
    np.testing.assert_allclose(model.embed(SENTENCES), theirs.encode(SENTENCES), atol=1e-5)


@pytest.mark.parametrize(
    ("pooling", "modules"),
    [({"pooling_mode": "max"}, ["Transformer", "Pooling"]), ({}, ["Transformer", "Pooling", "Dense"]), ({}, ["CLIP"])],
)
def test_vectors_made_in_an_unknown_way_are_refused(model, tmp_path, pooling, modules):
    model.save(tmp_path)
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps(pooling))
    (tmp_path / "modules.json").write_text(
        json.dumps([{"type": f"sentence_transformers.x.{name}"} for name in modules])
    )
    with pytest.raises(weft.FolderError, match="not supported"):
        weft.load(tmp_path)


def test_a_text_that_is_too_long_keeps_its_last_special_token(model):
    (ids,) = model.tokenizer.encode_many(["word " * 400], 100)
    assert (len(ids), ids[0], ids[-1]) == (100, 101, 102)


def test_special_tokens_are_found_wherever_they_are_said(minilm, tmp_path):
    for name in ("tokenizer.json", "special_tokens_map.json"):
        shutil.copy(minilm / name, tmp_path / name)
        (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
        assert read_tokenizer(tmp_path).id_of("mask") == 103
