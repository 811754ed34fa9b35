"""Models at their task: answers to labelled examples."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from weft.compress.card.contest import SHOWN_CHANGES, Agreement, Changed, Contest, Performance, model_name
from weft.compress.card.timing import TimedWork
from weft.errors import InputError
from weft.metrics.judged import Judged
from weft.model.flops import forward_flops
from weft.model.packed import pack
from weft.tasks.batches import groups, pack_inputs
from weft.tasks.example import Example
from weft.tasks.given_data import given_columns, given_section, read_given
from weft.tasks.judging.evaluation import answer_split, require_packages, say_cut
from weft.tasks.labelled.data import LabelledSplit, some_of
from weft.tasks.loaded import LoadedModel

_SHOWN_LABELS = 5


class TaskContest(Contest):
    kind: ClassVar[str] = "task"

    def __init__(
        self,
        models: Sequence[LoadedModel],
        paths: Sequence[Path],
        columns: Sequence[str] = (),
        encoding: str | None = None,
        format: str | None = None,
        limit: int | None = None,
    ) -> None:
        """`limit`: at most this many examples, drawn at random. Raises InputError if the models' tasks differ."""
        before = models[0]
        task = before.required_task
        for model in models:
            _check_same_task(before, model)
            _ = model.input_spec  # raises InputError before any data is read
        require_packages(task, baseline=False, without="other data")
        section = given_section(given_columns(columns, task.roles), encoding, format, before, paths)
        split = read_given(before, paths, section)
        self.notes = [*_other_labels(models), *([split.unseen_sentence()] if split.unseen else [])]
        examples = some_of(split.judged, limit, 0)
        if len(examples) < len(split.judged):
            self.notes.append(f"{len(examples):,} of {len(split.judged):,} {task.counted_as}, drawn at random.")
        self.split = LabelledSplit(split.where, examples, split.problems)
        self.where, self.unit, self.count, self.task = split.where, task.counted_as, len(examples), task.name
        self.metric, self._task = "", task  # the metric is known with the first figures

    def perform(self, model: LoadedModel) -> Performance:
        task, examples = model.required_task, self.split.judged
        began = time.perf_counter()
        answers, cut = answer_split(model, self.split)
        seconds = time.perf_counter() - began
        say_cut(cut, len(examples), model.required_task.most_tokens(model.input_spec))
        judged = task.judge(examples, answers)
        more = task.measure(model.task_network, examples, answers, model.input_spec)
        judged.figures.update(more.figures)
        judged.intervals.update(more.intervals)
        self.metric = self.metric or task.main_metric(judged.figures)
        return Performance(*_tokens_and_flops(model, examples), seconds, judged, self._in_words(model, answers), cut)

    def _in_words(self, model: LoadedModel, answers: Sequence[Any]) -> list[Any]:
        """Numbers as they are; other answers as words, for which the labels of the models may differ."""
        task = model.required_task
        if task.problem_type == "regression":
            return list(answers)
        return [task.decision(example, answer) for example, answer in zip(self.split.judged, answers, strict=True)]

    def work(self, model: LoadedModel) -> TimedWork:
        examples = self.split.judged
        return TimedWork(
            lambda text: model.answers([examples[text]]),
            lambda texts: model.answers([examples[text] for text in texts]),
        )

    def agreement(self, before: Performance, after: Performance) -> Agreement | None:
        assert before.judged is not None and after.judged is not None
        gain = after.judged.credit - before.judged.credit
        if isinstance(before.answers[0], float):
            moved = np.abs(np.subtract(after.answers, before.answers))
            order = np.argsort(-moved, kind="stable")[:SHOWN_CHANGES]
            shown = [self._changed(i, before, after, gain[i]) for i in order.tolist() if moved[i] > 0]
            return Agreement(correlation=_correlation(before.answers, after.answers), shown=tuple(shown))
        differs = np.asarray([one != other for one, other in zip(before.answers, after.answers, strict=True)])
        # The worst first; in the order of the data where the change is the same.
        found = [
            self._changed(i, before, after, gain[i]) for i in np.argsort(gain, kind="stable").tolist() if differs[i]
        ]
        names = dict.fromkeys(_names_of_changes(before.judged, after.judged))
        counts = {name: sum(one.change == name for one in found) for name in names}
        return Agreement(float(1 - differs.mean()), None, counts, tuple(found[:SHOWN_CHANGES]))

    def _changed(self, number: int, before: Performance, after: Performance, gain: float) -> Changed:
        assert before.judged is not None and after.judged is not None
        worse, better, neither = _names_of_changes(before.judged, after.judged)
        example, task = self.split.judged[number], self._task
        return Changed(
            example.place,
            task.in_words(example),
            task.gold_in_words(example),
            _said(before.answers[number]),
            _said(after.answers[number]),
            change=worse if gain < 0 else better if gain > 0 else neither,
        )


def _said(answer: Any) -> str:
    return f"{answer:.3f}" if isinstance(answer, float) else str(answer)


def _names_of_changes(before: Judged, after: Judged) -> tuple[str, str, str]:
    both = np.concatenate([before.credit, after.credit])
    if ((both == 0) | (both == 1)).all():
        return "right → wrong", "wrong → right", "wrong → otherwise wrong"
    return "worse", "better", "neither better nor worse"


def _correlation(before: Sequence[float], after: Sequence[float]) -> float | None:
    if np.std(before) == 0 or np.std(after) == 0:
        return 1.0 if list(before) == list(after) else None
    return 1.0 if list(before) == list(after) else float(np.corrcoef(before, after)[0, 1])


def _tokens_and_flops(model: LoadedModel, examples: Sequence[Example]) -> tuple[int, float]:
    """Of reading all examples; a task that writes reads the source and the gold text once."""
    task, network = model.required_task, model.task_network
    asked = examples if task.writes else [replace(one, gold=None) for one in examples]
    inputs, tokens, flops = task.inputs(asked, model.input_spec), 0, 0.0
    for part in groups(inputs):
        picked = [inputs[i] for i in part]
        packed, target, scored = pack_inputs(picked), None, None
        if task.writes:
            scored = sum(len(one.targets.ids) for one in picked)
            if picked[0].targets.decoder_ids is not None:
                target = pack([one.targets.decoder_ids for one in picked])
        tokens += len(packed.tokens) + (0 if target is None else len(target.tokens))
        flops += forward_flops(network, packed, target, scored)
    return tokens, flops


def _check_same_task(before: LoadedModel, model: LoadedModel) -> None:
    ours, theirs = before.required_task.name, model.required_task.name
    if ours != theirs:
        raise InputError(
            f"{model_name(before)} is tuned for {ours}, {model_name(model)} for {theirs}: no data can judge both. "
            "Compare models of the same task."
        )


def _other_labels(models: Sequence[LoadedModel]) -> list[str]:
    before, *others = models
    known = set(before.required_task.labels)
    found = []
    for model in others:
        if (labels := set(model.required_task.labels)) != known:
            added, gone = sorted(labels - known)[:_SHOWN_LABELS], sorted(known - labels)[:_SHOWN_LABELS]
            parts = [f"lacks {', '.join(gone)}"] * bool(gone) + [f"adds {', '.join(added)}"] * bool(added)
            found.append(f"{model_name(model)} has other labels: it {' and '.join(parts)}.")
    return found
