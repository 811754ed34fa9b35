"""text-embeddings-inference's routes, in its shapes."""

import numpy as np
import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from reading_models import PAIRS, SENTENCES, ask, minilm_model, small_model

from weft.serve.tei_formats import PredictRequest

assert ask  # a fixture
CAT, FELINE, STOCKS = (
    "The cat sat on the mat.",
    "A feline was resting on a rug.",
    "Stock prices fell sharply on Monday.",
)


def test_embed_gives_a_list_of_vectors_of_length_one(ask):
    for inputs in (CAT, [CAT], [CAT, FELINE]):
        found = ask("/embed", inputs=inputs)
        np.testing.assert_allclose(found, minilm_model().embed([CAT, FELINE])[: len(found)], atol=1e-6)
    plain = ask("/embed", inputs=SENTENCES, model="bert", normalize=False)
    np.testing.assert_allclose(plain, small_model("bert").embed(SENTENCES), atol=1e-5)
    scaled = ask("/embed", inputs=SENTENCES, model="bert")
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), 1, atol=1e-5)
    mixed = ask("/embed", inputs=[CAT, minilm_model().tokenizer.encode(CAT)])
    np.testing.assert_allclose(*mixed, atol=1e-6)


def test_embed_all_gives_a_vector_per_token(ask):
    found = ask("/embed_all", inputs=[CAT, "x"])
    ids = minilm_model().tokenizer.encode_many([CAT, "x"])
    for ours, theirs in zip(found, minilm_model().hidden(ids), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert "numbers; the limit is" in ask.error("/embed_all", inputs=["word " * 250] * 60)


@pytest.mark.parametrize("side", ["Left", "right"])
def test_truncation_has_a_side(ask, side):
    text = "red " * 300 + "blue " * 300
    assert "set truncate to true" in ask.error("/embed", inputs=text)
    answer = ask.post("/embed", inputs=text, truncate=True, truncation_direction=side)
    assert answer.headers["x-weft-truncated"] == "1" and answer.headers["x-compute-tokens"] == "256"
    kept = ("blue " if side == "Left" else "red ") * 254
    np.testing.assert_allclose(answer.json()[0], minilm_model().embed([kept])[0], atol=1e-5)


def test_predict_takes_a_text_a_pair_or_a_batch_of_either(ask):
    """The trap: a list of two texts is one pair."""
    first, second = SENTENCES[:2]
    model = small_model("classify")
    theirs = model.predict(first, details=True)["scores"]
    found = ask("/predict", inputs=first, model="classify")
    assert [one["label"] for one in found] == list(theirs)  # best first
    assert [one["score"] for one in found] == pytest.approx(list(theirs.values()), abs=1e-5)
    assert set(found[0]) == {"score", "label"}
    pair = ask("/predict", inputs=[first, second], model="classify")
    expected = model.predict((first, second), task="pair", details=True)["scores"]
    assert {one["label"]: one["score"] for one in pair} == pytest.approx(expected, abs=1e-5)
    batch = ask("/predict", inputs=[[first], [first, second], [second]], model="classify")
    assert [len(row) for row in batch] == [3, 3, 3]
    for ours, alone in zip(batch[:2], (found, pair), strict=True):
        assert {one["label"]: one["score"] for one in ours} == pytest.approx(
            {one["label"]: one["score"] for one in alone}, abs=1e-5
        )


def test_raw_scores_are_the_logits_of_transformers(ask):
    folder = small_model("classify").folder
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text in SENTENCES:
        logits = theirs(**tokenizer(text, return_tensors="pt")).logits[0].tolist()
        found = {one["label"]: one["score"] for one in ask("/predict", inputs=text, raw_scores=True, model="classify")}
        assert found == pytest.approx(dict(zip(("bad", "good", "so so"), logits, strict=True)), abs=1e-4)


def test_several_labels_have_scores_of_their_own_and_a_number_is_one_label(ask):
    expected = small_model("several").predict(SENTENCES[0], details=True)["scores"]
    found = ask("/predict", inputs=SENTENCES[0], model="several")
    assert {one["label"]: one["score"] for one in found} == pytest.approx(expected, abs=1e-5)
    (one,) = ask("/predict", inputs=list(PAIRS[0]), model="similarity")
    assert one["label"] == "score"
    assert one["score"] == pytest.approx(small_model("similarity").predict(PAIRS[0])["score"], abs=1e-5)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3), lambda one: st.lists(one, max_size=4)
)


@given(json_values)
def test_predict_understands_exactly_three_shapes(inputs):
    def is_one(value):
        return isinstance(value, list) and len(value) in (1, 2) and all(isinstance(x, str) and x for x in value)

    is_batch = isinstance(inputs, list) and bool(inputs) and all(map(is_one, inputs))
    is_good = (isinstance(inputs, str) and inputs) or is_one(inputs) or is_batch
    try:
        body = PredictRequest.model_validate({"inputs": inputs})
    except ValidationError:
        assert not is_good
    else:
        assert is_good and body.is_batch == is_batch
        assert len(body.items) == (len(inputs) if is_batch else 1)


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank"])
def test_rerank_puts_the_best_first(ask, path):
    texts = [STOCKS, FELINE, CAT]
    cosines = minilm_model().embed(texts) @ minilm_model().embed([CAT])[0]
    if path == "/rerank":
        found = ask(path, query=CAT, texts=texts, return_text=True)
        scores = [(one["index"], one["score"], one["text"]) for one in found]
        assert "text" not in ask(path, query=CAT, texts=texts)[0]
    else:
        answer = ask(path, query=CAT, documents=[STOCKS, {"text": FELINE}, CAT])
        scores = [(one["index"], one["relevance_score"], one["document"]["text"]) for one in answer["results"]]
        assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 20 and answer["model"] == "minilm"
        (best,) = ask(path, query=CAT, documents=texts, top_n=1, return_documents=False)["results"]
        assert set(best) == {"index", "relevance_score"} and best["index"] == 2
    assert [index for index, _, _ in scores] == [2, 1, 0] and [text for *_, text in scores] == texts[::-1]
    assert [score for _, score, _ in scores] == pytest.approx(sorted(cosines, reverse=True), abs=1e-5)


