"""`prune_loaded`: a model in, a smaller one out. What will go is said first, then what came of it."""

import copy
import statistics
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.compress.prune.bounds import Bounds
from weft.compress.prune.calibration import PruningData, read_pruning_data, tokens_of
from weft.compress.prune.choose import Chooser, Chosen, PrunedShape
from weft.compress.prune.compensate import compensate
from weft.compress.prune.cut import cut_network, describe_cut, stacks_of
from weft.compress.prune.fisher import fisher_scores
from weft.compress.prune.recover import Recovery
from weft.compress.prune.select import best_heads_of_all
from weft.compress.prune.sparse import zero_weights, zipped_bytes
from weft.compress.prune.timing import Measure, SpeedUp, measure_table, speed_up, timed_batches
from weft.compress.prune.vocabulary import (
    FewerTokens,
    describe_fewer_tokens,
    named_ids,
    prune_tokenizer,
    with_fewer_tokens,
)
from weft.errors import InputError, not_found
from weft.interchange.folder import Description
from weft.model.network import Network, count_parameters
from weft.model.positions import Relative
from weft.model.quantized import quantized_modules
from weft.objectives.objective import Batch
from weft.progress import say
from weft.tasks.loaded import LoadedModel
from weft.tokenizer.tokenizer import Tokenizer

_TOLERANCE = 0.025  # of the asked speed-up
_MISPREDICTED = 0.1  # of the asked speed-up
_COPIES = 2  # of a shape that are timed
_MOST_TRIED = 4  # shapes


@dataclass(frozen=True)
class PruneSettings:
    bounds: Bounds
    minutes: float = 0.0  # of recovery
    measure: Measure = "throughput"
    keep_tokens: int | None = None  # with vocabulary=


@dataclass
class Pruned:
    network: Network
    description: Description
    tokenizer: Tokenizer | None
    facts: dict[str, Any] = field(default_factory=dict)  # for weft.json and the report
    notes: list[str] = field(default_factory=list)


def prune_loaded(model: LoadedModel, data: Path | None, settings: PruneSettings) -> Pruned:
    bounds = settings.bounds
    _check(model, settings)
    found = Pruned(model.network, model.description, model.own_tokenizer)
    if bounds.vocabulary is not None:
        _prune_vocabulary(found, model, bounds.vocabulary, settings.keep_tokens)
    if not bounds.needs_data:
        return found
    current = LoadedModel(found.network, found.description, found.tokenizer, model.pooling, model.facts, model.folder)
    with tempfile.TemporaryDirectory(prefix="weft-") as scratch:
        calibration = read_pruning_data(current, data, Path(scratch))
        say(f"Calibrating on {calibration.what}.")
        _prune_network(found, calibration, settings, Path(scratch))
    return found


def _check(model: LoadedModel, settings: PruneSettings) -> None:
    bounds, architecture = settings.bounds, model.network.architecture
    if quantized_modules(model.network):
        raise InputError(f"This {model.family} is quantized. Prune the fp32 model that it was made from.")
    if bounds.needs_data and architecture.recurrent is not None:
        raise InputError("The cells of an LSTM cannot be pruned. Only vocabulary= works with it.")
    if bounds.uneven_heads is not None and (
        architecture.is_encoder_decoder or isinstance(architecture.embedding.positions, Relative)
    ):
        raise InputError("heads=uneven: works with encoders and decoders whose layers share no position bias.")
    if bounds.cuts_layers and not all(stack.is_uniform for stack in stacks_of(architecture).values()):
        raise InputError(
            "Layers of this model differ in heads or neurons; only heads=uneven:, weights= and vocabulary= can prune "
            "it. Prune the model that it was made from: heads=uneven: goes together with layers= and inner=."
        )
    if settings.keep_tokens is not None and bounds.vocabulary is None:
        raise InputError("--keep-tokens goes with vocabulary=.")
    if settings.minutes and not bounds.needs_data:
        raise InputError("--minutes recovers what layers, neurons, heads or weights took; vocabulary= takes nothing.")


