"""The data that pruning learns from: labelled rows for a tuned model, plain text for a language model.

Most of the samples (`fit`) score neurons and heads and fit the compensation. The others (`held`) measure losses.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from weft.compress.calibration_data import (
    Subset,
    check_predictable,
    data_or_training_data,
    labelled_rows,
    section_of_recipe,
    text_samples,
)
from weft.compress.prune.vocabulary import count_tokens
from weft.errors import InputError, WeftError
from weft.model.network import Network
from weft.model.packed import order_by_length
from weft.objectives.objective import Batch, Objective, head_scores
from weft.sources.documents import read_documents
from weft.sources.files import find_files
from weft.sources.places import locate
from weft.tasks.batches import groups
from weft.tasks.example import Input
from weft.tasks.labelled.data import named, read_split
from weft.tasks.loaded import LoadedModel
from weft.tasks.rewrite import TextTargets
from weft.tasks.task import Task, TaskObjective, batch_of
from weft.train.text_evaluation import language_head

_FIT_SAMPLES, _HELD_SAMPLES = 2000, 1000
_FIT_TOKENS, _HELD_TOKENS = 2**17, 2**15  # at most, of text
_HELD_SHARE = 0.25  # of the samples, if there are few
_BATCH_TOKENS = 4096
_ALONE = 24  # samples that latency is measured on
_MOST_TEXT = 8_000_000  # characters
_LEAST_SAMPLES = 16
_SEED = 0


@dataclass(frozen=True)
class PruningData:
    what: str  # the samples in words
    fit: list[Batch]
    held: list[Batch]
    alone: list[Batch]  # some of the held samples, a batch each
    objective: Callable[[], Objective]  # of all samples but the held ones, for recovery
    with_task: Callable[[Network], Network]  # the network with the task's own weights beside it, such as a CRF
    score: Callable[[Network], float] | None = None  # of the held examples
    metric: str = "loss"

    @torch.inference_mode()
    def loss(self, network: Network, most_tokens: int | None = None) -> float:
        """The mean loss of the held samples, or of some of them. Raises WeftError if it is not finite."""
        network = self.with_task(network).eval()
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for batch in self.held if most_tokens is None else some_batches_of(self.held, most_tokens):
            for kind, value in head_scores(network, batch).items():
                sums[kind] = sums.get(kind, 0.0) + float(value)
            for kind, count in batch.counts.items():
                counts[kind] = counts.get(kind, 0) + count
        loss = sum(sums[f"loss/{kind}"] / max(count, 1) for kind, count in counts.items())
        if not math.isfinite(loss):
            raise WeftError("The model's loss is NaN or infinite: its weights have diverged, so it cannot be pruned.")
        return loss


def some_batches_of(batches: Sequence[Batch], most_tokens: int) -> list[Batch]:
    """About so many tokens. Evenly chosen, since batches are sorted by length; two at least."""
    tokens = sum(len(batch.packed.tokens) for batch in batches)
    count = max(2, round(len(batches) * min(1.0, most_tokens / max(tokens, 1))))
    return [batches[place] for place in even_places(len(batches), count)]


def even_places(count: int, most: int) -> list[int]:
    """At most so many of 0 … count − 1."""
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int)).tolist()


def read_pruning_data(model: LoadedModel, data: Path | None, scratch: Path) -> PruningData:
    """`data`: default: the training data that the model's run names. `scratch`: a folder for its tokens."""
    paths = data_or_training_data(model, [] if data is None else [data])
    if not paths:
        what = "labelled rows of its task" if model.task is not None else "text such as it was trained on"
        raise InputError(f"Give some data with --data ({what}): it tells which parts of the model matter.")
    if model.task is not None:
        return _labelled(model, paths)
    if language_head(model.network) is None:
        raise InputError(
            f"This {model.family} has no head, so nothing tells which of its parts matter. Prune a model that was "
            "tuned for a task, or a language model."
        )
    return _text(model, paths, scratch)


