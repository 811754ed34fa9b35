"""The choice of the next token: penalties and bans, filters, sampling.

The order is the usual one: penalties and bans change the scores; then temperature, top-k, top-p, min-p and typical-p,
each on what the one before has left.

A sampled token depends on (seed, prompt, which sample of that prompt, step) and nothing else, so a text does not depend
on the other texts that are generated at the same time. Rows are filtered together where that saves time; what a row
gets does not depend on the others.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from weft.generate.settings import Settings
from weft.generate.start_end_tokens import StartEndTokens
from weft.splitmix64 import GOLDEN_GAMMA, mix64

# The top-p of most distributions lies within this many tokens. Sorting a large vocabulary costs more than a step.
_SHORTLIST = 256
Processor = Callable[[list[int], np.ndarray], np.ndarray | None]


class TokenRules:
    """Changes to the scores of one text's next token, before it is chosen."""

    def __init__(
        self,
        settings: Settings,
        start_end: StartEndTokens,
        prompt: Sequence[int],
        vocabulary: int,
        processors: Sequence[Processor] = (),
    ) -> None:
        self.settings, self.start_end, self.prompt, self.processors = settings, start_end, prompt, processors
        self.banned = np.array([*start_end.banned_ids, *settings.banned], np.int64)
        self.end_ids = np.array(start_end.end_ids, np.int64)
        self.bias = np.array([*settings.logit_bias.keys()], np.int64), np.array([*settings.logit_bias.values()], "f4")
        self.seen: np.ndarray | None = None  # (V): the token is in the prompt or the text
        self.written: np.ndarray | None = None  # (V): occurrences in the text
        self.ngrams: _NGrams | None = None
        if settings.repetition_penalty != 1.0:
            self.seen = np.zeros(vocabulary, bool)
            self.seen[np.asarray(prompt)] = True
        if settings.frequency_penalty or settings.presence_penalty:
            self.written = np.zeros(vocabulary, np.float32)
        if settings.no_repeat_ngram:
            self.ngrams = _NGrams(settings.no_repeat_ngram, prompt)
        penalizes = self.seen is not None or self.written is not None or self.ngrams is not None
        self.is_idle = not (
            penalizes
            or len(self.banned)
            or settings.min_new_tokens
            or start_end.forced_end_id is not None
            or settings.logit_bias
            or processors
        )

    def apply(self, scores_V: np.ndarray, tokens: list[int], most: int) -> None:
        """Changes `scores_V` in place. `tokens`: the text so far. `most`: its new tokens at most."""
        settings, step = self.settings, len(tokens)
        if self.seen is not None:
            scores, penalty = scores_V[self.seen], np.float32(settings.repetition_penalty)
            scores_V[self.seen] = np.where(scores < 0, scores * penalty, scores / penalty)
        if self.written is not None:
            scores_V -= self.written * np.float32(settings.frequency_penalty)
            if settings.presence_penalty:
                scores_V[self.written > 0] -= np.float32(settings.presence_penalty)
        if settings.logit_bias:
            scores_V[self.bias[0]] += self.bias[1]
        if self.ngrams is not None:
            scores_V[self.ngrams.banned()] = -np.inf
        if len(self.banned):
            scores_V[self.banned] = -np.inf
        if step < settings.min_new_tokens and len(self.end_ids):
            scores_V[self.end_ids] = -np.inf
        if self.start_end.forced_end_id is not None and step == most - 1 and not settings.is_constrained:
            scores_V[:] = -np.inf
            scores_V[self.start_end.forced_end_id] = 0.0
        for process in self.processors:
            changed = process([*self.prompt, *tokens], scores_V)
            if changed is not None:
                scores_V[:] = changed

    def note(self, token: int) -> None:
        if self.seen is not None:
            self.seen[token] = True
        if self.written is not None:
            self.written[token] += 1
        if self.ngrams is not None:
            self.ngrams.add(token)

    def copy(self) -> "TokenRules":
        """For another text that begins like this one."""
        other = TokenRules.__new__(TokenRules)
        other.__dict__.update(self.__dict__)
        other.seen = None if self.seen is None else self.seen.copy()
        other.written = None if self.written is None else self.written.copy()
        other.ngrams = None if self.ngrams is None else self.ngrams.copy()
        return other


class _NGrams:
    """Which tokens would repeat an n-gram of prompt and text (Paulus et al. 2018)."""

    def __init__(self, size: int, tokens: Sequence[int]) -> None:
        self.size, self.last, self.after = size, list[int](), dict[tuple[int, ...], list[int]]()
        for token in tokens:
            self.add(token)

    def add(self, token: int) -> None:
        if len(self.last) == self.size - 1:
            self.after.setdefault(tuple(self.last), []).append(token)
        self.last = [*self.last, token][-(self.size - 1) :] if self.size > 1 else []

    def banned(self) -> list[int]:
        return self.after.get(tuple(self.last), []) if len(self.last) == self.size - 1 else []

    def copy(self) -> "_NGrams":
        other = _NGrams(self.size, ())
        other.last, other.after = list(self.last), {key: list(value) for key, value in self.after.items()}
        return other


def choose_tokens(scores_RV: Tensor, settings: Sequence[Settings], chances: Sequence[float]) -> list[int]:
    """A token for each row: the most probable one, or a sample where the strategy is `sample`."""
    groups: dict[tuple | None, list[int]] = {}
    for row, one in enumerate(settings):
        groups.setdefault(_filters(one) if one.strategy == "sample" else None, []).append(row)
    if len(groups) == 1:
        return _choose(scores_RV, settings, chances, is_greedy=None in groups)
    found = [0] * len(settings)
    for filters, rows in groups.items():
        its = [settings[row] for row in rows]
        chosen = _choose(scores_RV[rows], its, [chances[row] for row in rows], is_greedy=filters is None)
        for row, token in zip(rows, chosen, strict=True):
            found[row] = token
    return found


