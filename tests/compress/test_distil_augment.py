"""New training texts by a masked language model's suggestions."""

import json
import shutil
from functools import cache

import numpy as np
import pytest
from distilling import distil, teacher_of
from torch.nn.functional import cosine_similarity

import weft
from small_tasks import rows_of
from weft.compress.distil.augment import Word, base_of, neighbours, replaced_words, suggestions
from weft.interchange.folder import write_model
from weft.model.network import create_network
from weft.tasks.loaded import LoadedModel


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    return teacher_of(tmp_path_factory.mktemp("teacher"), "classify")


@pytest.fixture(scope="module")
def masked(tmp_path_factory, teacher):
    """A masked language model with the teacher's tokenizer and random weights."""
    known = weft.load(teacher)
    network = create_network(known.description.family.architecture("masked"), seed=3)
    from weft.interchange.folder import Description

    files = {name: (teacher / name).read_bytes() for name in ("tokenizer.json", "tokenizer_config.json")}
    folder = tmp_path_factory.mktemp("masked") / "model"
    write_model(network, Description(known.description.family, "masked"), folder, files=files)
    return folder


TEXTS = [row["text"] for row in rows_of("classify")[:6]]


@cache
def words_of(folder):
    return suggestions(LoadedModel.load(folder), TEXTS, 5)


def test_only_whole_words_are_replaced_by_other_whole_words(masked):
    for text, words in zip(TEXTS, words_of(masked), strict=True):
        for word in words:
            assert text[word.start : word.end].isalpha()
            assert all(candidate.isalpha() for candidate in word.candidates)
            assert text[word.start : word.end].lower() not in word.candidates
            assert len(word.candidates) == 5
    assert any(words_of(masked))


def test_suggestions_are_the_most_probable_words_of_the_model(masked):
    model = LoadedModel.load(masked)
    (alone,) = suggestions(model, TEXTS[:1], 5)
    assert alone == words_of(masked)[0]  # whatever the other texts are


def test_words_are_replaced_in_their_places():
    words = [Word(2, 6, ("great",)), Word(7, 11, ("book",))]
    rng = np.random.default_rng(0)
    assert replaced_words("a good film, number 3", words, 1.0, rng) == "a great book, number 3"
    assert replaced_words("a good film", words, 1e-9, rng) == "a good film"


def test_augmented_training_is_a_function_of_the_seed(teacher, masked, tmp_path):
    augment = {"model": str(masked), "copies": 3}
    for name in ("a", "b"):
        said = distil(tmp_path / name, teacher, "classify", augment=augment)
        assert said.code == 0, said.err
        assert "New training texts: 3 of each of 36" in said.err
    folders = [tmp_path / name / "student/model/model.safetensors" for name in ("a", "b")]
    assert folders[0].read_bytes() == folders[1].read_bytes()
    plain = distil(tmp_path / "c", teacher, "classify", "--json", augment=False)
    assert "New training texts" not in plain.err
    assert json.loads(plain.out)["stages"]


def test_without_a_masked_language_model_words_are_replaced_by_their_neighbours(teacher, tmp_path):
    said = distil(tmp_path, teacher, "classify")
    assert "New training texts: 20 of each of 36, with words alike in the teacher's embeddings" in said.err


def test_neighbours_are_the_words_with_the_most_similar_embeddings(teacher):
    model = LoadedModel.load(teacher)
    table, known = model.network.embed.tokens.weight.detach(), model.tokenizer.engine.get_vocab()
    words = {word: table[number] for word, number in known.items() if word.isalpha()}
    found = neighbours(model, TEXTS, 3)
    for text, row in zip(TEXTS, found, strict=True):
        for place in row:
            own = text[place.start : place.end].lower()
            others = [word for word in words if word != own]
            likeness = [float(cosine_similarity(words[own], words[other], dim=0)) for other in others]
            assert place.candidates == tuple(others[i] for i in np.argsort(likeness)[::-1][:3])
    assert any(found)


def test_a_model_without_a_masked_head_is_refused(teacher, tmp_path):
    said = distil(tmp_path, teacher, "classify", augment={"model": str(teacher)})
    assert "not a masked language model" in said.sentence


def test_a_model_with_other_tokens_is_refused_if_named_and_not_used_by_default(teacher, masked, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(masked, other)
    text = (other / "tokenizer.json").read_text("utf-8")
    (other / "tokenizer.json").write_text(text.replace('"film":', '"movie":'), "utf-8")
    said = distil(tmp_path, teacher, "classify", augment={"model": str(other)})
    assert "another tokenizer" in said.sentence
    assert not (tmp_path / "student").exists()
    for folder, is_used in ((masked, True), (other, False)):
        facts = {"recipe": {"finetune": {"model": str(folder)}}}
        copy = tmp_path / f"tuned from {folder.name}"
        shutil.copytree(teacher, copy)
        (copy / "weft.json").write_text(json.dumps({**json.loads((copy / "weft.json").read_text()), **facts}))
        assert (base_of(LoadedModel.load(copy)) is not None) is is_used
