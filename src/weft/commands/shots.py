"""`weft evaluate --shots`: a language model without a head for the task, asked by a prompt with labelled examples."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.commands.tasks import check_places, judged_results
from weft.errors import InputError, suggest
from weft.progress import say
from weft.tasks.catalog import TASKS
from weft.tasks.given_data import given_columns, given_section
from weft.tasks.judging.evaluation import require_packages
from weft.tasks.judging.mask_prompted import MaskPromptedModel
from weft.tasks.judging.prompted import PromptedModel, draw_shots
from weft.tasks.labelled.data import LabelledSplit, checked_split, read_split
from weft.tasks.labels import label_set
from weft.tasks.learning.splits import say_problems
from weft.tasks.loaded import LoadedModel
from weft.tasks.task import Task


def evaluate_prompted(
    model: LoadedModel,
    data: Sequence[Path],
    train: Sequence[Path],
    columns: Sequence[str],
    encoding: str | None,
    format: str | None,
    output: Path | None,
    *,
    task: str | None,
    shots: int,
    words: Sequence[str],
) -> dict[str, Any]:
    """`words`: label=words, how labels are written in the prompt."""
    check_places(data, format, output)
    kind = _kind_of(task)
    if not isinstance(shots, int) or isinstance(shots, bool) or shots < 0:
        raise InputError(f"--shots is a number of examples, 0 or more, not {shots!r}.")
    if shots and not train:
        raise InputError(f"--shots {shots} takes its examples from training data: name it with --train.")
    require_packages(kind, baseline=bool(train), without="leaving out --train")
    asking = MaskPromptedModel if "masked" in model.network.heads else PromptedModel
    asked = asking(model, kind())
    section = given_section(given_columns(columns, kind.roles), encoding, format, asked, [*data, *train])
    read = [read_split(kind(), paths, section) for paths in (data, train) if paths]
    labelled = kind(labels=_labels_of(read[-1]))  # of the training data, if there is any
    split, *known = (_checked(labelled, one) for one in read)
    drawn = draw_shots(labelled, known[0].examples, split.judged, shots) if known else []
    asked = asking(model, labelled, _written(labelled.labels, words), drawn)
    _ = asked.options  # raises InputError if a label cannot be written
    note = f"The model was not tuned for {labelled.name}: it chose a label after a prompt"
    note += f" with {shots} labelled example{'s' * (shots != 1)} of {known[0].where}." if shots else "."
    say(note)
    results = judged_results(asked, split, known[0] if known else None, output, [note])
    return {**results, "shots": shots, "prompt": asked.shown_prompt}


def _kind_of(name: str | None) -> type[Task]:
    possible = [one for one, kind in TASKS.items() if kind.has_one_label]
    if name is None or (name in TASKS and name not in possible):
        raise InputError(f"--shots goes with a task whose answer is a label: --task {' or --task '.join(possible)}.")
    if name not in TASKS:
        raise InputError(f"There is no task {name!r}{suggest(name, TASKS)}. With --shots: {', '.join(possible)}.")
    return TASKS[name]


def _labels_of(split: LabelledSplit) -> tuple[str, ...]:
    labels = label_set(example.gold for example in split.examples)
    if len(labels) < 2:
        raise InputError(
            f"All examples of {split.where} have the label {labels[0]!r}; at least two labels are needed. Is it the "
            "right column (--column label=NAME)?"
        )
    return labels


def _checked(task: Task, split: LabelledSplit) -> LabelledSplit:
    found = checked_split(task, split)
    say_problems(found)
    return found


def _written(labels: Sequence[str], words: Sequence[str]) -> list[str]:
    """Each label as it is written in the prompt."""
    found: dict[str, str] = {}
    for option in words:
        label, equals, text = option.partition("=")
        if not equals or not text.strip():
            raise InputError(f"--label {option!r} is not label=words, such as {labels[0]}=bad.")
        if label not in labels:
            raise InputError(
                f"--label {option}: there is no label {label}{suggest(label, labels)}. There are: {', '.join(labels)}."
            )
        found[label] = " ".join(text.split())
    written = [found.get(label, label) for label in labels]
    if len(set(written)) < len(written):
        raise InputError("--label gives two labels the same words, so an answer would not tell which one it is.")
    return written


def label_options(labels: Sequence[str] | Mapping[str, str]) -> list[str]:
    return [f"{label}={words}" for label, words in labels.items()] if isinstance(labels, Mapping) else list(labels)
