"""Small teachers and recipes for tests of distillation."""

from pathlib import Path
from typing import Any

import yaml

import small_tasks
from small_tasks import Said, rows_of, weft, write_rows

QUICK = {
    "budget": "6 steps", "batch": 8, "precision": "float32", "threads": 1, "validate_every": 2, "checkpoint_every": 1,
    "log_every": 1, "yardsticks": False, "method": "tinybert",
}  # fmt: skip


def teacher_of(folder: Path, task: str, **settings: Any) -> Path:
    """A model of two layers that was tuned a little."""
    family = small_tasks.FAMILIES.get(task, "bert")
    model = {"family": family, "layers": 2, "width": 32, "heads": 4}
    said = small_tasks.finetune(folder, task, **{"model": model, "threads": 1, **settings})
    assert said.code == 0, said.err
    return folder / "run/model"


def write_distil(folder: Path, teacher: Path, task: str, **settings: Any) -> Path:
    """A recipe for a student of one layer."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {"train": str(write_rows(folder / "train.jsonl", rows_of(task)))}
    section = {"teacher": str(teacher), "student": {"layers": 1}, "data": data, **QUICK, **settings}
    section = {key: value for key, value in section.items() if value is not None}
    recipe = folder / "distil.yml"
    recipe.write_text(yaml.safe_dump({"name": "small", "distil": section}))
    return recipe


def distil(folder: Path, teacher: Path, task: str, *arguments: Any, **settings: Any) -> Said:
    """The run folder is `folder`/student."""
    return weft("distil", write_distil(folder, teacher, task, **settings), "-o", folder / "student", *arguments)


def weights(folder: Path) -> bytes:
    return (folder / "student/model/model.safetensors").read_bytes()
