"""Generation on the pretend GPU (tests/pretend_gpu.py) writes what the CPU writes."""

import copy

import numpy as np
import pytest

import pretend_gpu
import weft
from random_models import SHAPES, make_random

PROMPTS = [[11, 12, 13], list(range(5, 45)), [7]]
WAYS = {
    "greedy": {"max_new_tokens": 6},
    "sample": {"strategy": "sample", "seed": 3, "temperature": 0.9, "top_p": 0.8, "n": 2, "max_new_tokens": 5},
    "beam": {"beams": 3, "max_new_tokens": 5, "repetition_penalty": 1.2},
    "rules": {"max_new_tokens": 6, "no_repeat_ngram": 2, "frequency_penalty": 0.5, "min_new_tokens": 3},
}


@pytest.fixture
def gpu():
    with pretend_gpu.pretend_gpu() as device:
        yield device


def on(device, model):
    """A copy of the model on this device."""
    other = copy.copy(model)
    other.network = copy.deepcopy(model.network).to(device)
    return other


@pytest.mark.parametrize(
    ("family", "way"), [*((family, "greedy") for family in SHAPES), *(("gpt2", way) for way in WAYS), ("t5", "beam")]
)
def test_every_family_writes_the_same_in_every_way(family, way, gpu):
    model = make_random(family)
    expected = model.generate(PROMPTS, **WAYS[way])
    assert on(gpu, model).generate(PROMPTS, **WAYS[way]) == expected


@pytest.mark.parametrize("family", ["llama", "t5", "lstm"])
def test_scores_are_the_same(family, gpu):
    model = make_random(family)
    sources = PROMPTS if family == "t5" else None
    texts = [[9, 8, 7], [30, 31, 32, 33], [20]]
    for ours, theirs in zip(on(gpu, model).score(texts, sources), model.score(texts, sources), strict=True):
        np.testing.assert_allclose(ours.log_probs, theirs.log_probs, atol=1e-4)


def test_guesses_of_a_draft_are_checked_on_the_gpu(gpu):
    model, draft = make_random("llama"), make_random("gpt2", seed=1)
    expected = model.generate(PROMPTS, max_new_tokens=8)
    writer = on(gpu, model).writer(draft=on(gpu, draft))
    assert writer.generate(PROMPTS, max_new_tokens=8, speculate=3) == expected
    assert on(gpu, model).generate(PROMPTS, max_new_tokens=8, speculate=3) == expected


def test_a_step_copies_its_numbers_in_two_pieces_and_its_logits_back(gpu):
    """However many layers there are."""
    model = on(gpu, make_random("gpt2", layers=5))
    model.generate(PROMPTS[:1], max_new_tokens=1)
    pretend_gpu.waits()
    model.generate(PROMPTS[:1], max_new_tokens=5)
    waits = [wait.rpartition(":")[0] for wait in pretend_gpu.waits()]
    assert waits == ["copy from the CPU in transfer.py"] * 2 + ["copy to the CPU in decoder.py"] + waits[3:]
    assert len(waits) == 3 * 5


def test_integers_are_for_cpus(gpu):
    with pytest.raises(weft.InputError, match="int8 weights need a CPU"):
        on(gpu, make_random("gpt2")).generate(PROMPTS, int8=True)
