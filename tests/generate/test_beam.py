"""Beam search against trying everything, and groups against their formula written out."""

import itertools

import numpy as np
import pytest
import torch

from random_models import make_random

PROMPT = [3, 1, 4, 1, 5]


def log_probs(model, prompt: list[int]) -> np.ndarray:
    return torch.from_numpy(model.logits([prompt])[0][-1]).double().log_softmax(-1).numpy()


def test_with_beams_enough_it_finds_the_best_of_all_texts():
    model = make_random("gpt2", vocabulary=6)
    length, best = 3, []
    for text in itertools.product(range(6), repeat=length):
        total = sum(log_probs(model, PROMPT[:2] + list(text[:place]))[token] for place, token in enumerate(text))
        best.append((total, list(text)))
    best.sort(key=lambda item: -item[0])
    found = model.generate(PROMPT[:2], beams=36, n=5, max_new_tokens=length, length_penalty=0.0, details=True)
    assert [one.tokens for one in found] == [text for _, text in best[:5]]
    np.testing.assert_allclose([one.score for one in found], [total for total, _ in best[:5]], atol=1e-4)
    np.testing.assert_allclose([sum(one.log_probs) for one in found], [total for total, _ in best[:5]], atol=1e-4)


@pytest.mark.parametrize("diversity", [0.0, 0.7, 50.0])
def test_groups_take_turns_and_pay_for_what_others_have_taken(diversity):
    """Three groups of one beam each: every group is greedy on scores that earlier groups have lowered."""
    model = make_random("gpt2", seed=2)
    texts: list[list[int]] = [[], [], []]
    for _ in range(8):
        taken = np.zeros(70)
        for text in texts:
            token = int((log_probs(model, PROMPT + text) - diversity * taken).argmax())
            taken[token] += 1
            text.append(token)
    found = model.generate(PROMPT, beams=3, groups=3, diversity=diversity, n=3, max_new_tokens=8)
    assert sorted(found) == sorted(texts)
    assert len({tuple(text) for text in found}) == {0.0: 1, 0.7: 2, 50.0: 3}[diversity]


def test_groups_without_diversity_are_searches_by_themselves():
    model = make_random("llama", seed=1)
    alone = model.generate(PROMPT, beams=2, n=2, max_new_tokens=10)
    found = model.generate(PROMPT, beams=4, groups=2, diversity=0.0, n=4, max_new_tokens=10)
    assert sorted(found) == sorted(alone + alone)


def test_one_beam_is_greedy():
    model = make_random("t5")
    assert model.generate([PROMPT], beams=1) == model.generate([PROMPT])
    found = model.generate([PROMPT], beams=1, details=True)[0]
    assert found.score == pytest.approx(sum(found.log_probs))
