"""weft.pretrain, weft.finetune and weft.evaluate in Python; weft evaluate and weft fill on the command line."""

import io
import json
import sys

import pytest

import weft
from small_tasks import weft as command

TEXT = "\n".join(f"the cat sat on mat {number}, the dog ran." for number in range(200))
ROWS = "".join(f"{word} it was {word}\t{label}\n" for label, word in [("good", "fine"), ("bad", "poor")] * 20)
SHAPE = {"layers": 1, "width": 16, "heads": 2}
RECIPE = {
    "name": "tiny",
    "corpus": {"sources": [{"path": "text.txt"}], "documents": "line", "splits": {"validation": 0.1}},
    "tokenizer": {"kind": "char"},
    "model": {"family": "gpt2", **SHAPE},
    "pretrain": {"budget": "50 steps", "batch_tokens": 128, "sequence_length": 32},
}
TASK = {
    "name": "task",
    "tokenizer": {"kind": "char"},
    "finetune": {
        "task": "classify",
        "model": {"family": "bert", **SHAPE},
        "data": {"train": "rows.tsv", "test": "rows.tsv", "text": 0, "label": 1},
        "budget": "4 steps",
        "sequence_length": 32,
        "baseline": False,
    },
}


def run(*arguments, given=""):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        return command(*arguments)


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verbs")
    (folder / "text.txt").write_text(TEXT)
    (folder / "rows.tsv").write_text("text\tlabel\n" + ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.fixture(scope="module")
def language_model(here):
    return weft.pretrain(RECIPE, {"pretrain.budget": "3 steps"}, output=here / "gpt")


@pytest.fixture(scope="module")
def masked_model(here):
    changes = {"model.family": "bert", "pretrain.budget": "3 steps"}
    return weft.pretrain(RECIPE, changes, output=here / "bert")


@pytest.fixture(scope="module")
def task_model(here):
    tree = json.loads(json.dumps(TASK))
    tree["finetune"]["data"] |= {"text": "text", "label": "label"}
    return weft.finetune(tree, output="classifier")


def test_a_recipe_may_be_a_dictionary_with_changes(language_model, here):
    assert language_model["steps"] == 3
    assert language_model.model == here / "gpt/model"
    assert weft.load(language_model.model).generate("the ", max_new_tokens=2)


def test_a_finished_run_is_not_begun_again(language_model, here):
    with pytest.raises(weft.WeftError, match="resume"):
        weft.pretrain(RECIPE, {"pretrain.budget": "3 steps"}, output=here / "gpt")
    again = weft.pretrain(RECIPE, ["pretrain.budget=3 steps"], output=here / "gpt", resume=True)
    assert again["model"] == language_model["model"]


@pytest.mark.parametrize(
    ("recipe", "changes", "says"),
    [
        (RECIPE, {"pretrain.bugdet": 1}, "pretrain.bugdet is not a setting .did you mean budget"),
        (RECIPE, "pretrain.budget=1", "not one string"),
        (RECIPE, {"pretrain..x": 1}, "not the name of a setting"),
        ({1: 2}, {}, "mapping of sections"),
        (None, {}, "path of a .yml file or a dictionary"),
        ("nowhere.yml", {}, "is not a file"),
    ],
    ids=str,
)
def test_a_wrong_recipe_is_a_weft_error(here, recipe, changes, says):
    with pytest.raises(weft.InputError, match=says):
        weft.pretrain(recipe, changes)


def test_evaluating_in_python_gives_what_the_command_prints(language_model, here):
    ours = weft.evaluate(language_model.model, "text.txt")
    done = run("evaluate", language_model.model, "text.txt", "--json")
    theirs = json.loads(done.out)
    assert ours.pop("cost").keys() == theirs.pop("cost").keys()
    assert ours == theirs
    assert ours["verdict"].startswith(f"perplexity {ours['figures']['perplexity']:.1f} (")
    assert ours["verdict"].endswith("tokens of 1 file")


def test_a_loaded_model_is_evaluated_at_its_task(task_model):
    model = weft.load(task_model.model, device="cpu")
    assert model.task.name == "classify"
    assert set(model.labels) == {"good", "bad"}
    assert model.results["steps"] == 4
    ours = weft.evaluate(model, "rows.tsv")
    assert ours["task"] == "classify"
    assert ours["figures"] == task_model["figures"]


def test_text_may_come_in_by_standard_input_and_be_cut(language_model, here):
    done = run("evaluate", language_model.model, "-", "--limit-bytes", 100, "--json", given=TEXT)
    assert json.loads(done.out)["bytes"] == 100


def test_options_of_the_other_kind_of_evaluation_are_refused(language_model, task_model, here):
    with pytest.raises(weft.InputError, match="--column goes with a task"):
        weft.evaluate(language_model.model, "text.txt", columns={"text": "x"})
    with pytest.raises(weft.InputError, match="goes with the text of a language model"):
        weft.evaluate(task_model.model, "rows.tsv", limit_bytes=5)


def test_fill_prints_words_with_probabilities(masked_model, here):
    done = run("fill", masked_model.model, "the [MASK]at", "--top", 2, "--json")
    (row,) = json.loads(done.out)["filled"]
    expected = weft.load(masked_model.model).fill("the [MASK]at", top=2)
    assert [one["word"] for one in row["masks"][0]] == [one.word for one in expected]
    lines = run("fill", masked_model.model, "-", "--top", 2, given="a [MASK]\nb [MASK]\n").out
    assert lines.count("\n\n") == 1


def test_fill_says_which_line_is_wrong_and_which_models_can(masked_model, language_model, here):
    done = run("fill", masked_model.model, "-", given="a [MASK]\nb\n")
    assert (done.code, done.out) == (2, "")
    assert "line 2: The text has no [MASK] to fill" in done.err
    done = run("fill", language_model.model, "a [MASK]")
    assert "needs a masked language model" in done.err


def test_a_device_that_is_not_there_is_an_input_error(language_model):
    with pytest.raises(weft.InputError, match="Use auto or cpu"):
        weft.load(language_model.model, device="nonsense")
    model = weft.load(language_model.model)
    assert model.to("cpu") is model
    assert model.task is None


def test_info_shows_the_task_the_labels_and_the_score(task_model, language_model, here):
    facts = json.loads(run("info", task_model.model, "--json").out)
    assert facts["task"] == "classify"
    assert set(facts["labels"]) == {"good", "bad"}
    assert facts["score"].startswith("accuracy ") and facts["score"].endswith(" on 40 texts")
    facts = json.loads(run("info", language_model.model, "--json").out)
    assert facts["score"].startswith("validation perplexity ")
