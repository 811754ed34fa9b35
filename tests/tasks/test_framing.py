"""What a model tuned to write reads before its answer: the same in training and in `weft generate`."""

import io

import pytest

import weft as library
from small_tasks import finetune, weft
from weft.generate.framing import Framing
from weft.generate.settings import settings_of
from weft.tasks.example import Example
from weft.tasks.loaded import LoadedModel

MODEL = {"family": "gpt2", "layers": 1, "width": 32, "heads": 2}


@pytest.fixture(scope="module", params=["translate", "reply"])
def tuned(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    settings = {"model": MODEL, "prefix": "say: ", "beams": 1, "max_new_tokens": 8}
    assert finetune(folder, request.param, **settings).code == 0
    return folder / "run/model"


def read_by_task(folder, text):
    loaded = LoadedModel.load(folder)
    (one,) = loaded.task.inputs([Example(text, None)], loaded.input_spec)
    return one.ids.tolist(), one.was_cut


def read_by_generate(folder, text, history=(), **given):
    model = library.load(folder)
    settings = {"max_new_tokens": 8, **given}
    return model.writer().reader.read(text, "it", settings_of(settings), history).prompt


@pytest.mark.parametrize("text", ["hello, it is Bob", "Bob sees cat 7 " * 40])
def test_generate_reads_a_prompt_as_it_was_read_in_training(tuned, text, capsys):
    ids, was_cut = read_by_task(tuned, text)
    assert read_by_generate(tuned, text) == ids
    assert ("is cut off" in capsys.readouterr().err) is was_cut


def test_a_source_that_is_too_long_keeps_its_prefix_and_what_matters(tuned):
    text = "first " + "Bob sees cat 7 " * 40 + "last"
    ids, was_cut = read_by_task(tuned, text)
    read = library.load(tuned).tokenizer.engine.decode(ids)
    is_reply = "reply" in str(tuned)
    assert was_cut and read.startswith("say:")
    assert ("last" in read, "first" in read) == (is_reply, not is_reply)


def test_texts_are_generated_as_they_are_predicted(tuned):
    text = "hello, it is Anna, 3"
    said = library.load(tuned).predict(text)["text"]
    done = weft("generate", tuned, text, "--strategy", "greedy", "--max-new-tokens", 8)
    assert done.out.strip() == said


def test_answers_are_chosen_by_the_likelihood_that_they_were_learnt_with(tuned):
    text, options = "hello, it is Bob", ["hello Bob", "hello Anna"]
    loaded = LoadedModel.load(tuned)
    examples = [Example(text, option) for option in options]
    nats = loaded.task.losses(loaded.task_network, examples, loaded.input_spec)[:, 0]
    found = {one.option: one.log_prob for one in library.load(tuned).choose(text, options, details=True)}
    assert [-found[option] for option in options] == pytest.approx(nats.tolist(), rel=1e-4)


def test_a_conversation_reads_the_last_turns_that_fit(tuned):
    alone = read_by_generate(tuned, "and you?")
    turn = read_by_generate(tuned, "and you?", [("hello", "hi")])
    assert turn[-len(alone) :] == alone and len(turn) > len(alone)
    long = read_by_generate(tuned, "and you?", [("hello", "hi")] * 50)
    assert len(turn) < len(long) <= 48 - 8 and long[-len(turn) :] == turn


def test_only_a_model_tuned_to_reply_remembers(tuned, monkeypatch):
    model = library.load(tuned)
    monkeypatch.setattr("sys.stdin", io.StringIO("hello Bob\nwho is it?\n"))
    done = weft("generate", tuned, "--strategy", "greedy", "--max-new-tokens", 8)
    how = {"strategy": "greedy", "max_new_tokens": 8}
    first = "".join(model.stream("hello Bob", **how))
    history = [("hello Bob", first.strip())] if "reply" in str(tuned) else []
    assert done.out == first + "\n" + "".join(model.stream("who is it?", history=history, **how)) + "\n"


def test_token_ids_and_models_of_other_tasks_are_not_framed(tuned):
    assert read_by_generate(tuned, [5, 6]) == [5, 6]
    assert Framing.of({"name": "classify", "prefix": "x"}) is None and Framing.of(None) is None