def _labelled(model: LoadedModel, paths: Sequence[Path]) -> PruningData:
    task = model.required_task
    split = labelled_rows(model, paths)
    count = len(split.examples)
    if count < _LEAST_SAMPLES:
        raise InputError(f"{split.where} has {count} usable examples; pruning needs at least {_LEAST_SAMPLES}.")
    picked = np.random.default_rng(_SEED).permutation(count)
    held = min(_HELD_SAMPLES, round(_HELD_SHARE * count))
    held_examples, others = ([split.examples[i] for i in part] for part in (picked[:held], picked[held:]))
    spec, folder = model.input_spec, model.folder

    def with_task(network: Network) -> Network:
        return task.with_files(network, folder)

    def score(network: Network) -> float:
        answers, _ = task.answers(with_task(network).eval(), held_examples, spec)
        return task.score(with_task(network), held_examples, answers, spec)

    chosen, held_inputs = others[:_FIT_SAMPLES], task.inputs(held_examples, spec)
    return PruningData(
        f"{len(chosen):,} examples of {split.where}, {held:,} more to judge",
        _batches(task, task.inputs(chosen, spec)),
        _batches(task, held_inputs),
        _alone(task, held_inputs),
        lambda: TaskObjective(task, task.inputs(others, spec)),
        with_task,
        None if task.writes else score,
        "loss" if task.writes else task.main_metric({}),
    )


def _batches(task: Task, inputs: Sequence[Input]) -> list[Batch]:
    return [batch_of(task, [inputs[i] for i in part]) for part in groups(inputs, _BATCH_TOKENS)]


def _alone(task: Task, inputs: Sequence[Input]) -> list[Batch]:
    """Evenly chosen by length."""
    order = order_by_length([one.ids for one in inputs])
    return [batch_of(task, [inputs[order[place]]]) for place in even_places(len(order), _ALONE)]


def _text(model: LoadedModel, paths: Sequence[Path], scratch: Path) -> PruningData:
    where, samples = named(paths), text_samples(model, paths, scratch, _MOST_TEXT)
    objective, length = samples.objective, samples.length
    count = len(objective)
    if count < _LEAST_SAMPLES:
        least = _LEAST_SAMPLES * length
        raise InputError(f"{where} has {samples.tokens:,} tokens; pruning needs at least {least:,}.")
    held = max(1, min(_HELD_TOKENS // length, round(_HELD_SHARE * count)))
    picked = np.random.default_rng(_SEED).permutation(count).tolist()
    fit = picked[held : held + min(_FIT_SAMPLES, _FIT_TOKENS // length)]
    what = f"{len(fit):,} windows of {length} tokens of {where}, {held:,} more to judge"
    learnt, judged = (_windows(objective, part, length) for part in (fit, picked[:held]))
    check_predictable(learnt, where)
    check_predictable(judged, where)
    return PruningData(
        what,
        learnt,
        judged,
        [objective.batch([sample], [0], _SEED) for sample in picked[: min(held, _ALONE)]],
        lambda: Subset(objective, picked[held:]),
        lambda network: network,
    )


def _windows(objective: Objective, samples: list[int], length: int) -> list[Batch]:
    size = max(1, _BATCH_TOKENS // length)
    parts = (samples[start : start + size] for start in range(0, len(samples), size))
    return [objective.batch(part, [0] * len(part), _SEED) for part in parts]


def tokens_of(model: LoadedModel, corpus: Path) -> Counter[int]:
    """How often each token occurs: in rows of the model's task, as the network reads them, or in text."""
    if model.task is None or corpus.is_dir() or locate(corpus).is_text:
        return count_tokens(model.tokenizer, (document.text for document in read_documents(find_files([corpus]))))
    split = read_split(model.task, [corpus], section_of_recipe(model, [corpus]))
    counts: Counter[int] = Counter()
    for one in model.task.inputs(split.examples, model.input_spec):
        counts.update(one.ids.tolist())
        if isinstance(one.targets, TextTargets):
            counts.update(one.targets.ids.tolist())
    return counts
