"""Budgets become steps; the plan is saved and can be run itself."""

import re
from pathlib import Path

import pytest
import torch
from small_recipes import SHAPE, WORDS, recipe

from weft.errors import RecipeError
from weft.recipe.file import read_recipe
from weft.train import pretrain as pretrain_module
from weft.train.budget import read_budget
from weft.train.pretrain import pretrain


def test_the_plan_is_saved_and_can_be_run_itself(place, tmp_path):
    made = recipe(place, model={"family": "qwen3"}, pretrain={"objective": "causal", "budget": "2 steps"})
    pretrain(made, place, tmp_path / "run")
    plan = read_recipe(tmp_path / "run/recipe.yml")
    assert plan.model.layers is not None
    assert plan.pretrain.learning_rate is not None
    pretrain(plan, Path("/nowhere"), tmp_path / "again")
    weights = [(tmp_path / run / "model/model.safetensors").read_bytes() for run in ("run", "again")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("asked", [{}, {"threads": 2}])
def test_a_resumed_run_keeps_its_number_of_threads(asked, place, tmp_path, monkeypatch, threads):
    """The last bits of a product depend on their number."""
    made, seen = recipe(place, pretrain=asked), []
    train = pretrain_module.train

    def seeing(*arguments, **settings):
        seen.append(torch.get_num_threads())
        return train(*arguments, **settings)

    monkeypatch.setattr(pretrain_module, "train", seeing)
    threads(1 if asked else 2)
    pretrain(made, place, tmp_path / "run")
    threads(1)
    pretrain(made, place, tmp_path / "run", resume=True)
    assert seen == [2, 2]
    assert read_recipe(tmp_path / "run/recipe.yml").pretrain.threads == 2
    assert torch.get_num_threads() == 1


def test_a_budget_in_time_becomes_steps_and_a_size(place, tmp_path):
    made = recipe(place, model={"family": "qwen3"}, pretrain={"budget": "15s"})
    results = pretrain(made, place, tmp_path / "run")
    plan = read_recipe(tmp_path / "run/recipe.yml")
    assert plan.pretrain.budget == f"{results['steps']} steps"
    assert plan.model.width in range(64, 1024)
    # The number of steps was corrected on the way; as it is written down now, it gives the same model without a clock.
    pretrain(plan, place, tmp_path / "again")
    weights = [(tmp_path / run / "model/model.safetensors").read_bytes() for run in ("run", "again")]
    assert weights[0] == weights[1]


def test_a_masked_run_with_too_little_time_warns_and_is_not_cut_further(place, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("weft.train.plan.run_plan.MASKED_STEPS", 10**6)
    monkeypatch.setattr(pretrain_module, "_steps_until", lambda left, step, seconds, plan: step + 1)  # suddenly slow
    shape = {"batch_tokens": 2048, "objective": "masked", "budget": "6s"}
    made = recipe(place, model={"family": "modernbert", **SHAPE}, tokenizer=WORDS, pretrain=shape)
    results = pretrain(made, place, tmp_path / "run")
    said = " ".join(capsys.readouterr().err.split())
    planned = re.search(r"Plan: .*? ([\d,]+) steps", said)
    assert planned is not None and results["steps"] == int(planned[1].replace(",", ""))
    assert "A masked model needs about 1,000,000" in said
    assert "has become slower" in said


def test_a_budget_that_is_spent_before_training_begins_is_an_error(place, tmp_path):
    with pytest.raises(RecipeError, match=r"the time (was|is) up"):
        pretrain(recipe(place, pretrain={"budget": "0.001s"}), place, tmp_path / "run")


def test_budgets_in_tokens_and_epochs_become_steps(place, tmp_path):
    for budget, steps in (("600 tokens", 3), ("0.05 epochs", 8)):
        results = pretrain(recipe(place, pretrain={"budget": budget}), place, tmp_path / budget.replace(" ", "-"))
        assert results["steps"] == pytest.approx(steps, abs=1)
        assert (
            read_budget(read_recipe(tmp_path / budget.replace(" ", "-") / "recipe.yml").pretrain.budget).kind == "steps"
        )
