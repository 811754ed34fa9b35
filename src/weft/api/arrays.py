"""Token ids in, an array per sequence out.

Sequences go through the network in batches of at most `_MOST_BATCH_TOKENS` tokens, sorted by length so that attention
finds long runs of equal lengths. Results come back in the order given.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from weft.errors import InputError, as_items
from weft.model.keep import Keep, Kept
from weft.model.network import Network
from weft.model.packed import Packed, group_by_tokens, order_by_length, pack
from weft.model.positions import longest

Sequences = Sequence[Sequence[int]]
_MOST_BATCH_TOKENS = 8192


def arrays_of(
    network: Network,
    sequences: Sequences,
    targets: Sequences | None,
    segments: Sequences | None,
    compute: Callable[[Tensor, Packed], Tensor],
    *,
    one_row: bool,
) -> list[np.ndarray]:
    """`compute` makes the result of hidden states: a row per sequence (`one_row`) or per token.

    Raises InputError if the ids do not fit the model.
    """
    sequences = as_items(sequences, "What the model reads")
    results: list[np.ndarray] = [np.empty(0)] * len(sequences)
    with torch.inference_mode():
        for picked, batch, target in _packed(network, sequences, targets, segments):
            answer = compute(network(batch, target), target or batch)
            parts = answer.unbind() if one_row else (target or batch).split(answer)
            for index, part in zip(picked, parts, strict=True):
                results[index] = part.float().cpu().numpy()
    return results


def hidden_arrays(
    network: Network,
    sequences: Sequences,
    targets: Sequences | None,
    segments: Sequences | None,
    layers: Sequence[int],
) -> list[np.ndarray]:
    """(layers, length, width) per sequence. Raises InputError if the model has no such layer."""
    sequences, layers = as_items(sequences, "What the model reads"), _checked_layers(layers)
    results: list[np.ndarray] = [np.empty(0)] * len(sequences)
    keep = Keep(hidden=tuple(layers))
    for picked, batch, target, kept in _kept(network, sequences, targets, segments, keep):
        states = torch.stack([kept.hidden[layer] for layer in layers], dim=1)
        for index, part in zip(picked, (target or batch).split(states), strict=True):
            results[index] = part.transpose(0, 1).float().cpu().numpy()
    return results


def attention_arrays(
    network: Network,
    sequences: Sequences,
    targets: Sequences | None,
    segments: Sequences | None,
    layers: Sequence[int],
) -> list[list[np.ndarray]]:
    """Per sequence and layer, (heads, length, length). Raises InputError if the model has no such layer."""
    sequences, layers = as_items(sequences, "What the model reads"), _checked_layers(layers)
    results: list[list[np.ndarray]] = [[] for _ in sequences]
    keep = Keep(attention=tuple(layers))
    for picked, _, _, kept in _kept(network, sequences, targets, segments, keep):
        for place, index in enumerate(picked):
            results[index] = [kept.attention[layer][place].float().cpu().numpy() for layer in layers]
    return results


def _checked_layers(layers: Sequence[int]) -> list[int]:
    found = as_items(layers, "layers")
    if not found or any(not isinstance(layer, int | np.integer) for layer in found):
        raise InputError(f"layers is a list of at least one number, not {layers!r}.")
    return found


def _kept(
    network: Network, sequences: Sequences, targets: Sequences | None, segments: Sequences | None, keep: Keep
) -> Iterator[tuple[list[int], Packed, Packed | None, Kept]]:
    try:
        with torch.inference_mode():
            for picked, batch, target in _packed(network, sequences, targets, segments):
                yield picked, batch, target, network(batch, target, keep=keep)[1]
    except ValueError as error:
        raise InputError(f"This {network.architecture.family}: {error}.") from None


def _packed(
    network: Network, sequences: Sequences, targets: Sequences | None, segments: Sequences | None
) -> Iterator[tuple[list[int], Packed, Packed | None]]:
    """Batches on the network's device, each with the numbers of its sequences."""
    check_sequences(network, sequences, targets, segments)
    device = next(network.parameters()).device
    for picked in _batches(sequences, targets):
        beside = None if segments is None else [segments[i] for i in picked]
        batch = pack([sequences[i] for i in picked], beside).to(device)
        target = None if targets is None else pack([targets[i] for i in picked]).to(device)
        yield picked, batch, target


def _batches(sequences: Sequences, targets: Sequences | None) -> Iterator[list[int]]:
    order = order_by_length(sequences)
    lengths = [len(sequences[i]) + (0 if targets is None else len(targets[i])) for i in order]
    for part in group_by_tokens(lengths, _MOST_BATCH_TOKENS):
        yield [order[i] for i in part]


def check_sequences(
    network: Network, sequences: Sequences, targets: Sequences | None, segments: Sequences | None
) -> None:
    if isinstance(sequences, str) or any(isinstance(sequence, str) for sequence in sequences):
        raise InputError("These are texts, not token ids. For text, use embed or fill.")
    for rows in (sequences, () if targets is None else as_items(targets, "targets")):
        for index, sequence in enumerate(rows):
            check_sequence(network, sequence, index)
    architecture = network.architecture
    if targets is not None and not architecture.is_encoder_decoder:
        raise InputError(f"Targets go with an encoder–decoder; this is a {architecture.family}.")
    if targets is not None and len(targets) != len(sequences):
        raise InputError(f"There are {len(sequences)} sources but {len(targets)} targets.")
    if segments is None:
        return
    if [np.asarray(row).size for row in as_items(segments, "segments")] != [len(row) for row in sequences]:
        raise InputError("Segments must have a number for each token of each sequence.")
    most = max(architecture.embedding.segments, 1)
    if any(not 0 <= number < most for row in segments for number in row):
        raise InputError(f"This {architecture.family} has segments from 0 to {most - 1}.")


def check_sequence(network: Network, sequence: Sequence[int], index: int) -> None:
    try:
        ids = np.asarray(sequence)
    except ValueError:  # lists of unequal lengths
        ids = np.empty((0, 0))
    if ids.ndim != 1:
        raise InputError(f"Sequence {index} is not a row of token ids; give a list of lists of integers.")
    if ids.size == 0:
        raise InputError(f"Sequence {index} is empty; each needs at least one token id.")
    if not np.issubdtype(ids.dtype, np.integer):
        raise InputError(f"Sequence {index} does not hold token ids (integers).")
    vocabulary = network.architecture.vocabulary
    if ids.min() < 0 or ids.max() >= vocabulary:
        wrong = int(ids.min() if ids.min() < 0 else ids.max())
        raise InputError(f"Sequence {index} holds the token id {wrong}; ids are from 0 to {vocabulary - 1}.")
    limit = longest(network.architecture.embedding.positions)
    if limit is not None and ids.size > limit:
        raise InputError(f"Sequence {index} has {ids.size} tokens; this model reads at most {limit}.")
