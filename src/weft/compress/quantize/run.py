"""A network in, a quantized network and a report out."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from weft.compress.calibration_data import data_or_training_data
from weft.compress.quantize.calibration import QuantizationData, read_quantization_data
from weft.compress.quantize.divergence import Reference
from weft.compress.quantize.gptq import round_gptq
from weft.compress.quantize.rounding import GROUP, group_size, round_to_nearest
from weft.compress.quantize.sensitivity import layer_errors, matrices_to_keep, output_error, quantized_copy
from weft.compress.quantize.smoothing import fold, smoothing_factors, smoothing_sites
from weft.compress.quantize.statistics import InputStatistics, input_statistics
from weft.compress.quantize.tuning import tune
from weft.errors import InputError, WeftError
from weft.interchange.quantized_entries import why_not_fp32
from weft.model.network import Network
from weft.model.quantized import QuantizedWeight, quantized_modules
from weft.progress import say, track
from weft.tasks.loaded import LoadedModel
from weft.train.budget import Budget

ALLOWED = {8: 0.01, 4: 0.03}  # divergence, see divergence.py
_TASK_HEADS = ("next-sentence", "sequence", "token", "span")
_LEAST_INPUTS = 8  # of a 4-bit group; smaller ones cost more than they save


@dataclass(frozen=True)
class QuantizeSettings:
    bits: int = 8
    group: int = GROUP
    allowed: float | None = None  # divergence; default: 0.01 with 8 bits, 0.03 with 4
    budget: Budget | None = None  # of tuning
    seed: int = 0


@dataclass(frozen=True)
class QuantizeResult:
    network: Network
    data: str | None
    divergence: float | None
    moved: str | None  # the divergence in words
    errors: dict[str, float]  # relative, of each matrix's output
    kept: list[str]  # matrices that stay in fp32
    alone: dict[str, float] = field(default_factory=dict)  # divergence that each matrix causes alone, where measured
    smoothed: list[str] = field(default_factory=list)
    steps: int = 0  # of tuning

    def facts(self) -> dict[str, Any]:
        """For weft.json."""
        matrices = {
            name: {
                "error": round(error, 6),
                "bits": 32 if name in self.kept else quantized_modules(self.network)[name].quantized.bits,
                **({"smoothed": True} if name in self.smoothed else {}),
                **({"divergence_alone": self.alone[name]} if name in self.alone else {}),
            }
            for name, error in self.errors.items()
        }
        found = {"data": self.data, "divergence": self.divergence, "tuned_steps": self.steps or None}
        return {**{key: value for key, value in found.items() if value is not None}, "matrices": matrices}

    def layers(self) -> dict[str, float]:
        return layer_errors(self.errors, self.kept)


@dataclass(frozen=True)
class _Candidate:
    """The network, its matrices rounded, and how far the predictions move."""

    network: Network
    weights: dict[str, QuantizedWeight]
    divergence: float
    steps: int = 0  # of tuning
    kept: list[str] = field(default_factory=list)
    alone: dict[str, float] = field(default_factory=dict)


def quantize_loaded(model: LoadedModel, data: Sequence[Path], settings: QuantizeSettings) -> QuantizeResult:
    """`data`: default: what the recipe of the model's run names. 8 bits work without any."""
    if reason := why_not_fp32(model.network, model.facts):
        raise InputError(reason.replace("It", str(model.folder or "This model"), 1))
    network = Network(model.network.architecture)  # plain modules in fp32, whatever computes for the loaded model
    network.load_state_dict(model.network.state_dict())
    _check_network(network, settings)
    paths = data_or_training_data(model, data)
    if not paths and (settings.bits == 4 or settings.budget is not None):
        what = "labelled rows of its task" if model.task is not None else "text such as it was trained on"
        purpose = "Tuning learns from data" if settings.budget is not None else "4 bits need data to make up for errors"
        raise InputError(f"{purpose}. Give some with --data ({what}).")
    with tempfile.TemporaryDirectory(prefix="weft-") as scratch:
        found = read_quantization_data(model, paths, Path(scratch)) if paths else None
        return quantize_network(network.eval(), found, settings, Path(scratch))


