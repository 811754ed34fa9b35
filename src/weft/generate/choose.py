"""The next token of each running answer, by its own settings."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from weft.generate.constraint import fill_bitmasks, mask_scores
from weft.generate.job import ActiveAnswer, TokenInfo
from weft.generate.next_token import choose_tokens, uniforms


def choose_next(going: Sequence[tuple[ActiveAnswer, int]], logits: Tensor, vocabulary: int) -> list[ActiveAnswer]:
    """Adds a token to each answer. With each comes the row of its logits, which may change here: no other answer needs
    it, unless it is listed twice. Returns the answers for which no token is left: bans, processors and a constraint
    together may exclude all of them.
    """
    answers, rows = [answer for answer, _ in going], [row for _, row in going]
    log_probs = _log_probs(answers, rows, logits)
    scores = logits
    if rows != list(range(len(logits))):
        scores = torch.from_numpy(logits.numpy()[rows])  # torch would wake its threads for so small a copy
    for place, answer in enumerate(answers):
        if not answer.rules.is_idle:
            answer.rules.apply(scores[place].numpy(), answer.tokens, answer.job.most)
    constrained = [place for place, answer in enumerate(answers) if answer.constraint is not None]
    if constrained:
        masks = np.zeros((len(constrained), -(-vocabulary // 32)), np.int32)
        fill_bitmasks([answers[place].constraint for place in constrained], masks)
        mask_scores(scores, constrained, masks)
    settings = [answer.job.settings for answer in answers]
    chances = [0.0] * len(answers)
    if any(one.strategy == "sample" for one in settings):
        chances = uniforms([answer.key for answer in answers], [len(answer.tokens) for answer in answers])
    tokens, stuck = choose_tokens(scores, settings, chances), []
    for place, (answer, token) in enumerate(zip(answers, tokens, strict=True)):
        if not (answer.rules.is_idle and answer.constraint is None) and not scores[place, token] > -torch.inf:
            stuck.append(answer)
            continue
        numbers = log_probs.get(place)
        if numbers is None:
            answer.add(TokenInfo(token, 0.0))
        else:
            answer.add(info_of(token, float(numbers[token]), numbers, answer.job.settings.top_log_probs))
    return stuck


def _log_probs(answers: Sequence[ActiveAnswer], rows: Sequence[int], logits: Tensor) -> dict[int, Tensor]:
    """Before penalties and filters, of the answers that want them."""
    wanting = [place for place, answer in enumerate(answers) if answer.job.wants_log_probs]
    if not wanting:
        return {}
    return dict(zip(wanting, logits[[rows[place] for place in wanting]].log_softmax(-1), strict=True))


def info_of(token: int, log_prob: float, log_probs_V: Tensor | None = None, top: int = 0) -> TokenInfo:
    """With the `top` most probable tokens."""
    if not top or log_probs_V is None:
        return TokenInfo(token, log_prob)
    best = log_probs_V.topk(min(top, len(log_probs_V)))
    return TokenInfo(token, log_prob, tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True)))
