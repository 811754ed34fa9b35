"""What `weft evaluate` and `weft predict` do."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft.api.model import Model, load
from weft.commands.printing import as_json_line
from weft.errors import InputError, suggest
from weft.folders import disk_errors, known_facts
from weft.progress import say
from weft.recipe.file import check_section
from weft.recipe.finetune import DataSection
from weft.sources.archives import inner_name
from weft.sources.places import ending
from weft.sources.row_formats import TEXT
from weft.tasks.judging.brief import brief_lines
from weft.tasks.judging.evaluation import evaluate_on, require_packages, training_facts
from weft.tasks.judging.predict import Write, predict_file, predict_texts
from weft.tasks.judging.report import write_task_report
from weft.tasks.labelled.data import LabelledSplit, checked_split, read_split
from weft.tasks.labelled.overlap import find_overlap
from weft.tasks.learning.splits import say_problems
from weft.terminal import escape_controls


def evaluate_model(
    folder: Path,
    data: Sequence[Path],
    task: str | None,
    train: Sequence[Path],
    columns: Sequence[str],
    encoding: str,
    format: str | None,
    output: Path | None,
) -> dict[str, Any]:
    if output is not None and output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file; the reports need a folder.")
    if output is not None and known_facts(output).get("kind") == "run":
        raise InputError(f"{output} is a run, whose own report this would replace; choose another folder.")
    model = _load(folder, task)
    require_packages(model.required_task, beside=bool(train), without="weft evaluate without --train")
    section = _section(columns, encoding, format, model)
    split = _read(model, data, section)
    known = _read(model, train, section) if train else None
    overlap = find_overlap(model.required_task, {"train": known, "test": split}) if known else []
    for note in overlap:
        say(note)
    trained, recipe = (
        found if isinstance(found := model.facts.get(key), dict) else {} for key in ("results", "recipe")
    )
    learnt = known.examples if known else None
    evaluation = evaluate_on(model, split, learnt, training=training_facts(trained), notes=overlap)
    results = {"model": str(folder), "task": model.required_task.name, "data": split.where, **evaluation.summary()}
    if split.problems.count:
        results["left_out"] = split.problems.sentences()
    if split.mended.count:
        results["mended"] = split.mended.sentences()
    if output is not None:
        with disk_errors(output):
            output.mkdir(parents=True, exist_ok=True)
        name = str(recipe.get("name", folder.name))
        results["report"] = str(write_task_report(output, name, evaluation, {split.where: split}))
    return results


def print_judged(results: dict[str, Any], *, as_json: bool) -> None:
    """The results of a model that was judged at its task: in full as JSON, or in brief for people."""
    print(as_json_line(results) if as_json else escape_controls("\n".join(brief_lines(results))))


def _load(folder: Path, task: str | None) -> Model:
    """Raises InputError before any data is read if the model has no task or no tokenizer."""
    model = load(folder, task=task)
    _ = model.required_task, model.input_spec
    return model


def _read(model: Model, paths: Sequence[Path], section: DataSection) -> LabelledSplit:
    split = checked_split(model.required_task, read_split(model.required_task, paths, section))
    say_problems(split)
    return split


def _section(columns: Sequence[str], encoding: str, format: str | None, model: Model) -> DataSection:
    """The columns that were said now; for the other roles, those of the recipe that the model was tuned by. Who names
    columns means a file that has names for them.
    """
    roles = model.required_task.roles
    said = _columns(columns, roles)
    facts: Any = model.facts.get("recipe")
    data = facts.get("finetune", {}).get("data", {}) if isinstance(facts, dict) else {}
    kept = {key: value for key, value in data.items() if key in (*roles, "labels") or (key == "columns" and not said)}
    read = {"encoding": encoding, "format": check_section(DataSection, {"format": format}, "--format").format}
    return check_section(DataSection, {**kept, **said, **read}, "--column")


def _columns(said: Sequence[str], roles: Sequence[str]) -> dict[str, str]:
    found = {}
    for pair in said:
        role, equals, column = pair.partition("=")
        if not equals or not column:
            raise InputError(f"--column {pair!r} is not role=column, such as {roles[0]}=sentence.")
        if role not in roles:
            raise InputError(f"--column {pair}: there is no {role} here{suggest(role, roles)}, but {', '.join(roles)}.")
        found[role] = column
    return found


def predict_given(folder: Path, texts: Sequence[str], task: str | None, *, details: bool) -> list[dict[str, Any]]:
    """Of a task that takes several texts together (a pair; question and context), they stand one after another."""
    model = _load(folder, task)
    roles = [role for role in model.required_task.roles if role not in model.required_task.gold_roles]
    if len(texts) % len(roles):
        raise InputError(
            f"{model.required_task.name} takes {len(roles)} texts together ({', '.join(roles)}), not {len(texts)}."
        )
    rows = [tuple(texts[start : start + len(roles)]) for start in range(0, len(texts), len(roles))]
    return predict_texts(model, [row if len(roles) > 1 else row[0] for row in rows], details=details)


def predict_rows(
    folder: Path,
    file: Path,
    task: str | None,
    columns: Sequence[str],
    encoding: str,
    format: str | None,
    output: Path | None,
    write: Write,
    *,
    details: bool,
    resume: bool,
) -> dict[str, Any]:
    """The answers go to the output, if there is one, or else to `write`."""
    model = _load(folder, task)
    section = _section(columns, encoding, format, model)
    if (
        f".{format}" if format else ending(inner_name(file.name))
    ) in TEXT:  # has lines, whatever the columns of the training data were called
        if columns:
            raise InputError(f"--column goes with tables; {file} has lines only.")
        section = DataSection(encoding=encoding, format=section.format)
    return predict_file(model, file, output, section, write, details=details, resume=resume)
