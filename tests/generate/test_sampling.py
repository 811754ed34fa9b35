"""Samples follow the distribution that the filters leave, and nothing but seed, prompt and step decides them."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

import weft
from weft.generate.next_token import TokenRules, filtered_probabilities
from weft.generate.settings import settings_of
from weft.generate.start_end_tokens import StartEndTokens

FILTERS = [
    {"temperature": 1.0},
    {"temperature": 0.6},
    {"top_k": 5},
    {"top_p": 0.8},
    {"min_p": 0.2},
    {"typical_p": 0.7},
    {"temperature": 1.7, "top_k": 20, "top_p": 0.9, "min_p": 0.05},
    {"top_k": 12, "typical_p": 0.5},
    {"top_p": 0.001},
]
WARPERS = {
    "temperature": TemperatureLogitsWarper,
    "top_k": TopKLogitsWarper,
    "top_p": TopPLogitsWarper,
    "min_p": MinPLogitsWarper,
    "typical_p": TypicalLogitsWarper,
}


def filtered_by_transformers(scores: torch.Tensor, filters: dict) -> torch.Tensor:
    names = [name for name in WARPERS if name in filters]  # the order in which transformers applies them
    processors = LogitsProcessorList([WARPERS[name](filters[name]) for name in names])
    return processors(torch.zeros(len(scores), 1, dtype=torch.long), scores).softmax(-1)


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("vocabulary", [40, 5000])
def test_what_the_filters_leave_is_what_transformers_leaves(filters, vocabulary):
    scores = torch.randn(7, vocabulary, generator=torch.Generator().manual_seed(1)) * 3
    probabilities = torch.zeros(7, vocabulary)
    for rows, part, tokens in filtered_probabilities(scores, [settings_of({"strategy": "sample", **filters})] * 7):
        probabilities[rows] = part if tokens is None else torch.zeros(len(rows), vocabulary).scatter_(1, tokens, part)
    probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    torch.testing.assert_close(probabilities, filtered_by_transformers(scores, filters), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("filters", FILTERS[:7], ids=str)
def test_samples_are_distributed_as_the_filtered_softmax(filters):
    model = weft.create("gpt2", layers=1, width=16, heads=2, vocabulary=30, seed=3)
    with torch.no_grad():
        for parameter in model.network.parameters():
            parameter.mul_(12.0 if parameter.dim() > 1 else 1.0)
    prompt, count = [3, 1, 4], 4000
    samples = model.generate(prompt, max_new_tokens=1, strategy="sample", n=count, seed=5, **filters)
    logits = torch.from_numpy(model.logits([prompt])[0][-1:])
    expected = filtered_by_transformers(logits, filters)[0].double().numpy()
    seen = np.bincount([sample[0] for sample in samples], minlength=30)
    assert seen[expected == 0].sum() == 0
    common = expected * count >= 5
    observed = np.append(seen[common], seen[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum()) * count
    keep = wanted > 0
    assert chisquare(observed[keep], wanted[keep] / wanted[keep].sum() * observed[keep].sum()).pvalue > 0.001


def test_a_sample_does_not_depend_on_its_neighbours(pieces):
    prompts = ["Alice was ", "The Queen", "Alice was ", "She said that it was a very", "Why"]
    how = {"strategy": "sample", "top_p": 0.95, "max_new_tokens": 20, "seed": 11}
    together = pieces.generate(prompts, **how)
    assert [pieces.generate(prompt, **how) for prompt in ("Alice was ", "The Queen", "Why")] == [
        together[0],
        together[1],
        together[4],
    ]
    assert together[0] != together[2]  # the same prompt once more is another sample
    assert pieces.generate("Alice was ", n=2, **how) == [together[0], together[2]]
    assert pieces.generate(prompts, **{**how, "seed": 12}) != together


def test_without_a_seed_samples_differ_and_with_one_they_repeat(letters):
    how = {"strategy": "sample", "max_new_tokens": 40}
    assert letters.generate("Alice", **how) != letters.generate("Alice", **how)
    assert letters.generate("Alice", seed=4, **how) == letters.generate("Alice", seed=4, **how)


def apply_rules(prompt, text, scores, **settings) -> torch.Tensor:
    rules = TokenRules(settings_of(settings), StartEndTokens(), prompt, len(scores))
    for token in text:
        rules.note(token)
    changed = scores.clone()
    rules.apply(changed.numpy(), list(text), 5)
    return changed


@pytest.mark.parametrize("text", [[], [9], [9, 9, 1, 2]])
def test_penalties_are_those_of_transformers(text):
    scores, prompt = torch.randn(50, generator=torch.Generator().manual_seed(2)), [1, 2, 3, 4, 1, 2]
    known = torch.tensor([[*prompt, *text]])
    expected = RepetitionPenaltyLogitsProcessor(1.7)(known, scores.clone()[None])[0]
    torch.testing.assert_close(apply_rules(prompt, text, scores, repetition_penalty=1.7), expected)
    for size in (1, 2, 3):
        expected = NoRepeatNGramLogitsProcessor(size)(known, scores.clone()[None])[0]
        torch.testing.assert_close(apply_rules(prompt, text, scores, no_repeat_ngram=size), expected)


def test_presence_counts_once_and_a_bias_is_added():
    scores = torch.zeros(12)
    changed = apply_rules([1, 2], [5, 5, 7], scores, presence_penalty=0.5, frequency_penalty=0.25, logit_bias={3: 4.0})
    expected = torch.zeros(12)
    expected[5], expected[7], expected[3] = -0.5 - 2 * 0.25, -0.5 - 0.25, 4.0
    torch.testing.assert_close(changed, expected)


def test_a_processor_changes_the_scores():
    model = weft.create("gpt2", layers=1, width=16, heads=2, vocabulary=30, seed=3)
    seen = []

    def only_evens(tokens, scores):
        seen.append(list(tokens))
        scores[1::2] = -np.inf

    written = model.generate([3, 1, 4], max_new_tokens=6, processors=[only_evens])
    assert all(token % 2 == 0 for token in written)
    assert seen == [[3, 1, 4, *written[:step]] for step in range(6)]


def test_the_frequency_penalty_counts_what_was_written(letters):
    plain = letters.generate("Alice ", max_new_tokens=50)
    penalized = letters.generate("Alice ", max_new_tokens=50, frequency_penalty=2.0)
    assert len(set(penalized)) > len(set(plain))
