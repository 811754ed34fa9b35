"""What a target is: the program that an export is for, what it can take, how its files are written and checked."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.api.model import Model


@dataclass(frozen=True)
class Comparison:
    """An export in its runtime against weft, on sample inputs."""

    runtime: str  # name and version
    logits: float | None = None  # largest absolute difference of logits, or of vectors for a model without a head
    scale: float | None = None  # largest absolute value of weft's, to judge the difference by
    same_tokens: float | None = None  # share of greedy tokens that are equal
    notes: tuple[str, ...] = ()  # for the user

    def facts(self) -> dict[str, Any]:
        found = {"runtime": self.runtime, "logits": self.logits, "scale": self.scale, "same_tokens": self.same_tokens}
        return {**{key: value for key, value in found.items() if value is not None}, "notes": list(self.notes)}


@dataclass(frozen=True)
class ExportTarget:
    """`why_not`: the sentence that refuses a model, or None. `write` fills an empty folder. `compare` opens what was
    written in its runtime.
    """

    name: str
    title: str  # as its makers call it
    packages: tuple[str, ...]  # that write it
    runtime: str  # the package that runs it
    precisions: tuple[str, ...]  # the first is the default
    why_not: Callable[[Model, str], str | None]
    write: Callable[[Model, Path, str], dict[str, Any]]  # returns facts for weft.json
    compare: Callable[[Model, Path, str], Comparison]
    next_step: Callable[[Model, Path], str]  # a command that uses the export


@dataclass(frozen=True)
class ExportResult:
    folder: Path
    target: str
    precision: str
    megabytes: float
    comparison: Comparison | None  # None: the runtime is not installed
    next_step: str
    facts: dict[str, Any] = field(default_factory=dict)