def _filters(settings: Settings) -> tuple:
    """Rows are sampled together if they have the same filters; their values may differ, but for k."""
    return settings.top_k, settings.top_p is None, not settings.min_p, settings.typical_p is None


def _choose(scores_RV: Tensor, settings: Sequence[Settings], chances: Sequence[float], *, is_greedy: bool) -> list[int]:
    if is_greedy:
        return scores_RV.numpy().argmax(-1).tolist()  # ten times as fast as torch's
    found, chance = torch.zeros(len(settings), dtype=torch.long), torch.tensor(chances, dtype=torch.double)
    for rows, probabilities, tokens in filtered_probabilities(scores_RV, settings):
        found[rows] = draw_tokens(probabilities, tokens, chance[rows])
    return found.tolist()


def filtered_probabilities(
    scores_RV: Tensor, settings: Sequence[Settings]
) -> Iterator[tuple[list[int], Tensor, Tensor | None]]:
    """Probabilities (R, K) of the tokens that the filters leave, in descending order, and their ids. Without a filter:
    the whole vocabulary in its order, and None. Rows that need different K come one after the other.
    """
    scores = scores_RV - scores_RV.amax(dim=-1, keepdim=True)  # or a low temperature overflows float32
    scores = scores / _column([one.temperature or 1.0 for one in settings])
    one, vocabulary, left = settings[0], scores.shape[-1], list(range(len(settings)))
    if one.top_k is not None and one.top_k < vocabulary:
        best = scores.topk(one.top_k)
        yield left, _filtered(best.values.softmax(-1), settings), best.indices
        return
    if one.top_p is None:
        yield left, _filtered(scores.softmax(-1), settings), None
        return
    if vocabulary > 4 * _SHORTLIST:
        best = scores.topk(_SHORTLIST)
        probabilities = (best.values - scores.logsumexp(-1, keepdim=True)).exp()
        is_enough = (probabilities.sum(-1, keepdim=True) >= _column([one.top_p for one in settings]))[:, 0].tolist()
        rows, left = [row for row in left if is_enough[row]], [row for row in left if not is_enough[row]]
        if rows:
            yield rows, _filtered(probabilities[rows], [settings[row] for row in rows]), best.indices[rows]
    if left:
        ordered = scores[left].sort(dim=-1, descending=True)
        yield left, _filtered(ordered.values.softmax(-1), [settings[row] for row in left]), ordered.indices


def _filtered(probabilities_RK: Tensor, settings: Sequence[Settings]) -> Tensor:
    """After top-p, min-p and typical-p."""
    probabilities, one = probabilities_RK, settings[0]
    if one.top_p is not None:
        before = probabilities.cumsum(-1) - probabilities
        # The most probable token always stays, however small p is.
        is_outside = (before >= _column([one.top_p for one in settings])) & (before > 0)
        probabilities = probabilities.masked_fill(is_outside, 0.0)
    if one.min_p:
        floor = probabilities.amax(dim=-1, keepdim=True) * _column([one.min_p for one in settings])
        probabilities = probabilities.masked_fill(probabilities < floor, 0.0)
    if one.typical_p is not None:
        probabilities = _typical(probabilities, _column([one.typical_p for one in settings]))
    return probabilities


def _column(values: Sequence[float | None]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)[:, None]


def _typical(probabilities: Tensor, mass: Tensor) -> Tensor:
    """The tokens whose surprise is nearest to the entropy, until their probabilities reach `mass`."""
    normal = probabilities / probabilities.sum(-1, keepdim=True)
    surprise = -normal.log()
    entropy = (normal * surprise).nansum(-1, keepdim=True)
    ordered = (surprise - entropy).abs().sort(dim=-1)
    before = normal.gather(-1, ordered.indices).cumsum(-1) - normal.gather(-1, ordered.indices)
    keeps = torch.zeros_like(normal, dtype=torch.bool).scatter_(-1, ordered.indices, before < mass)
    return probabilities.masked_fill(~keeps, 0.0)


def draw_tokens(probabilities_RK: Tensor, tokens_RK: Tensor | None, chance_R: Tensor) -> Tensor:
    """The token at which the running sum passes `chance` of the total."""
    total = probabilities_RK.double().cumsum(-1)
    place = torch.searchsorted(total, chance_R[:, None] * total[:, -1:], right=True)
    # Rounding may land after the last token with a probability above 0.
    last = (probabilities_RK > 0).long().cumsum(-1).argmax(-1, keepdim=True)
    place = torch.minimum(place, last)
    return (place if tokens_RK is None else tokens_RK.gather(-1, place))[:, 0]


def random_keys(seed: int, prompts: Sequence[Sequence[int]]) -> list[int]:
    """A key for each text's random numbers. Equal prompts differ by how many of them came before."""
    seen: Counter[bytes] = Counter()
    keys = []
    for prompt in prompts:
        text = np.asarray(prompt, dtype=np.int64).tobytes()
        key = hashlib.blake2b(text, digest_size=8, key=f"{seed} {seen[text]}".encode())
        keys.append(int.from_bytes(key.digest(), "little"))
        seen[text] += 1
    return keys


def uniforms(keys: Sequence[int], steps: Sequence[int]) -> list[float]:
    """A number in [0, 1) for each key and step (SplitMix64: Steele et al. 2014)."""
    counters = [(key + (step + 1) * GOLDEN_GAMMA) % 2**64 for key, step in zip(keys, steps, strict=True)]
    bits = mix64(np.array(counters, np.uint64))
    return ((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53).tolist()
