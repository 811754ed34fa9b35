"""What pruning and quantization look at: rows of a tuned model's task, otherwise text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from weft.errors import InputError, RecipeError, WeftError, not_found
from weft.model.network import Network
from weft.objectives.catalog import OBJECTIVES, text_objective
from weft.objectives.objective import Batch, Objective
from weft.recipe.file import read_recipe
from weft.recipe.finetune import DataSection
from weft.recipe.recipe import Recipe
from weft.sources.documents import read_documents
from weft.sources.files import list_files
from weft.sources.reading import Reading
from weft.tasks.given_data import given_section, read_given
from weft.tasks.labelled.data import LabelledSplit, named
from weft.tasks.loaded import LoadedModel
from weft.train.data import TrainingSource, prepare_shards
from weft.train.run_folder import RESOLVED_RECIPE
from weft.train.text_evaluation import language_head

_TEXT_WINDOW = 256  # tokens, where the length of training is unknown


@dataclass(frozen=True)
class TextSamples:
    objective: Objective  # of a language model's own training
    length: int  # tokens of a sample
    tokens: int  # of all samples


@dataclass(frozen=True)
class Subset:
    """Some samples of an objective."""

    objective: Objective
    samples: Sequence[int]

    def __len__(self) -> int:
        return len(self.samples)

    def batch(self, samples: list[int], epochs: list[int], seed: int) -> Batch:
        return self.objective.batch([self.samples[sample] for sample in samples], epochs, seed)

    def loss(self, network: Network, batch: Batch, totals: Mapping[str, int]) -> Tensor:
        return self.objective.loss(network, batch, totals)

    def scores(self, network: Network, batch: Batch) -> dict[str, Tensor]:
        return self.objective.scores(network, batch)


def data_or_training_data(model: LoadedModel, given: Sequence[Path]) -> list[Path]:
    """The paths that the user gave. None given: the training data that the recipe of the model's run names, as far as
    it still exists.
    """
    for path in given:
        if not path.exists() and "::" not in str(path):
            raise InputError(not_found(path))
    if given or model.folder is None or not (model.folder.parent / RESOLVED_RECIPE).is_file():
        return list(given)
    try:
        recipe = read_recipe(model.folder.parent / RESOLVED_RECIPE)
    except WeftError:  # of another version, or changed by hand
        return []
    return [path for name in _names_in(recipe, is_task=model.task is not None) if (path := Path(name)).exists()]


def _names_in(recipe: Recipe, *, is_task: bool) -> list[str]:
    if is_task:
        sections = [section for section in (recipe.finetune, recipe.distil) if section is not None]
        train: Any = next((section.data.train for section in sections if section.data is not None), None)
        return [train] if isinstance(train, str) else list(train or [])
    return [] if recipe.corpus is None else [source.path for source in recipe.corpus.sources or []]


def labelled_rows(model: LoadedModel, paths: Sequence[Path]) -> LabelledSplit:
    return read_given(model, paths, section_of_recipe(model, paths))


def section_of_recipe(model: LoadedModel, paths: Sequence[Path]) -> DataSection:
    """How the rows are read: as the recipe that the model was tuned with says."""
    return given_section({}, None, None, model, paths)


def text_samples(model: LoadedModel, paths: Sequence[Path], scratch: Path, most: int) -> TextSamples:
    """Windows of at most `most` characters of text. `scratch`: a folder for token ids, which batches are read from."""
    head, where = language_head(model.network), named(paths)
    assert head is not None
    kind = OBJECTIVES[text_objective(head, model.results.get("objective"))]
    trained = model.results.get("sequence_length")
    length = min(trained if isinstance(trained, int) and trained > 2 else _TEXT_WINDOW, model.longest or _TEXT_WINDOW)
    try:
        source = TrainingSource((), 1.0, lambda _: texts_in(paths, most))
        shards = prepare_shards(source, "test", model.tokenizer, kind, scratch / "text")
        if shards is None:
            raise InputError(f"{where} holds no text.")
        objective = kind.make(shards, model.tokenizer, length, kind.masking)
    except RecipeError as error:  # the tokenizer has no mask token, or no sentinels
        raise InputError(f"{where} cannot be used with this model: {error}") from None
    return TextSamples(objective, length, len(shards))


def check_predictable(batches: Sequence[Batch], where: str) -> None:
    """Raises InputError if no batch has a token to predict: every model would be perfect."""
    if not any(batch.scored for batch in batches):
        raise InputError(f"Too few tokens of {where} can be predicted: the tokenizer does not know this text.")


def texts_in(paths: Sequence[Path], most: int, reading: Reading | None = None) -> Iterator[str]:
    """At most so many characters of the documents."""
    left = most
    listing = list_files(list(paths))
    listing.say_passed_over()
    for document in read_documents(listing.files, reading or Reading()):
        if left <= 0:
            return
        yield document.text[:left]
        left -= len(document.text)