def _check_network(network: Network, settings: QuantizeSettings) -> None:
    for name, parameter in network.named_parameters():
        if not parameter.isfinite().all():
            raise WeftError(f"The weights {name} hold NaN or infinity: the model has diverged, so it is not quantized.")
    if settings.bits == 4 and all(bits_of(network, name, settings) == 8 for name in matrix_names(network)):
        raise InputError(
            f"No matrix of this {network.architecture.family} can have 4 bits: only linear layers between embeddings "
            f"and heads do, in groups of at least {_LEAST_INPUTS} inputs. Use 8 bits."
        )


def quantize_network(
    network: Network, data: QuantizationData | None, settings: QuantizeSettings, scratch: Path
) -> QuantizeResult:
    """`network` is changed."""
    names = matrix_names(network)
    if data is None:
        say("No data: scales are searched by the weights alone, and nothing is left in fp32. --data does better.")
        weights = {name: round_matrix(network, name, None, settings) for name in names}
        return QuantizeResult(quantized_copy(network, weights), None, None, None, _errors(network, weights, {}), [])
    say(f"Calibrating on {data.what}.")
    linear = [name for name in names if isinstance(network.get_submodule(name), nn.Linear)]
    reference = Reference(network, data.held)
    statistics = input_statistics(network, linear, data.fit, hessians=settings.bits == 4)
    smoothed = _smooth(network, statistics, settings)
    weights = {
        name: round_matrix(network, name, statistics.get(name), settings)
        for name in track(names, "Quantizing", unit="matrices")
    }
    candidates = [_Candidate(network, weights, reference.divergence(quantized_copy(network, weights)))]
    if settings.budget is not None:
        candidates.append(_tuned(network, weights, data, reference, settings, scratch))
    allowed = ALLOWED[settings.bits] if settings.allowed is None else settings.allowed
    best = _best_within(allowed, candidates, reference)
    moved = reference.in_words(best.divergence)
    if best.divergence > allowed:
        moved += f", more than the allowed {allowed:.2g}"
    return QuantizeResult(
        quantized_copy(best.network, best.weights, best.kept),
        data.what,
        best.divergence,
        moved,
        _errors(best.network, best.weights, statistics),
        best.kept,
        best.alone,
        smoothed,
        best.steps,
    )


def _best_within(allowed: float, candidates: Sequence[_Candidate], reference: Reference) -> _Candidate:
    """The one that diverges least, with its worst matrices in fp32 if it has to be. A tuned one may miss the bound even
    so, since what it keeps in fp32 is tuned as well. Then another is tried.
    """
    tried = []
    for one in sorted(candidates, key=lambda one: one.divergence):
        if one.divergence > allowed:
            found = f"{one.divergence:.2g}, more than the allowed {allowed:.2g}"
            say(f"The divergence is {found}: some matrices stay in fp32.")
            kept, alone, divergence = matrices_to_keep(one.network, one.weights, reference, allowed, one.divergence)
            one = replace(one, kept=kept, alone=alone, divergence=divergence)
        tried.append(one)
        if one.divergence <= allowed:
            break
    best = min(tried, key=lambda one: one.divergence)
    if best.steps == 0 and len(candidates) > 1:
        before, after = (f"{one.divergence:.2g}" for one in candidates)
        say(f"Tuning did not help (divergence {before} → {after}): the untuned weights are quantized.")
    return best


