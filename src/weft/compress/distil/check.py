"""Errors in a distillation recipe that can be found before any data is read or any file written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weft.compress.distil.augment import check_augment
from weft.compress.distil.shape import student_shape
from weft.compress.distil.student import check_same_tokenizer, check_student_folder
from weft.errors import FolderError, InputError, RecipeError, WeftError
from weft.recipe.distil import DistilSection
from weft.recipe.recipe import Recipe
from weft.tasks.loaded import LoadedModel
from weft.tokenizer.read import load_tokenizer
from weft.train.budget import read_budget
from weft.train.text_evaluation import language_head


def check_distil(recipe: Recipe, base: Path, folder: Path) -> tuple[DistilSection, LoadedModel]:
    """The section, and the teacher in memory."""
    section = recipe.distil
    if section is None:
        raise RecipeError("distil is missing. Example: distil: {teacher: runs/bert/model, student: {layers: 3}}.")
    if section.teacher is None:
        raise RecipeError(
            "distil.teacher is missing: give a model folder. Only weft run takes the model that the recipe trains."
        )
    read_budget(section.budget, "distil.budget")
    place = (base / section.teacher).resolve()
    if folder.resolve() in (place, *place.parents):
        raise RecipeError(f"distil.teacher {place} lies in the run folder {folder}: choose another -o.")
    if section.data is None and recipe.corpus is None:
        raise RecipeError(
            "Nothing to learn from: give distil.data, the labelled data of the teacher's task, or a corpus of plain "
            "text."
        )
    if section.data is not None and not section.data.train:
        raise RecipeError("distil.data.train is missing: the training data.")
    teacher = LoadedModel.load(place)
    _check_teacher(section, teacher, base)
    if recipe.tokenizer is not None and recipe.tokenizer.path is not None:
        check_same_tokenizer(load_tokenizer(base / recipe.tokenizer.path), teacher, base / recipe.tokenizer.path)
    if isinstance(section.student, str):
        check_student_folder(base / section.student, teacher)
    elif teacher.description.family is not None:
        student_shape(section.student, teacher.description.family, teacher.network.architecture, teacher.tokenizer)
    return section, teacher


def _check_teacher(section: DistilSection, teacher: LoadedModel, base: Path) -> None:
    """Raises if the teacher cannot teach what the section asks for."""
    architecture = teacher.network.architecture
    _ = teacher.tokenizer  # raises if there is none
    if architecture.recurrent is not None:
        raise RecipeError(f"{teacher.folder} is an LSTM. Teachers are Transformers.")
    if section.data is not None:
        if teacher.task is None:
            raise InputError(
                f"{teacher.folder} has no task, so it cannot teach one: tune it first with weft finetune. Without "
                "distil.data a language model is distilled on the recipe's corpus."
            )
        check_augment(section, teacher.task, base)
        return
    head = language_head(teacher.network)
    if head is None:
        raise FolderError(
            f"{teacher.folder} has no language head (its heads: {', '.join(teacher.network.heads) or 'none'}), so it "
            "cannot teach plain text. Give distil.data, the labelled data of its task."
        )
    if (section.method or "").startswith("minilm") and head != "masked":
        raise RecipeError(f"distil.method {section.method} needs an encoder. A model with a {head} head learns by kl.")
    layers = architecture.encoder.layers if architecture.encoder is not None else architecture.layers
    if section.teacher_layer is not None and section.teacher_layer >= layers:
        raise RecipeError(f"distil.teacher_layer is {section.teacher_layer}; the teacher has layers 0 to {layers - 1}.")


@contextmanager
def errors_of_distil() -> Iterator[None]:
    """Errors of fine-tuning and pre-training name the settings of their own sections; those of `distil` are alike."""
    try:
        yield
    except WeftError as error:
        said = str(error).replace("finetune.", "distil.").replace("pretrain.", "distil.")
        if said == str(error):
            raise
        raise type(error)(said) from error
