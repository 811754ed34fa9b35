"""The data that quantization looks at: rows of a tuned model's task, otherwise text.

Most of the samples (`fit`) tell what each matrix reads. The others (`held`) measure how far predictions move.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import InputError, RecipeError, WeftError, not_found
from weft.model.packed import group_by_tokens, order_by_length, pack
from weft.objectives.catalog import DEFAULT_OBJECTIVE, OBJECTIVES
from weft.objectives.masking import DEFAULT_MASKING
from weft.objectives.objective import Batch, Objective
from weft.recipe.file import read_recipe
from weft.recipe.recipe import Recipe
from weft.sources.documents import read_documents
from weft.sources.files import list_files
from weft.sources.reading import Reading
from weft.tasks.given_data import given_section, read_given
from weft.tasks.loaded import LoadedModel
from weft.tasks.task import TaskObjective
from weft.train.data import TrainingSource, prepare_shards
from weft.train.run_folder import RESOLVED_RECIPE
from weft.train.text_evaluation import language_head

FIT_TOKENS, HELD_TOKENS = 2**15, 2**12  # about
LEAST_SAMPLES = 8
_BATCH_TOKENS = 2048
_TEXT_WINDOW = 256  # tokens, where the length of training is unknown
_MOST_TEXT = 4_000_000  # characters
_SEED = 0


@dataclass(frozen=True)
class QuantizationData:
    what: str  # in words
    fit: list[Batch]
    held: list[Batch]
    objective: Objective | None = None  # of all samples, for tuning. None: the model has no head


def read_quantization_data(model: LoadedModel, data: Sequence[Path], scratch: Path) -> QuantizationData:
    """`scratch`: a folder for token ids, which the batches are read from."""
    for path in data:
        if not path.exists() and "::" not in str(path):
            raise InputError(not_found(path))
    if model.task is not None:
        return _of_task(model, data)
    if language_head(model.network) is None:
        return _of_vectors(model, data)
    return _of_text(model, data, scratch)


def data_of_recipe(model: LoadedModel) -> list[Path]:
    """The training data that the recipe of the model's run names, as far as it still exists."""
    if model.folder is None or not (model.folder.parent / RESOLVED_RECIPE).is_file():
        return []
    try:
        recipe = read_recipe(model.folder.parent / RESOLVED_RECIPE)
    except WeftError:  # of another version, or changed by hand
        return []
    return [path for name in _names_in(recipe, is_task=model.task is not None) if (path := Path(name)).exists()]


def _names_in(recipe: Recipe, *, is_task: bool) -> list[str]:
    if is_task and recipe.finetune is not None:
        train: Any = recipe.finetune.data.train
        return [train] if isinstance(train, str) else list(train or [])
    if is_task or recipe.corpus is None:
        return []
    return [source.path for source in recipe.corpus.sources or []]


def _of_task(model: LoadedModel, data: Sequence[Path]) -> QuantizationData:
    task = model.required_task
    split = read_given(model, data, given_section({}, "utf-8", None, model))
    inputs = task.inputs(split.examples, model.input_spec)
    objective = TaskObjective(task, inputs)
    lengths = [len(one.ids) for one in inputs]
    return _divided(objective, lengths, split.where)


def _of_text(model: LoadedModel, data: Sequence[Path], scratch: Path) -> QuantizationData:
    head, where = language_head(model.network), ", ".join(path.name for path in data)
    assert head is not None
    kind = OBJECTIVES[DEFAULT_OBJECTIVE[head]]
    trained = model.results.get("sequence_length")
    length = min(trained if isinstance(trained, int) and trained > 2 else _TEXT_WINDOW, model.longest or _TEXT_WINDOW)
    try:
        source = TrainingSource((), 1.0, lambda _: _texts(data, Reading()))
        shards = prepare_shards(source, "test", model.tokenizer, kind, scratch / "text")
        if shards is None:
            raise InputError(f"{where} holds no text.")
        objective = kind.make(shards, model.tokenizer, length, DEFAULT_MASKING)
    except RecipeError as error:  # the tokenizer has no mask token, or no sentinels
        raise InputError(f"{where} cannot be used with this model: {error}") from None
    return _divided(objective, [length] * len(objective), where)


def _of_vectors(model: LoadedModel, data: Sequence[Path]) -> QuantizationData:
    """A text per line."""
    limits = [limit for limit in (model.longest, model.pooling.most_tokens, _TEXT_WINDOW) if limit is not None]
    texts = [text for text in _texts(data, Reading(unit="line")) if text.strip()]
    ids = [row for row in model.tokenizer.encode_many(texts, min(limits)) if row]
    where = ", ".join(path.name for path in data)
    fit, held = _picked([len(row) for row in ids], where)
    batches, others = (_packed([ids[i] for i in part]) for part in (fit, held))
    return QuantizationData(f"{len(fit):,} texts of {where}", batches, others)


def _divided(objective: Objective, lengths: Sequence[int], where: str) -> QuantizationData:
    fit, held = _picked(lengths, where)

    def batches(chosen: list[int]) -> list[Batch]:
        groups = group_by_tokens([lengths[i] for i in chosen], _BATCH_TOKENS)
        return [objective.batch([chosen[i] for i in group], [0] * len(group), _SEED) for group in groups]

    return QuantizationData(f"{len(fit):,} samples of {where}", batches(fit), batches(held), objective)


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


def _texts(data: Sequence[Path], reading: Reading) -> Iterator[str]:
    left = _MOST_TEXT
    listing = list_files(list(data))
    listing.say_passed_over()
    for document in read_documents(listing.files, reading):
        if left <= 0:
            return
        yield document.text[:left]
        left -= len(document.text)
