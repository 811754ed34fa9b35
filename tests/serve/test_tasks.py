"""/v1/tasks in Hugging Face's shapes: the answers of `predict`, read by huggingface_hub's own client."""

import random
from concurrent.futures import ThreadPoolExecutor

import httpx2
import huggingface_hub
import numpy as np
import pytest
import transformers
from huggingface_hub import InferenceClient
from hypothesis import given, settings
from hypothesis import strategies as st
from reading_models import GIVEN, MODELS, PAIRS, QUESTIONS, SENTENCES, TEXTS, ask, minilm_model, small_model

from weft.serve.tasks import SERVED_TASKS
from weft.tasks.catalog import TASKS

assert ask  # a fixture
TASK_NAMES = [name for task in SERVED_TASKS for name in task.names]
LONG = "down the rabbit hole " * 100


def url(ask, task: str, model: str) -> str:
    return f"{ask.address}/v1/tasks/{task}?model={model}"


def test_every_task_of_weft_is_served():
    assert set(TASKS) <= set(TASK_NAMES)


@pytest.mark.parametrize("name", ["classify", "several"])
def test_labels_are_those_of_predict_best_first(ask, name):
    model = small_model(name)
    found = ask("/v1/tasks/text-classification", inputs=SENTENCES, model=name)
    for text, row in zip(SENTENCES, found, strict=True):
        expected = model.predict(text, details=True)["scores"]
        assert [one["label"] for one in row] == list(expected)
        assert [one["score"] for one in row] == pytest.approx(list(expected.values()), abs=1e-5)
    alone = ask("/v1/tasks/classify", inputs=SENTENCES[0], model=name, parameters={"top_k": 1})
    assert len(alone) == len(alone[0]) == 1 and alone[0][0]["label"] == found[0][0]["label"]


def test_extracted_sentences_are_those_of_predict(ask):
    model, texts = small_model("extract"), [" ".join(SENTENCES), LONG]  # the second has several windows
    expected = model.predict(texts, details=True)
    found = ask("/v1/tasks/extract", inputs=texts, model="extract", parameters={"return_sentences": True})
    for one, wanted in zip(found, expected, strict=True):
        assert one["summary_text"] == wanted["text"]
        assert [part["text"] for part in one["sentences"]] == [part["text"] for part in wanted["sentences"]]
        scores = [part["score"] for part in wanted["sentences"]]
        assert [part["score"] for part in one["sentences"]] == pytest.approx(scores, abs=1e-5)
    [alone] = ask("/v1/tasks/extract", inputs=texts[0], model="extract")
    assert alone == {"summary_text": expected[0]["text"]}


@pytest.mark.parametrize("apply", ["none", "sigmoid", "softmax"])
def test_labels_agree_with_the_pipeline_of_transformers(ask, apply):
    pipe = transformers.pipeline("text-classification", model=str(small_model("classify").folder))
    theirs = pipe(SENTENCES, top_k=None, function_to_apply=apply)
    ours = ask(
        "/v1/tasks/text-classification", inputs=SENTENCES, model="classify", parameters={"function_to_apply": apply}
    )
    for mine, other in zip(ours, theirs, strict=True):
        assert [one["label"] for one in mine] == [one["label"] for one in other]
        assert [one["score"] for one in mine] == pytest.approx([one["score"] for one in other], abs=1e-4)


def test_pairs_have_two_texts(ask):
    given_pairs = [{"text": first, "text_pair": second} for first, second in GIVEN["pair"]]
    found = ask("/v1/tasks/pair", inputs=given_pairs, model="pair")
    assert found == ask("/v1/tasks/text-classification", inputs=given_pairs, model="pair")
    for pair, row in zip(GIVEN["pair"], found, strict=True):
        expected = small_model("pair").predict(pair)
        assert row[0] == {"label": expected["label"], "score": pytest.approx(expected["score"], abs=1e-5)}
    ask.error("/v1/tasks/pair", inputs=list(GIVEN["pair"][0]), model="pair")  # texts are no pairs


