"""The quickstart does the same work on every machine and says so if a model turned out badly."""

from pathlib import Path

import pytest

from quickstart import ENDING_SECONDS, RECIPES, STEPS, in_minutes, seconds_left, shortfall
from weft.recipe.file import read_recipe
from weft.train.budget import read_budget
from weft.train.plan.run_plan import MASKED_BATCH, MASKED_STEPS


@pytest.mark.parametrize("name", STEPS)
def test_neither_size_nor_steps_depend_on_the_speed_of_the_machine(name):
    recipe = read_recipe(Path(RECIPES, f"{name}.yml"))
    assert read_budget(recipe.pretrain.budget).kind == "steps"
    assert None not in (recipe.model.layers, recipe.model.width, recipe.model.heads)
    assert None not in (recipe.pretrain.batch_tokens, recipe.pretrain.sequence_length, recipe.pretrain.precision)
    assert recipe.pretrain.compile is False  # trying it takes minutes on a slow machine, which the estimate leaves out


def test_its_bert_passes_the_plateau():
    plan = read_recipe(Path(RECIPES, "quickstart-bert.yml")).pretrain
    assert read_budget(plan.budget).amount >= MASKED_STEPS
    assert plan.batch_tokens >= MASKED_BATCH


def results(key, ours, baseline):
    return {"steps": 700, "validation": {key: ours}, "by_counting": {"name": "3-gram", key: baseline}}


@pytest.mark.parametrize(
    ("key", "ours", "baseline", "says"),
    [
        ("bits_per_character", 1.6, 1.8, None),
        ("bits_per_character", 1.9, 1.8, "is not better than the 3-gram model. 700 steps were too few"),
        ("validation_masked_accuracy", 0.3, 0.07, None),
        ("validation_masked_accuracy", 0.11, 0.07, "which words are frequent. 700 steps were too few"),
    ],
)
def test_a_poor_model_is_reported_with_what_to_try(key, ours, baseline, says):
    found = shortfall("austen", results(key, ours, baseline))
    assert found is None if says is None else says in found and "recipes/austen.yml" in found


@pytest.mark.parametrize(("seconds", "said"), [(10, "0.5 minutes"), (61, "1 minute"), (290, "5 minutes")])
def test_times_are_rounded_to_half_minutes(seconds, said):
    assert in_minutes(seconds) == said


def test_the_time_left_follows_the_speed_so_far():
    expected = {"first": 100.0, "second": 60.0, "third": 80.0}
    assert seconds_left(expected, {}) == 240 + ENDING_SECONDS
    assert seconds_left(expected, {"first": 300.0}) == 3 * 140 + ENDING_SECONDS
    assert seconds_left(expected, {"first": 60.0, "second": 20.0}) == 0.5 * 80 + ENDING_SECONDS
