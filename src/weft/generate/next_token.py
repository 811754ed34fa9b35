"""The choice of the next token: penalties and bans, filters, sampling.

The order is the usual one: penalties and bans change the scores; then temperature, top-k, top-p, min-p and typical-p,
each on what the one before has left.

A sampled token depends on (seed, prompt, which sample of that prompt, step) and nothing else, so a text does not depend
on the other texts of its batch.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from weft.generate.settings import Settings
from weft.generate.start_end_tokens import StartEndTokens
from weft.splitmix64 import GOLDEN_GAMMA, mix64

# The top-p of most distributions lies within this many tokens. Sorting a large vocabulary costs more than a step.
_SHORTLIST = 256


class Rules:
    """Changes to the scores before a token is chosen; one row per sequence."""

    def __init__(
        self, settings: Settings, start_end: StartEndTokens, prompts: Sequence[Sequence[int]], like: Tensor
    ) -> None:
        self.settings, self.start_end = settings, start_end
        device, vocabulary = like.device, like.shape[-1]
        self.banned = torch.tensor([*start_end.banned_ids, *settings.banned], dtype=torch.long, device=device)
        self.end_ids = torch.tensor(start_end.end_ids, dtype=torch.long, device=device)
        self.seen: Tensor | None = None  # (R, V): the token is in the prompt or the text
        self.written: Tensor | None = None  # (R, V): occurrences in the text
        if settings.repetition_penalty != 1.0:
            self.seen = torch.zeros(len(prompts), vocabulary, dtype=torch.bool, device=device)
            for row, prompt in enumerate(prompts):
                self.seen[row, torch.as_tensor(prompt, device=device)] = True
        if settings.frequency_penalty != 0.0:
            self.written = like.new_zeros(len(prompts), vocabulary)

    def apply(self, scores_RV: Tensor, step: int, mosts: Sequence[int]) -> Tensor:
        """`step`: tokens so far. `mosts`: the most new tokens of each row. May change `scores_RV` in place."""
        penalty = self.settings.repetition_penalty
        if self.seen is not None:
            lowered = torch.where(scores_RV < 0, scores_RV * penalty, scores_RV / penalty)
            scores_RV = torch.where(self.seen, lowered, scores_RV)
        if self.written is not None:
            scores_RV = scores_RV.sub_(self.written, alpha=self.settings.frequency_penalty)
        if len(self.banned):
            scores_RV = scores_RV.index_fill_(1, self.banned, -torch.inf)
        if step < self.settings.min_new_tokens and len(self.end_ids):
            scores_RV = scores_RV.index_fill_(1, self.end_ids, -torch.inf)
        if self.start_end.forced_end_id is not None and (
            last := [row for row, most in enumerate(mosts) if step == most - 1]
        ):
            scores_RV[last] = -torch.inf
            scores_RV[last, self.start_end.forced_end_id] = 0.0
        return scores_RV

    def note(self, tokens_R: Tensor) -> None:
        if self.seen is not None:
            self.seen.scatter_(1, tokens_R[:, None], True)
        if self.written is not None:
            self.written.scatter_add_(1, tokens_R[:, None], self.written.new_ones(len(tokens_R), 1))

    def keep(self, rows: np.ndarray) -> None:
        """Keep these rows, in this order."""
        if self.seen is not None:
            self.seen = self.seen[torch.as_tensor(rows, device=self.seen.device)]
        if self.written is not None:
            self.written = self.written[torch.as_tensor(rows, device=self.written.device)]


def filtered_probabilities(scores_RV: Tensor, settings: Settings) -> tuple[Tensor, Tensor | None]:
    """Probabilities (R, K) of the tokens that the filters leave, in descending order, and their ids. Without a filter:
    the whole vocabulary in its order, and None.
    """
    scores = scores_RV - scores_RV.amax(dim=-1, keepdim=True)  # or a low temperature overflows float32
    if settings.temperature is not None:
        scores = scores / settings.temperature
    probabilities, tokens = _shortlist(scores, settings)
    if settings.top_p is not None:
        before = probabilities.cumsum(-1) - probabilities
        # The most probable token always stays, however small p is.
        probabilities = probabilities.masked_fill((before >= settings.top_p) & (before > 0), 0.0)
    if settings.min_p:
        floor = probabilities.amax(dim=-1, keepdim=True) * settings.min_p
        probabilities = probabilities.masked_fill(probabilities < floor, 0.0)
    if settings.typical_p is not None:
        probabilities = _typical(probabilities, settings.typical_p)
    return probabilities, tokens


def _shortlist(scores: Tensor, settings: Settings) -> tuple[Tensor, Tensor | None]:
    """Softmax after top-k, of no more tokens than top-p can need."""
    vocabulary = scores.shape[-1]
    if settings.top_k is not None and settings.top_k < vocabulary:
        best = scores.topk(settings.top_k)
        return best.values.softmax(-1), best.indices
    if settings.top_p is None:
        return scores.softmax(-1), None
    if vocabulary > 4 * _SHORTLIST:
        best = scores.topk(_SHORTLIST)
        probabilities = (best.values - scores.logsumexp(-1, keepdim=True)).exp()
        if bool((probabilities.sum(-1) >= settings.top_p).all()):
            return probabilities, best.indices
    ordered = scores.sort(dim=-1, descending=True)
    return ordered.values.softmax(-1), ordered.indices


def _typical(probabilities: Tensor, mass: float) -> Tensor:
    """The tokens whose surprise is nearest to the entropy, until their probabilities reach `mass`."""
    normal = probabilities / probabilities.sum(-1, keepdim=True)
    surprise = -normal.log()
    entropy = (normal * surprise).nansum(-1, keepdim=True)
    ordered = (surprise - entropy).abs().sort(dim=-1)
    before = normal.gather(-1, ordered.indices).cumsum(-1) - normal.gather(-1, ordered.indices)
    keeps = torch.zeros_like(normal, dtype=torch.bool).scatter_(-1, ordered.indices, before < mass)
    return probabilities.masked_fill(~keeps, 0.0)


def most_probable(scores_RV: Tensor) -> Tensor:
    # On a CPU numpy's argmax is ten times as fast as torch's.
    return torch.from_numpy(scores_RV.numpy().argmax(-1)) if scores_RV.device.type == "cpu" else scores_RV.argmax(-1)


def draw_tokens(probabilities_RK: Tensor, tokens_RK: Tensor | None, chance_R: Tensor) -> Tensor:
    """The token at which the running sum passes `chance` of the total."""
    total = probabilities_RK.double().cumsum(-1)
    place = torch.searchsorted(total, chance_R[:, None].to(total.device) * total[:, -1:], right=True)
    # Rounding may land after the last token with a probability above 0.
    last = (probabilities_RK > 0).long().cumsum(-1).argmax(-1, keepdim=True)
    place = torch.minimum(place, last)
    return (place if tokens_RK is None else tokens_RK.gather(-1, place))[:, 0]


class RandomStreams:
    """A stream of uniform numbers in [0, 1) for each sequence (SplitMix64: Steele et al. 2014)."""

    def __init__(self, keys: np.ndarray) -> None:
        self.keys = keys

    @classmethod
    def seeded(cls, seed: int, prompts: Sequence[Sequence[int]]) -> "RandomStreams":
        """Equal prompts differ by how many of them came before."""
        seen: Counter[bytes] = Counter()
        keys = []
        for prompt in prompts:
            text = np.asarray(prompt, dtype=np.int64).tobytes()
            key = hashlib.blake2b(text, digest_size=8, key=f"{seed} {seen[text]}".encode())
            keys.append(int.from_bytes(key.digest(), "little"))
            seen[text] += 1
        return cls(np.array(keys, dtype=np.uint64))

    def at(self, step: int) -> Tensor:
        """(R,) in double precision."""
        bits = mix64(self.keys + np.uint64((step + 1) * GOLDEN_GAMMA % 2**64))
        return torch.from_numpy((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)

    def of(self, rows: Sequence[int] | np.ndarray) -> "RandomStreams":
        return RandomStreams(self.keys[np.asarray(rows)])
