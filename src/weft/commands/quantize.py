"""`weft quantize`, also `weft.quantize(...)` in Python: the command and its options."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weft.commands import options as opt
from weft.commands.printing import print_facts, print_next
from weft.errors import InputError, as_items, as_path

if TYPE_CHECKING:
    from weft.api.model import Model
    from weft.compress.quantize.run import QuantizeResult

_GROUP = 32
_WORST_SHOWN = 5

Bits = Annotated[int, typer.Option(help="Bits of a weight: 8, or 4 in groups (token embeddings keep 8).")]
CalibrationFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--data",
        help="Rows of the model's task, or text: what the matrices read. Repeatable. Default: the training data that "
        "the model's run names. 8 bits work without.",
        show_default=False,
    ),
]
TestFile = Annotated[
    Path | None, typer.Option("--test", help="Test data: compare the model before and after on it.", show_default=False)
]
AllowedLoss = Annotated[
    float | None,
    typer.Option(
        "--allowed-loss",
        help="Largest divergence of the predictions from those before (KL in nats; 0.01 is about 1 % of perplexity). "
        "The worst matrices stay in fp32 to meet it. Default: 0.01 with 8 bits, 0.03 with 4.",
        show_default=False,
    ),
]
Tune = Annotated[
    str | None,
    typer.Option(help="Train with rounded weights, the model itself as teacher: 5m, '200 steps'.", show_default=False),
]
GroupSize = Annotated[int, typer.Option("--group", help="4 bits: inputs that share a scale, at most.")]
Unpacked = Annotated[
    bool,
    typer.Option(
        "--unpacked", help="4 bits: a byte per value, the only 4-bit layout that transformers computes with on a CPU."
    ),
]
TuneSeed = Annotated[int, typer.Option("--seed", help="Seed of --tune.")]


def quantize(
    model: opt.ModelFolder,
    output: opt.OutputFolder,
    bits: Bits = 8,
    data: CalibrationFiles = None,
    test: TestFile = None,
    allowed_loss: AllowedLoss = None,
    tune: Tune = None,
    group: GroupSize = _GROUP,
    unpacked: Unpacked = False,
    seed: TuneSeed = 0,
    as_json: opt.AsJson = False,
) -> None:
    """Store a model's weights as int8 or int4: a quarter or less of the bytes, nearly the same predictions."""
    facts = quantize_model(
        model, output, bits=bits, data=data or (), test=test, allowed_loss=allowed_loss, tune=tune, group=group,
        unpacked=unpacked, seed=seed,
    )  # fmt: skip
    print_facts(facts if as_json else _brief(facts), as_json)
    print_next(_next_step(facts, model, Path(facts["model"])), quiet=as_json)


