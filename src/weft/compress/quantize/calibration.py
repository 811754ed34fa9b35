"""The data that quantization looks at: rows of a tuned model's task, otherwise text.

Most of the samples (`fit`) tell what each matrix reads. The others (`held`) measure how far predictions move.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weft.compress.calibration_data import Subset, check_predictable, labelled_rows, text_samples, texts_in
from weft.errors import InputError
from weft.model.packed import group_by_tokens, order_by_length, pack
from weft.objectives.objective import Batch, Objective
from weft.sources.reading import Reading
from weft.tasks.labelled.data import named
from weft.tasks.loaded import LoadedModel
from weft.tasks.task import TaskObjective
from weft.train.text_evaluation import language_head

FIT_TOKENS, HELD_TOKENS = 2**15, 2**12  # about
LEAST_SAMPLES = 8
_BATCH_TOKENS = 2048
_WINDOWS_PER_STEP, _ROWS_PER_STEP = 8, 32  # of tuning: windows of text, rows of a task
_MOST_VECTOR_TOKENS = 256  # of a text
_MOST_TEXT = 4_000_000  # characters
_SEED = 0


@dataclass(frozen=True)
class QuantizationData:
    what: str  # in words
    fit: list[Batch]
    held: list[Batch]
    objective: Objective | None = None  # of all samples but the held ones, for tuning. None: the model has no head
    samples_per_step: int = 0  # of tuning


def read_quantization_data(model: LoadedModel, data: Sequence[Path], scratch: Path) -> QuantizationData:
    """`scratch`: a folder for token ids, which the batches are read from."""
    if model.task is not None:
        return _of_task(model, data)
    if language_head(model.network) is None:
        return _of_vectors(model, data)
    return _of_text(model, data, scratch)


def _of_task(model: LoadedModel, data: Sequence[Path]) -> QuantizationData:
    task = model.required_task
    split = labelled_rows(model, data)
    inputs = task.inputs(split.examples, model.input_spec)
    return _divided(TaskObjective(task, inputs), [len(one.ids) for one in inputs], split.where, _ROWS_PER_STEP)


def _of_text(model: LoadedModel, data: Sequence[Path], scratch: Path) -> QuantizationData:
    samples, where = text_samples(model, data, scratch, _MOST_TEXT), named(data)
    found = _divided(samples.objective, [samples.length] * len(samples.objective), where, _WINDOWS_PER_STEP)
    check_predictable(found.fit, where)
    check_predictable(found.held, where)
    return found


def _of_vectors(model: LoadedModel, data: Sequence[Path]) -> QuantizationData:
    """A text per line."""
    limits = [limit for limit in (model.longest, model.pooling.most_tokens, _MOST_VECTOR_TOKENS) if limit is not None]
    texts = [text for text in texts_in(data, _MOST_TEXT, Reading(unit="line")) if text.strip()]
    ids = [row for row in model.tokenizer.encode_many(texts, min(limits)) if row]
    where = named(data)
    fit, held = _picked([len(row) for row in ids], where)
    batches, others = (_packed([ids[i] for i in part]) for part in (fit, held))
    return QuantizationData(f"{len(fit):,} texts of {where}", batches, others)


def _divided(objective: Objective, lengths: Sequence[int], where: str, per_step: int) -> QuantizationData:
    fit, held = _picked(lengths, where)

    def batches(chosen: list[int]) -> list[Batch]:
        groups = group_by_tokens([lengths[i] for i in chosen], _BATCH_TOKENS)
        return [objective.batch([chosen[i] for i in group], [0] * len(group), _SEED) for group in groups]

    others = Subset(objective, sorted(set(range(len(lengths))).difference(held)))
    return QuantizationData(f"{len(fit):,} samples of {where}", batches(fit), batches(held), others, per_step)


def _picked(lengths: Sequence[int], where: str) -> tuple[list[int], list[int]]:
    """Numbers of samples to fit and to hold out, drawn at random, with about as many tokens as wanted."""
    if len(lengths) < LEAST_SAMPLES:
        raise InputError(f"{where} has {len(lengths)} samples; quantization needs at least {LEAST_SAMPLES}.")
    order = np.random.default_rng(_SEED).permutation(len(lengths)).tolist()
    tokens = np.cumsum([lengths[i] for i in order])
    share = min(1.0, float(tokens[-1]) / (FIT_TOKENS + HELD_TOKENS))
    held = max(2, int(np.searchsorted(tokens, share * HELD_TOKENS)))
    end = int(np.searchsorted(tokens, share * (FIT_TOKENS + HELD_TOKENS), side="right"))
    return order[held : max(end, held + 1)], order[:held]


def _packed(sequences: Sequence[Sequence[int]]) -> list[Batch]:
    ordered = [sequences[i] for i in order_by_length(sequences)]
    groups = group_by_tokens([len(sequence) for sequence in ordered], _BATCH_TOKENS)
    return [Batch(pack([ordered[i] for i in group])) for group in groups]
