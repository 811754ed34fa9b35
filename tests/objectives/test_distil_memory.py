"""A teacher that remembers: the same bytes as one that answers anew, whatever the batches are."""

import numpy as np
import pytest
import torch

import weft
from random_models import make_random as make_created
from weft.inference.forward_trials import load_forward_kernels
from weft.inference.precision import set_precision, teaching
from weft.model.packed import pack
from weft.objectives import distil_memory
from weft.objectives.answers import ClassAnswers, RegressionAnswers, SpanAnswers
from weft.objectives.distil_memory import MemorizingTeacher, can_remember
from weft.objectives.distil_teacher import Teacher, Wanted
from weft.objectives.objective import Batch

pytestmark = pytest.mark.skipif(load_forward_kernels() is None, reason="no compiler here")
WANTED = Wanted(answers=True)
TEXTS = [np.arange(4, 4 + length) * 7 % 70 for length in (5, 1, 9, 6, 3, 12, 2)]


def make_random(family, **more):
    """As loading does, with the compiled forward pass."""
    model = make_created(family, **more)
    set_precision(model.network, None)
    return model


def batch_of(head, numbers, segments=False):
    """`token`: the even tokens of each sequence are scored; `sequence`: each sequence."""
    texts = [TEXTS[number] for number in numbers]
    packed = pack(texts, [np.arange(len(text)) % 2 for text in texts] if segments else None)
    rows = torch.arange(len(packed.tokens))[packed.positions % 2 == 0] if head == "token" else None
    count = len(rows) if rows is not None else len(texts)
    return Batch(packed, answers={"task": ClassAnswers(head, torch.zeros(count, dtype=torch.int64), rows)})


@pytest.mark.parametrize("precision", [None, "float32"])
@pytest.mark.parametrize("head", ["token", "sequence"])
@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_remembered_answers_are_the_same_bytes(family, head, precision):
    network = make_random(family, head=head, labels=3).network
    live, memory = Teacher(network, WANTED), MemorizingTeacher(network, WANTED)
    batches = [[0, 1], [1, 2, 0], [2, 3, 3], [5], [4, 5, 6, 1], [6, 5, 4, 3, 2, 1, 0]]
    with teaching(network, precision):
        for numbers in batches:
            batch = batch_of(head, numbers, segments=family == "bert")
            assert torch.equal(memory(batch)["logits.task"], live(batch)["logits.task"])
        assert len(memory.known) == len(TEXTS)


def test_what_was_answered_is_not_computed_again(monkeypatch):
    memory = MemorizingTeacher(make_random("bert", head="token").network, WANTED)
    read = []
    learn = memory._learn
    monkeypatch.setattr(memory, "_learn", lambda keys, batch: read.append(batch.packed.lengths) or learn(keys, batch))
    for numbers in ([0, 1], [1, 2, 1], [2, 0]):
        memory(batch_of("token", numbers))
    assert read == [(5, 1), (9,)]


def test_the_same_tokens_with_other_scored_ones_are_another_question():
    network = make_random("bert", head="token").network
    memory, batch = MemorizingTeacher(network, WANTED), batch_of("token", [0])
    other = Batch(batch.packed, answers={"task": ClassAnswers("token", torch.zeros(1), torch.tensor([4]))})
    assert len(memory(batch)["logits.task"]) == 3
    assert torch.equal(memory(other)["logits.task"], Teacher(network, WANTED)(other)["logits.task"])


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(distil_memory, "MOST_REMEMBERED", 50)
    memory = MemorizingTeacher(make_random("bert", head="sequence").network, WANTED)
    for number in range(len(TEXTS)):
        memory(batch_of("sequence", [number]))
    assert 50 < memory.bytes < 70


def test_it_is_used_where_answers_belong_to_sequences():
    model = make_random("bert", head="sequence")
    network, numbers = model.network, RegressionAnswers("sequence", torch.zeros(2))
    packed = pack(TEXTS[:2])
    assert can_remember(network, WANTED, Batch(packed, answers={"task": numbers}))
    assert not can_remember(network, Wanted(answers=True, last=True), Batch(packed, answers={"task": numbers}))
    spans = SpanAnswers("span", torch.zeros(2, 2))  # padded to the longest sequence of the batch
    assert not can_remember(network, WANTED, Batch(packed, answers={"task": spans}))
    assert not can_remember(
        make_created("bert", head="sequence").network, WANTED, Batch(packed, answers={"task": numbers})
    )
    recurrent = weft.create("lstm", vocabulary=70, width=32, layers=1, head="sequence").network
    assert not can_remember(recurrent, WANTED, Batch(packed, answers={"task": numbers}))
