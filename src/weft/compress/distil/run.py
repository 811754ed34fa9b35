"""`weft distil`: a recipe with a teacher in, a run folder with a smaller model out."""

from pathlib import Path
from typing import Any

from weft.compress.distil.check import check_distil, errors_of_distil
from weft.compress.distil.report import kept_share, yardstick_section, yardstick_sentences
from weft.compress.distil.stages import StagePlans, finetune_section
from weft.compress.distil.tasks import TaskDistillation, save_student, train_student
from weft.compress.distil.text import distil_text
from weft.compress.distil.yardsticks import compare_with_yardsticks
from weft.progress import say
from weft.recipe.distil import DistilSection
from weft.recipe.recipe import Recipe
from weft.tasks.catalog import metric_title
from weft.tasks.judging.evaluation import Evaluation, evaluate_on, require_packages, training_facts
from weft.tasks.judging.report import write_task_report
from weft.tasks.learning.splits import count_classes, read_data
from weft.tasks.loaded import LoadedModel
from weft.threads import thread_count_restored, use_threads
from weft.train.plan.machine import check_precision
from weft.train.plan.memory import keep_freed_memory
from weft.train.processes import Processes, alone
from weft.train.run_folder import MODEL, claim, finish, finished, write_resolved_recipe


@thread_count_restored()
def distil_model(
    recipe: Recipe, base: Path, folder: Path, *, resume: bool = False, processes: Processes | None = None
) -> dict[str, Any]:
    """Returns the results, as the run's weft.json has them. The recipe's paths are relative to `base`."""
    keep_freed_memory()
    processes = processes or alone(recipe)
    section, teacher = check_distil(recipe, base, folder)
    check_precision("distil", section.precision, processes.device)
    use_threads(section.threads)
    teacher.to(processes.device)
    with errors_of_distil():
        if section.data is None:
            return distil_text(recipe, section, teacher, base, folder, resume=resume, processes=processes)
        return _distil_task(recipe, section, teacher, base, folder, resume=resume, processes=processes)


def _distil_task(
    recipe: Recipe,
    section: DistilSection,
    teacher: LoadedModel,
    base: Path,
    folder: Path,
    *,
    resume: bool,
    processes: Processes,
) -> dict[str, Any]:
    task = teacher.required_task
    require_packages(task, baseline=section.yardsticks, without="distil.yardsticks: false")
    task, splits = read_data(finetune_section(section, task.name), base, known=task)
    with claim(folder, recipe, base, resume=resume, processes=processes):
        if resume and (results := finished(folder)):
            processes.say(f"{folder} is finished already.")
            return results
        with processes.first_goes_ahead():
            plans = StagePlans(folder, resume=resume or not processes.is_first)
            write_resolved_recipe(folder, recipe.given_settings(), base)
        run = TaskDistillation(section, base, folder, teacher, task, splits, processes, plans)
        trained_task, built, trained = train_student(run, resume=resume)
        judged: dict[str, Any] = {}
        if processes.is_first:
            save_student(run, trained_task, recipe, built, trained)
            judged = _judge(recipe, run, trained, resume=resume)
        return processes.broadcast(judged)


def _judge(recipe: Recipe, run: TaskDistillation, trained: dict[str, Any], *, resume: bool) -> dict[str, Any]:
    splits, folder = run.splits, run.folder
    classes = dict(count_classes(run.task, splits.train.examples).most_common())
    trained = {**trained, "classes": classes, "teacher": str(run.teacher.folder)}
    evaluation = evaluate_on(
        LoadedModel.load(folder / MODEL, run.processes.device),
        splits.judged_on,
        splits.train.examples if run.section.yardsticks else None,
        training=training_facts(trained, len(splits.train.examples)),
        notes=splits.notes,
    )
    sections: list[str] = []
    if run.section.yardsticks:
        seconds = trained["training_seconds"]
        yardsticks = compare_with_yardsticks(run, recipe, evaluation, seconds, resume=resume)
        trained["yardsticks"] = yardsticks
        trained["kept"] = kept_share(
            evaluation.score, evaluation.figures[evaluation.score], yardsticks["teacher"]["figures"][evaluation.score]
        )
        sections.append(_yardstick_part(evaluation, yardsticks))
    report = write_task_report(folder, recipe.name, evaluation, splits.by_use(), trained, sections)
    results = {**trained, "judged_on": splits.judged_on.where, **evaluation.summary()}
    results |= {"model": str(folder / MODEL), "report": str(report)}
    finish(folder, results)
    return results


def _yardstick_part(evaluation: Evaluation, yardsticks: dict[str, Any]) -> str:
    metric = evaluation.score
    title, own = metric_title(metric, evaluation.task.name), evaluation.summary()
    sentences = yardstick_sentences(metric, title, evaluation.figures[metric], yardsticks)
    for sentence in sentences:
        say(sentence)
    facts = {**own, "parameters": evaluation.cost["parameters"]}
    return yardstick_section(metric, title, facts, yardsticks, sentences)
