"""Every task has a recipe and a sample; the recipe's own commands run, and the model beats chance."""

import re
import shlex
import shutil
from pathlib import Path
from typing import get_args

import pytest

from small_tasks import report_of, weft
from weft.recipe.file import read_recipe
from weft.recipe.finetune import TaskName

ROOT = Path(__file__).parent.parent
RECIPES = sorted(path.stem for path in (ROOT / "recipes/tasks").glob("*.yml"))
# The metric of each task, and what it must exceed: chance, or about half of what the recipe usually reaches.
LEAST = {
    "classify": ("accuracy", 0.6),
    "pair": ("accuracy", 0.5),
    "similarity": ("spearman", 0.5),
    "embed": ("mrr", 0.5),
    "tag": ("f1", 0.5),
    "answer": ("f1", 0.2),
    "translate": ("chrf", 50),
    "summarize": ("rougeL", 0.5),
    "extract": ("rougeL", 0.5),
    "reply": ("hits_at_1", 0.2),
    "intent": ("exact", 0.5),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory, minilm):
    """A folder where the paths of the recipes exist."""
    place = tmp_path_factory.mktemp("tasks")
    for name in ("recipes/tasks", "examples/tasks"):
        shutil.copytree(ROOT / name, place / name)
    (place / "minilm").symlink_to(minilm)
    return place


def commands(name: str, verb: str) -> list[str]:
    text = (ROOT / f"recipes/tasks/{name}.yml").read_text("utf-8")
    return re.findall(rf"^#     weft ({verb} .*)$", text, re.MULTILINE)


def test_every_task_has_a_recipe():
    assert set(get_args(TaskName)) == set(LEAST) == set(RECIPES) - {"intent-zh"}


@pytest.mark.parametrize("name", RECIPES)
def test_the_recipe_learns_its_task_and_answers(name, place, monkeypatch):
    monkeypatch.chdir(place)
    [command] = commands(name, "finetune")
    said = weft(*shlex.split(command), "finetune.precision=float32")
    assert said.code == 0, said.err
    section = read_recipe(place / f"recipes/tasks/{name}.yml").finetune
    metric, least = LEAST[section.task]
    assert report_of(place / f"runs/{name}")["figures"][metric] > least

    [command] = commands(name, "predict")
    [answer] = weft(*shlex.split(command)).lines
    assert any(answer.values()) and "error" not in answer

    file = place / "recipes/tasks" / section.data.test
    rows = report_of(place / f"runs/{name}")["examples"]
    answers = weft("predict", f"runs/{name}/model", "--file", file).lines
    assert len(answers) == rows and not any("error" in answer for answer in answers)
