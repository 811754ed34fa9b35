"""Which step is the best one, how long it takes to know it, and what is said of it."""

import math

import pytest
import torch
import yaml

from small_tasks import finetune, report_of, rows_of, weft, write_rows
from weft.model.families import design
from weft.model.network import create_network
from weft.objectives.objective import Batch, HeadObjective
from weft.tasks.learning.plan import LEAST_VALIDATION_EXAMPLES
from weft.tokens.order import Order
from weft.train.loop import Hooks, train
from weft.train.schedules import Schedule
from weft.train.spec import TrainSpec
from weft.train.training_log import read_metrics

MIXED = [{"text": f"a film, number {n}", "label": "rare" if n % 8 == 0 else "usual"} for n in range(64)]


class Nothing(HeadObjective):
    """An objective of one sample."""

    def __len__(self):
        return 1

    def batch(self, samples, epochs, seed):
        from weft.model.packed import pack

        return Batch(pack([[1, 2, 3]]), torch.tensor([2, 3]), torch.tensor([0, 1]), counts={"causal": 2})


@pytest.mark.parametrize(("figures", "losses", "best"), [
    ([0.5, 0.5, 0.5], [3.0, 1.0, 2.0], 2),
    ([0.5, 0.6, 0.6], [1.0, 3.0, 2.0], 3),
    ([0.6, 0.5, 0.5], [3.0, 1.0, 2.0], 1),
    ([0.5, 0.5, 0.5], [1.0, 1.0, 1.0], 1),
])  # fmt: skip
def test_of_steps_with_the_same_figure_the_one_with_the_lower_loss_is_the_best(figures, losses, best, tmp_path):
    network = create_network(design("gpt2", layers=1, width=16, heads=2, vocabulary=8, positions=8)[1], 0)
    measured = iter(
        {"validation_loss": loss, "validation_figure": figure} for figure, loss in zip(figures, losses, strict=True)
    )
    spec = TrainSpec(3, samples=1, schedule=Schedule(3, "linear", 0), validate_every=1)
    hooks = Hooks(measure=lambda: next(measured), best_by="validation_figure")
    assert train(network, [Nothing()], Order((1,), (1.0,), 0), spec, tmp_path, hooks=hooks).best == best


def best_by(run, figure):
    """The step that a run should have kept, by its own record."""
    lines = [line for line in read_metrics(run) if "validation_loss" in line]
    return min(lines, key=lambda line: (-line[f"validation_{figure}"], line["validation_loss"], line["step"]))["step"]


@pytest.mark.parametrize(("settings", "figure"), [
    ({}, "accuracy"), ({"metric": "mcc"}, "mcc"), ({"metric": "f1_macro"}, "f1"), ({"balanced": True}, "f1"),
    ({"balanced": True, "metric": "accuracy"}, "accuracy"),
])  # fmt: skip
def test_the_metric_that_is_named_chooses_the_step_and_stands_first_in_the_results(settings, figure, tmp_path):
    data = {"train": str(write_rows(tmp_path / "train.jsonl", MIXED))}
    assert finetune(tmp_path, "classify", data=data, budget="8 steps", validate_every=1, **settings).code == 0
    results = yaml.safe_load((tmp_path / "run/weft.json").read_text())["results"]
    assert results["best_step"] == best_by(tmp_path / "run", figure)
    assert results["score"] == results["validation"][f"validation_{figure}"]


def test_a_model_is_judged_by_the_metric_that_it_was_tuned_by(tmp_path):
    data = {"train": str(write_rows(tmp_path / "train.jsonl", MIXED))}
    finetune(tmp_path, "classify", data=data, metric="mcc")
    found = weft("evaluate", tmp_path / "run/model", tmp_path / "train.jsonl", "-o", tmp_path / "judged")
    assert found.code == 0
    from weft.tasks.loaded import LoadedModel

    assert LoadedModel.load(tmp_path / "run/model").task.selection_metric == "mcc"


def test_a_metric_that_these_labels_do_not_have_is_refused(tmp_path):
    rows = [{"words": ["cats", f"sleep{n}"], "tags": ["NOUN", "VERB"]} for n in range(20)]
    data = {"train": str(write_rows(tmp_path / "train.jsonl", rows))}
    assert "Metrics: accuracy, f1_macro, loss." in finetune(tmp_path, "tag", data=data, metric="f1").sentence


def test_a_short_time_is_not_spent_on_validation(tmp_path):
    data = {
        name: str(write_rows(tmp_path / f"{name}.jsonl", rows_of("classify", count)))
        for name, count in (("train", 40), ("validation", 4000))
    }
    assert finetune(tmp_path, "classify", data=data, budget="2s").code == 0
    plan = yaml.safe_load((tmp_path / "run/recipe.yml").read_text())["finetune"]
    steps = int(plan["budget"].split()[0])
    validations = math.ceil(steps / plan["validate_every"])
    lines = read_metrics(tmp_path / "run")
    assert sum("validation_loss" in line for line in lines) == validations
    assert plan["validation_examples"] < 4000


def test_a_validation_after_every_step_is_on_the_fewest_examples_of_a_short_time(tmp_path):
    data = {
        name: str(write_rows(tmp_path / f"{name}.jsonl", rows_of("classify", count)))
        for name, count in (("train", 40), ("validation", 1000))
    }
    assert finetune(tmp_path, "classify", data=data, budget="1s", validate_every=1).code == 0
    plan = yaml.safe_load((tmp_path / "run/recipe.yml").read_text())["finetune"]
    assert (plan["validate_every"], plan["validation_examples"]) == (1, LEAST_VALIDATION_EXAMPLES)


@pytest.mark.parametrize("has_test", [True, False])
def test_a_report_says_when_its_figures_are_of_the_data_that_chose_the_step(has_test, tmp_path):
    data = {"train": str(write_rows(tmp_path / "train.jsonl", rows_of("classify")))}
    if has_test:
        data["test"] = str(write_rows(tmp_path / "test.jsonl", rows_of("classify", 50)[40:]))
    finetune(tmp_path, "classify", data=data)
    notes = report_of(tmp_path / "run")["notes"]
    assert any("the validation data that chose the best step" in note for note in notes) != has_test
    assert ("chose the best step" in (tmp_path / "run/report.html").read_text()) != has_test
