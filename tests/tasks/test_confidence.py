"""Entities carry a confidence: the probability that all of their words have the predicted tags."""

from itertools import pairwise, product

import numpy as np
import pytest
import torch

from small_tasks import weft
from weft.metrics.entities import entities_in
from weft.tasks.crf import Crf, allowed_transitions
from weft.tasks.example import Example
from weft.tasks.predicted_tags import PredictedTags, entities
from weft.tasks.tag import Tag, WordTargets

TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def random_crf(seed: int) -> Crf:
    crf, generator = Crf(TAGS), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return crf.requires_grad_(False)


def all_sequences(crf: Crf, logits: torch.Tensor) -> dict[tuple[int, ...], float]:
    """The probability of every well-formed tag sequence, by brute force."""
    allowed, begins = allowed_transitions(TAGS)
    scores = {}
    for tags in product(range(len(TAGS)), repeat=len(logits)):
        if begins[tags[0]] and all(allowed[a, b] for a, b in pairwise(tags)):
            moved = sum(float(crf.transitions[a, b]) for a, b in pairwise(tags))
            emitted = sum(float(logits[place, tag]) for place, tag in enumerate(tags))
            scores[tags] = moved + emitted + float(crf.start[tags[0]]) + float(crf.end[tags[-1]])
    total = np.logaddexp.reduce(list(scores.values()))
    return {tags: float(np.exp(score - total)) for tags, score in scores.items()}


@pytest.mark.parametrize("seed", range(8))
def test_with_a_crf_it_is_the_marginal_of_the_span_over_all_tag_sequences(seed):
    crf, generator = random_crf(seed), torch.Generator().manual_seed(100 + seed)
    logits = [torch.randn(length, len(TAGS), generator=generator) * 2 for length in (5, 1, 3)]
    for rows, (path, probabilities) in zip(logits, crf.decode(logits), strict=True):
        known = all_sequences(crf, rows)
        assert tuple(path) == max(known, key=lambda tags: known[tags])
        for start, end, _ in entities_in([TAGS[number] for number in path]):
            span = tuple(path[start:end])
            marginal = sum(chance for tags, chance in known.items() if tags[start:end] == span)
            assert np.prod(probabilities[start:end]) == pytest.approx(marginal, abs=1e-9)


def test_without_a_crf_it_is_the_product_over_the_words():
    logits = torch.tensor([[9.0, 0, 0, 0, 0], [0, 2.0, 0, 0, 0], [0, 0, 1.0, 0, 0]])
    targets = WordTargets(range(3), np.arange(3), np.arange(3), None)
    task = Tag(TAGS, entities=True)
    tags = task.joined(task.read([logits], [targets]))
    (found,) = entities(Example(("met", "Anna", "Bell"), None), tags)
    chances = logits.softmax(-1)
    assert found["confidence"] == pytest.approx(float(chances[1, 1] * chances[2, 2]), abs=1e-6)
    assert (found["text"], found["kind"]) == ("Anna Bell", "PER")


def test_a_word_without_tokens_does_not_lower_it_and_windows_multiply():
    sure = PredictedTags(("B-PER", "I-PER", "I-PER"), (0.5, 1.0, 0.5))
    (found,) = entities(Example(("Anna", "\u200b", "Bell"), None), sure)
    assert found["confidence"] == 0.25


def test_gold_entities_have_none():
    (found,) = entities(Example(("Anna",), None), ("B-PER",))
    assert "confidence" not in found


@pytest.mark.parametrize(("task", "key"), [("tag", "entities"), ("intent", "slots")])
def test_every_predicted_entity_has_one(task, key, tuned):
    text = {"tag": "Anna lives in Paris", "intent": "turn on the lamp in the kitchen"}[task]
    (line,) = weft("predict", tuned(task) / "model", text).lines
    for one in line[key]:
        assert 0 < one["confidence"] <= 1
