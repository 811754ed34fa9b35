"""What was measured: each model's size, speed and quality, and what changed from the first model to it."""

from dataclasses import asdict, dataclass, field
from typing import Any

from weft.compress.card.contest import Agreement
from weft.compress.card.timing import Ratio
from weft.metrics.difference import PairedDifference


@dataclass(frozen=True)
class AgainstFirst:
    """A model against the first one. A ratio above 1 means smaller or faster."""

    smaller: float  # on disk
    lighter: float  # in memory
    fewer_flops: float
    together: Ratio  # how many times faster, many texts
    alone: Ratio  # and one
    differences: dict[str, PairedDifference] = field(default_factory=dict)  # this model minus the first, by metric
    agreement: Agreement | None = None


@dataclass(frozen=True)
class ModelCard:
    name: str
    folder: str
    model: str  # bert 6 × 384
    precision: str
    steps: list[str]  # what was done to the first model
    parameters: int
    disk_bytes: int
    memory_bytes: int  # of the weights
    tokens_per_text: float
    flops_per_text: float
    latency_ms_p50: float
    latency_ms_p95: float
    texts_per_second: float
    tokens_per_second: float
    cpu_seconds_per_1000: float
    figures: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    cut: int = 0  # texts that are longer than the model reads
    against: AgainstFirst | None = None

    def facts(self) -> dict[str, Any]:
        found = asdict(self)
        if self.against is not None:
            gaps = {name: gap.facts() for name, gap in self.against.differences.items()}
            found["against"]["differences"] = gaps
        return found


@dataclass(frozen=True)
class MeasuredModels:
    """`models`: the one before first, then the others in the order of the chain."""

    kind: str  # task, text or vectors
    task: str
    where: str
    unit: str
    count: int  # texts
    metric: str  # the main one
    headline: str  # together or alone: which speed the verdict names
    alone_title: str
    models: list[ModelCard]
    machine: dict[str, Any]
    rounds: int
    timed_alone: int  # texts
    timed_together: int
    notes: list[str] = field(default_factory=list)
