"""What `weft finetune` and `weft evaluate` print for people: the verdict, then figures that are rounded. `--json` and
report.json have all of it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from weft.tasks.judging.figure_names import between, name_of, number

BESIDE = {"baseline": "baseline", "untuned": "untuned model"}
AS_THEY_ARE = ("notes", "left_out", "mended", "report", "model")


def in_brief(results: Mapping[str, Any]) -> dict[str, Any]:
    """Of results as a run's weft.json has them; those of earlier versions have no verdict."""
    where, cost = results.get("judged_on", results.get("data")), results["cost"]
    found: dict[str, Any] = {
        "verdict": results.get("verdict"),
        "judged on": f"{results['examples']:,} examples of {where}",
    }
    found |= dict(_figures(results))
    found |= {name: results[key]["name"] for key, name in BESIDE.items() if key in results}
    if seeds := results.get("seeds"):
        use, spread = ("test", seeds["test"]) if "test" in seeds else ("validation", seeds)
        mean, deviation = (number(spread["figure"], spread[key]) for key in ("mean", "deviation"))
        figure = name_of(spread["figure"], results["task"])
        found["seeds"] = f"{len(spread['scores'])}: {figure} on {use} {mean} ± {deviation}"
    if "training_examples" in cost:
        found["learnt from"] = (
            f"{cost['training_examples']:,} examples, {cost['steps']:,} steps, {cost['training_seconds']:,} s"
        )
    if results.get("best_step") is not None:
        found["kept"] = f"the weights of step {results['best_step']:,}, the best on validation"
    found["speed"] = (
        f"{cost['latency_ms_p50']:,} ms for one example (p95: {cost['latency_ms_p95']:,} ms); "
        f"{cost['examples_per_second']:,} examples a second in batches"
    )
    if cut := results.get("cut"):
        found["too long"] = f"{cut:,} examples, which were cut or read in windows"
    return found | {key.replace("_", " "): results[key] for key in AS_THEY_ARE if key in results}


def _figures(results: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """accuracy: 0.715 (0.649 – 0.773); baseline 0.890; untuned model 0.565"""
    for figure, value in results["figures"].items():
        interval = results["intervals"].get(figure)
        parts = [number(figure, value) + (f" ({between(figure, interval)})" if interval else "")]
        for key, name in BESIDE.items():
            known = results.get(key, {}).get("figures", {})
            parts += [f"{name} {number(figure, known[figure])}"] if figure in known else []
        yield name_of(figure, results["task"]), "; ".join(parts)
