"""Tasks declare what they are, so that no other code asks which task it has."""

import ast
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.recipe.finetune import DataSection, FinetuneSection
from weft.tasks.catalog import TASKS, metric_title
from weft.tasks.classify import Classify, MultiLabel
from weft.tasks.example import Example
from weft.tasks.task import Task

SOURCE = Path(weft.__file__).parent


def concrete_tasks() -> set[str]:
    """Names of all task classes below the abstract ones."""
    kinds = {kind for task in (*TASKS.values(), MultiLabel) for kind in task.__mro__}
    return {kind.__name__ for kind in kinds if issubclass(kind, Task)} - {"Task", "ScoredTask", "VectorTask"}


def names_in(node: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} | {
        part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)
    }


def test_no_code_asks_for_the_class_of_a_task():
    found = []
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            is_test = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass")
            if is_test and names_in(node.args[1]) & concrete_tasks():
                found.append(f"{file.relative_to(SOURCE)}:{node.lineno}")
    assert not found


def test_the_scan_knows_every_task():
    assert {"Classify", "MultiLabel", "Pair", "Similarity", "Tag", "Answer", "Rewrite", "Reply"} <= concrete_tasks()


def test_only_task_rooms_import_a_concrete_task():
    files = {task.__module__ for task in TASKS.values()}
    allowed = {SOURCE / f"{module.removeprefix('weft.').replace('.', '/')}.py" for module in files}
    allowed.add(SOURCE / "tasks/catalog.py")
    importers = {
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module in files and file not in allowed
        if {alias.name for alias in node.names} & concrete_tasks() and "theory" not in file.parts  # it explains them
    }
    assert not importers


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_declared_settings_exist_in_the_recipe(task):
    names = (
        *task.recipe_settings,
        *task.exclusive_settings,
        *(n for of in task.exclusive_settings.values() for n in of),
    )
    for name in names:
        section, _, key = name.rpartition(".")
        assert key in (DataSection if section else FinetuneSection).model_fields
    assert set(task.exclusive_settings) <= set(task.recipe_settings)
    assert set(task.list_roles) <= set(task.roles)


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_facts_and_recipe_build_the_same_task(task):
    built = task.from_section(FinetuneSection(task=task.name, data=DataSection()), None)
    assert type(built) is task and task.from_facts(built.facts(), built.labels) == built


def test_the_threshold_is_kept_with_the_model_and_decides_which_labels_are_predicted():
    section = FinetuneSection(task="classify", data=DataSection(several=True), threshold=0.2)
    task = Classify.from_section(section, None)
    assert isinstance(task, MultiLabel) and Classify.from_facts(task.facts(), ()).threshold == 0.2
    assert Classify.from_facts(MultiLabel().facts(), ()).threshold == 0.5
    answer = np.asarray([0.3, 0.1, 0.6])
    for threshold, labels in ((0.2, ["c", "a"]), (0.5, ["c"])):
        assert MultiLabel(("a", "b", "c"), threshold=threshold).shown(Example("", None), answer)["labels"] == labels
    assert "threshold" not in MultiLabel().facts()  # as in models of earlier versions


def test_metrics_have_a_title_by_task():
    assert metric_title("f1", "classify") == "macro F1" and metric_title("f1", "tag") == "F1"
    assert metric_title("accuracy", "classify") == "accuracy"