def quantize_model(
    model: "Model | str | Path",
    folder: str | Path,
    *,
    bits: int = 8,
    data: str | Path | Sequence[str | Path] = (),
    test: str | Path | None = None,
    allowed_loss: float | None = None,
    tune: str | None = None,
    group: int = _GROUP,
    unpacked: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Writes a quantized model folder. Returns facts: the object that `weft quantize --json` prints.

        weft.quantize("runs/sst2/model", "sst2-int8", data="train.tsv")["verdict"]

    `data`: what the matrices read, rows of the model's task or text. Default: the training data that the model's run
    names. `test`: data to compare before and after on. `allowed_loss`: the largest divergence of the predictions (KL in
    nats). `tune`: a budget such as "5m". `group`, `unpacked`: with 4 bits.
    """
    from weft.api.model import Model, load
    from weft.compress.lineage import LINEAGE, with_step
    from weft.compress.place import place_for_model
    from weft.compress.quantize.run import quantize_loaded
    from weft.interchange.folder import read_model_config
    from weft.interchange.torchao import quantization_config
    from weft.model.quantized import quantized_modules

    settings = _checked_settings(bits, allowed_loss, tune, group, unpacked, seed)
    source = model.folder if isinstance(model, Model) else as_path(model, "The model's folder")
    if source is not None and not isinstance(model, Model):
        read_model_config(source)  # raises FolderError if it is no model folder
    place = place_for_model(as_path(folder, "The folder"), source)
    paths = [as_path(one, "data") for one in ([data] if isinstance(data, str | Path) else as_items(data, "data"))]
    tests = None if test is None else as_path(test, "test")
    if tests is not None and not tests.exists():
        raise InputError(f"{tests} does not exist.")
    loaded = model.on_cpu() if isinstance(model, Model) else load(as_path(model, "The model's folder"), "cpu")
    result = quantize_loaded(loaded, paths, settings)
    described = loaded.description
    if unpacked:
        config = quantization_config(quantized_modules(result.network).values(), packed=False)
        described = replace(described, config={**described.config, "quantization_config": config})
    step = with_step(loaded.facts, "quantize", source or Path(), bits=bits, **result.facts())
    new = Model(
        result.network, described, loaded.own_tokenizer, loaded.pooling, {**loaded.facts, LINEAGE: step}, loaded.folder
    )
    saved_as = new.save(place)
    return _facts(loaded, result, source, place, bits, saved_as, tests)


def _checked_settings(bits: int, allowed: float | None, tune: str | None, group: int, unpacked: bool, seed: int) -> Any:
    from weft.compress.quantize.run import QuantizeSettings
    from weft.train.budget import read_budget

    if bits not in (8, 4):
        raise InputError(f"--bits is 8 or 4, not {bits!r}.")
    if allowed is not None and (not isinstance(allowed, int | float) or not 0 < allowed < 100):
        raise InputError(f"--allowed-loss is a number above 0, such as 0.01, not {allowed!r}.")
    if not isinstance(group, int) or group < 8 or group % 2:
        raise InputError(f"--group is an even number from 8 on, such as 32, not {group!r}.")
    if bits == 8 and (unpacked or group != _GROUP):
        raise InputError(f"--{'unpacked' if unpacked else 'group'} goes with --bits 4.")
    if not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise InputError(f"--seed is a whole number from 0 to {2**31 - 1:,}, not {seed!r}.")
    budget = None if tune is None else read_budget(str(tune), "--tune")
    return QuantizeSettings(bits, group, allowed, budget, seed)


def _facts(
    loaded: "Model", result: "QuantizeResult", source: Path | None, place: Path, bits: int, saved_as: str,
    test: Path | None,
) -> dict[str, Any]:  # fmt: skip
    from weft.compress.card.model_facts import disk_bytes
    from weft.interchange.folder import why_own_format

    before = disk_bytes(source) if source is not None else 4 * loaded.parameters_count
    after = disk_bytes(place)
    verdict = f"{before / 1e6:,.1f} MB → {after / 1e6:,.1f} MB, {before / after:.1f} × smaller"
    if result.moved is not None:
        verdict += f"; {result.moved}"
    facts: dict[str, Any] = {
        "verdict": verdict + ".",
        "model": str(place),
        "from": None if source is None else str(source),
        "bits": bits,
        "bytes": {"before": before, "after": after},
        "format": saved_as,
        "kept_in_fp32": {name: result.alone.get(name) for name in result.kept},
        "errors": {name: round(error, 5) for name, error in result.layers().items()},
        **{key: value for key, value in result.facts().items() if key != "matrices"},
        "smoothed": result.smoothed,
    }
    if saved_as == "weft" and loaded.format != "weft":
        facts["notes"] = [why_own_format(result.network)]
    if test is not None and source is not None:
        from weft.commands.compare import compare_folders

        facts["card"] = compare_folders([source, place], test, keep=True).facts()
    return facts


def _brief(facts: dict[str, Any]) -> dict[str, Any]:
    """For people: sizes in megabytes, the worst errors only."""
    worst = dict(sorted(facts["errors"].items(), key=lambda item: -item[1])[:_WORST_SHOWN])
    kept = {name: f"alone it causes {alone:.2g}" for name, alone in facts["kept_in_fp32"].items()}
    brief = {key: facts.get(key) for key in ("verdict", "model", "bits", "format", "data", "divergence", "tuned_steps")}
    found = {**brief, "kept in fp32": kept, "largest errors": {name: f"{error:.2%}" for name, error in worst.items()}}
    found |= {"smoothed": f"{len(facts['smoothed'])} matrices" if facts["smoothed"] else None}
    if "card" in facts:
        found["compared"] = facts["card"].get("verdict")
    return {**found, "notes": facts.get("notes")}


def _next_step(facts: dict[str, Any], source: Path, place: Path) -> str:
    if "card" in facts:
        return f"weft info {shlex.quote(str(place))}"
    return f"weft compare {shlex.quote(str(source))} {shlex.quote(str(place))} --data TEST"