def _prune_vocabulary(found: Pruned, model: LoadedModel, corpus: Path, most: int | None) -> None:
    if not corpus.exists():
        raise InputError(not_found(corpus))
    before, counts_before = model.tokenizer, tokens_of(model, corpus)
    if not counts_before:
        raise InputError(f"{corpus} holds no text.")
    fewer = prune_tokenizer(before, counts_before, most, named_ids(model.description))
    found.network = with_fewer_tokens(model.network, fewer.ids)
    found.description = describe_fewer_tokens(model.description, fewer)
    found.tokenizer = fewer.tokenizer
    counts = {"before": model.network.architecture.vocabulary, "after": len(fewer.ids), "used": fewer.used}
    say(f"Vocabulary: {counts['before']:,} → {counts['after']:,} tokens; {corpus} uses {fewer.used:,}.")
    found.facts["vocabulary"] = {"corpus": str(corpus), **counts}
    if most is not None:
        longer = _longer(before, fewer, counts_before)
        found.facts["vocabulary"]["longer"] = round(longer, 4)
        found.notes.append(f"Texts of {corpus} become {longer - 1:.1%} longer in tokens.")
    if fewer.dropped_files:
        found.notes.append(f"Not written, because they hold the old vocabulary: {', '.join(fewer.dropped_files)}.")


def _longer(before: Tokenizer, fewer: FewerTokens, counts: Counter[int]) -> float:
    """How many times longer texts become, if every token that went is spelled with others."""
    kept, after = fewer.new_ids, 0
    for number, count in counts.items():
        pieces = 1
        if number not in kept:
            text = before.engine.decode([number], skip_special_tokens=False)
            pieces = max(1, len(fewer.tokenizer.engine.encode(text, add_special_tokens=False).ids))
        after += count * pieces
    return after / counts.total()


def _prune_network(found: Pruned, calibration: PruningData, settings: PruneSettings, scratch: Path) -> None:
    bounds, whole = settings.bounds, found.network
    before = calibration.loss(whole)
    timed = timed_batches(calibration, settings.measure)
    losses = {"before": before}
    recovery = Recovery(whole, calibration, settings.minutes, scratch) if settings.minutes else None
    if bounds.cuts_layers:
        chosen = _choose(whole, found.description, calibration, bounds, timed, recovery)
        found.network, losses["cut"], losses["after"] = chosen.network, chosen.cut_loss, chosen.loss
        found.facts["shape"] = _shape_facts(whole, chosen.shape)
    if bounds.uneven_heads is not None:
        _prune_uneven_heads(found, calibration, bounds.uneven_heads, losses)
    if bounds.weights is not None:
        _zero_weights(found, calibration, bounds.weights)
        losses["after"] = calibration.loss(found.network)
    if recovery is not None:
        result = recovery.finish(found.network, losses["after"])
        found.network, losses["recovered"] = result.network, result.loss
        found.facts["recovery"] = {"minutes": settings.minutes, "steps": result.steps, "seconds": round(result.seconds)}
    found.description = describe_cut(found.description, found.network.architecture)
    found.facts["loss"] = {name: round(value, 5) for name, value in losses.items()}
    if calibration.score is not None:
        scores = [calibration.score(network) for network in (whole, found.network)]
        found.facts["score"] = {"metric": calibration.metric, "before": scores[0], "after": scores[1]}
    if bounds.cuts_layers or bounds.uneven_heads is not None:
        measured = speed_up(whole, found.network, timed)
        found.facts["speedup"] = speed_facts(measured, settings.measure, bounds.speedup)
    found.facts["parameters"] = {"before": count_parameters(whole), "after": count_parameters(found.network)}
    found.facts["data"] = calibration.what


def _zero_weights(found: Pruned, calibration: PruningData, share: float) -> None:
    before, found.network = zipped_bytes(found.network), copy.deepcopy(found.network)
    zeros = zero_weights(found.network, calibration.fit, share)
    after = zipped_bytes(found.network)
    found.facts["zeros"] = {"weights": zeros, "zipped_bytes": {"before": before, "after": after}}
    found.notes.append(
        "Zeros save no time, and bytes only in a compressed archive: there the weights take "
        f"{after / 1e6:.1f} MB instead of {before / 1e6:.1f}."
    )


