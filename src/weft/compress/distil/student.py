"""A student, ready to learn: cut from its teacher, or read from a folder."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from weft.compress.distil.cut import cut_from_teacher, needs_importance
from weft.compress.distil.importance import measure_importance
from weft.compress.distil.shape import StudentShape, check_size, student_architecture, student_shape
from weft.errors import FolderError, RecipeError
from weft.folders import known_facts
from weft.interchange.folder import Description, read_fp32_model, read_outline
from weft.interchange.quantized_entries import why_not_fp32
from weft.model.families import Family
from weft.model.network import Architecture, create_network
from weft.objectives.objective import Batch
from weft.progress import say
from weft.recipe.distil import StudentSection
from weft.tasks.learning.build import TASK_KEYS
from weft.tasks.loaded import LoadedModel
from weft.tasks.task import Task
from weft.tokenizer.read import read_tokenizer
from weft.tokenizer.tokenizer import Tokenizer
from weft.train.build import Built, dropout_rates, token_ids


@dataclass(frozen=True)
class Student:
    built: Built
    hidden: list[int] | None  # the teacher's dimension of each of the student's; None: unknown


def make_student(
    section: StudentSection,
    teacher: LoadedModel,
    head: str,
    outputs: int,
    dropout: float | None,
    seed: int,
    samples: Iterable[Batch],
) -> Student:
    """`samples`: batches that show which dimensions matter. `dropout`: default: that of the family."""
    shape, saved = design_student(section, teacher, head, outputs)
    family, description = shape.family, teacher.description
    rates = {} if dropout is None else dropout_rates(family, set(), dropout)
    network = create_network(replace(family, **rates).architecture(head, outputs), seed)
    hidden = None
    if not section.fresh:
        theirs = teacher.network.architecture
        importance = measure_importance(teacher.network, samples) if needs_importance(saved, theirs) else None
        result = cut_from_teacher(network, teacher.network, shape.sources, importance)
        hidden = result.hidden
        for note in result.notes:
            say(note)
    config = {key: value for key, value in description.config.items() if key not in TASK_KEYS}
    if section.family not in (None, teacher.family):
        config = token_ids(teacher.tokenizer, saved)
    described = Description(family, head, description.labels, config, description.generation)
    return Student(Built(network, saved, described), hidden)


def design_student(
    section: StudentSection, teacher: LoadedModel, head: str, outputs: int
) -> tuple[StudentShape, Architecture]:
    """Raises RecipeError or FolderError if no such student can be cut from the teacher."""
    shape = student_shape(section, _family_of(teacher), teacher.network.architecture, teacher.tokenizer)
    saved = student_architecture(shape, head, outputs)
    check_size(saved, teacher.network.architecture)
    return shape, saved


def head_of_task(task: Task, teacher: LoadedModel) -> str:
    family = teacher.description.family
    return task.head if family is None else task.head_in(family)


def student_from_folder(folder: Path) -> Student:
    """A model that has the teacher's head already, such as a pruned one."""
    network, description = read_fp32_model(folder)
    return Student(Built(network, network.architecture, description), None)


def check_student_folder(folder: Path, teacher: LoadedModel) -> None:
    """Raises FolderError or RecipeError if this model cannot be a student of the teacher."""
    network, description = read_outline(folder)
    if reason := why_not_fp32(network, known_facts(folder)):
        raise FolderError(f"{folder} cannot be trained. {reason}")
    check_same_tokenizer(read_tokenizer(folder), teacher, folder)
    for head in teacher.network.heads:
        if head not in network.heads:
            raise FolderError(f"{folder} has no {head} head, which a student of {teacher.folder} needs.")
        ours, theirs = network.head(head).spec.outputs, teacher.network.head(head).spec.outputs
        if ours != theirs or description.labels != teacher.labels:
            raise FolderError(f"{folder} predicts other things than its teacher {teacher.folder}.")
    check_size(network.architecture, teacher.network.architecture)


def check_same_tokenizer(tokenizer: Tokenizer | None, teacher: LoadedModel, where: Path) -> None:
    if tokenizer is not None and not has_same_tokens(tokenizer, teacher):
        raise RecipeError(
            f"{where} has another tokenizer than the teacher {teacher.folder}: their tokens cannot be compared. A "
            "teacher and its student read the same tokens."
        )


def has_same_tokens(tokenizer: Tokenizer, teacher: LoadedModel) -> bool:
    return tokenizer.engine.get_vocab() == teacher.tokenizer.engine.get_vocab()


def _family_of(teacher: LoadedModel) -> Family:
    family = teacher.description.family
    if family is None:
        raise FolderError(
            f"{teacher.folder} is in weft's own format, from which no student can be cut. Name a model folder as "
            "distil.student."
        )
    return family
