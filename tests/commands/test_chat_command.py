"""`weft chat` and `Model.chat`: history, the model's frame, what no longer fits, and stopping an answer."""

import io
import sys

import pytest

import weft
from chat_tokenizer import with_template
from random_models import make_random
from small_tasks import weft as command
from task_models import make, save, tokenizer_of
from weft.generate.chat_template import ChatTemplate
from weft.generate.chat_writer import ChatWriter
from weft.tasks.reply import Reply

SHORT = ("--max-tokens", 6)


def said(*texts: str) -> list[dict[str, str]]:
    return [{"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(texts)]


@pytest.fixture(scope="module")
def talk(tmp_path_factory) -> weft.Model:
    """With a chat template."""
    model = make_random("gpt2", vocabulary=500, positions=64, tokenizer=with_template(tokenizer_of("gpt2")))
    model.save(folder := tmp_path_factory.mktemp("talk") / "model")
    return weft.load(folder)


@pytest.fixture(scope="module")
def reply(tmp_path_factory) -> weft.Model:
    """Tuned to reply, without a template."""
    task = Reply(head="causal", most_new=8)
    return weft.load(save(task, *make(task, "gpt2", 64), tmp_path_factory.mktemp("reply")))


def chat(model: weft.Model, lines: list[str], *options, code: int = 0):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("".join(f"{line}\n" for line in lines).encode())))
        done = command("chat", model.folder, *options)
    assert done.code == code, done.err
    return done


def ids_of(model: weft.Model, messages: list[dict[str, str]]) -> list[int]:
    text = ChatTemplate.of(model.tokenizer).render(messages)
    return model.tokenizer.engine.encode(text, add_special_tokens=False).ids


def written(model: weft.Model, messages: list[dict[str, str]], new: int = 6) -> str:
    """By the template, from token ids."""
    return model.generate([ids_of(model, messages)], max_new_tokens=new, details=True)[0].text


def test_each_answer_reads_the_whole_conversation(talk: weft.Model):
    first = written(talk, said("Hi"))
    second = written(talk, said("Hi", first.strip(), "And?"))
    assert chat(talk, ["Hi", "", "And?"], *SHORT).out == f"{first}\n{second}\n"
    assert talk.chat(said("Hi", first.strip(), "And?"), max_new_tokens=6) == second


def test_json_has_an_object_per_answer_and_the_seed_to_repeat_it(talk: weft.Model):
    lines = chat(talk, ["Hi", "/reset", "Hi"], *SHORT, "--temperature", 2, "--json").lines
    assert [line["prompt"] for line in lines] == ["Hi", "Hi"]
    assert lines[0] == lines[1]  # nothing of the first conversation is left
    assert lines[0]["prompt_tokens"] == len(ids_of(talk, said("Hi")))
    assert talk.chat(said("Hi"), **lines[0]["settings"]) == lines[0]["text"]


def test_the_system_message_comes_first_and_survives_a_reset(talk: weft.Model):
    system = {"role": "system", "content": "Be kind."}
    lines = chat(talk, ["A", "/reset", "B", "/quit", "C"], *SHORT, "--system", "Be kind.", "--json").lines
    assert [line["text"] for line in lines] == [written(talk, [system, *said(text)]) for text in ("A", "B")]


def test_the_oldest_turns_go_when_they_no_longer_fit_and_that_is_said_once(talk: weft.Model):
    long = "the cat sat on a mat"
    done = chat(talk, [long, long, long, "Hi"], "--max-tokens", 4, "--json", "--system", "Be")
    assert [line["prompt_tokens"] <= 61 for line in done.lines] == [True] * 4
    assert done.err.count("oldest turns are left out") == 1
    conversation = [{"role": "system", "content": "Be"}, *said(long, "so", long, "so", long, "so", "Hi")]
    kept = next(ids for cut in (1, 3, 5) if len(ids := ids_of(talk, [conversation[0], *conversation[cut:]])) <= 61)
    assert talk.chat_writer().job(conversation, max_new_tokens=4).prompt == kept


def test_a_message_that_does_not_fit_alone_is_refused(talk: weft.Model):
    with pytest.raises(weft.WeftError, match="61 fit beside an answer, as the model reads 64 in all"):
        talk.chat(said("the cat " * 40), max_new_tokens=4)


def test_a_model_tuned_to_reply_chats_as_it_was_tuned(reply: weft.Model):
    first = reply.generate("Hi", max_new_tokens=6)
    second = "".join(reply.stream("And?", history=[("Hi", first.strip())], max_new_tokens=6))
    done = chat(reply, ["Hi", "And?"], *SHORT)
    assert (done.out, done.err) == (f"{first}\n{second}\n", "")
    done = chat(reply, ["the cat sat on a mat, the dog ran"] * 4, *SHORT)
    assert done.err.count("oldest turns are left out") == 1


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ("Hello", "a list of messages"),
        ([], "a list of messages"),
        ([{"role": "user"}], "messages.0"),
        ([{"role": "user", "content": "\ud800"}], "surrogate"),
        (said("Hi", "there"), "the last message is the user's"),
        ([{"role": "system", "content": "Be kind."}, *said("Hi")], "no place for a system message"),
    ],
    ids=str,
)
def test_messages_that_cannot_be_answered_are_one_sentence(reply: weft.Model, messages, words: str):
    with pytest.raises(weft.WeftError, match=words):
        reply.chat(messages)


def test_a_model_that_only_continues_texts_says_what_to_do(tmp_path):
    make_random("gpt2", vocabulary=500, tokenizer=tokenizer_of("gpt2")).save(tmp_path / "story")
    story = weft.load(tmp_path / "story")
    assert f"weft generate {story.folder} TEXT" in chat(story, ["Hi"], code=2).sentence


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_ctrl_c_stops_an_answer_but_not_the_chat(talk: weft.Model, monkeypatch: pytest.MonkeyPatch):
    seen, typed = [], iter(["Hi", KeyboardInterrupt(), "And?"])
    pieces, make_job = ChatWriter.pieces, ChatWriter.job

    def stopped(self, job):
        yield next(pieces(self, job))
        raise KeyboardInterrupt

    def type_line(prompt: str) -> str:
        line = next(typed, EOFError())
        if isinstance(line, BaseException):
            raise line
        return line

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("builtins.input", type_line)
    monkeypatch.setattr(ChatWriter, "pieces", stopped)
    monkeypatch.setattr(ChatWriter, "job", lambda self, m, **how: seen.append(m) or make_job(self, m, **how))
    done = command("chat", talk.folder, "--max-tokens", 6)
    assert done.code == 0
    assert "Ctrl-D ends" in done.err
    begun = done.out.split("\n")[0]
    assert seen == [said("Hi"), said("Hi", begun.strip(), "And?")]
