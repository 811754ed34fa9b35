"""Sequence-level distillation (Kim & Rush 2016): the texts that the teacher writes take the place of the targets.

They are written once, by beam search, and kept in a file that other students of the same teacher find as well.
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from weft.compress.distil.cache import teacher_hash
from weft.folders import disk_errors
from weft.progress import Gauge, say
from weft.recipe.distil import DistilSection
from weft.tasks.example import Example
from weft.tasks.loaded import LoadedModel

_AT_ONCE = 64


class WritingRun(Protocol):
    @property
    def section(self) -> DistilSection: ...
    @property
    def base(self) -> Path: ...
    @property
    def folder(self) -> Path: ...
    @property
    def teacher(self) -> LoadedModel: ...


def with_teacher_texts(run: WritingRun, examples: Sequence[Example]) -> list[Example]:
    """The examples with the teacher's texts as gold values. An empty text leaves the target as it was."""
    task = run.teacher.required_task
    place = run.folder if run.section.cache is None else run.base / run.section.cache
    facts: list[Any] = [teacher_hash(run.teacher.network), task.facts(), [one.given for one in examples]]
    name = hashlib.sha256(json.dumps(facts, default=str).encode()).hexdigest()[:24]
    texts = _written(place / f"teacher-texts-{name}.jsonl", run.teacher, examples)
    found = [replace(one, gold=text or one.gold) for one, text in zip(examples, texts, strict=True)]
    if empty := sum(not text for text in texts):
        say(f"The teacher writes nothing for {empty:,} of {len(texts):,} sources; these keep their targets.")
    return found


def _written(file: Path, teacher: LoadedModel, examples: Sequence[Example]) -> list[str]:
    """Read what is there already, and write the rest part by part: a killed run goes on where it was."""
    with disk_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        texts = _whole_lines(file)[: len(examples)]
        file.write_text("".join(json.dumps(text) + "\n" for text in texts), "utf-8")
    if len(texts) == len(examples):
        return texts
    say(f"The teacher writes {len(examples) - len(texts):,} texts ...")
    with Gauge("Writing", unit="texts", total_items=len(examples) - len(texts)) as gauge:
        while len(texts) < len(examples):
            part = teacher.answers(examples[len(texts) : len(texts) + _AT_ONCE])
            with disk_errors(file), file.open("a", encoding="utf-8") as stream:
                stream.writelines(json.dumps(text) + "\n" for text in part)
            texts += part
            gauge.add(len(part))
    return texts


def _whole_lines(file: Path) -> list[str]:
    """Up to the first line that is not complete: a kill may have cut it off."""
    found: list[str] = []
    with suppress(ValueError, FileNotFoundError):
        for line in file.read_text("utf-8", errors="replace").splitlines():
            text = json.loads(line)
            if not isinstance(text, str):
                break
            found.append(text)
    return found
