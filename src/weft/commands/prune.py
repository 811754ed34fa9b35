"""`weft prune`, also `weft.prune(...)` in Python: the command and its options."""

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from weft.commands import options as opt
from weft.commands.printing import print_facts, print_next
from weft.errors import InputError, as_path

if TYPE_CHECKING:
    from weft.api.model import Model
    from weft.compress.prune.run import Pruned


PruneBounds = Annotated[
    list[str],
    typer.Argument(
        help="speedup=2x, size=20MB, layers=4, inner=0.5, heads=6 (or uneven:0.5), weights=0.5, "
        "vocabulary=TEXT. Several go together.",
        metavar="BOUND...",
    ),
]
PruneData = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Rows of the model's task, or text: they tell what matters. Default: the training data of its run.",
        show_default=False,
    ),
]
PruneTest = Annotated[
    Path | None, typer.Option("--test", help="Test data: compare the model before and after on it.", show_default=False)
]
Minutes = Annotated[float, typer.Option("--minutes", help="Train afterwards, with the whole model as the teacher.")]
MeasureOption = Annotated[
    str,
    typer.Option("--measure", help="What speedup= means: throughput on the data, or latency of one text at a time."),
]
KeepTokens = Annotated[
    int | None,
    typer.Option("--keep-tokens", help="With vocabulary=: keep about this many tokens at most.", show_default=False),
]


def prune(
    model: opt.ModelFolder,
    bounds: PruneBounds,
    output: opt.OutputFolder,
    data: PruneData = None,
    test: PruneTest = None,
    minutes: Minutes = 0.0,
    measure: MeasureOption = "throughput",
    keep_tokens: KeepTokens = None,
    as_json: opt.AsJson = False,
) -> None:
    """Make a model smaller and faster: cut layers, neurons, heads or tokens that matter least."""
    facts = _prune(model, output, bounds, data, test, minutes, measure, keep_tokens)
    print_facts(facts if as_json else _brief(facts), as_json)
    place = shlex.quote(facts["model"])
    compare = f"weft compare {shlex.quote(str(model))} {place} --data TEST"
    print_next(f"weft info {place}" if test is not None else compare, quiet=as_json)


def prune_model(
    model: "Model | str | Path",
    folder: str | Path,
    *,
    data: str | Path | None = None,
    test: str | Path | None = None,
    minutes: float = 0.0,
    measure: Literal["throughput", "latency"] = "throughput",
    keep_tokens: int | None = None,
    **bounds: Any,
) -> dict[str, Any]:
    """Writes a pruned model folder. Returns facts: the object that `weft prune --json` prints.

        weft.prune("runs/sst2/model", "sst2-fast", speedup="2x", data="train.tsv", minutes=5)["verdict"]

    `bounds`: speedup, size, layers, inner, heads, weights, vocabulary. `data`: rows of the model's task or text;
    default: the training data that the model's run names. `test`: data to compare before and after on. `minutes`: of
    training with the whole model as the teacher.
    """
    rows, tests = (None if one is None else as_path(one, name) for one, name in ((data, "data"), (test, "test")))
    return _prune(model, as_path(folder, "The folder"), bounds, rows, tests, minutes, measure, keep_tokens)


def _prune(
    model: "Model | str | Path",
    folder: Path,
    given: Sequence[str] | dict[str, Any],
    data: Path | None,
    test: Path | None,
    minutes: float,
    measure: str,
    keep_tokens: int | None,
) -> dict[str, Any]:
    from weft.api.model import Model, load
    from weft.compress.lineage import LINEAGE, with_step
    from weft.compress.place import place_for_model
    from weft.compress.prune.bounds import read_bounds
    from weft.compress.prune.run import PruneSettings, prune_loaded

    bounds = read_bounds(given)
    if measure not in ("throughput", "latency"):
        raise InputError(f"--measure is throughput or latency, not {measure!r}.")
    if not isinstance(minutes, int | float) or not 0 <= minutes < 1e5:
        raise InputError(f"--minutes is a number from 0 on, not {minutes!r}.")
    if keep_tokens is not None and (not isinstance(keep_tokens, int) or keep_tokens < 1):
        raise InputError(f"--keep-tokens is a number of tokens, not {keep_tokens!r}.")
    if test is not None and not test.exists():
        raise InputError(f"{test} does not exist.")
    source = model.folder if isinstance(model, Model) else as_path(model, "The model's folder")
    place = place_for_model(folder, source)
    loaded = model.on_cpu() if isinstance(model, Model) else load(as_path(model, "The model's folder"), "cpu")
    found = prune_loaded(loaded, data, PruneSettings(bounds, float(minutes), measure, keep_tokens))  # type: ignore[arg-type]
    asked = [f"{key}={value}" for key, value in given.items()] if isinstance(given, dict) else list(given)
    steps = with_step(loaded.facts, "prune", source or Path(), bounds=asked, **found.facts)
    new = Model(
        found.network,
        found.description,
        found.tokenizer,
        loaded.pooling,
        {**loaded.facts, LINEAGE: steps},
        loaded.folder,
    )
    saved_as = new.save(place)
    return _facts(loaded, found, source, place, asked, saved_as, test)


def _facts(
    loaded: "Model",
    found: "Pruned",
    source: Path | None,
    place: Path,
    asked: list[str],
    saved_as: str,
    test: Path | None,
) -> dict[str, Any]:
    from weft.compress.card.model_facts import disk_bytes

    before = disk_bytes(source) if source is not None else 4 * loaded.parameters_count
    facts: dict[str, Any] = {
        "verdict": "",
        "model": str(place),
        "from": None if source is None else str(source),
        "bounds": asked,
        "format": saved_as,
        "bytes": {"before": before, "after": disk_bytes(place)},
        **found.facts,
        "notes": found.notes,
    }
    facts["verdict"] = _verdict(facts)
    if test is not None and source is not None:
        from weft.commands.compare import compare_folders

        facts["card"] = compare_folders([source, place], test, keep=True).facts()
    return facts


def _verdict(facts: dict[str, Any]) -> str:
    size = facts["bytes"]
    parts = []
    if "speedup" in facts:
        low, high = facts["speedup"]["quartiles"]
        parts.append(f"{facts['speedup']['measured']:.2f} × as fast ({low:.2f}–{high:.2f}, measured here)")
    parts.append(f"{size['before'] / 1e6:,.1f} → {size['after'] / 1e6:,.1f} MB")
    if "score" in facts:
        score = facts["score"]
        parts.append(f"{score['metric']} {score['before']:.4g} → {score['after']:.4g} on held-out rows of the data")
    elif "loss" in facts:
        after = facts["loss"].get("recovered", facts["loss"].get("after", facts["loss"]["before"]))
        before, after = (math.exp(min(loss, 700.0)) for loss in (facts["loss"]["before"], after))
        parts.append(f"perplexity {before:.4g} → {after:.4g} on held-out text of the data")
    return "; ".join(parts) + "."


def _brief(facts: dict[str, Any]) -> dict[str, Any]:
    kept = ("verdict", "model", "bounds", "format", "shape", "heads", "vocabulary", "loss", "data", "notes")
    found = {key: facts.get(key) for key in kept}
    if "parameters" in facts:
        found["parameters"] = "{before:,} → {after:,}".format(**facts["parameters"])
    if "card" in facts:
        found["compared"] = facts["card"].get("verdict")
    return found