def test_tags_are_the_entities_of_predict(ask):
    model = small_model("tag")
    for text, found in zip(TEXTS, ask("/v1/tasks/tag", inputs=TEXTS, model="tag"), strict=True):
        expected = model.predict(text)["entities"]
        assert [(one["entity_group"], one["word"]) for one in found] == [(one["kind"], one["text"]) for one in expected]
        assert [[one["start"], one["end"]] for one in found] == [one["characters"] for one in expected]
        assert [one["score"] for one in found] == pytest.approx([one["confidence"] for one in expected], abs=1e-5)
        assert all(text[one["start"] : one["end"]] == one["word"] for one in found)
    text, settings_ = TEXTS[0], {"aggregation_strategy": "none", "ignore_labels": []}
    words = ask("/v1/tasks/token-classification", inputs=text, model="tag", parameters=settings_)
    assert [one["entity"] for one in words] == model.predict(text)["tags"]
    kinds = {}
    for ignored in ([], ["LOC"]):
        rows = ask("/v1/tasks/tag", inputs=TEXTS, model="tag", parameters={"ignore_labels": ignored})
        kinds[len(ignored)] = {one["entity_group"] for row in rows for one in row}
    assert kinds == {0: {"LOC", "PER"}, 1: {"PER"}}


def test_tags_that_mark_no_entities_are_told_word_by_word(ask):
    (found,) = ask("/v1/tasks/tag", inputs=TEXTS[:1], model="pos")
    expected = small_model("pos").predict(TEXTS[0])
    assert [one["entity"] for one in found] == expected["tags"] and [one["word"] for one in found] == expected["words"]


def test_answers_are_those_of_predict_also_in_a_long_context(ask):
    model = small_model("answer")
    asked = [*QUESTIONS, {"question": "Where?", "context": LONG}]
    for one, found in zip(asked, ask("/v1/tasks/question-answering", inputs=asked, model="answer"), strict=True):
        expected = model.predict(one)
        assert found == {**expected, "score": pytest.approx(expected["score"], abs=1e-5)}
        assert one["context"][found["start"] : found["end"]] == found["answer"]
    best = ask("/v1/tasks/answer", inputs=QUESTIONS[0], model="answer", parameters={"top_k": 3})
    assert len(best) == 3 and best[0]["answer"] == model.predict(QUESTIONS[0])["answer"]


def test_intents_have_their_slots_by_name(ask):
    found = ask("/v1/tasks/intent", inputs=SENTENCES, model="intent")
    for text, one in zip(SENTENCES, found, strict=True):
        expected = small_model("intent").predict(text)
        assert one["intent"] == expected["intent"]
        assert one["score"] == pytest.approx(expected["score"], abs=1e-5)
        slots = [(name, slot["word"], slot["start"]) for name, all_ in one["slots"].items() for slot in all_]
        assert sorted(slots) == sorted(
            (slot["kind"], slot["text"], slot["characters"][0]) for slot in expected["slots"]
        )


@pytest.mark.parametrize("targets", [None, ["rabbit", "hole", "the"]])
def test_masks_are_filled_as_by_the_pipeline_of_transformers(ask, targets):
    pipe = transformers.pipeline("fill-mask", model=str(small_model("bert").folder))
    wanted = {"top_k": 3} | ({"targets": targets} if targets else {})
    texts = ["The [MASK] sat on the bank.", "Down the [MASK]."]
    theirs = pipe(texts, **wanted)
    for ours, other in zip(
        ask("/v1/tasks/fill-mask", inputs=texts, model="bert", parameters=wanted), theirs, strict=True
    ):
        assert [(one["token"], one["token_str"]) for one in ours] == [(one["token"], one["token_str"]) for one in other]
        assert [one["score"] for one in ours] == pytest.approx([one["score"] for one in other], abs=1e-5)
        assert set(ours[0]) == set(other[0])
    two = ask("/v1/tasks/fill", inputs="[MASK] sat on [MASK].", model="bert")
    assert [len(row) for row in two] == [5, 5]
    assert "no [MASK] to fill" in ask.error("/v1/tasks/fill", inputs="nothing", model="bert")


@pytest.mark.parametrize("name", ["translate", "summarize", "reply"])
def test_rewriting_gives_the_texts_of_predict(ask, name):
    key = {"translate": "translation_text", "summarize": "summary_text", "reply": "generated_text"}[name]
    expected = [one["text"] for one in small_model(name).predict(SENTENCES)]
    assert [one[key] for one in ask(f"/v1/tasks/{name}", inputs=SENTENCES, model=name)] == expected
    assert ask(f"/v1/tasks/{name}", inputs=SENTENCES[0], model=name) == [{key: expected[0]}]
    assert "Input 0 is too long" in ask.error(f"/v1/tasks/{name}", inputs=LONG, model=name)
    answer = ask.post(f"/v1/tasks/{name}", inputs=LONG, model=name, parameters={"truncate": True})
    assert answer.headers["x-weft-truncated"] == "1"
    assert answer.json() == [{key: small_model(name).predict(LONG)["text"]}]


