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

from weft.generate.cache import rows_of
from weft.generate.decoder import Decoder, Ids
from weft.generate.next_token import Rules
from weft.generate.settings import Settings
from weft.generate.write import DecodeSpec, Finish

LOST = -1e9  # the score of an unused beam


@dataclass(frozen=True)
class Hypothesis:
    """A finished text."""

    score: float
    tokens: list[int]
    log_probs: list[float]
    finish: Finish


class _Search:
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

    def advance(
        self,
        proposals: Sequence[tuple[float, int, int, float]],
        finishes: Callable[[list[int]], Finish | None],
    ) -> np.ndarray:
        """Take the best of `proposals` (score, beam, token, log-probability; best first). Returns the beam that each
        new one continues.
        """
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


def search(
    spec: DecodeSpec,
    prompts: Sequence[Ids],
    sources: Sequence[Ids] | None,
    mosts: Sequence[int],
    ends_text: Callable[[int, list[int]], bool] | None,
) -> list[list[Hypothesis]]:
    """The finished hypotheses of each prompt, best first. `mosts`: the most new tokens of each prompt. `ends_text`:
    whether a prompt's tokens hold a stop string.
    """
    settings = spec.settings
    assert settings.beams is not None
    groups = settings.groups or 1
    beams = settings.beams // groups
    decoder = Decoder(spec.network, prompts, sources, max(mosts))
    rules = Rules(
        settings, spec.start_end, [prompt for prompt in prompts for _ in range(settings.beams)], decoder.logits
    )
    decoder.share_source(settings.beams)
    searches = [[_Search(beams, most, settings) for _ in range(groups)] for most in mosts]
    running = list(range(len(prompts)))
    # Enough proposals that `beams` of them continue even if every end token is among them.
    wanted = max(2, 1 + len(spec.start_end.end_ids)) * beams

    for step in range(max(mosts)):
        raw = decoder.logits.log_softmax(-1)
        per_row = [mosts[prompt] for prompt in running for _ in range(settings.beams)]
        scores = rules.apply(raw.clone(), step, per_row)
        scores, raw = (part.unflatten(0, (len(running), groups, beams)) for part in (scores, raw))
        parents = np.zeros((len(running), groups, beams), dtype=np.int64)
        depth = 0
        taken = torch.zeros(len(running), scores.shape[-1], device=scores.device) if groups > 1 else None
        for group in range(groups):
            its = [searches[prompt][group] for prompt in running]
            proposed = _propose(scores[:, group], raw[:, group], [one.scores for one in its], wanted, taken, settings)
            for place, (prompt, one) in enumerate(zip(running, its, strict=True)):
                before = one.tokens
                chosen = one.advance(proposed[place], lambda tokens, p=prompt: _finish(tokens, p, spec, ends_text))
                depth = max(depth, _depth(before, chosen))
                parents[place, group] = chosen + (place * groups + group) * beams
                if taken is not None:
                    for token in one.tokens[:, -1].tolist():
                        taken[place, token] += 1
        still = [place for place, prompt in enumerate(running) if not all(one.is_over for one in searches[prompt])]
        if not still:
            break
        decoder.reorder(parents.ravel(), depth)
        rules.keep(parents.ravel())
        if len(still) < len(running):
            decoder.keep_sources(np.array(still), settings.beams)
            rules.keep(rows_of(np.array(still), settings.beams))
            running = [running[place] for place in still]
        newest = np.concatenate([one.tokens[:, -1] for prompt in running for one in searches[prompt]])
        tokens = torch.as_tensor(newest, device=decoder.device)
        rules.note(tokens)
        decoder.step(tokens)
    return [_ranked(groups_of) for groups_of in searches]


def _propose(
    scores_PBV: Tensor,
    raw_PBV: Tensor,
    so_far: list[list[float]],
    wanted: int,
    taken_PV: Tensor | None,
    settings: Settings,
) -> list[list[tuple[float, int, int, float]]]:
    """The best next tokens over all beams of each prompt, best first."""
    total = scores_PBV + torch.tensor(so_far, device=scores_PBV.device)[:, :, None]
    judged = total
    if taken_PV is not None:
        cost = 0.5 if settings.diversity is None else settings.diversity
        judged = total - cost * taken_PV[:, None, :]
    vocabulary = scores_PBV.shape[-1]
    # The best of each beam first: a topk per beam is faster than one over all beams' vocabularies.
    each = judged.topk(min(wanted, vocabulary), dim=-1)
    best = each.values.flatten(1).topk(min(wanted, each.values[0].numel()), dim=-1).indices
    beam = best // each.values.shape[-1]
    token = each.indices.flatten(1).gather(1, best)
    place = beam * vocabulary + token
    score, raw = total.flatten(1).gather(1, place), raw_PBV.flatten(1).gather(1, place)
    columns = (score.tolist(), beam.tolist(), token.tolist(), raw.tolist())
    return [list(zip(*row, strict=True)) for row in zip(*columns, strict=True)]


def _finish(
    tokens: list[int], prompt: int, spec: DecodeSpec, ends_text: Callable[[int, list[int]], bool] | None
) -> Finish | None:
    if tokens[-1] in spec.start_end.end_ids:
        return "end"
    return "stop" if ends_text is not None and ends_text(prompt, tokens) else None


def _depth(tokens: np.ndarray, parents: np.ndarray) -> int:
    """How many of their last tokens differ between beams and the beams they continue."""
    differs = (tokens != tokens[parents]).any(axis=0)
    return len(differs) - int(differs.argmax()) if differs.any() else 0


def _ranked(groups: list[_Search]) -> list[Hypothesis]:
    """The best of each group first, then the second best of each, so that the first answers are diverse."""
    ranked = [(rank, -found.score, found) for group in groups for rank, found in enumerate(group.found)]
    return [found for _, _, found in sorted(ranked, key=lambda item: item[:2])]
