"""`weft evaluate` and `weft predict` for models that have a task."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.api.model import Model, load
from weft.commands.printing import as_json_line
from weft.errors import InputError
from weft.folders import disk_errors, known_facts
from weft.progress import say
from weft.recipe.finetune import DataSection
from weft.sources.places import locate
from weft.sources.standard_input import is_standard_input
from weft.tasks.catalog import TASKS
from weft.tasks.given_data import given_columns, given_section, read_given
from weft.tasks.judging.brief import brief_lines
from weft.tasks.judging.evaluation import evaluate_on, require_packages, training_facts
from weft.tasks.judging.predict import given_roles, predict_texts
from weft.tasks.judging.predict_file import LineFormat, WriteLines, predict_file
from weft.tasks.judging.report import write_task_report
from weft.tasks.labelled.data import LabelledSplit
from weft.tasks.labelled.overlap import find_overlap
from weft.tasks.loaded import LoadedModel
from weft.terminal import escape_controls


def evaluate_task(
    model: LoadedModel,
    data: Sequence[Path],
    train: Sequence[Path],
    columns: Sequence[str],
    encoding: str | None,
    format: str | None,
    output: Path | None,
) -> dict[str, Any]:
    check_places(data, format, output)
    _ = model.required_task, model.input_spec  # raises InputError before any data is read
    require_packages(model.required_task, baseline=bool(train), without="leaving out --train")
    named = given_columns(columns, model.required_task.roles)
    section = given_section(named, encoding, format, model, [*data, *train])
    split = read_given(model, data, section)
    known = read_given(model, train, section) if train else None
    return judged_results(model, split, known, output)


def check_places(data: Sequence[Path], format: str | None, output: Path | None) -> None:
    """Raises InputError for a place that cannot be written to, or data whose format nothing tells."""
    if output is not None and output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file; the reports need a folder.")
    if output is not None and known_facts(output).get("kind") == "run":
        raise InputError(f"{output} is a run, whose own report this would replace; choose another folder.")
    if format is None and any(map(is_standard_input, data)):
        raise InputError("Standard input (-) has no name that tells its format. Give it: --format jsonl (csv, tsv …).")


def judged_results(
    model: LoadedModel,
    split: LabelledSplit,
    known: LabelledSplit | None,
    output: Path | None,
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """The evaluation, and its report if there is a folder for it. `known`: training data for the baseline."""
    overlap = find_overlap(model.required_task, {"train": known, "test": split}) if known else []
    for note in overlap:
        say(note)
    trained, recipe = (
        found if isinstance(found := model.facts.get(key), dict) else {} for key in ("results", "recipe")
    )
    learnt = known.examples if known else None
    evaluation = evaluate_on(model, split, learnt, training=training_facts(trained), notes=[*notes, *overlap])
    results = {
        "model": str(model.folder),
        "task": model.required_task.name,
        "data": split.where,
        **evaluation.summary(),
    }
    if split.problems.count:
        results["left_out"] = split.problems.sentences()
    if split.mended.count:
        results["mended"] = split.mended.sentences()
    if output is not None:
        with disk_errors(output):
            output.mkdir(parents=True, exist_ok=True)
        name = str(recipe.get("name", model.folder.name if model.folder else "model"))
        results["report"] = str(write_task_report(output, name, evaluation, {split.where: split}))
    return results


def print_judged(results: dict[str, Any], *, as_json: bool) -> None:
    """The results of a model that was judged at its task: in full as JSON, or in brief for people."""
    print(as_json_line(results) if as_json else escape_controls("\n".join(brief_lines(results))))


def predict_command(results: Mapping[str, Any]) -> str:
    """How the tuned model is asked: weft predict MODEL TEXT SECOND for a task that reads pairs."""
    roles = given_roles(TASKS[results["task"]])
    texts = ["TEXT" if len(roles) == 1 else role.upper() for role in roles]
    return " ".join(["weft predict", str(results["model"]), *texts])


def _load(folder: Path, task: str | None, precision: str | None) -> Model:
    """Raises InputError before any data is read if the model has no task or no tokenizer."""
    model = load(folder, task=task, precision=precision)
    _ = model.required_task, model.input_spec
    return model


def predict_given(
    folder: Path,
    texts: Sequence[str],
    task: str | None,
    *,
    details: bool,
    with_text: bool,
    precision: str | None = None,
) -> list[dict[str, Any]]:
    """Predictions for texts. A task that takes several (a pair; question and context) gets them one after another."""
    model = _load(folder, task, precision)
    roles = given_roles(model.required_task)
    if len(texts) % len(roles):
        raise InputError(
            f"{model.required_task.name} takes {len(roles)} texts together ({', '.join(roles)}), not {len(texts)}."
        )
    rows = [tuple(texts[start : start + len(roles)]) for start in range(0, len(texts), len(roles))]
    examples = [row if len(roles) > 1 else row[0] for row in rows]
    return predict_texts(model, examples, details=details, with_text=with_text)


def predict_rows(
    folder: Path,
    file: Path,
    task: str | None,
    columns: Sequence[str],
    encoding: str | None,
    format: str | None,
    output: Path | None,
    write: WriteLines,
    *,
    details: bool,
    with_text: bool,
    resume: bool,
    precision: str | None = None,
) -> dict[str, Any]:
    """A line per row of the file, to the output if there is one, otherwise to `write`."""
    model = _load(folder, task, precision)
    named = given_columns(columns, [*model.required_task.roles, "id"])
    id_column = named.pop("id", None)
    section = given_section(named, encoding, format, model, [file])
    if locate(file, section.format).is_text:  # whatever the columns of the training data are called
        if columns:
            raise InputError(f"--column goes with tables; {file} has lines only.")
        section = DataSection(encoding=section.encoding, format=section.format)
    lines = LineFormat(details, with_text, id_column)
    return predict_file(model, file, output, section, write, lines, resume=resume)