def test_a_model_for_pairs_ranks_by_the_label_that_means_a_fit(ask):
    query, *texts = SENTENCES[:4]
    model = small_model("pair")
    expected = [model.predict((query, text), details=True)["scores"]["yes"] for text in texts]
    found = ask("/rerank", query=query, texts=texts, model="pair")
    assert {one["index"]: one["score"] for one in found} == pytest.approx(dict(enumerate(expected)), abs=1e-5)
    no = ask("/rerank", query=query, texts=texts, model="pair", label="no")
    assert {one["index"]: 1 - one["score"] for one in no} == pytest.approx(dict(enumerate(expected)), abs=1e-5)
    raw = ask("/rerank", query=query, texts=texts, model="pair", raw_scores=True)
    assert any(not 0 <= one["score"] <= 1 for one in raw)
    assert "Name it with label. Labels: bad, good, so so" in ask.error(
        "/rerank", query=query, texts=texts, model="classify"
    )
    assert "no label 'x'" in ask.error("/rerank", query=query, texts=texts, model="pair", label="x")
    assert "label is for models" in ask.error("/rerank", query=query, texts=texts, label="x")


def test_similarity_is_the_cosine_or_what_a_tuned_model_predicts(ask):
    inputs = {"source_sentence": CAT, "sentences": [FELINE, STOCKS]}
    cosines = minilm_model().embed([FELINE, STOCKS]) @ minilm_model().embed([CAT])[0]
    assert ask("/similarity", inputs=inputs) == pytest.approx(cosines.tolist(), abs=1e-5)
    expected = [small_model("similarity").predict((CAT, text))["score"] for text in (FELINE, STOCKS)]
    assert ask("/similarity", inputs=inputs, model="similarity") == pytest.approx(expected, abs=1e-5)
    ranked = ask("/rerank", query=CAT, texts=[FELINE, STOCKS], model="similarity")
    assert {one["index"]: one["score"] for one in ranked} == pytest.approx(dict(enumerate(expected)), abs=1e-5)


def test_a_piece_that_is_not_in_the_vocabulary_is_marked(ask):
    (tokens,) = ask("/tokenize", inputs="a 🐇", add_special_tokens=False)
    assert [one.get("unknown", False) for one in tokens] == [False, True]


def test_tokenize_and_decode_are_those_of_the_tokenizer(ask):
    text = "Hello wörld 🙂 unbelievably"
    (tokens,) = ask("/tokenize", inputs=text)
    assert [one["id"] for one in tokens] == minilm_model().tokenizer.encode(text)
    assert tokens[0] == {"id": 101, "text": "[CLS]", "special": True, "start": None, "stop": None}
    assert all(one["text"] == text[one["start"] : one["stop"]] for one in tokens if not one["special"])
    bare = ask("/tokenize", inputs=[text, ""], add_special_tokens=False)
    assert bare == [tokens[1:-1], []]
    ids = [one["id"] for one in tokens]
    assert ask("/decode", ids=ids) == [minilm_model().tokenizer.decode(ids)]
    assert ask("/decode", ids=[ids, ids[1:-1]], skip_special_tokens=False)[0].startswith("[CLS] hello")
    assert ask("/decode", ids=[]) == [""]
    assert "no token id 30522" in ask.error("/decode", ids=[30522])


def test_info_says_what_may_be_asked(ask):
    facts = ask.client.get("/info").json()
    assert facts["model_id"] == "minilm" and facts["model_type"] == {"embedding": {"pooling": "mean"}}
    assert facts["max_input_length"] == 256 and facts["max_client_batch_size"] == 2048 and not facts["auto_truncate"]
    pair = ask.client.get("/info", params={"model": "pair"}).json()
    assert pair["model_type"] == {"classifier": {"id2label": {"0": "no", "1": "yes"}, "label2id": {"no": 0, "yes": 1}}}
    assert ask.client.get("/info?model=nobody").status_code == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embed", {"inputs": ""}),
        ("/embed", {"inputs": []}),
        ("/embed", {"inputs": "a", "prompt_name": "query"}),
        ("/embed", {"inputs": "a", "dimensions": 3}),
        ("/embed", {"inputs": "a", "truncate": "yes"}),
        ("/predict", {"inputs": ["a", "b", "c"], "model": "classify"}),
        ("/predict", {"inputs": "a"}),  # MiniLM has no labels
        ("/predict", {"inputs": "a", "model": "similarity"}),
        ("/rerank", {"query": "a", "texts": []}),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}),
        ("/tokenize", {"inputs": [1]}),
        ("/decode", {"ids": [-1]}),
        ("/decode", {"ids": ["a"]}),
    ],
)
def test_what_is_wrong_is_said_in_the_shape_of_openai(ask, path, body):
    assert ask.error(path, **body).endswith(".")
