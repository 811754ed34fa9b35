"""Conversations as data for `reply`: ids and marked answers as in transformers, and the folder that is saved."""

import json
from pathlib import Path

import numpy as np
import pytest
import transformers

import weft
from chat_tokenizer import with_template
from small_tasks import PEOPLE, finetune, write_rows
from small_tasks import weft as command
from task_models import make, save, tokenizer_of
from weft.generate.chat_template import ChatTemplate
from weft.recipe.finetune import DataSection
from weft.tasks.example import Example
from weft.tasks.labelled.data import form_of
from weft.tasks.reply import Converse, Reply
from weft.tasks.turns import Said, mark_answers
from weft.tokenizer.tokenizer import Tokenizer

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# As Qwen3's: what was thought is written for the last answer only.
THINKING = CHATML.replace(
    "\n{{ m['content']",
    "\n{% if loop.last and m.role == 'assistant' %}<think>\n\n</think>\n\n{% endif %}{{ m['content']",
)
TALK = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Where is the cat? 猫\n"},
    {"role": "assistant", "content": "On the mat,  of course."},
    {"role": "user", "content": "  And then?"},
    {"role": "user", "content": "Well?"},
    {"role": "assistant", "content": "It sleeps; 'tis late."},
]


def rows(count: int = 24) -> list[dict]:
    return [
        {
            "messages": [
                {"role": "user", "content": f"hello, it is {PEOPLE[i % 3]}, {i}"},
                {"role": "assistant", "content": f"hello {PEOPLE[i % 3]}"},
                {"role": "user", "content": "who is it?"},
                {"role": "assistant", "content": f"it is {PEOPLE[i % 3]}"},
            ]
        }
        for i in range(count)
    ]


def in_transformers(folder: Path) -> transformers.PreTrainedTokenizerBase:
    return transformers.AutoTokenizer.from_pretrained(folder)


def prefix_by_prefix(tokenizer, messages) -> tuple[list[int], list[int]]:
    """Token ids and the places of the assistant's tokens."""

    def ids(some, **how):
        return tokenizer.apply_chat_template(some, return_dict=False, **how)

    whole, places = ids(messages), []
    for number, one in enumerate(messages):
        if one["role"] == "assistant":
            begin, end = ids(messages[:number], add_generation_prompt=True), ids(messages[: number + 1])
            assert whole[: len(begin)] == begin and whole[: len(end)] == end
            places += range(len(begin), len(end))
    return whole, places


def with_special(tokenizer: Tokenizer, template: str) -> Tokenizer:
    tokenizer.engine.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    files = {**tokenizer.files, "tokenizer.json": tokenizer.engine.to_str().encode()}
    return Tokenizer(tokenizer.engine, tokenizer.special, {**files, "chat_template.jinja": template.encode()})


def write_files(tokenizer: Tokenizer, folder: Path) -> Path:
    for name, data in tokenizer.saved_files().items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3"])
@pytest.mark.parametrize("kind", ["weft's", "chatml", "plain"])
def test_ids_and_marked_answers_are_those_of_transformers(family: str, kind: str, tmp_path: Path):
    task = Converse(head="causal")
    _, spec = make(task, family)
    if kind == "weft's":
        tokenizer = task.complete_spec(spec).tokenizer
    else:
        own = tokenizer_of(family)
        tokenizer = with_special(own, CHATML) if kind == "chatml" else with_template(own)
    ids, places = prefix_by_prefix(in_transformers(write_files(tokenizer, tmp_path)), TALK)
    said = [Said(**one) for one in TALK]
    ((text,),) = mark_answers(ChatTemplate.of(tokenizer), tokenizer.engine, [said])
    assert text.ids == ids
    assert [place for answer in text.answers for place in answer] == places


def test_a_template_that_rewrites_earlier_turns_gives_each_answer_its_own_text():
    tokenizer = with_special(tokenizer_of("qwen3"), THINKING)
    template = ChatTemplate.of(tokenizer)
    (texts,) = mark_answers(template, tokenizer.engine, [[Said(**one) for one in TALK]])
    for text, end in zip(texts, (3, 6), strict=True):
        written = tokenizer.engine.decode([text.ids[place] for place in text.answers[0]], skip_special_tokens=False)
        assert written == f"<think>\n\n</think>\n\n{TALK[end - 1]['content']}<|im_end|>\n"
        begin = template.render(TALK[: end - 1])
        assert text.ids[: text.answers[0].start] == tokenizer.engine.encode(begin, add_special_tokens=False).ids


def test_the_loss_is_on_every_answer_and_metrics_on_the_last():
    task = Converse(head="causal", most_new=8)
    _, spec = make(task, "gpt2", 128)
    spec = task.complete_spec(spec)
    example = task.example({"messages": rows(1)[0]["messages"]}, with_gold=True)
    (every,), (last,) = task.inputs([example], spec), task.judged_inputs([example], spec)
    decode = lambda one: spec.tokenizer.engine.decode(one.targets.ids.tolist(), skip_special_tokens=False)  # noqa: E731
    end = spec.tokenizer.special["eos"]
    assert decode(every) == f"hello Anna{end}it is Anna{end}"
    assert decode(last) == f"it is Anna{end}"
    assert every.ids.tolist() == last.ids.tolist()
    known = np.append(every.ids, every.targets.ids[-1])  # the last token is not read
    assert known[every.targets.rows + 1].tolist() == every.targets.ids.tolist()
    assert not every.was_cut


