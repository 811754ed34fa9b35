"""How well a saved language model predicts given text.

The text is read as training reads validation text: tokenized onto one tape, every document closed by its end token.

    causal    every token after the first, in windows that overlap by a quarter so that each has context
    masked    masked tokens, the same ones each time: masks depend on a fixed seed and the window
    seq2seq   the targets of span corruption, with the same fixed seed; after denoising, the whole text

Intervals come from a bootstrap over windows.
"""

import math
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from weft.devices import widest_float
from weft.errors import InputError, WeftError
from weft.metrics.bootstrap import Interval, sum_intervals
from weft.model.network import Network
from weft.model.packed import pack
from weft.model.positions import longest
from weft.objectives.catalog import DEFAULT_OBJECTIVE, OBJECTIVES, ObjectiveKind, text_objective
from weft.objectives.objective import Batch
from weft.progress import Gauge
from weft.tokenizer.tokenizer import Tokenizer
from weft.tokens.shards import TokenShards
from weft.train.data import TrainingSource, prepare_shards
from weft.train.ngram_baseline import ngram_baseline

_USUAL_WINDOW, _MOST_WINDOW = 512, 1024  # tokens, where training's length is unknown; the first without a limit
_MOST_BATCH_TOKENS, _MOST_LOGITS = 4096, 2**26  # of a batch
_FEWEST_WINDOWS = 10  # for an interval
_MASK_SEED = 0

TextSource = Callable[[], Iterator[str]]


@dataclass(frozen=True)
class TextScores:
    kind: str  # causal, masked or seq2seq
    objective: str  # by its name in a recipe
    figures: dict[str, float]
    intervals: dict[str, Interval]
    tokens: int  # that were scored
    bytes: int
    characters: int
    window: int
    baseline: dict[str, Any]


def language_head(network: Network) -> str | None:
    """The head that predicts tokens: causal, masked or seq2seq."""
    return next((kind for kind in network.heads if kind in DEFAULT_OBJECTIVE), None)


def score_texts(
    network: Network,
    tokenizer: Tokenizer,
    texts: TextSource,
    train: TextSource | None = None,
    trained_length: int | None = None,
    trained_with: object = None,
) -> TextScores:
    """`train`: text for an n-gram baseline. `trained_length`: tokens of a sequence in training, if known.
    `trained_with`: the objective of the training, if known.

    Raises InputError if there is no text, or no head that predicts tokens.
    """
    head = language_head(network)
    if head is None:
        raise InputError(f"This {network.architecture.family} has no language-model head, so it cannot score text.")
    objective = text_objective(head, trained_with)
    kind = OBJECTIVES[objective]
    limit = longest(network.architecture.embedding.positions)
    window = min(trained_length or min(limit or _USUAL_WINDOW, _MOST_WINDOW), limit or _MOST_WINDOW)
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        shards = tokenized_texts(texts, tokenizer, kind, Path(folder) / "text")
        if len(shards) < 2:
            raise InputError("The text has no token that can be scored: give more text.")
        sums = _all_sums(network.eval(), head, TextWindows.of(shards, tokenizer, kind, window))
        baseline = {}
        if train is not None:
            known = tokenized_texts(train, tokenizer, kind, Path(folder) / "train")
            found = ngram_baseline([known], [shards], head, tokenizer.special_ids, len(known))
            baseline = {key.removeprefix(f"validation_{head}_"): value for key, value in found.items()}
        tokens, characters, size = len(shards), shards.characters, shards.bytes

    def figures(sums: np.ndarray) -> dict[str, np.ndarray]:
        """`sums` (…, 3): nats, correct predictions, scored tokens."""
        loss = sums[..., 0] / sums[..., 2]
        perplexity = np.exp(np.minimum(loss, 700.0))
        if head == "causal":
            bits = loss / math.log(2) * tokens
            per_size = {"bits_per_byte": bits / size, "bits_per_character": bits / characters}
            return {"perplexity": perplexity, **per_size, "loss": loss, "accuracy": sums[..., 1] / sums[..., 2]}
        return {"accuracy": sums[..., 1] / sums[..., 2], "loss": loss, "perplexity": perplexity}

    scored = sums[sums[:, 2] > 0]
    if not len(scored):
        raise InputError("The text has no token that can be scored: give more text.")
    total = scored.sum(0)
    if not np.isfinite(total[0]):
        raise WeftError("The model's loss is NaN: its weights have diverged, so it cannot be evaluated.")
    intervals = sum_intervals(scored, figures) if len(scored) >= _FEWEST_WINDOWS else {}
    found_figures = {name: float(value) for name, value in figures(total).items()}
    return TextScores(head, objective, found_figures, intervals, int(total[2]), size, characters, window, baseline)


