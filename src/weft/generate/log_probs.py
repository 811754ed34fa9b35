"""Log-probabilities of given tokens: of whole texts, and of answers to a prompt.

Each token is scored given all before it. The first is scored after the model's start token, or not at all if there is
none. A text longer than the context is read in windows that overlap by half, so that every token after the first window
has at least half a context before it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from weft.generate.decoder import Decoder, Ids, Row, TokenChunk
from weft.generate.pages import PageShape, pages_for
from weft.generate.prepare import Prepared
from weft.model.network import Network
from weft.model.packed import group_by_tokens, order_by_length, pack

_MOST_BATCH_TOKENS, _SCORED_AT_A_TIME = (
    8192,
    512,
)  # of a batch; of a piece of it that is compared with the whole vocabulary


@dataclass(frozen=True)
class Score:
    """Of one text. `log_probs`: natural logarithms, of the tokens that were scored."""

    log_probs: list[float]
    perplexity: float  # NaN if no token was scored
    bits_per_byte: float | None  # None if no token was scored, or the text is not known

    @property
    def log_prob(self) -> float:
        return math.fsum(self.log_probs)


@dataclass(frozen=True)
class Candidate:
    """One of the options of `choose`."""

    option: str
    probability: float  # among the options
    log_prob: float  # of all its tokens
    tokens: int


@dataclass(frozen=True)
class _Window:
    text: int
    given: Ids  # the input
    targets: Ids  # the tokens to score: the next ones of the last positions


def log_probs_of(
    network: Network, texts: Sequence[Ids], sources: Sequence[Ids] | None, limit: int | None
) -> list[list[float]]:
    """Of every token of each text but the first, which is only read."""
    windows = [window for place, text in enumerate(texts) for window in _windows(place, text, limit)]
    found: list[list[float]] = [[] for _ in windows]
    order = order_by_length([window.given for window in windows])
    lengths = [len(windows[place].given) for place in order]
    if sources is not None:
        lengths = [length + len(sources[windows[place].text]) for place, length in zip(order, lengths, strict=True)]
    for part in group_by_tokens(lengths, _MOST_BATCH_TOKENS):
        picked = [windows[order[place]] for place in part]
        scored = _score_batch(network, picked, None if sources is None else [sources[one.text] for one in picked])
        for place, numbers in zip(part, scored, strict=True):
            found[order[place]] = numbers
    results: list[list[float]] = [[] for _ in texts]
    for window, numbers in zip(windows, found, strict=True):
        results[window.text] += numbers
    return results


def _windows(place: int, text: Ids, limit: int | None) -> Iterator[_Window]:
    """Each token is a target once, in order."""
    last = len(text) - 1  # tokens that have one before them
    size = last if limit is None else min(limit, last)
    done = 0
    while done < last:
        end = min(size, last) if done == 0 else min(done + max(1, size // 2), last)
        yield _Window(place, text[end - min(size, end) : end], text[done + 1 : end + 1])
        done = end


def _score_batch(network: Network, windows: Sequence[_Window], sources: Sequence[Ids] | None) -> list[list[float]]:
    device = next(network.parameters()).device
    batch = pack([window.given for window in windows]).to(device)
    if sources is None:
        hidden = network(batch)
    else:
        source = pack(sources).to(device)
        hidden = network.decode(batch, network.encode(source), source)
    counts = [len(window.targets) for window in windows]
    ends = np.cumsum(batch.lengths)
    rows = np.concatenate([np.arange(end - count, end) for end, count in zip(ends, counts, strict=True)])
    targets = np.concatenate([np.asarray(window.targets, dtype=np.int64) for window in windows])
    head = network.head("causal" if sources is None else "seq2seq")
    pieces = [
        _log_probs(
            head(hidden, batch, torch.as_tensor(rows[at : at + _SCORED_AT_A_TIME], device=device)),
            targets[at : at + _SCORED_AT_A_TIME],
        )
        for at in range(0, len(rows), _SCORED_AT_A_TIME)
    ]
    return [part.tolist() for part in torch.cat(pieces).split(counts)]


def _log_probs(logits: Tensor, targets: np.ndarray) -> Tensor:
    wanted = torch.as_tensor(targets, device=logits.device)[:, None]
    return logits.float().log_softmax(-1).gather(1, wanted)[:, 0].cpu().double()


def to_score(log_probs: list[float], text: str) -> Score:
    total, size = math.fsum(log_probs), len(text.encode("utf-8", "surrogatepass"))
    if not log_probs:
        return Score(log_probs, math.nan, None)
    mean = -total / len(log_probs)
    perplexity = math.exp(mean) if mean < 700 else math.inf
    return Score(log_probs, perplexity, -total / math.log(2) / size if size else None)


def log_probs_after(ready: Prepared, prompt: Ids, source: Ids | None, answers: Sequence[Ids]) -> list[float]:
    """Of each whole answer. The prompt is read once; all answers continue it."""
    decoder = Decoder(ready, _memory_for(ready, len(prompt), source, answers))
    row = decoder.open_row(None if source is None else decoder.read_source(source))
    return _log_probs_from(decoder, row, prompt, answers)


def log_probs_after_each(
    ready: Prepared, prompts: Sequence[Ids], answers: Sequence[Sequence[Ids]]
) -> list[list[float]]:
    """Of each whole answer to each prompt, for decoders. What all prompts begin with is read once."""
    shared = shared_prefix(prompts)
    if not shared:
        return [log_probs_after(ready, prompt, None, each) for prompt, each in zip(prompts, answers, strict=True)]
    sizes = (_memory_for(ready, len(prompt), None, each) for prompt, each in zip(prompts, answers, strict=True))
    decoder = Decoder(ready, max(sizes) + _memory_for(ready, shared, None, []))
    begun, found = decoder.open_row(), []
    decoder.read([TokenChunk(begun, prompts[0][:shared], 1)])
    for prompt, each in zip(prompts, answers, strict=True):
        row = decoder.fork(begun)
        found.append(_log_probs_from(decoder, row, prompt[shared:], each))
        decoder.close(row)
    return found


def _log_probs_from(decoder: Decoder, row: Row, prompt: Ids, answers: Sequence[Ids]) -> list[float]:
    """After what the row has read, and the prompt."""
    first = decoder.read([TokenChunk(row, prompt, 1)]).log_softmax(-1)[0]
    totals = [float(first[answer[0]]) for answer in answers]
    for part in group_by_tokens([len(answer) for answer in answers], _SCORED_AT_A_TIME):
        longer = [place for place in part if len(answers[place]) > 1]
        rows = [decoder.fork(row) for _ in longer]
        chunks = [
            TokenChunk(one, answers[place][:-1], len(answers[place]) - 1)
            for one, place in zip(rows, longer, strict=True)
        ]
        if not chunks:
            continue
        logits = decoder.read(chunks).log_softmax(-1)
        for place, numbers in zip(longer, logits.split([chunk.wanted for chunk in chunks]), strict=True):
            targets = torch.as_tensor(answers[place][1:])[:, None]
            totals[place] += float(numbers.gather(1, targets).double().sum())
        for one in rows:
            decoder.close(one)
    return totals


def _memory_for(ready: Prepared, prompt: int, source: Ids | None, answers: Sequence[Ids]) -> int:
    """Bytes for the keys and values of the prompt and of all answers that are read together."""
    stack = ready.network.decoder
    if stack is None:
        return 0
    pages = pages_for(prompt) + sum(pages_for(len(answer)) + 1 for answer in answers) + pages_for(len(source or ()))
    floats = PageShape.of_tokens(stack).numbers + (0 if source is None else PageShape.of_source(stack).numbers)
    return max(4, next(ready.network.parameters()).element_size()) * floats * pages


def shared_prefix(rows: Sequence[Ids]) -> int:
    """How many first tokens all rows share; at least one of each row is left over."""
    most = min(len(row) for row in rows) - 1
    same = [len({row[place] for row in rows}) == 1 for place in range(most)]
    return same.index(False) if False in same else most
