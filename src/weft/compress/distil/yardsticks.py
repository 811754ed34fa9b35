"""What a distilled model is compared with, on the same examples.

teacher      what can be reached
alone        the same student, from the same first weights, trained on the labels alone for as many minutes as the
             distillation took: is the teacher worth its time?
untrained    the student as it was cut from the teacher: is training needed at all?
The classical baseline is a part of every evaluation.
"""

import time
from dataclasses import replace
from typing import Any

from weft.compress.distil.stages import ALONE, finetune_section
from weft.compress.distil.tasks import TaskDistillation
from weft.metrics.difference import paired_difference
from weft.metrics.judged import Judged
from weft.model.network import count_parameters
from weft.progress import say
from weft.recipe.recipe import Recipe
from weft.tasks.judging.evaluation import Evaluation, answer_split
from weft.tasks.learning.build import plain_network
from weft.tasks.learning.lora import plain_state
from weft.tasks.learning.plan import make_finetune_plan
from weft.tasks.learning.saving import write_task_model
from weft.tasks.learning.train_once import train_once
from weft.tasks.loaded import LoadedModel
from weft.train.build import Built
from weft.train.run_folder import MODEL

TITLES = {
    "teacher": "the teacher",
    "alone": "the same student trained alone for the same time",
    "untrained": "the student as it was cut, untrained",
}
_LEAST_SECONDS = 0.1  # as a budget says it; a distillation of a few steps may take less


def compare_with_yardsticks(
    run: TaskDistillation, recipe: Recipe, evaluation: Evaluation, seconds: float, *, resume: bool
) -> dict[str, Any]:
    """`seconds`: what the distillation took. By name: figures, intervals, and the student's difference from it."""
    models = {
        "teacher": run.teacher,
        "alone": _alone(run, recipe, seconds, resume=resume),
        "untrained": _untrained(run, run.student(0.0).built),
    }
    found = {}
    for name, model in models.items():
        began = time.perf_counter()
        judged = _judge(run, model)
        facts: dict[str, Any] = {
            "name": TITLES[name],
            "figures": judged.figures,
            "intervals": {key: [gap.low, gap.high] for key, gap in judged.intervals.items()},
            "parameters": count_parameters(model.network),
            "examples_per_second": round(len(evaluation.examples) / (time.perf_counter() - began), 1),
        }
        if (gap := paired_difference(evaluation.score, evaluation.judged, judged)) is not None:
            facts["difference"] = gap.facts()
        if name == "alone":
            facts |= {key: model.results[key] for key in ("training_seconds", "steps") if key in model.results}
        found[name] = facts
    return found


def _alone(run: TaskDistillation, recipe: Recipe, seconds: float, *, resume: bool) -> LoadedModel:
    say(f"Training the same student without the teacher for {seconds:,.0f} s ...")
    built = run.student(None).built  # with the dropout of fine-tuning
    given, place = run.given, run.folder / ALONE
    inputs = given.training_inputs(built.saved, run.input_spec)
    plan = run.plans.find(ALONE)
    if plan is None:
        precision = run.plans.known["prediction"]["precision"]
        budget = f"{max(seconds, _LEAST_SECONDS):.1f}s"
        settings = finetune_section(
            run.section, run.task.name, budget=budget, dropout=None, precision=precision, learning_rate=None
        )
        held_out = run.task.inputs(run.splits.validation.examples, run.input_spec)
        length = run.input_spec.most_tokens
        plan = make_finetune_plan(settings, run.base, run.task, built.network, inputs, length, held_out)
        plan = run.plans.add(ALONE, plan)
    task, results = train_once(given, built, run.input_spec, inputs, plan, plan.seed, place, resume=resume)
    write_task_model(task, built, run.input_spec, place / MODEL, recipe, results)
    return LoadedModel.load(place / MODEL, run.processes.device)


def _untrained(run: TaskDistillation, built: Built) -> LoadedModel:
    network = plain_network(built.saved, plain_state(built.network))
    teacher = run.teacher
    facts = {"task": {**run.task.facts(), "sequence_length": run.input_spec.most_tokens}}
    return LoadedModel(network, built.description, teacher.tokenizer, facts=facts, folder=teacher.folder)


def _judge(run: TaskDistillation, model: LoadedModel) -> Judged:
    split, task = run.splits.judged_on, model.required_task  # with its own thresholds
    answers, _ = answer_split(model, split)
    judged = task.judge(split.judged, answers)
    more = task.measure(model.task_network, split.judged, answers, model.input_spec)
    return replace(judged, figures={**judged.figures, **more.figures}, intervals={**judged.intervals, **more.intervals})