def test_text_is_generated_as_by_generate(ask):
    model = small_model("gpt2")
    wanted = {"max_new_tokens": 6, "temperature": 1.0, "seed": 3}
    expected = model.generate(SENTENCES, **wanted)
    found = ask("/v1/tasks/text-generation", inputs=SENTENCES, model="gpt2", parameters=wanted)
    assert found == [[{"generated_text": text}] for text in expected]
    parameters = {"max_new_tokens": 4, "return_full_text": True}
    (full,) = ask("/v1/tasks/generate", inputs=SENTENCES[0], model="gpt2", parameters=parameters)
    assert full["generated_text"] == SENTENCES[0] + model.generate(SENTENCES[0], max_new_tokens=4)
    assert len(ask("/v1/tasks/generate", inputs="Down", model="gpt2", parameters={"num_return_sequences": 3})) == 3


def test_similarity_and_vectors(ask):
    inputs = {"source_sentence": SENTENCES[0], "sentences": SENTENCES}
    (first, *_), whole = (
        ask("/v1/tasks/similarity", inputs=[inputs]),
        ask("/v1/tasks/sentence-similarity", inputs=inputs),
    )
    vectors = minilm_model().embed(SENTENCES)
    assert first == whole == pytest.approx((vectors @ vectors[0]).tolist(), abs=1e-5)
    np.testing.assert_allclose(ask("/v1/tasks/embed", inputs=SENTENCES), vectors, atol=1e-5)
    np.testing.assert_allclose(ask("/v1/tasks/feature-extraction", inputs=SENTENCES[0]), vectors[0], atol=1e-5)


def test_the_client_of_hugging_face_parses_every_answer(ask, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "is_offline_mode", lambda: False)  # it is asked for loopback only

    def client(task: str, model: str) -> InferenceClient:
        return InferenceClient(model=url(ask, task, model), token="none")

    text = SENTENCES[0]
    labels = client("text-classification", "classify").text_classification(text, top_k=2)
    assert len(labels) == 2 and labels[0].label == small_model("classify").predict(text)["label"]
    entities = client("token-classification", "tag").token_classification(text, aggregation_strategy="simple")
    assert [one.entity_group for one in entities] == [
        one["kind"] for one in small_model("tag").predict(text)["entities"]
    ]
    found = client("question-answering", "answer").question_answering(**QUESTIONS[0])
    assert found.answer == small_model("answer").predict(QUESTIONS[0])["answer"]
    masks = client("fill-mask", "bert").fill_mask("The [MASK] sat.", top_k=2)
    assert [one.token_str.strip() for one in masks] == [
        one.word for one in small_model("bert").fill("The [MASK] sat.", 2)
    ]
    translated = client("translation", "translate").translation(text)
    assert translated.translation_text == small_model("translate").predict(text)["text"]
    assert client("summarization", "summarize").summarization(text).summary_text
    similar = client("sentence-similarity", "minilm").sentence_similarity(text, other_sentences=SENTENCES)
    assert similar[0] == pytest.approx(1, abs=1e-5) and len(similar) == len(SENTENCES)
    vectors = client("feature-extraction", "minilm").feature_extraction(SENTENCES, normalize=True, truncate=True)
    np.testing.assert_allclose(vectors, minilm_model().embed(SENTENCES), atol=1e-5)
    written = client("text-generation", "gpt2").text_generation(text, max_new_tokens=5, do_sample=False)
    assert written == small_model("gpt2").generate(text, max_new_tokens=5)


def test_a_task_that_the_model_cannot_do_names_what_it_can(ask):
    assert ask.error("/v1/tasks/tag", inputs="x", model="classify") == (
        "This model cannot do tag. It can do: classify, pair, embed."
    )
    assert "It can do: embed" in ask.error("/v1/tasks/text-classification", inputs="x")
    assert "cannot do translate" in ask.error("/v1/tasks/translate", inputs="x", model="tag")
    assert "(did you mean classify?)" in ask.error("/v1/tasks/clasify", 404, inputs="x")
    assert "no model 'nobody'" in ask.error("/v1/tasks/tag", 404, inputs="x", model="nobody")


