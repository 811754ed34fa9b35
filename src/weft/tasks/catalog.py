"""The tasks by name, and the task of a model: as its weft.json says, or as its head allows."""

from pathlib import Path
from typing import Any

from weft.errors import FolderError, InputError, suggest
from weft.folders import MANIFEST
from weft.interchange.folder import Description
from weft.model.network import Network
from weft.tasks.answer import Answer
from weft.tasks.classify import Classify
from weft.tasks.embed import EmbedTask
from weft.tasks.extract import Extract
from weft.tasks.intent import Intent
from weft.tasks.pair import Pair
from weft.tasks.reply import Reply
from weft.tasks.rewrite import Summarize, Translate
from weft.tasks.similarity import Similarity
from weft.tasks.tag import Tag
from weft.tasks.task import Task

TASKS: dict[str, type[Task]] = {
    task.name: task
    for task in (Classify, Pair, Similarity, Tag, Answer, Translate, Summarize, Reply, Intent, EmbedTask, Extract)
}


def known_task(network: Network, description: Description, facts: Any, name: str | None = None) -> Task:
    """The task of a model. `facts`: what its weft.json says about it; `name`: the task asked for, if any."""
    if isinstance(facts, dict) and name in (None, facts.get("name")):
        return _from_facts(facts, description)
    return _from_head(network, description, name)


def side_files(folder: Path | None) -> dict[str, bytes]:
    """The files that tasks saved beside the model in this folder, to be copied with it."""
    names = {name for task in TASKS.values() for name in task.side_files}
    files = [] if folder is None else [folder / name for name in sorted(names)]
    return {file.name: file.read_bytes() for file in files if file.is_file()}


def metric_title(metric: str, task: str) -> str:
    """What people call a metric of a task: "macro F1"."""
    return TASKS[task].metric_titles.get(metric, metric) if task in TASKS else metric


def _from_facts(facts: dict[str, Any], description: Description) -> Task:
    name = facts.get("name")
    if not isinstance(name, str) or name not in TASKS:
        raise FolderError(f"{MANIFEST} names the task {name!r}, which this version of weft does not know.")
    try:
        return TASKS[name].from_facts(facts, description.labels)
    except TypeError:
        raise FolderError(f"{MANIFEST} has settings of the task {name} that are not known.") from None


def _from_head(network: Network, description: Description, name: str | None) -> Task:
    if name is not None and name not in TASKS:
        raise InputError(f"There is no task {name!r}{suggest(str(name), TASKS)}. Tasks: {', '.join(TASKS)}.")
    found = {kind.name: kind.from_head(network, description) for kind in TASKS.values()}
    fitting = {kind: task for kind, task in found.items() if task is not None}
    has = f"a {', '.join(network.heads)} head" if network.heads else "no head"
    implied = [task for task in fitting.values() if task.is_implied]
    if not fitting or (name is None and not implied):
        named = f", or name one: --task {next(iter(fitting))}" if fitting else ""
        raise InputError(f"The model has {has}, which fits no task. Tune it for one with weft finetune{named}.")
    if name is None:
        task = implied[0]
        if task.writes:
            raise InputError(f"The model has {has} and was not tuned by weft: name its task with --task.")
        return task
    if name not in fitting:
        can_be_asked = TASKS[name].has_one_label and any(task.writes for task in fitting.values())
        prompts = ", or evaluate it by prompts: weft evaluate --shots 0" if can_be_asked else ""
        raise InputError(
            f"The model cannot do {name}: its head fits {', '.join(fitting)}. Tune it for {name} with weft finetune"
            f"{prompts}."
        )
    return fitting[name]
