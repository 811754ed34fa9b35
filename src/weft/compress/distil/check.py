"""Errors in a distillation recipe that can be found before any data is read or any file written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weft.compress.distil.augment import check_augment
from weft.compress.distil.student import check_same_tokenizer, check_student_folder, design_student, head_of_task
from weft.compress.place import check_apart
from weft.errors import FolderError, InputError, RecipeError, WeftError
from weft.model.network import Architecture
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
    check_without_teacher(section, base)
    place = (base / section.teacher).resolve()
    for model in (section.teacher, section.student):
        if isinstance(model, str):
            check_apart(folder, base / model)
    if section.data is None and recipe.corpus is None:
        raise RecipeError(
            "Nothing to learn from: give distil.data, the labelled data of the teacher's task, or a corpus of plain "
            "text."
        )
    teacher = LoadedModel.load(place, "cpu")  # moved when the run begins
    _check_teacher(section, teacher, base)
    if recipe.tokenizer is not None and recipe.tokenizer.path is not None:
        check_same_tokenizer(load_tokenizer(base / recipe.tokenizer.path), teacher, base / recipe.tokenizer.path)
    _check_student(section, teacher, base)
    return section, teacher


def check_without_teacher(section: DistilSection, base: Path) -> None:
    """Raises RecipeError for what is wrong whatever the teacher is. The section's data is filled in."""
    read_budget(section.budget, "distil.budget")
    if section.data is not None and not section.data.train:
        raise RecipeError("distil.data.train is missing: the training data.")
    if section.data is not None and section.method not in (None, "tinybert", "kl"):
        raise RecipeError(f"distil.method {section.method} is for plain text; with labelled data it is tinybert or kl.")
    if section.data is None and section.method == "tinybert":
        raise RecipeError("distil.method tinybert needs data: the labelled data of the teacher's task.")
    if section.cache is not None and (place := base / section.cache).exists() and not place.is_dir():
        raise RecipeError(f"distil.cache {place} is a file; the teacher's outputs need a folder.")


def check_teacher_shape(section: DistilSection, architecture: Architecture, head: str, where: str) -> None:
    """Raises RecipeError if such a model cannot teach. `head`: its language head; `where`: the model, in messages."""
    if architecture.recurrent is not None:
        raise RecipeError(f"{where} is an LSTM. Teachers are Transformers.")
    if section.data is not None:
        return
    if (section.method or "").startswith("minilm") and head != "masked":
        raise RecipeError(f"distil.method {section.method} needs an encoder. A model with a {head} head learns by kl.")
    layers = architecture.encoder.layers if architecture.encoder is not None else architecture.layers
    if section.teacher_layer is not None and section.teacher_layer >= layers:
        raise RecipeError(f"distil.teacher_layer is {section.teacher_layer}; the teacher has layers 0 to {layers - 1}.")


def _check_teacher(section: DistilSection, teacher: LoadedModel, base: Path) -> None:
    """Raises if the teacher cannot teach what the section asks for."""
    _ = teacher.tokenizer  # raises if there is none
    head = language_head(teacher.network)
    if section.data is None and head is None:
        raise FolderError(
            f"{teacher.folder} has no language head (its heads: {', '.join(teacher.network.heads) or 'none'}), so it "
            "cannot teach plain text. Give distil.data, the labelled data of its task."
        )
    check_teacher_shape(section, teacher.network.architecture, head or "", str(teacher.folder))
    if section.data is None:
        return
    if teacher.task is None:
        raise InputError(
            f"{teacher.folder} has no task, so it cannot teach one: tune it first with weft finetune. Without "
            "distil.data a language model is distilled on the recipe's corpus."
        )
    check_augment(section, teacher, base)


def _check_student(section: DistilSection, teacher: LoadedModel, base: Path) -> None:
    if isinstance(section.student, str):
        check_student_folder(base / section.student, teacher)
        return
    head, outputs = language_head(teacher.network) or "", 2
    if section.data is not None:
        task = teacher.required_task
        head, outputs = head_of_task(task, teacher), max(task.outputs, 1)
    design_student(section.student, teacher, head, outputs)


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
