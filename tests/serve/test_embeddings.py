"""/v1/embeddings, asked by the real openai client; overload, clients that leave, and many at once."""

import base64
import json
import random
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2
import numpy as np
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading_models import SENTENCES, Asked, ask, minilm_model, small_model
from running import serving

from weft.serve.limits import ServiceLimits
from weft.serve.reading import ReadCall

assert ask  # a fixture
TEXTS = ["The cat sat on the mat.", "A feline was resting on a rug.", "naïve café – 🙂 中文", "x"]


def scores(found: list[dict]) -> dict[str, float]:
    return {one["label"]: one["score"] for one in found}


def decoded(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4")


def test_the_openai_client_gets_the_vectors_of_embed(ask):
    client = openai.OpenAI(base_url=f"{ask.address}/v1", api_key="none", max_retries=0)
    expected = minilm_model().embed(TEXTS)
    for more in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}, {"dimensions": 384}):
        answer = client.embeddings.create(model="minilm", input=TEXTS, **more)
        raw = [one.embedding for one in answer.data]
        vectors = [decoded(one) for one in raw] if isinstance(raw[0], str) else raw  # base64 stays if it was asked for
        np.testing.assert_allclose(np.asarray(vectors, np.float32), expected, atol=1e-6)
        assert [one.index for one in answer.data] == [0, 1, 2, 3] and answer.model == "minilm"
        tokens = sum(len(minilm_model().tokenizer.encode(text)) for text in TEXTS)
        assert answer.usage.prompt_tokens == answer.usage.total_tokens == tokens


def test_token_ids_are_read_as_they_are(ask):
    tokenizer = minilm_model().tokenizer
    rows = [tokenizer.encode(text) for text in TEXTS]
    of_texts = [one["embedding"] for one in ask("/v1/embeddings", input=TEXTS)["data"]]
    of_ids = [one["embedding"] for one in ask("/v1/embeddings", input=rows)["data"]]
    np.testing.assert_allclose(of_ids, of_texts, atol=1e-6)
    (alone,) = ask("/v1/embeddings", input=rows[0])["data"]
    np.testing.assert_allclose(alone["embedding"], of_texts[0], atol=1e-6)
    assert ask("/v1/embeddings", input=rows[0][1:-1])["usage"]["prompt_tokens"] == len(rows[0]) - 2


@pytest.mark.parametrize("name", ["classify", "gpt2", "t5"])
def test_every_model_embeds(ask, name):
    data = ask("/v1/embeddings", input=SENTENCES, model=name)["data"]
    np.testing.assert_allclose([one["embedding"] for one in data], small_model(name).embed(SENTENCES), atol=1e-5)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"input": ""}, "input: .*at least 1 character"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": [1, "a"]}, "input"),
        ({"input": 5}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": [-1]}, "input"),
        ({"input": [True, False]}, "input"),
        ({"input": ["a"] * 2049}, "input: .*2048"),
        ({"input": [30522]}, "token id 30522; ids are from 0 to 30521"),
        ({"input": "word " * 300}, "Input 0 has 302 tokens; this model reads at most 256"),
        ({"input": "a", "dimensions": 12}, "dimensions is 12, but this model's vectors have 384"),
        ({"input": "a", "dimensions": "384"}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"inputs": "a"}, "input: Field required"),
    ],
)
def test_what_is_wrong_is_a_sentence(ask, body, sentence):
    assert re.search(sentence, ask.error("/v1/embeddings", **body))


def test_a_long_text_is_truncated_if_asked_and_that_is_said(ask):
    text = "down the rabbit hole " * 100
    answer = ask.post("/v1/embeddings", input=["short", text, text], truncate=True)
    assert answer.headers["x-weft-truncated"] == "2" and answer.json()["usage"]["prompt_tokens"] == 3 + 2 * 256
    vectors = [one["embedding"] for one in answer.json()["data"]]
    np.testing.assert_allclose(vectors, minilm_model().embed(["short", text, text]), atol=1e-6)
    assert "x-weft-truncated" not in ask.post("/v1/embeddings", input="short", truncate=True).headers


def test_a_request_may_not_have_too_many_tokens():
    with serving({"small": small_model("bert")}, ServiceLimits(tokens=100)) as running:
        assert "a request may have 100" in Asked(running).error("/v1/embeddings", input=["Down, down."] * 50)


