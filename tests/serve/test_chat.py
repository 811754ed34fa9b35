"""/v1/chat/completions: templates as transformers applies them, and models that were tuned to reply."""

import json
from pathlib import Path

import pytest
import transformers
from running import Running

import weft
from chat_tokenizer import TEMPLATE
from task_models import tokenizer_of
from weft.errors import InputError
from weft.generate.chat_template import ChatTemplate
from weft.tokenizer.tokenizer import Tokenizer

TALK = [
    {"role": "system", "content": "Be <brief> & kind."},
    {"role": "user", "content": "What is 1 + 1?\n"},
    {"role": "assistant", "content": '2, "two", 二'},
    {"role": "user", "content": "And then?"},
]
TEMPLATES = [
    TEMPLATE,
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    """{{ bos_token }}
    {% for message in messages %}
        {% if loop.index0 == 1 %}{% continue %}{% endif %}
        {{ message | tojson }} {{ message | tojson(indent=2) }}
        {% generation %}{{ eos_token }}{% endgeneration %}
    {% endfor %}
    {% set ns = namespace(x=1) %}{% set ns.x = ns.x + 1 %}{{ ns.x }}{{ unk_token }}{{ mood }}{{ tools }}""",
]


@pytest.mark.parametrize("source", TEMPLATES)
@pytest.mark.parametrize("asks", [True, False])
def test_templates_render_as_in_transformers(source: str, asks: bool, tmp_path: Path):
    tokenizer = tokenizer_of("llama")
    for name, data in tokenizer.files.items():
        (tmp_path / name).write_bytes(data)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    expected = theirs.apply_chat_template(
        TALK, chat_template=source, tokenize=False, add_generation_prompt=asks, mood="glad"
    )
    special = {f"{role}_token": text for role, text in tokenizer.special.items()}
    assert ChatTemplate(source, special).render(TALK, add_generation_prompt=asks, mood="glad") == expected


def test_where_templates_are_found():
    tokenizer = tokenizer_of("llama")
    assert ChatTemplate.of(tokenizer) is None
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D{{ eos_token }}"}]
    config = {"tokenizer_config.json": json.dumps({"chat_template": named}).encode()}
    assert ChatTemplate.of(Tokenizer(tokenizer.engine, tokenizer.special, config)).render([]) == "D</s>"
    config["chat_template.jinja"] = b"J"
    assert ChatTemplate.of(Tokenizer(tokenizer.engine, tokenizer.special, config)).render([]) == "J"


@pytest.mark.parametrize(
    "source",
    [
        "{% for %}",
        "{{ raise_exception('no') }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.mro() }}",
        "{{ 1 + 'a' }}",
    ],
)
def test_templates_that_fail_are_sentences(source: str):
    with pytest.raises(InputError, match="chat template"):
        ChatTemplate(source, {}).render(TALK)


def test_the_template_is_what_the_model_reads(running: Running, models: dict[str, weft.Model]):
    text = ChatTemplate.of(models["talk"].tokenizer).render(TALK)
    ids = models["talk"].tokenizer.engine.encode(text, add_special_tokens=False).ids
    body = {"model": "talk", "messages": TALK, "max_tokens": 10, "temperature": 0}
    answer = running.post("/v1/chat/completions", body).json()
    expected = models["talk"].generate([ids], max_new_tokens=10, strategy="greedy", details=True)[0]
    assert answer["choices"][0]["message"]["content"] == expected.text
    assert answer["usage"]["prompt_tokens"] == len(ids)


def test_parts_of_text_are_joined(running: Running):
    parts = [{"type": "text", "text": "Hello"}, {"type": "text", "text": "there"}]
    wanted = {"model": "talk", "max_tokens": 6, "temperature": 0}
    texts = [
        running.post("/v1/chat/completions", {**wanted, "messages": [{"role": "user", "content": content}]}).json()
        for content in (parts, "Hello\nthere")
    ]
    assert texts[0]["choices"] == texts[1]["choices"]


def test_a_model_tuned_to_reply_reads_the_earlier_turns(running: Running, models: dict[str, weft.Model]):
    body = {"model": "reply", "messages": TALK, "max_tokens": 8, "temperature": 0}
    answer = running.post("/v1/chat/completions", body)
    history = [(TALK[1]["content"], TALK[2]["content"])]
    pieces = models["reply"].stream("And then?", history=history, max_new_tokens=8, strategy="greedy")
    assert answer.json()["choices"][0]["message"]["content"] == "".join(pieces)
    assert answer.headers["x-weft-ignored"] == "messages.system"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": "story"}, "no chat template"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "text only"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "no tools"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools is not supported"),
        ({"top_logprobs": 3}, "logprobs: true"),
        ({"model": "reply", "messages": [{"role": "assistant", "content": "x"}]}, "the last message is the user's"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_sentence(running: Running, fields: dict, said: str):
    answer = running.post("/v1/chat/completions", {"model": "talk", "messages": TALK, "max_tokens": 2, **fields})
    assert answer.status_code == 400, answer.text
    assert said in answer.json()["error"]["message"]