def matrix_names(network: Network) -> list[str]:
    """The modules whose matrices are quantized: token embeddings, and linear layers that are not tied to them. The last
    layers of task heads have a few rows only, and stay as they are.
    """
    tables = {name: module for name, module in network.named_modules() if name.endswith("embed.tokens")}
    seen = {id(table.weight) for table in tables.values()}
    found = list(tables)
    for name, module in network.named_modules():
        is_task_output = name.endswith(".out") and name.split(".")[1] in _TASK_HEADS
        if isinstance(module, nn.Linear) and id(module.weight) not in seen and not is_task_output:
            seen.add(id(module.weight))
            found.append(name)
    return found


def bits_of(network: Network, name: str, settings: QuantizeSettings) -> int:
    """4 bits are for the layers' matrices. Embeddings and heads have 8: their errors reach every layer, or none evens
    them out.
    """
    is_inner = isinstance(network.get_submodule(name), nn.Linear) and not name.startswith("heads.")
    group = group_size(network.get_parameter(f"{name}.weight").shape[1], settings.group)
    return settings.bits if is_inner and group >= _LEAST_INPUTS else 8


@torch.no_grad()
def round_matrix(
    network: Network, name: str, statistics: InputStatistics | None, settings: QuantizeSettings
) -> QuantizedWeight:
    bits = bits_of(network, name, settings)
    return _round(network.get_parameter(f"{name}.weight"), statistics, settings, bits)


def _round(
    weight: Tensor, statistics: InputStatistics | None, settings: QuantizeSettings, bits: int
) -> QuantizedWeight:
    if bits == 8:
        return round_to_nearest(weight, 8, moments=None if statistics is None else statistics.moments)
    group = group_size(weight.shape[1], settings.group)
    if statistics is None or statistics.hessian is None:
        return round_to_nearest(weight, 4, group=group)
    return round_gptq(weight, statistics.hessian, 4, group=group)


def _smooth(network: Network, statistics: dict[str, InputStatistics], settings: QuantizeSettings) -> list[str]:
    """Fold where that lowers the error of the layer's output. Returns the names of the layers."""
    smoothed = []
    for site in smoothing_sites(network):
        name = site.consumer
        if name not in statistics:
            continue
        before, weight = statistics[name], network.get_parameter(f"{name}.weight").detach()
        factors = site.shared(smoothing_factors(before.largest, weight))
        after, bits = before.divided_by(factors), bits_of(network, name, settings)
        errors = [
            output_error(matrix, _round(matrix, found, settings, bits), found.rows)
            for matrix, found in ((weight, before), (weight * factors, after))
        ]
        if errors[1] < errors[0]:
            fold(network, site, factors)
            statistics[name] = after
            smoothed.append(name)
    return smoothed


def _tuned(
    network: Network,
    weights: dict[str, QuantizedWeight],
    data: QuantizationData,
    reference: Reference,
    settings: QuantizeSettings,
    scratch: Path,
) -> _Candidate:
    """The better of two roundings of the tuned weights: as in training, and with scales searched anew."""
    if data.objective is None or settings.budget is None:
        raise InputError("A model without a head cannot be tuned: it makes no predictions to keep.")
    tuned, rounded, steps = tune(
        network, weights, data.objective, settings.budget, scratch / "run", samples=data.samples_per_step,
        seed=settings.seed,
    )  # fmt: skip
    linear = [name for name in weights if isinstance(tuned.get_submodule(name), nn.Linear)]
    statistics = input_statistics(tuned, linear, data.fit, hessians=settings.bits == 4)
    searched = {name: round_matrix(tuned, name, statistics.get(name), settings) for name in weights}
    found = [
        _Candidate(tuned, one, reference.divergence(quantized_copy(tuned, one)), steps) for one in (rounded, searched)
    ]
    return min(found, key=lambda one: one.divergence)


def _errors(
    network: Network, weights: Mapping[str, QuantizedWeight], statistics: Mapping[str, InputStatistics]
) -> dict[str, float]:
    return {
        name: output_error(
            network.get_parameter(f"{name}.weight"), weight, statistics[name].rows if name in statistics else None
        )
        for name, weight in weights.items()
    }
