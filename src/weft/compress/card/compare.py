"""`compare_models`: the card of a model and of what was made from it.

Every model answers all the data once, for its quality. Then they are timed in turns on a part of it.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from weft.compress.card.card import Card
from weft.compress.card.contest import Contest, Performance
from weft.compress.card.machine import machine_facts
from weft.compress.card.measured import AgainstFirst, ModelCard
from weft.compress.card.model_facts import disk_bytes, memory_bytes, precision_of, shape_of, short_names, steps_between
from weft.compress.card.task_contest import TaskContest
from weft.compress.card.text_contest import TextContest
from weft.compress.card.texts import draw
from weft.compress.card.timing import Clock, Times, faster, take_turns
from weft.compress.card.vector_contest import VectorContest
from weft.errors import InputError
from weft.metrics.difference import paired_difference
from weft.progress import say
from weft.recipe.file import check_section
from weft.recipe.finetune import DataSection
from weft.sources.reading import Reading
from weft.sources.standard_input import is_standard_input
from weft.tasks.loaded import LoadedModel
from weft.train.text_evaluation import language_head

ROUNDS = 7
_MOST_ALONE, _FEWEST_TOGETHER, _MOST_TOGETHER = 40, 16, 2000  # texts that are timed in a round
_TOGETHER_SECONDS = 2.0  # about, that a model takes in a round


def compare_models(
    paths: Sequence[Path],
    data: Path | Sequence[Path],
    *,
    task: str | None = None,
    columns: Sequence[str] = (),
    encoding: str | None = None,
    format: str | None = None,
    limit: int | None = None,
    rounds: int = ROUNDS,
    device: str = "auto",
    clock: Clock | None = None,
) -> Card:
    """`paths`: the model before, then those after, in the order in which they were made. `data`: labelled examples for
    models with a task, otherwise text. `limit`: at most this many texts. Raises InputError if the models cannot be
    compared on the data.
    """
    _check_numbers(paths, limit, rounds)
    where = [data] if isinstance(data, str | Path) else list(data)
    if any(map(is_standard_input, where)):
        raise InputError("Each model reads the data, which standard input (-) gives only once: give a file.")
    models = [LoadedModel.load(path, device).for_task(task) for path in paths]
    contest = _contest(models, where, task, columns, encoding, format, limit)
    performances = [contest.perform(model) for model in models]
    together = draw(contest.count, _timed_texts(contest, performances))
    alone = draw(contest.count, _MOST_ALONE)
    say(f"Timing {len(models)} models in turns, {rounds} rounds ...")
    times = take_turns([contest.work(model) for model in models], alone, together, rounds, clock or Clock())
    names, notes = short_names(list(paths)), list(contest.notes)
    cards = [
        _card_of(name, model, performance, seconds, contest, len(together))
        for name, model, performance, seconds in zip(names, models, performances, times, strict=True)
    ]
    cards = [cards[0], *(_compared(contest, i, cards, models, performances, times) for i in range(1, len(cards)))]
    return Card(
        contest.kind, contest.task, contest.where, contest.unit, contest.count, contest.metric, contest.headline,
        contest.alone_title, cards, machine_facts(models[0].device), rounds, len(alone), len(together), notes,
    )  # fmt: skip


def _check_numbers(paths: Sequence[Path], limit: int | None, rounds: int) -> None:
    if len(paths) < 2:
        raise InputError("Give at least two models: the one before, and one or more after.")
    if limit is not None and limit < 1:
        raise InputError(f"--limit is a number of texts, at least 1, not {limit}.")
    if rounds < 1:
        raise InputError(f"--rounds is at least 1, not {rounds}.")


def _contest(
    models: Sequence[LoadedModel],
    data: Sequence[Path],
    task: str | None,
    columns: Sequence[str],
    encoding: str | None,
    format: str | None,
    limit: int | None,
) -> Contest:
    before = models[0]
    if task is not None or before.task is not None:
        return TaskContest(models, data, columns, encoding, format, limit)
    if columns:
        raise InputError("--column goes with a task, and the models have none. See --task.")
    chosen = check_section(DataSection, {"format": format}, "--format").format
    reading = Reading(encoding=encoding or "utf-8", format=chosen)
    kind = VectorContest if language_head(before.network) is None else TextContest
    return kind(models, data, reading, limit)


def _timed_texts(contest: Contest, performances: Sequence[Performance]) -> int:
    """As many as the slowest model reads in about two seconds."""
    slowest = max(performance.seconds for performance in performances) / contest.count
    return min(_MOST_TOGETHER, max(_FEWEST_TOGETHER, math.ceil(_TOGETHER_SECONDS / max(slowest, 1e-9))))


def _card_of(
    name: str, model: LoadedModel, performance: Performance, times: Times, contest: Contest, together: int
) -> ModelCard:
    judged, rate = performance.judged, together / max(float(np.median(times.together)), 1e-12)
    tokens = performance.tokens / contest.count
    assert model.folder is not None
    return ModelCard(
        name=name,
        folder=str(model.folder),
        model=shape_of(model),
        precision=precision_of(model.network),
        steps=[],
        parameters=model.parameters_count,
        disk_bytes=disk_bytes(model.folder),
        memory_bytes=memory_bytes(model.network),
        tokens_per_text=tokens,
        flops_per_text=performance.flops / contest.count,
        latency_ms_p50=1000 * float(np.quantile(times.alone, 0.5)),
        latency_ms_p95=1000 * float(np.quantile(times.alone, 0.95)),
        texts_per_second=rate,
        tokens_per_second=rate * tokens,
        cpu_seconds_per_1000=1000 * float(np.median(times.cpu)) / together,
        figures={} if judged is None else judged.figures,
        intervals={} if judged is None else {key: (gap.low, gap.high) for key, gap in judged.intervals.items()},
        cut=performance.cut,
    )


def _compared(
    contest: Contest,
    place: int,
    cards: Sequence[ModelCard],
    models: Sequence[LoadedModel],
    performances: Sequence[Performance],
    times: Sequence[Times],
) -> ModelCard:
    """The card of one of the models after, with what changed since the first."""
    before, after = cards[0], cards[place]
    ours, theirs = performances[place], performances[0]
    gaps, agreement = {}, None
    if ours.judged is not None and theirs.judged is not None:
        found = {name: paired_difference(name, ours.judged, theirs.judged) for name in ours.judged.figures}
        gaps = {name: gap for name, gap in found.items() if gap is not None}
        agreement = contest.agreement(theirs, ours)
    against = AgainstFirst(
        before.disk_bytes / max(after.disk_bytes, 1),
        before.memory_bytes / max(after.memory_bytes, 1),
        before.flops_per_text / max(after.flops_per_text, 1e-9),
        faster(times[0].together, times[place].together),
        faster(np.median(times[0].alone, axis=1), np.median(times[place].alone, axis=1)),
        gaps,
        agreement,
    )
    return replace(after, steps=steps_between(models[0], models[place]), against=against)