def speed_facts(measured: SpeedUp, measure: Measure, asked: float | None) -> dict[str, Any]:
    facts = {"measured": round(measured.times, 3), "quartiles": [round(measured.low, 3), round(measured.high, 3)]}
    return {"asked": asked, **facts, "turns": measured.turns, "of": measure}


def _shape_facts(whole: Network, shape: PrunedShape) -> dict[str, Any]:
    first = next(iter(stacks_of(whole.architecture).values())).blocks[0]
    return {
        "layers": {side: list(numbers) for side, numbers in shape.layers.items()},
        "inner": [first.feedforward.inner, shape.inner],
        "key_value_heads": [first.attention.key_value_heads, shape.heads],
    }


def _choose(
    whole: Network,
    description: Description,
    calibration: PruningData,
    bounds: Bounds,
    timed: list[Batch],
    recovery: Recovery | None,
) -> Chosen:
    """The best shape within the bounds, cut and compensated. For a speed-up its time is measured and the inner width
    corrected until it is as asked.
    """
    table = None
    if bounds.speedup is not None:
        probe = Chooser(whole, description, calibration, bounds, None)
        table = measure_table(whole, timed, with_heads=len(probe.head_counts()) > 1 or bounds.heads is not None)
    chooser = Chooser(whole, description, calibration, bounds, table)
    chooser.check_bounds()
    shape = _best_candidate(chooser, bounds.speedup, recovery)
    assert shape is not None
    if bounds.speedup is not None and bounds.inner is None:
        shape = _as_fast_as_asked(chooser, shape, bounds.speedup, timed, recovery)
    say(f"Plan: {chooser.in_words(shape)}.")
    return chooser.prune(shape)


def _best_candidate(chooser: Chooser, speedup: float | None, recovery: Recovery | None) -> PrunedShape | None:
    shapes = chooser.candidates(speedup)
    for shape in shapes:
        faster = "" if speedup is None else f", {chooser.predicted_speed_up(shape):.2f}x predicted"
        say(f"Candidate: {chooser.in_words(shape)}{faster}.")
    return chooser.best(shapes, recovery) if shapes else None


def _as_fast_as_asked(
    chooser: Chooser, shape: PrunedShape, asked: float, timed: list[Batch], recovery: Recovery | None
) -> PrunedShape:
    tried: list[tuple[PrunedShape, float]] = []
    while len(tried) < _MOST_TRIED and all(shape != one for one, _ in tried):
        times = _measured(chooser, shape, timed)
        tried.append((shape, times))
        say(f"  {chooser.in_words(shape)}: measured {times:.2f}x")
        if abs(times / asked - 1) <= _TOLERANCE:
            break
        other = None
        if abs(times / asked - 1) > _MISPREDICTED and len(tried) == 1:
            # Another number of layers may be better at the true speed.
            other = _best_candidate(chooser, asked * chooser.predicted_speed_up(shape) / times, recovery)
        shape = other or chooser.neighbour(shape, times / asked)
    return min(tried, key=lambda one: abs(one[1] / asked - 1))[0]


def _measured(chooser: Chooser, shape: PrunedShape, timed: list[Batch]) -> float:
    """The mean of several copies: where weights lie in memory changes the time by some percent."""
    copies = [cut_network(chooser.network, chooser.any_parts(shape)) for _ in range(_COPIES)]
    return statistics.fmean(speed_up(chooser.network, one, timed).times for one in copies)


def _prune_uneven_heads(found: Pruned, calibration: PruningData, share: float, losses: dict[str, float]) -> None:
    scores = fisher_scores(calibration.with_task(found.network), calibration.fit)
    kept = best_heads_of_all(found.network.architecture, scores, share)
    whole, cut = found.network, cut_network(found.network, kept)
    losses["cut"] = calibration.loss(cut)
    compensate(whole, cut, kept, calibration.fit)
    losses["after"] = calibration.loss(cut)
    found.network = cut
    found.facts["heads"] = {side: [len(layer.heads) for layer in layers] for side, layers in kept.items()}
    found.notes.append("Layers keep different numbers of heads, so the model is in weft's own format.")