def tokenized_texts(texts: TextSource, tokenizer: Tokenizer, kind: ObjectiveKind, folder: Path) -> TokenShards:
    shards = prepare_shards(TrainingSource((), 1.0, lambda _: texts()), "test", tokenizer, kind, folder)
    if shards is None:
        raise InputError("The files hold no text to evaluate on.")
    return shards


@dataclass(frozen=True)
class TextWindows:
    """`batch(numbers)` makes a batch of some of the `count` windows. The last may be shorter."""

    count: int
    length: int
    batch: Callable[[list[int]], Batch]

    @classmethod
    def of(cls, shards: TokenShards, tokenizer: Tokenizer, kind: ObjectiveKind, length: int) -> "TextWindows":
        if kind.head == "causal":
            context = length // 4
            count = max(1, math.ceil((len(shards) - 1 - context) / (length - context)))
            return cls(count, length, lambda numbers: _causal_batch(shards, numbers, length, context))
        objective = kind.make(shards, tokenizer, length, kind.masking)
        count = math.ceil(len(shards) / (length - (2 if kind.head == "masked" else 1)))
        return cls(count, length, lambda numbers: objective.batch(numbers, [0] * len(numbers), _MASK_SEED))


def _causal_batch(shards: TokenShards, numbers: list[int], length: int, context: int) -> Batch:
    """As `Causal.reading_on`, with a last window that may be shorter."""
    starts = [number * (length - context) for number in numbers]
    windows = [shards[start : start + length + 1] for start in starts]
    packed = pack([window[:-1] for window in windows])
    begins = np.concatenate([[0], np.cumsum(packed.lengths)])
    scored = [
        np.arange(begin + (context if number else 0), end)
        for number, begin, end in zip(numbers, begins, begins[1:], strict=False)
    ]
    rows = torch.from_numpy(np.concatenate(scored))
    targets = torch.from_numpy(np.concatenate([window[1:] for window in windows]))[rows]
    return Batch(packed, targets, rows, counts={"causal": len(rows)})


def _all_sums(network: Network, head: str, windows: TextWindows) -> np.ndarray:
    tokens = min(_MOST_BATCH_TOKENS, _MOST_LOGITS // network.architecture.vocabulary)
    size = max(1, tokens // windows.length)
    device = next(network.parameters()).device
    found = []
    with Gauge("Scoring", unit="windows", total_items=windows.count) as gauge:
        for start in range(0, windows.count, size):
            part = list(range(start, min(start + size, windows.count)))
            found.append(window_sums(network, head, windows.batch(part).to(device)))
            gauge.add(len(part))
    return np.concatenate(found)


@torch.inference_mode()
def window_sums(network: Network, head: str, batch: Batch) -> np.ndarray:
    """(windows, 3): nats, correct predictions, scored tokens."""
    assert batch.targets is not None
    hidden, reader = network(batch.packed, batch.decoder), batch.decoder or batch.packed
    rows = torch.arange(len(batch.targets), device=batch.targets.device) if batch.rows is None else batch.rows
    logits = network.head(head)(hidden, reader, rows).float()
    nats = F.cross_entropy(logits, batch.targets, reduction="none")
    scores = torch.stack([nats, (logits.argmax(-1) == batch.targets).float(), torch.ones_like(nats)], 1)
    scores = scores.to(widest_float(scores.device))
    window = torch.searchsorted(reader.starts[1:].contiguous(), rows, right=True)
    return scores.new_zeros(len(reader.lengths), 3).index_add_(0, window, scores).cpu().numpy()
