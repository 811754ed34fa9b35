"""Beam search: several hypotheses per prompt, and the most probable finished ones in the end.

In each step every beam proposes its best next tokens, and the best of all proposals continue. A proposal that ends its
text becomes a finished hypothesis, scored by log-probability / lengthᵖ. The search ends when no beam can beat the worst
finished hypothesis at the present length (`early_stopping` false) or at the best possible length ("never"), or as soon
as there are as many finished hypotheses as beams (true). These are the rules of `transformers`, token for token.

In diverse beam search (Vijayakumar et al. 2018) groups of beams search one after the other, and a token costs
`diversity` for each earlier group that has chosen it in the same step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from weft.generate.job import Finish
from weft.generate.next_token import TokenRules
from weft.generate.settings import Settings
from weft.generate.start_end_tokens import StartEndTokens

LOST = -1e9  # the score of an unused beam
_Proposal = tuple[float, int, int, float]  # score, beam, token, log-probability


@dataclass(frozen=True)
class Hypothesis:
    """A finished text."""

    score: float
    tokens: list[int]
    log_probs: list[float]
    finish: Finish


class _Group:
    """One group of beams of one prompt."""

    def __init__(self, beams: int, most: int, settings: Settings) -> None:
        assert settings.length_penalty is not None
        self.beams, self.most = beams, most
        self.penalty, self.early = settings.length_penalty, settings.early_stopping
        self.scores = [0.0] + [LOST] * (beams - 1)
        self.tokens = np.zeros((beams, 0), dtype=np.int64)
        self.log_probs = np.zeros((beams, 0))
        self.found: list[Hypothesis] = []
        self.is_over = False

    def advance(self, proposals: Sequence[_Proposal], finishes: Callable[[list[int]], Finish | None]) -> np.ndarray:
        """Take the best of `proposals`, best first. Returns the beam that each new one continues."""
        length = self.tokens.shape[1] + 1
        going_on, ended = [], []
        for rank, (score, beam, token, log_prob) in enumerate(proposals):
            finish = finishes([*self.tokens[beam].tolist(), token])
            finish = finish or ("length" if length == self.most else None)
            if finish is None:
                going_on.append((score, beam, token, log_prob))
                continue
            ended.append((score + LOST, beam, token, log_prob))
            if rank < self.beams and not self.is_over and score > LOST / 2:
                self._finish(score / length**self.penalty, beam, token, log_prob, finish)
        chosen = [*going_on, *ended][: self.beams]
        parents = np.array([beam for _, beam, _, _ in chosen])
        self.scores = [score for score, _, _, _ in chosen]
        self.tokens = np.column_stack([self.tokens[parents], [token for _, _, token, _ in chosen]])
        self.log_probs = np.column_stack([self.log_probs[parents], [number for _, _, _, number in chosen]])
        self.is_over = self.is_over or not going_on or self._cannot_improve(length)
        return parents

    def _finish(self, score: float, beam: int, token: int, log_prob: float, finish: Finish) -> None:
        tokens, log_probs = [*self.tokens[beam].tolist(), token], [*self.log_probs[beam].tolist(), log_prob]
        self.found.append(Hypothesis(score, tokens, log_probs, finish))
        # A stable sort: among equals the earlier one stays.
        self.found = sorted(self.found, key=lambda text: -text.score)[: self.beams]

    def _cannot_improve(self, length: int) -> bool:
        if len(self.found) < self.beams:
            return False
        if self.early is True:
            return True
        furthest = self.most if self.early == "never" and self.penalty > 0 else length
        return self.scores[0] / furthest**self.penalty <= self.found[-1].score


class BeamSearch:
    """The search for the answers to one prompt. `ends_text`: whether tokens hold a stop string."""

    def __init__(
        self,
        settings: Settings,
        start_end: StartEndTokens,
        most: int,
        rules: TokenRules,
        ends_text: Callable[[list[int]], bool] | None,
    ) -> None:
        assert settings.beams is not None
        self.settings, self.start_end, self.most, self.ends_text = settings, start_end, most, ends_text
        self.groups = [
            _Group(settings.beams // (settings.groups or 1), most, settings) for _ in range(settings.groups or 1)
        ]
        self.rules = [rules.copy() for _ in range(settings.beams)]
        # Enough proposals that all beams continue even if every end token is among them.
        self.wanted = max(2, 1 + len(start_end.end_ids)) * self.groups[0].beams

    @property
    def is_over(self) -> bool:
        return all(group.is_over for group in self.groups)

    @property
    def texts(self) -> list[list[int]]:
        """The tokens of each beam."""
        return [tokens for group in self.groups for tokens in group.tokens.tolist()]

    def advance(self, raw_BV: Tensor) -> np.ndarray:
        """`raw_BV`: log-probabilities of each beam's next token. Returns the beam that each new one continues."""
        scores = raw_BV
        if not self.rules[0].is_idle:
            scores = raw_BV.clone()
            for row, rules, tokens in zip(scores.numpy(), self.rules, self.texts, strict=True):
                rules.apply(row, tokens, self.most)
        beams = self.groups[0].beams
        taken = torch.zeros(scores.shape[-1]) if len(self.groups) > 1 else None
        parents = []
        for number, group in enumerate(self.groups):
            part = slice(number * beams, (number + 1) * beams)
            chosen = group.advance(self._proposed(scores[part], raw_BV[part], group.scores, taken), self._finishes)
            parents.append(chosen + number * beams)
            if taken is not None:
                for token in group.tokens[:, -1].tolist():
                    taken[token] += 1
        continued = np.concatenate(parents)
        self.rules = [self.rules[parent].copy() for parent in continued]
        for rules, tokens in zip(self.rules, self.texts, strict=True):
            rules.note(tokens[-1])
        return continued

    def _proposed(
        self, scores_BV: Tensor, raw_BV: Tensor, so_far: list[float], taken_V: Tensor | None
    ) -> list[_Proposal]:
        """The best next tokens over all beams of a group, best first."""
        total = scores_BV + torch.tensor(so_far)[:, None]
        judged = total
        if taken_V is not None:
            cost = 0.5 if self.settings.diversity is None else self.settings.diversity
            judged = total - cost * taken_V
        # The best of each beam first: a topk per beam is faster than one over all beams' vocabularies.
        each = judged.topk(min(self.wanted, scores_BV.shape[-1]), dim=-1)
        best = each.values.flatten().topk(min(self.wanted, each.values.numel())).indices
        beam = best // each.values.shape[-1]
        token = each.indices.flatten()[best]
        columns = (total[beam, token].tolist(), beam.tolist(), token.tolist(), raw_BV[beam, token].tolist())
        return list(zip(*columns, strict=True))

    def _finishes(self, tokens: list[int]) -> Finish | None:
        if tokens[-1] in self.start_end.end_ids:
            return "end"
        return "stop" if self.ends_text is not None and self.ends_text(tokens) else None

    def ranked(self) -> list[Hypothesis]:
        """The best of each group first, then the second best of each, so that the first answers are diverse."""
        ranked = [(rank, -found.score, found) for group in self.groups for rank, found in enumerate(group.found)]
        return [found for _, _, found in sorted(ranked, key=lambda item: item[:2])]


def advance_searches(searches: Sequence[BeamSearch], logits_RV: Tensor) -> list[np.ndarray]:
    """A step of several searches, whose beams' logits follow each other."""
    raw = logits_RV.log_softmax(-1)
    parts = raw.split([len(search.rules) for search in searches])
    return [search.advance(part) for search, part in zip(searches, parts, strict=True)]
