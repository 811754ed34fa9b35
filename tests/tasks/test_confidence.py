"""Entities carry a confidence: the probability that all of their words have the predicted tags."""

import numpy as np
import pytest
import torch

from small_tasks import weft
from weft.tasks.example import Example
from weft.tasks.predicted_tags import PredictedTags, entities
from weft.tasks.tag import Tag, WordTargets

TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


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
