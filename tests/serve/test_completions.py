"""/v1/completions beyond what the openai client sends: vLLM's fields, constraints, limits, ignored fields."""

import json

import pytest
from running import Running, events, serving

import weft
from weft.serve.limits import ServiceLimits

PROMPT = "Alice was"


def ask(running: Running, **fields) -> list[str]:
    answer = running.post("/v1/completions", {"model": "story", "prompt": PROMPT, "max_tokens": 12, **fields})
    assert answer.status_code == 200, answer.text
    return [choice["text"] for choice in answer.json()["choices"]]


def test_unknown_fields_are_accepted_and_named(running: Running):
    body = {"model": "story", "prompt": PROMPT, "max_tokens": 1, "frobnicate": 1, "naïve\r\nx-evil": {}}
    answer = running.post("/v1/completions", body)
    assert answer.status_code == 200
    assert answer.headers["x-weft-ignored"] == "frobnicate,na%C3%AFve%0D%0Ax-evil"
    assert "x-evil" not in answer.headers


def test_the_first_model_is_the_default(running: Running):
    answer = running.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 1})
    assert answer.json()["model"] == "story"


@pytest.mark.parametrize(
    ("fields", "settings"),
    [
        ({"temperature": 0, "repetition_penalty": 1.5}, {"strategy": "greedy", "repetition_penalty": 1.5}),
        (
            {"temperature": 0, "presence_penalty": 2, "frequency_penalty": 1},
            {"presence_penalty": 2.0, "frequency_penalty": 1.0},
        ),
        ({"temperature": 0, "logit_bias": {"300": 100}}, {"logit_bias": {300: 100.0}}),
        ({"temperature": 0, "stop_token_ids": [30, 31, 32]}, {"stop_tokens": [30, 31, 32]}),
        ({"temperature": 0, "no_repeat_ngram": 2}, {"no_repeat_ngram": 2}),
        ({"top_k": 5, "seed": 3}, {"top_k": 5, "seed": 3}),
        ({"top_k": -1, "min_p": 0.1, "seed": 3}, {"min_p": 0.1, "seed": 3}),
        ({"seed": -5}, {"seed": 2**63 - 5}),
        ({"use_beam_search": True, "n": 2, "length_penalty": 0.5}, {"beams": 4, "n": 2, "length_penalty": 0.5}),
        ({"guided_regex": "[a-z]{3}[0-9]", "temperature": 0}, {"regex": "[a-z]{3}[0-9]"}),
        ({"guided_choice": ["yes", "no"], "temperature": 0}, {"choice": ["yes", "no"]}),
    ],
)
def test_fields_are_settings_of_the_library(
    running: Running, models: dict[str, weft.Model], fields: dict, settings: dict
):
    expected = models["story"].generate(PROMPT, max_new_tokens=12, **settings)
    assert ask(running, **fields) == (expected if isinstance(expected, list) else [expected])


def test_greedy_answers_are_equal(running: Running):
    texts = ask(running, temperature=0, n=3)
    assert texts == ask(running, temperature=0) * 3


def test_ignore_eos_writes_on(running: Running):
    answer = running.post(
        "/v1/completions",
        {"model": "story", "prompt": PROMPT, "max_tokens": 100, "ignore_eos": True, "n": 8, "return_token_ids": True},
    ).json()
    assert [len(choice["token_ids"]) for choice in answer["choices"]] == [100] * 8
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}


def test_constrained_output_fits_its_schema(running: Running):
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    for text in ask(running, response_format=wanted, n=4, max_tokens=60, seed=1):
        assert json.loads(text) in ({"a": 1}, {"a": 2})
    for text in ask(running, response_format={"type": "json_object"}, n=4, max_tokens=3):
        assert text.lstrip().startswith("{")


def test_echo_alone_repeats_the_prompt(running: Running, models: dict[str, weft.Model]):
    text = ask(running, temperature=0)[0]
    assert ask(running, temperature=0, echo=True) == [PROMPT + text]
    body = {"model": "story", "prompt": PROMPT, "max_tokens": 12, "temperature": 0, "echo": True, "stream": True}
    for more in ({}, {"logprobs": 1}):
        found = events(running.post("/v1/completions", {**body, **more}).text)
        assert "".join(one["choices"][0]["text"] for one in found) == PROMPT + text
    tokens = [token for one in found for token in one["choices"][0]["logprobs"]["tokens"]]
    offsets = [place for one in found for place in one["choices"][0]["logprobs"]["text_offset"]]
    whole = running.post("/v1/completions", {**body, "stream": False, "logprobs": 1}).json()["choices"][0]["logprobs"]
    assert (tokens, offsets) == (whole["tokens"], whole["text_offset"])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"n": 600}, "600 answers; the limit is 512"),
        ({"prompt": ["a"] * 300, "n": 2}, "600 answers"),
        ({"stop": ["a"] * 17}, "stop strings"),
        ({"stream": True, "use_beam_search": True}, "beam search"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "only one"),
        ({"guided_regex": "("}, "regex"),
        ({"guided_json": {"type": "nonsense"}}, "json_schema"),
        ({"max_tokens": 0}, "echo"),
        ({"prompt": []}, "empty list"),
        ({"bad_words": ["two words of many tokens"]}, "single token"),
        ({"model": "source", "echo": True}, "encoder"),
        ({"model": "reader"}, "does not write"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_sentence(running: Running, fields: dict, said: str):
    answer = running.post("/v1/completions", {"model": "story", "prompt": PROMPT, "max_tokens": 4, **fields})
    assert answer.status_code == 400, answer.text
    assert said in answer.json()["error"]["message"]


def test_limits_of_tokens_memory_and_time(models: dict[str, weft.Model]):
    with serving({"story": models["story"]}, ServiceLimits(tokens=40, seconds=1e-6)) as running:
        late = running.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 4})
        assert late.status_code == 504
        assert late.headers["x-should-retry"] == "false"
        streamed = running.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 4, "stream": True})
        assert streamed.status_code == 504
        many = running.post("/v1/completions", {"prompt": [PROMPT] * 3, "max_tokens": 12})
        assert many.status_code == 400
        assert "the limit is 40" in many.json()["error"]["message"]
        assert running.service.models["story"].writing.open_jobs == 0