def test_a_long_conversation_loses_its_oldest_turns_and_a_long_turn_its_middle():
    task = Converse(head="causal", most_new=8)
    _, spec = make(task, "gpt2", 40)
    spec = task.complete_spec(spec)
    whole = tuple(Said(**one) for one in rows(1)[0]["messages"])
    (one,) = task.inputs([Example(whole[:-1], whole[-1].content)], spec)
    (alone,) = task.inputs([Example(whole[2:-1], whole[-1].content)], spec)
    assert one.was_cut and one.ids.tolist() == alone.ids.tolist()
    (long,) = task.inputs([Example((Said("user", "cat " * 99),), "dog " * 99)], spec)
    assert long.was_cut and len(long.ids) == 39 and len(long.targets.ids) == 20
    (prompt,) = task.inputs([Example((Said("user", "cat " * 99),), None)], spec)
    assert prompt.was_cut and len(prompt.ids) == 32


def test_sharegpt_rows_are_the_same_conversations(tmp_path: Path):
    names = {"user": "human", "assistant": "gpt", "system": "system"}
    (theirs,) = [[{"from": names[one["role"]], "value": one["content"]} for one in TALK]]
    task = Converse()
    examples = [task.example({"messages": value}, with_gold=True) for value in (TALK, theirs)]
    assert examples[0] == examples[1]
    assert examples[0].gold == TALK[-1]["content"] and len(examples[0].given) == 5


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "no list of messages"),
        ([{"role": "user", "content": "x"}], "no answer of the assistant"),
        ([{"role": "king", "content": "x"}], "the role 'king'"),
        ([{"role": "user", "content": ""}], "of the user without text"),
        ([{"role": "user", "content": [{"type": "image"}]}], "of the user without text"),
        (["x"], "a message that is not"),
    ],
    ids=str,
)
def test_rows_without_a_usable_conversation_say_why(value, words: str):
    with pytest.raises(Exception, match=words):
        Converse().example({"messages": value}, with_gold=True)


def test_a_template_that_rewrites_what_was_said_before_an_answer_is_refused():
    tokenizer = with_special(tokenizer_of("qwen3"), THINKING.replace(" and m.role == 'assistant'", ""))
    with pytest.raises(weft.WeftError, match="rewrites the messages before an answer"):
        list(mark_answers(ChatTemplate.of(tokenizer), tokenizer.engine, [[Said(**one) for one in TALK]]))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory) -> weft.Model:
    folder = tmp_path_factory.mktemp("talk")
    data = dict.fromkeys(("train", "validation"), str(write_rows(folder / "talk.jsonl", rows())))
    said = finetune(folder, "reply", data=data, budget="60 steps", baseline=True, sequence_length=80, beams=1)
    assert said.code == 0, said.err
    assert "no chat template; the model gets weft's own" in said.err
    return weft.load(folder / "run/model")


def test_the_tuned_folder_is_framed_alike_everywhere(tuned: weft.Model):
    """In transformers, in weft chat and the verb, in predictions, and in a service, which uses the same template."""
    messages = [{"role": "user", "content": "hello, it is Anna, 3"}]
    theirs = in_transformers(tuned.folder)
    ids = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    expected = tuned.generate([ids], max_new_tokens=12, details=True)[0]
    assert expected.text.removeprefix("hello ") in PEOPLE and expected.finish == "end"
    assert tuned.chat(messages, max_new_tokens=12) == expected.text
    assert tuned.predict(messages[0]["content"])["text"] == expected.text
    assert tuned.chat_writer().template is not None
    model = transformers.AutoModelForCausalLM.from_pretrained(tuned.folder)
    written = model.generate(**theirs.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt"))
    assert theirs.decode(written[0][len(ids) :], skip_special_tokens=True) == expected.text


def test_a_tuned_model_is_judged_and_answers_rows(tuned: weft.Model, tmp_path: Path):
    file = write_rows(tmp_path / "talk.jsonl", [{"conversations": row["messages"]} for row in rows(6)])
    judged = command("evaluate", tuned.folder, file, "--train", file, "--json")
    assert judged.code == 0, judged.err
    facts = json.loads(judged.out)
    assert facts["figures"]["perplexity"] < 1.5 and {"hits_at_1", "bits_per_byte"} <= set(facts["baseline"]["figures"])
    answered = command("predict", tuned.folder, "--file", file)
    assert len(answered.lines) == 6
    assert {line["text"].removeprefix("it is ") for line in answered.lines} <= set(PEOPLE)


def test_the_end_of_a_templates_answers_ends_the_models_texts(tmp_path: Path):
    """A template may end answers with another token than the model's end token."""
    task = Converse(head="causal", most_new=8, end_ids=(7, 9))
    built, spec = make(task, "gpt2", 128)
    model = weft.load(save(task, built, task.complete_spec(spec), tmp_path / "model"))
    assert set(model.start_end.end_ids) == {7, 9}
    assert isinstance(model.task, Converse) and model.task.end_ids == (7, 9)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": {"family": "t5", "layers": 1, "width": 32, "heads": 2}}, "need a decoder"),
        ({"prefix": "x"}, "prefix"),
    ],
    ids=str,
)
def test_what_conversations_cannot_have_is_one_sentence(settings: dict, words: str, tmp_path: Path):
    data = {"train": str(write_rows(tmp_path / "talk.jsonl", rows()))}
    assert words in finetune(tmp_path, "reply", data=data, **settings).sentence


def test_pairs_of_texts_are_as_they_were(tmp_path: Path):
    both = [{**row, "source": "a", "target": "b"} for row in rows(4)]
    file = write_rows(tmp_path / "rows.jsonl", both)
    assert form_of(Reply, [file], DataSection()) is Converse
    assert form_of(Reply, [file], DataSection(source="source", target="target")) is Reply
    pairs = write_rows(tmp_path / "pairs.jsonl", [{"source": "a", "messages": "b"}])
    assert form_of(Reply, [pairs], DataSection()) is Reply
    assert "form" not in Reply().facts()
