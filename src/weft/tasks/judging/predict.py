"""Predictions for texts that are given one by one: the command line's and Python's."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.errors import InputError
from weft.tasks.example import Unusable
from weft.tasks.loaded import LoadedModel
from weft.tasks.task import Task


def predict_texts(
    model: LoadedModel, texts: Sequence[Any], *, details: bool = False, with_text: bool = False
) -> list[dict[str, Any]]:
    """One prediction per example: a text, a pair of texts, a list of words, or a dictionary by role."""
    task = model.required_task
    given, examples = [], []
    for number, one in enumerate(texts):
        try:
            given.append(_by_role(task, one))
            examples.append(task.example(given[-1], with_gold=False))
        except Unusable as reason:
            raise InputError(f"Text {number} {reason}.") from None
    answers = model.answers(examples) if examples else []
    shown = [task.shown(one, answer, details=details) for one, answer in zip(examples, answers, strict=True)]
    return [{**given_texts(one), **line} for one, line in zip(given, shown, strict=True)] if with_text else shown


def given_texts(values: Mapping[str, Any]) -> dict[str, Any]:
    """The texts of an example by role. A text that is to be cut into words is `text`, not `words`."""
    return {
        "text" if role == "words" and isinstance(value, str) else role: value
        for role, value in values.items()
        if isinstance(value, str | list | tuple)
    }


def is_alone(task: Task, texts: Any) -> bool:
    """Whether this is one example rather than a list of them. A tuple is a pair of texts, or a sentence of words."""
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise InputError(f"predict takes texts, not {type(texts).__name__}.")
    takes_tuple = len(given_roles(task)) > 1 or "words" in task.roles
    return isinstance(texts, str | dict) or (takes_tuple and isinstance(texts, tuple))


def given_roles(task: Task | type[Task]) -> list[str]:
    """The roles that a prediction needs: all but those of the gold labels."""
    return [role for role in task.roles if role not in task.gold_roles]


def _by_role(task: Task, given: Any) -> dict[str, Any]:
    roles = given_roles(task)
    if isinstance(given, dict):
        if missing := [role for role in roles if role not in given]:
            raise Unusable(f"has no {missing[0]}; {task.name} takes {', '.join(roles)}")
        return given
    if len(roles) == 1:
        return {roles[0]: given}
    if isinstance(given, str) or not isinstance(given, list | tuple) or len(given) != len(roles):
        raise Unusable(f"is not {' and '.join(roles)}: {task.name} takes {len(roles)} texts together")
    return dict(zip(roles, given, strict=True))
