"""Several labels per text: the thresholds that validation chooses, where they are kept, and who uses them."""

import json
from dataclasses import replace

import numpy as np
import pytest

import weft
from small_tasks import finetune, report_of, write_recipe, write_rows
from small_tasks import weft as command
from task_models import make
from weft.metrics.thresholds import label_thresholds
from weft.tasks.classify import Classify, MultiLabel
from weft.tasks.example import Example
from weft.tasks.scored_task import answer_inputs

pytestmark = pytest.mark.usefixtures("one_thread")
SETTINGS = {"budget": "40 steps", "learning_rate": 3e-3, "batch": 16, "label_smoothing": 0.0}


def rows(count: int, seed: int) -> list[dict]:
    """A colour says one label often and another one rarely."""
    generator = np.random.default_rng(seed)
    found = []
    for number in range(count):
        colour = ("red", "blue", "green")[number % 3]
        labels = [colour] if generator.random() < 0.8 else []
        labels += ["rare"] if generator.random() < (0.35 if colour == "red" else 0.04) else []
        found.append({"text": f"a {colour} house, number {number}", "label": labels})
    return found


def data(folder, validation: int = 150) -> dict[str, str]:
    counts = {"train": 150, "validation": validation, "test": 90}
    return {
        name: str(write_rows(folder / f"{name}.jsonl", rows(count, seed)))
        for seed, (name, count) in enumerate(counts.items())
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    said = finetune(folder, "several", data=data(folder), baseline=True, **SETTINGS)
    assert said.code == 0, said.err
    assert "A threshold for each label, chosen on 150 texts: micro F1 0." in said.err
    return folder / "run"


def task_facts(run):
    return json.loads((run / "model/weft.json").read_text())["task"]


def test_a_run_keeps_the_thresholds_that_its_own_model_has_best_on_validation(run):
    model = weft.load(run / "model")
    thresholds = task_facts(run)["threshold"]
    assert len(thresholds) == 4 and model.task.threshold == tuple(thresholds) and set(thresholds) != {0.5}
    examples = [Example(row["text"], tuple(row["label"])) for row in rows(150, 1)]
    answers = np.stack(model.answers(examples))
    gold = np.asarray([[label in one.gold for label in model.labels] for one in examples])
    np.testing.assert_allclose(label_thresholds(answers, gold), thresholds, atol=1e-6)
    before, after = (task.figures(examples, answers) for task in (MultiLabel(model.labels), model.task))
    assert after["f1"] >= before["f1"] and after["f1_micro"] >= before["f1_micro"] and before != after


def test_predictions_and_figures_use_them(run, tmp_path):
    model, given = weft.load(run / "model"), rows(90, 2)
    texts = [row["text"] for row in given]
    found = model.predict(texts)
    above = np.stack(model.answers([Example(text, None) for text in texts])) > np.asarray(model.task.threshold)
    for one, row in zip(found, above, strict=True):
        assert set(one["labels"]) == {label for label, is_above in zip(model.labels, row, strict=True) if is_above}
    hits = [set(one["labels"]) == set(row["label"]) for one, row in zip(found, given, strict=True)]
    assert report_of(run)["figures"]["exact"] == pytest.approx(np.mean(hits))
    said = command("evaluate", run / "model", write_rows(tmp_path / "test.jsonl", given), "--json")
    assert json.loads(said.out)["figures"]["exact"] == pytest.approx(np.mean(hits))


def test_an_older_folder_opens_with_its_one_threshold():
    facts = {"name": "classify", "several": True, "separator": None, "columns": []}
    assert Classify.from_facts(facts, ("a", "b")) == MultiLabel(("a", "b"))
    old = Classify.from_facts({**facts, "threshold": 0.3}, ("a", "b"))
    assert old.threshold == 0.3 and old.facts()["threshold"] == 0.3
    chosen = replace(MultiLabel(("a", "b")), threshold=(0.2, 0.5))
    assert Classify.from_facts(chosen.facts(), ("a", "b")) == chosen
    for wrong in ([0.2], [0.2, 1.5], [0.2, "0.5"], 0, True):
        with pytest.raises(TypeError):
            Classify.from_facts({**facts, "threshold": wrong}, ("a", "b"))


def test_a_threshold_of_the_recipe_stays(tmp_path):
    said = finetune(tmp_path, "several", data=data(tmp_path), threshold=0.5, **SETTINGS)
    assert said.code == 0 and "A threshold for each label" not in said.err
    assert task_facts(tmp_path / "run")["threshold"] == 0.5  # which a student of this model will not change either
    model = weft.load(tmp_path / "run/model")
    assert model.task.with_thresholds_from(model.network, [], []) is model.task


def test_too_little_validation_data_changes_nothing(tmp_path):
    said = finetune(tmp_path, "several", data=data(tmp_path, validation=90), **SETTINGS)
    assert said.code == 0 and "threshold" not in task_facts(tmp_path / "run")


def test_a_run_that_stops_between_training_and_saving_ends_with_the_same_thresholds(run, tmp_path, monkeypatch):
    recipe = write_recipe(tmp_path, "several", data=data(tmp_path), baseline=True, **SETTINGS)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("weft.tasks.learning.finetune.write_task_model", stop)
        assert command("finetune", recipe, "-o", tmp_path / "run").code != 0
    assert not (tmp_path / "run/model").exists()
    assert command("finetune", recipe, "-o", tmp_path / "run", "--resume").code == 0
    assert task_facts(tmp_path / "run") == task_facts(run)
    weights = [(place / "model/model.safetensors").read_bytes() for place in (tmp_path / "run", run)]
    assert weights[0] == weights[1]


def test_the_baseline_has_thresholds_of_its_own(run):
    """Else the model's, which were chosen for other probabilities, would decide for it."""
    task = weft.load(run / "model").task
    train, test = ([Example(row["text"], tuple(row["label"])) for row in rows(count, seed)] for count, seed in
                   ((600, 0), (90, 2)))  # fmt: skip
    answers = np.stack(task.baseline(train, test)[1])
    assert set(np.unique(answers)) <= {0.0, 1.0}
    other = np.stack(replace(task, threshold=(0.9,) * 4).baseline(train, test)[1])
    assert (answers == other).all()
    shares = np.stack(replace(task, threshold=0.3, is_threshold_given=True).baseline(train, test)[1])
    assert len(np.unique(shares)) > 2


def test_the_network_answers_alike_with_and_without_thresholds():
    task = MultiLabel(("a", "b"))
    built, spec = make(task, "bert")
    golds = np.random.default_rng(0).random((120, 2)) < 0.3
    examples = [Example(f"number {i}", tuple(np.array(["a", "b"])[gold])) for i, gold in enumerate(golds)]
    inputs = task.inputs(examples, spec)
    chosen = task.with_thresholds_from(built.network, examples, inputs)
    one, other = (np.stack(answer_inputs(kind, built.network, examples, inputs)) for kind in (task, chosen))
    assert (one == other).all() and task.threshold == 0.5
    assert chosen.with_thresholds_from(built.network, examples, inputs) == chosen  # also of a teacher's task
    assert replace(task, threshold=(0.1, 0.2)).with_thresholds_from(built.network, examples[:9], inputs[:9]) == task
