"""What the page offers for a model: the facts in /v1/models, several texts with scores, all intents, whole tables."""

from pathlib import Path

import numpy as np
import pytest
from reading_models import SENTENCES, ask, small_model
from running import Running, serving

import weft
from chat_tokenizer import with_template
from random_models import make_random
from task_models import make, save, tokenizer_of
from weft.serve.reading_languages import languages_of
from weft.tasks.classify import MultiLabel
from weft.tokenizer.tokenizer import Tokenizer
from weft.tokenizer.train import train_tokenizer

assert ask  # a fixture
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_every_model_says_what_it_can_do(ask):
    found = {one["id"]: one for one in ask.client.get("/v1/models").json()["data"]}
    assert found["bert"]["abilities"] == ["fill", "embed"] and found["bert"]["mask"] == "[MASK]"
    assert found["bert"]["vector_size"] == 32
    assert found["classify"]["labels"] == ["bad", "good", "so so"] and found["classify"]["threshold"] is None
    assert found["several"]["threshold"] == 0.5 and found["several"]["thresholds"] == {}
    assert found["reply"]["chat"] == "reply" and found["gpt2"]["chat"] is None
    settings = found["translate"]["task_settings"]
    assert (
        small_model("translate").generate(SENTENCES[0], **settings)
        == small_model("translate").predict(SENTENCES[0])["text"]
    )
    assert ask.client.get("/v1/models/tag").json() == found["tag"]


def test_the_thresholds_of_labels_are_told_by_name(tmp_path):
    task = MultiLabel(("bad", "odd"), threshold=(0.5, 0.125))
    with serving({"own": weft.load(save(task, *make(task, "bert"), tmp_path / "own"), "cpu")}) as other:
        found = other.get("/v1/models/own").json()
    assert found["threshold"] == 0.5 and found["thresholds"] == {"bad": 0.5, "odd": 0.125}


@pytest.mark.parametrize(
    ("text", "kind", "language"), [("alice", "char", "en"), ("alice", "bpe", "en"), ("tang", "char", "zh")]
)
def test_a_model_reads_the_language_that_its_vocabulary_was_made_for(text, kind, language):
    tokenizer = train_tokenizer([EXAMPLES / f"{text}.txt"], kind, None if kind == "char" else 500)
    assert languages_of(tokenizer) == (language,)
    assert languages_of(None) == ()


def test_only_vectors_that_were_tuned_to_it_compare_meanings(ask):
    found = {one["id"]: one["compares"] for one in ask.client.get("/v1/models").json()["data"]}
    assert found["similarity"] and not found["bert"]


def test_a_chat_template_is_told_unless_it_cannot_be_used(running: Running):
    assert running.get("/v1/models/talk").json()["chat"] == "template"
    broken = with_template(tokenizer_of("llama"))
    files = {**broken.files, "chat_template.jinja": b"{% for %}"}
    model = make_random("llama", vocabulary=500, tokenizer=Tokenizer(broken.engine, broken.special, files))
    with serving({"broken": model}) as other:
        assert other.get("/v1/models").json()["data"][0]["chat"] is None


@pytest.mark.parametrize(("name", "key"), [("translate", "translation_text"), ("summarize", "summary_text")])
def test_beams_have_the_texts_and_scores_of_the_library(ask, name, key):
    model = small_model(name)
    wanted = {"num_return_sequences": 3, "num_beams": 4}
    rows = ask(f"/v1/tasks/{name}", model=name, inputs=SENTENCES[:2], parameters=wanted)
    alone = ask(f"/v1/tasks/{name}", model=name, inputs=SENTENCES[0], parameters=wanted)
    assert [one[key] for one in alone] == [one[key] for one in rows[0]]
    for text, row in zip(SENTENCES[:2], rows, strict=True):
        settings = {"beams": 4, "n": 3, "max_new_tokens": 8, "repetition_penalty": 1.0}
        expected = model.generate(text, details=True, **settings)
        assert [one[key] for one in row] == [one.text.strip() for one in expected]
        assert [one["score"] for one in row] == pytest.approx([np.mean(one.log_probs) for one in expected], abs=1e-4)


def test_several_replies_are_samples_as_the_model_was_tuned(ask):
    found = ask("/v1/tasks/reply", model="reply", inputs=SENTENCES[0], parameters={"num_return_sequences": 2})
    settings = ask.client.get("/v1/models/reply").json()["task_settings"]
    expected = small_model("reply").generate(SENTENCES[0], **{**settings, "n": 2})
    assert [one["generated_text"] for one in found] == [text.strip() for text in expected]
    assert "num_return_sequences" in ask.error(
        "/v1/tasks/reply", model="reply", inputs="a", parameters={"num_return_sequences": 0}
    )


def test_intents_come_with_all_their_probabilities(ask):
    plain = ask("/v1/tasks/intent", model="intent", inputs=SENTENCES)
    found = ask("/v1/tasks/intent", model="intent", inputs=SENTENCES, parameters={"top_k": 5})
    for one, more in zip(plain, found, strict=True):
        intents = more.pop("intents")
        assert more["intent"] == one["intent"] == intents[0]["label"]
        assert sum(intent["score"] for intent in intents) == pytest.approx(1)
        assert "intents" not in one


@pytest.mark.parametrize("name", ["similarity", "bert"])
def test_a_table_of_similarities_has_the_rows_of_single_requests(ask, name):
    texts = SENTENCES[:3]
    inputs = [{"source_sentence": one, "sentences": texts} for one in texts]
    rows = ask("/v1/tasks/similarity", model=name, inputs=inputs)
    for row, one in zip(rows, inputs, strict=True):
        assert row == pytest.approx(ask("/v1/tasks/similarity", model=name, inputs=one), abs=1e-5)


def test_an_error_in_a_list_names_its_place(ask):
    bad = [{"text": "a", "text_pair": ""}]
    assert ask.error("/v1/tasks/pair", model="pair", inputs=bad).startswith("inputs.0.text_pair: String should have")