@pytest.mark.parametrize(
    ("task", "body", "sentence"),
    [
        ("tag", {"inputs": "x", "model": "tag", "parameters": {"stride": 3}}, "no parameter 'stride'"),
        ("classify", {"inputs": "x", "model": "classify", "parameters": {"topk": 3}}, "did you mean top_k"),
        ("classify", {"inputs": LONG, "model": "classify"}, "set truncate to true"),
        ("classify", {"inputs": " ", "model": "classify"}, "Input 0 has an empty text"),
        ("classify", {"inputs": ["x"] * 3000, "model": "classify"}, "2048"),
        ("answer", {"inputs": {"question": "x"}, "model": "answer"}, "context: Field required"),
        ("answer", {"inputs": [], "model": "answer"}, "inputs"),
        ("tag", {"inputs": "\n", "model": "tag"}, "has no words"),
        ("fill", {"inputs": "[MASK] " * 90, "model": "bert", "parameters": {"top_k": 100}}, "at most 10 are possible"),
        ("similarity", {"inputs": {"source_sentence": "x", "sentences": []}}, "at least 1"),
        ("generate", {"inputs": "x", "model": "gpt2", "stream": True}, "stream"),
        ("generate", {"inputs": ["x"] * 600, "model": "gpt2"}, "the limit is 512"),
        ("generate", {"inputs": "x", "model": "gpt2", "parameters": {"max_new_tokens": 9999}}, "9999"),
    ],
)
def test_what_is_wrong_is_a_sentence(ask, task, body, sentence):
    assert sentence in ask.error(f"/v1/tasks/{task}", **body)


def test_one_bad_text_fails_its_own_request_only(ask):
    with ThreadPoolExecutor(8) as pool:
        bodies = [{"inputs": "\n" if number % 3 == 0 else SENTENCES[0], "model": "tag"} for number in range(24)]
        found = list(pool.map(lambda body: ask.post("/v1/tasks/tag", **body).status_code, bodies))
    assert found == [400 if number % 3 == 0 else 200 for number in range(24)]


def test_tasks_mixed_at_random_get_the_answers_they_get_alone(ask):
    bodies = [
        *(("tag", {"inputs": text, "model": "tag"}) for text in TEXTS),
        *(("answer", {"inputs": one, "model": "answer"}) for one in QUESTIONS),
        *(("intent", {"inputs": text, "model": "intent"}) for text in SENTENCES),
        *(("translate", {"inputs": text, "model": "translate"}) for text in SENTENCES),
        *(("reply", {"inputs": text, "model": "reply"}) for text in SENTENCES),
        *(("pair", {"inputs": {"text": a, "text_pair": b}, "model": "pair"}) for a, b in PAIRS[:2]),
        ("fill", {"inputs": "The [MASK] sat.", "model": "bert"}),
    ]
    alone = [ask(f"/v1/tasks/{task}", **body) for task, body in bodies]

    def client(seed: int) -> None:
        with httpx2.Client(base_url=ask.address, timeout=60) as http:
            for number in random.Random(seed).sample(range(len(bodies)), 8):
                task, body = bodies[number]
                assert_alike(http.post(f"/v1/tasks/{task}", json=body).json(), alone[number])

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(client, range(16)))


def assert_alike(ours, theirs) -> None:
    if isinstance(ours, float):
        assert ours == pytest.approx(theirs, abs=1e-5)
    elif isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert_alike(ours[key], theirs[key])
    elif isinstance(ours, list):
        for pair in zip(ours, theirs, strict=True):
            assert_alike(*pair)
    else:
        assert ours == theirs


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9)
)
names = st.sampled_from("text text_pair question context source_sentence sentences words".split())
anything = st.recursive(
    scalars, lambda one: st.lists(one, max_size=3) | st.dictionaries(names, one, max_size=3), max_leaves=6
)
parameters = st.dictionaries(
    st.sampled_from("top_k truncate targets stop seed temperature max_new_tokens ignore_labels normalize".split()),
    scalars | st.integers(1, 5) | st.lists(st.text(max_size=3), max_size=2),
    max_size=2,
)


@settings(max_examples=70)
@given(st.sampled_from(TASK_NAMES), st.sampled_from([*MODELS, "bert", "gpt2", "t5"]), anything, st.none() | parameters)
def test_whatever_is_asked_is_answered_or_refused(ask, task, model, inputs, given_parameters):
    answer = ask.post(f"/v1/tasks/{task}", inputs=inputs, model=model, parameters=given_parameters)
    assert answer.status_code in (200, 400), answer.text
