"""The real openai client against the service: what its users do."""

import asyncio
import math

import openai
import pytest
import torch
from running import Running

import weft

PROMPT = "Alice was beginning to get very tired"


@pytest.fixture
def client(running: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{running.address}/v1", api_key="none", max_retries=0)


def test_models_are_listed_and_described(client: openai.OpenAI, models: dict[str, weft.Model]):
    assert [model.id for model in client.models.list()] == list(models)
    assert client.models.retrieve("talk").id == "talk"


def test_greedy_text_is_that_of_the_library(client: openai.OpenAI, models: dict[str, weft.Model]):
    answer = client.completions.create(model="story", prompt=PROMPT, max_tokens=20, temperature=0)
    expected = models["story"].generate(PROMPT, strategy="greedy", max_new_tokens=20, details=True)
    assert answer.choices[0].text == expected.text
    assert answer.choices[0].finish_reason == {"length": "length"}.get(expected.finish, "stop")
    assert answer.usage.completion_tokens == len(expected.tokens)
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_seed_gives_the_samples_of_the_library(client: openai.OpenAI, models: dict[str, weft.Model]):
    wanted = {"n": 3, "seed": 11, "temperature": 0.8, "top_p": 0.9}
    answer = client.completions.create(model="story", prompt=[PROMPT, "So"], max_tokens=10, **wanted)
    rows = [models["story"].generate(one, max_new_tokens=10, strategy="sample", **wanted) for one in (PROMPT, "So")]
    assert [choice.text for choice in answer.choices] == [text for row in rows for text in row]
    assert [choice.index for choice in answer.choices] == list(range(6))


def test_token_ids_are_prompts_too(client: openai.OpenAI, models: dict[str, weft.Model]):
    ids = models["story"].tokenizer.encode(PROMPT)
    wanted = {"model": "story", "max_tokens": 8, "temperature": 0}
    texts = [
        [choice.text for choice in client.completions.create(prompt=prompt, **wanted).choices]
        for prompt in (PROMPT, [PROMPT], ids, [ids], [ids, ids])
    ]
    assert texts == [texts[0]] * 4 + [texts[0] * 2]


def test_a_stream_is_the_text_in_pieces(client: openai.OpenAI):
    wanted = {"model": "story", "prompt": [PROMPT, "So"], "max_tokens": 30, "seed": 5, "n": 2}
    whole = client.completions.create(**wanted)
    chunks = list(client.completions.create(stream=True, stream_options={"include_usage": True}, **wanted))
    assert chunks[-1].usage == whole.usage.model_copy(
        update={"prompt_tokens_details": chunks[-1].usage.prompt_tokens_details}
    )
    assert chunks[-1].choices == []
    assert len({chunk.id for chunk in chunks}) == 1
    for choice in whole.choices:
        own = [one for chunk in chunks for one in chunk.choices if one.index == choice.index]
        assert "".join(one.text for one in own) == choice.text
        assert [one.finish_reason for one in own] == [None] * (len(own) - 1) + [choice.finish_reason]


def test_log_probabilities_are_those_of_the_library(client: openai.OpenAI, models: dict[str, weft.Model]):
    answer = client.completions.create(model="story", prompt=PROMPT, max_tokens=6, temperature=0, logprobs=3)
    expected = models["story"].generate(PROMPT, strategy="greedy", max_new_tokens=6, details=True)
    found = answer.choices[0].logprobs
    assert found.token_logprobs == pytest.approx(expected.log_probs, abs=1e-4)
    for chosen, token, top in zip(found.token_logprobs, found.tokens, found.top_logprobs, strict=True):
        assert len(top) == 3  # greedy: the chosen one is among them
        assert top[token] == max(top.values()) == chosen


def test_chat_has_logprobs_with_bytes(client: openai.OpenAI):
    answer = client.chat.completions.create(
        model="talk", messages=[{"role": "user", "content": "Hi"}], max_tokens=6, logprobs=True, top_logprobs=2, seed=1
    )
    content = answer.choices[0].logprobs.content
    assert len(content) == 6
    assert all(len(token.top_logprobs) == 2 for token in content)
    text = b"".join(bytes(token.bytes) for token in content).decode("utf-8", "replace")
    assert text == answer.choices[0].message.content


def test_chat_streams_role_content_and_reason(client: openai.OpenAI):
    wanted = {"model": "talk", "messages": [{"role": "user", "content": "Hi"}], "max_completion_tokens": 12, "seed": 3}
    whole = client.chat.completions.create(**wanted).choices[0]
    chunks = [chunk.choices[0] for chunk in client.chat.completions.create(stream=True, **wanted)]
    assert chunks[0].delta.role == "assistant"
    assert "".join(chunk.delta.content or "" for chunk in chunks) == whole.message.content
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == [whole.finish_reason]


def test_many_at_once_get_what_they_get_alone(running: Running):
    async def ask(client: openai.AsyncOpenAI, number: int) -> str:
        answer = await client.completions.create(
            model="story", prompt=PROMPT[:number], max_tokens=5 + number, seed=number, temperature=0.5
        )
        return answer.choices[0].text

    async def streamed(client: openai.AsyncOpenAI, number: int) -> str:
        stream = await client.completions.create(
            model="story", prompt=PROMPT[:number], max_tokens=5 + number, seed=number, temperature=0.5, stream=True
        )
        return "".join([chunk.choices[0].text async for chunk in stream])

    async def ask_all() -> None:
        async with openai.AsyncOpenAI(base_url=f"{running.address}/v1", api_key="none") as client:
            numbers = range(1, 25)
            alone = [await ask(client, number) for number in numbers]
            together = await asyncio.gather(
                *(ask(client, one) for one in numbers), *(streamed(client, one) for one in numbers)
            )
            assert together == alone * 2

    asyncio.run(ask_all())


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"model": "nobody"}, "model"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": "8"}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"logprobs": 6}, "logprobs"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"best_of": 3}, "best_of"),
        ({"suffix": "the end"}, "suffix"),
        ({"prompt": [[1, "a"]]}, "prompt"),
        ({"prompt": [999_999]}, None),
        ({"prompt": "so " * 500}, None),
        ({"max_tokens": 100_000}, None),
        ({"stop": [""]}, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_sentences_before_the_first_token(
    client: openai.OpenAI, wrong: dict, param: str | None, stream: bool
):
    with pytest.raises(openai.APIStatusError) as caught:
        client.completions.create(**{"model": "story", "prompt": PROMPT, "stream": stream, **wrong})
    error = caught.value
    assert error.status_code == (404 if "model" in wrong else 400)
    assert error.body["message"].endswith(".")
    assert error.body["type"] in ("invalid_request_error", "not_found_error")
    assert param is None or error.body["param"].startswith(param)
    assert error.request_id


def test_a_full_queue_is_retried_after_the_time_it_says(running: Running, monkeypatch: pytest.MonkeyPatch):
    queue = running.service.models["story"].writing
    monkeypatch.setattr(queue, "rows", 0)
    monkeypatch.setattr(queue, "most_waiting", 0)
    waits = []

    def open_queue(self, *, retries_taken, max_retries, options, response):
        waits.append(response.headers["retry-after"])
        monkeypatch.setattr(queue, "most_waiting", 64)

    client = openai.OpenAI(base_url=f"{running.address}/v1", api_key="none", max_retries=1)
    monkeypatch.setattr(openai.OpenAI, "_sleep_for_retry", open_queue)
    assert client.completions.create(model="story", prompt="A", max_tokens=1).choices
    assert len(waits) == 1
    assert 1 <= int(waits[0]) <= 60
    monkeypatch.setattr(queue, "most_waiting", 0)
    with pytest.raises(openai.RateLimitError):
        client.with_options(max_retries=0).completions.create(model="story", prompt="A", max_tokens=1)


def test_scoring_as_evaluation_harnesses_do_it(client: openai.OpenAI, models: dict[str, weft.Model]):
    """lm-eval's local-completions: token ids, echo, logprobs=1, one new token."""
    model = models["story"]
    context, continuation = model.tokenizer.encode("Alice was"), model.tokenizer.encode(" beginning to get tired")
    rows = [context + continuation, context + continuation[:2]]
    wanted = {"model": "story", "temperature": 0, "logprobs": 1, "seed": 1234, "echo": True}
    for new in (0, 1):
        answer = client.completions.create(prompt=rows, max_tokens=new, **wanted)
        for choice, row in zip(answer.choices, rows, strict=True):
            found = choice.logprobs.token_logprobs
            assert len(found) == len(row) + new == len(choice.logprobs.tokens) == len(choice.logprobs.text_offset)
            assert found[0] is None
            expected = torch.from_numpy(model.logits([row])[0]).log_softmax(-1)
            assert found[1 : len(row)] == pytest.approx(
                [float(expected[place, token]) for place, token in enumerate(row[1:])], abs=1e-4
            )
            text = model.tokenizer.decode(row)
            assert choice.text.startswith(text)
            assert "".join(choice.logprobs.tokens[: len(row)]) == text
            best = [max(top.values()) for top in choice.logprobs.top_logprobs[1:]]
            assert all(math.isfinite(one) and one >= chosen for one, chosen in zip(best, found[1:], strict=True))
