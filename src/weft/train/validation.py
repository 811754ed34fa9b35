"""Held-out text as batches, the loss on them, and that loss in other units.

Validation batches stay the same throughout a run: the same samples, evenly spread, with the same masks.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, zip_longest

import numpy as np
import torch
from torch import Tensor

from weft.devices import widest_float
from weft.errors import InputError
from weft.model.network import Network
from weft.objectives.causal import Causal
from weft.objectives.objective import Batch, Objective, head_scores
from weft.tokens.shards import TokenShards
from weft.train.processes import Processes
from weft.train.step import matmul_precision

_BATCH_TOKENS = 4096
_MASK_SEED = 0  # fixed, so that runs with different seeds are measured alike

Scores = Callable[[Network, Batch], dict[str, Tensor]]


def validate(
    network: Network,
    batches: Iterable[Batch],
    precision: torch.dtype = torch.float32,
    *,
    scores: Scores = head_scores,
    processes: Processes | None = None,
) -> dict[str, float]:
    """Means over all batches: `validation_loss`, and for each head its loss and accuracy. Each process takes every
    n-th batch.
    """
    processes = (processes or Processes()).data
    was_training = network.training
    network.eval()
    device = next(network.parameters()).device
    found: list[dict[str, Tensor]] = []
    counts: list[dict[str, float]] = []
    for batch, is_own in _own_batches(batches, processes):
        with matmul_precision(device, precision):
            score = scores(network, batch.to(device, non_blocking=True))
        if is_own:
            found.append(score)
            counts.append({f"count/{kind}": count for kind, count in batch.counts.items()})
    network.train(was_training)
    if processes.is_sharded:
        network.reshard()  # type: ignore[operator]  # until a backward pass, embeddings and heads would stay whole
    numbers = [value.to(widest_float(device)) for one in found for value in one.values()]
    values = iter(torch.stack(numbers).tolist() if numbers else [])  # one transfer from the device
    own = [{key: next(values) for key in one} | count for one, count in zip(found, counts, strict=True)]
    total: dict[str, float] = defaultdict(float)
    # In the order of the batches, so that the sum does not depend on the number of processes.
    for turn in zip_longest(*processes.gather(own)):
        for one in filter(None, turn):
            for key, value in one.items():
                total[key] += value
    return _means(total)


def _own_batches(batches: Iterable[Batch], processes: Processes) -> Iterator[tuple[Batch, bool]]:
    """Every n-th batch. With sharded weights all processes must compute equally often: one that has none left takes
    another's, whose score does not count.
    """
    rest = iter(batches)
    while turn := list(islice(rest, processes.world)):
        if processes.rank < len(turn):
            yield turn[processes.rank], True
        elif processes.is_sharded:
            yield turn[0], False


def _means(total: dict[str, float]) -> dict[str, float]:
    kinds = [key.partition("/")[2] for key in total if key.startswith("count/")]
    if not all(total[f"count/{kind}"] for kind in kinds):
        raise InputError("No token of the held-out text can be predicted: the tokenizer does not know this text.")
    losses = {kind: total[f"loss/{kind}"] / total[f"count/{kind}"] for kind in kinds}
    facts = {"validation_loss": sum(losses.values())}
    for kind in kinds:
        facts[f"validation_{kind}_loss"] = losses[kind]
        facts[f"validation_{kind}_accuracy"] = total[f"right/{kind}"] / total[f"count/{kind}"]
    return facts


def some_batches(objectives: Sequence[Objective], most_tokens: int, length: int) -> list[Batch]:
    """About `most_tokens` tokens in all, evenly spread over the held-out text."""
    total = sum(map(len, objectives))
    share = min(1.0, most_tokens / length / max(total, 1))
    batches: list[Batch] = []
    for objective in objectives:
        count = max(1, round(len(objective) * share))
        samples = np.unique(np.linspace(0, len(objective) - 1, count).round().astype(int))
        batches += _batches(objective, samples.tolist(), length)
    return batches


def all_batches(objectives: Sequence[Objective], length: int) -> Iterator[Batch]:
    """All samples, once. A causal model sees a quarter of each sample as context from the one before."""
    for objective in map(_with_context, objectives):
        yield from _batches(objective, list(range(len(objective))), length)


def tokens_read(objectives: Sequence[Objective], length: int) -> int:
    """Tokens in `all_batches`; context is counted again."""
    return sum(len(objective) * length for objective in map(_with_context, objectives))


def _with_context(objective: Objective) -> Objective:
    return objective.with_context() if isinstance(objective, Causal) else objective


def _batches(objective: Objective, samples: list[int], length: int) -> Iterator[Batch]:
    size = max(1, _BATCH_TOKENS // length)
    for start in range(0, len(samples), size):
        part = samples[start : start + size]
        yield objective.batch(part, [0] * len(part), _MASK_SEED)


def figures_of(shards: Sequence[TokenShards], head: str) -> Callable[[dict[str, float]], dict[str, float]]:
    """A function from validation facts to the language head's loss in other units.

    perplexity = e^loss. For a causal model also bits per character and per byte, which do not depend on the tokenizer:
    loss / ln 2 × tokens / characters. The end of each document counts as a predicted token.
    """
    tokens = sum(map(len, shards))
    characters, size = sum(part.characters for part in shards), sum(part.bytes for part in shards)

    def figures(facts: dict[str, float]) -> dict[str, float]:
        loss = facts[f"validation_{head}_loss"]
        found = {"perplexity": math.exp(min(loss, 700.0))}
        if head == "causal":
            bits = loss / math.log(2) * tokens
            found |= {"bits_per_character": bits / characters, "bits_per_byte": bits / size}
        return found

    return figures
