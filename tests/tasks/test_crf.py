"""The CRF against brute force over all tag sequences."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from task_models import WORDS, make
from weft.metrics.entities import entities_in
from weft.objectives.objective import head_scores, scaled_loss
from weft.tasks.crf import Crf, allowed_transitions
from weft.tasks.example import Example
from weft.tasks.tag import Tag
from weft.tasks.task import batch_of

TAGS = ("O", "B-PER", "I-PER")
TASK = Tag(TAGS, entities=True, crf=True)
TAGGED = [
    Example(words, tuple(TAGS[place % 3] if place % 4 else "B-PER" for place in range(len(words)))) for words in WORDS
]
ENTITIES = ("O", "B-A", "I-A", "B-B", "I-B")
PARTS_OF_SPEECH = ("DET", "NOUN", "VERB")
label_sets = st.sampled_from([ENTITIES, ENTITIES[:3], PARTS_OF_SPEECH, ("B", "I"), ("I-A", "B-A", "O")])
seeds = st.integers(0, 2**20)


def random_crf(labels, seed: int, scale: float = 1.0) -> Crf:
    crf = Crf(labels)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    return crf


def taggings(crf: Crf, labels, logits: torch.Tensor) -> dict[tuple[int, ...], torch.Tensor]:
    """The score of every well-formed tag sequence, by brute force."""
    allowed, begins = allowed_transitions(labels)
    found = {}
    for tags in product(range(len(labels)), repeat=len(logits)):
        if begins[tags[0]] and all(allowed[a, b] for a, b in pairwise(tags)):
            score = crf.start[tags[0]] + crf.end[tags[-1]] + sum(logits[place, tag] for place, tag in enumerate(tags))
            found[tags] = score + sum(crf.transitions[a, b] for a, b in pairwise(tags))
    return found


@given(label_sets, st.integers(1, 4), seeds)
def test_the_loss_sums_over_all_tag_sequences_and_the_best_is_found(labels, length, seed):
    crf = random_crf(labels, seed)
    logits = torch.randn(length, len(labels), generator=torch.Generator().manual_seed(seed + 1), requires_grad=True)
    scored = taggings(crf, labels, logits)
    best = max(scored, key=lambda tags: scored[tags])
    assert crf.best(logits.detach()) == list(best)
    for tags in (best, min(scored)):
        loss = crf.loss(logits[None], torch.tensor([tags]), torch.tensor([length]))
        expected = torch.stack(list(scored.values())).logsumexp(0) - scored[tags]
        torch.testing.assert_close(loss, expected, atol=1e-4, rtol=1e-4)
        weights = [logits, *crf.parameters()]
        ours, theirs = (
            torch.autograd.grad(value, weights, retain_graph=True, materialize_grads=True) for value in (loss, expected)
        )
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@given(st.sampled_from([ENTITIES, ("I-A", "B-A", "O")]), st.lists(st.integers(1, 5), min_size=1, max_size=3), seeds)
def test_the_product_over_an_entity_is_its_marginal_over_all_tag_sequences(labels, lengths, seed):
    crf, generator = random_crf(labels, seed).double(), torch.Generator().manual_seed(seed)
    sentences = [torch.randn(length, len(labels), generator=generator).double() * 2 for length in lengths]
    for logits, (path, probabilities) in zip(sentences, crf.decode(sentences), strict=True):
        scored = {tags: float(score.detach()) for tags, score in taggings(crf, labels, logits).items()}
        total = np.logaddexp.reduce(list(scored.values()))
        assert tuple(path) == max(scored, key=lambda tags: scored[tags])
        for start, end, _ in entities_in([labels[number] for number in path]):
            span = tuple(path[start:end])
            marginal = sum(np.exp(score - total) for tags, score in scored.items() if tags[start:end] == span)
            assert np.prod(probabilities[start:end]) == pytest.approx(marginal, abs=1e-9)


@given(label_sets, st.lists(st.integers(1, 5), min_size=1, max_size=4), seeds)
def test_padding_does_not_matter(labels, lengths, seed):
    crf, generator = random_crf(labels, seed), torch.Generator().manual_seed(seed)
    logits = torch.randn(len(lengths), max(lengths), len(labels), generator=generator) * 100
    tags = torch.randint(len(labels), logits.shape[:2], generator=generator)
    alone = [
        crf.loss(logits[[row], :length], tags[[row], :length], torch.tensor([length]))
        for row, length in enumerate(lengths)
    ]
    together = crf.loss(logits, tags, torch.tensor(lengths))
    torch.testing.assert_close(together, torch.stack(alone).sum(), rtol=1e-5, atol=1e-2)


@given(st.sampled_from([ENTITIES, ("I-A", "B-A", "O")]), st.integers(1, 30), seeds, st.sampled_from([1.0, 30.0, 300.0]))
def test_predictions_are_always_well_formed(labels, length, seed, scale):
    crf = random_crf(labels, seed, scale)
    logits = torch.randn(length, len(labels), generator=torch.Generator().manual_seed(seed)) * scale
    logits[:, [number for number, label in enumerate(labels) if label.startswith("I-")]] += scale
    tags = [labels[number] for number in crf.best(logits)]
    for before, tag in zip(["O", *tags], tags, strict=False):
        assert not tag.startswith("I-") or before in ("B" + tag[1:], tag)


def test_tags_that_are_not_entities_may_follow_in_any_order():
    for labels in (PARTS_OF_SPEECH, ("B", "I", "O"), ("I-A", "NOUN")):
        allowed, begins = allowed_transitions(labels)
        assert allowed.all()
        assert begins.all()


def test_the_loss_of_a_batch_is_that_of_its_sentences():
    task = TASK
    built, reader = make(task, "bert", length=64)
    task.prepare(built.network, TAGGED)
    crf = built.network.get_submodule("crf")
    crf.load_state_dict(random_crf(TAGS, 3).state_dict(), strict=False)
    batch = batch_of(task, task.inputs(TAGGED, reader))
    total = scaled_loss(built.network, batch, batch.counts) * batch.counts["tag"]
    alone = []
    for number in range(len(TAGGED)):
        (one,) = task.inputs(TAGGED[number : number + 1], reader)
        part = batch_of(task, [one])
        logits = built.network.head("token")(built.network(part.packed), part.packed, part.answers["tag"].rows)
        tags = tuple(TAGS.index(tag) for tag in TAGGED[number].gold)
        if len(tags) <= 7:
            scored = taggings(crf, TAGS, logits)
            alone.append(torch.stack(list(scored.values())).logsumexp(0) - scored[tags])
        else:
            alone.append(crf.loss(logits[None], torch.tensor([tags]), torch.tensor([len(tags)])))
    torch.testing.assert_close(total, torch.stack(alone).sum(), rtol=1e-4, atol=1e-3)


def test_an_entity_that_a_window_cuts_or_that_begins_without_a_token_is_still_well_formed():
    """Otherwise the gold tags would be forbidden, and their loss would outweigh all others."""
    task = TASK
    built, reader = make(task, "bert", length=8)
    task.prepare(built.network, TAGGED)
    long = Example(("Alice",) * 30, ("B-PER", *["I-PER"] * 29))
    odd = Example(("\u200b", "Alice", "\u0007", "Rabbit"), ("B-PER", "I-PER", "O", "B-PER"))
    inputs = task.inputs([long, odd], reader)
    assert len(inputs) > 4
    batch = batch_of(task, inputs)
    assert scaled_loss(built.network, batch, batch.counts).item() < 20


def test_a_batch_without_any_token_has_no_loss():
    task = TASK
    built, reader = make(task, "bert")
    task.prepare(built.network, TAGGED)
    for kind in (task, replace(task, crf=False)):
        batch = batch_of(kind, kind.inputs([Example(("\u200b",), ("O",))], reader))
        assert scaled_loss(built.network, batch, batch.counts).item() == 0.0
        assert head_scores(built.network, batch)["right/tag"] == 0.0
