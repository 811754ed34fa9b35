"""Cards with made-up figures, for the table, the picture and the page."""

from typing import Any

from weft.compress.card.card import Card
from weft.compress.card.contest import Agreement, Changed
from weft.compress.card.measured import AgainstFirst, ModelCard
from weft.compress.card.timing import Ratio
from weft.metrics.difference import PairedDifference

MACHINE = {
    "processor": "AMD EPYC", "instructions": ["avx2", "avx512-vnni"], "cores": 2, "threads": 2,
    "system": "Linux x86_64", "weft": "0.1.0", "torch": "2.13.0", "python": "3.11.4",
}  # fmt: skip


def made_up_model(name: str, accuracy: float, megabytes: float, speed: float, **more: Any) -> ModelCard:
    size = int(megabytes * 1e6)
    base: dict[str, Any] = {
        "name": name, "folder": f"/models/{name}/model", "model": "bert 6 × 384", "precision": "fp32", "steps": [],
        "parameters": 22_700_000, "disk_bytes": size, "memory_bytes": size, "tokens_per_text": 25.2,
        "flops_per_text": 5.4e8, "latency_ms_p50": 8.0 / speed, "latency_ms_p95": 17.0 / speed,
        "texts_per_second": 300 * speed, "tokens_per_second": 7560 * speed, "cpu_seconds_per_1000": 6.9 / speed,
        "figures": {"accuracy": accuracy, "mcc": 0.8}, "intervals": {"accuracy": (accuracy - 0.02, accuracy + 0.02)},
    }  # fmt: skip
    return ModelCard(**(base | more))


def made_up_against(
    gap: float, low: float, high: float, smaller: float, speed: float, shown: tuple[Changed, ...] = ()
) -> AgainstFirst:
    counts = {"right → wrong": 12, "wrong → right": 9, "wrong → otherwise wrong": 0}
    ratio = Ratio(speed, speed * 0.95, speed * 1.04)
    differences = {"accuracy": PairedDifference("accuracy", gap, low, high)}
    return AgainstFirst(smaller, smaller, speed, ratio, ratio, differences, Agreement(0.976, None, counts, shown))


def made_up_card(*after: ModelCard, **more: Any) -> Card:
    before = made_up_model("sst2", 0.899, 91.6, 1.0)
    base: dict[str, Any] = {
        "kind": "task", "task": "classify", "where": "dev.tsv", "unit": "texts", "count": 872, "metric": "accuracy",
        "headline": "together", "alone_title": "one text", "models": [before, *after], "machine": MACHINE, "rounds": 7,
        "timed_alone": 40, "timed_together": 872,
    }  # fmt: skip
    return Card(**(base | more))


def made_up_chain() -> Card:
    text = "a gorgeous , witty , seductive movie ."
    shown = (Changed("dev.tsv, line 7", text, "1", "1", "0", "right → wrong"),)
    return made_up_card(
        made_up_model("student", 0.893, 70.3, 1.9, against=made_up_against(-0.006, -0.014, 0.003, 1.3, 1.9, shown)),
        made_up_model("pruned", 0.886, 41.0, 2.9, against=made_up_against(-0.013, -0.022, -0.004, 2.2, 2.9, shown)),
        made_up_model("int8", 0.885, 10.7, 7.4, against=made_up_against(-0.014, -0.024, -0.004, 8.6, 7.4, shown)),
    )