@settings(max_examples=12)
@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=40), min_size=1, max_size=6))
def test_any_texts_get_the_vectors_they_get_from_python(ask, texts):
    vectors = [
        decoded(one["embedding"]) for one in ask("/v1/embeddings", input=texts, encoding_format="base64")["data"]
    ]
    np.testing.assert_allclose(vectors, minilm_model().embed(texts), atol=1e-5)


def test_many_clients_at_random_get_the_answers_they_would_get_alone(ask):
    texts = [" ".join(random.Random(seed).choices(TEXTS, k=1 + seed % 5)) for seed in range(30)]
    expected = dict(zip(texts, minilm_model().embed(texts), strict=True))
    labels = {text: scores(ask("/predict", inputs=text, model="classify")) for text in SENTENCES}

    def client(seed: int) -> None:
        choose = random.Random(seed)
        with httpx2.Client(base_url=ask.address, timeout=60) as http:
            for _ in range(6):
                if choose.random() < 0.3:
                    text = choose.choice(SENTENCES)
                    found = http.post("/predict", json={"inputs": text, "model": "classify"}).json()
                    assert scores(found) == pytest.approx(labels[text], abs=1e-5)
                    continue
                some = choose.sample(texts, choose.randint(1, 6))
                data = http.post("/v1/embeddings", json={"input": some, "encoding_format": "base64"}).json()["data"]
                for text, one in zip(some, data, strict=True):
                    np.testing.assert_allclose(decoded(one["embedding"]), expected[text], atol=1e-5)

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(client, range(16)))


class Held:
    """A model whose compute thread waits to be released; `calls` arrive in `submitted`."""

    def __init__(self, running) -> None:
        self.queue = running.service.models["small"].reading
        self.released, self.submitted, self.calls = threading.Event(), threading.Semaphore(0), list[ReadCall]()
        step, submit = self.queue.step, self.queue.submit

        def held_step() -> None:
            self.released.wait()
            step()

        def seen_submit(call: ReadCall):
            future = submit(call)
            self.calls.append(call)
            self.submitted.release()
            return future

        self.queue.step, self.queue.submit = held_step, seen_submit


def test_a_full_queue_answers_429_and_what_was_admitted_is_answered():
    with serving({"small": small_model("bert")}, ServiceLimits(queue=2)) as running:
        held, asked = Held(running), Asked(running)
        with ThreadPoolExecutor(2) as pool:
            admitted = [pool.submit(asked.post, "/v1/embeddings", input="Down.") for _ in range(2)]
            for _ in admitted:
                held.submitted.acquire()
            refused = asked.post("/v1/embeddings", input="Down.")
            assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
            assert refused.json()["error"]["code"] == "overloaded"
            held.released.set()
            assert [one.result().status_code for one in admitted] == [200, 200]
        assert asked.post("/v1/embeddings", input="Down.").status_code == 200


def test_what_a_client_that_left_asked_is_not_read():
    with serving({"small": small_model("bert")}) as running:
        held, gone = Held(running), threading.Event()
        body = json.dumps({"input": "Down, down."}).encode()
        head = ("POST /v1/embeddings HTTP/1.1", "Host: localhost", "Content-Type: application/json")
        head += (f"Content-Length: {len(body)}", "", "")
        with socket.create_connection(("127.0.0.1", running.port)) as connection:
            connection.sendall("\r\n".join(head).encode() + body)
            held.submitted.acquire()
        held.calls[0].future.add_done_callback(lambda _: gone.set())
        assert gone.wait(30) and held.calls[0].future.cancelled()
        held.released.set()
        assert Asked(running)("/v1/embeddings", input="Down.")["usage"]["prompt_tokens"] == held.queue.load.tokens


def test_an_answer_that_takes_too_long_ends_with_504():
    with serving({"small": small_model("bert")}, ServiceLimits(seconds=0.2)) as running:
        held = Held(running)
        assert "took longer" in Asked(running).error("/v1/embeddings", 504, input="Down.")
        # The answer may be there a moment before the event loop has cancelled the call; another request lets it go on.
        for _ in range(1000):
            if not held.calls[0].future.cancelled():
                running.get("/health")
        assert held.calls[0].future.cancelled()
        held.released.set()
