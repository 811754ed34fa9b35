"""The losses of distillation against their formulas, written as loops from the papers, and their gradients."""

import math

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from weft.model.heads import Head, HeadSpec
from weft.model.packed import pack
from weft.objectives.distil_losses import (
    attention_distance,
    binary_kl,
    cosine_distance,
    hidden_distance,
    relation_heads,
    relation_kl,
    soft_kl,
)
from weft.objectives.distil_tasks import uniform_mapping
from weft.objectives.distil_vocabulary import vocabulary_kl

LENGTHS = (3, 3, 2)
BATCH = pack([np.zeros(length, np.int64) for length in LENGTHS])


def random(*shape, seed=0, grad=False):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_(grad)


def softmax(row):
    exponentials = [math.exp(value - max(row)) for value in row]
    return [value / sum(exponentials) for value in exponentials]


def kl_of_row(teacher, student, temperature=1.0):
    """Hinton et al. 2015: Σ p log(p / q) of the softened distributions, × T²."""
    p, q = (softmax([value / temperature for value in row]) for row in (teacher, student))
    return temperature**2 * sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


@pytest.mark.parametrize("temperature", [1.0, 2.0, 8.0])
def test_soft_kl_is_a_sum_over_classes_times_the_squared_temperature(temperature):
    student, teacher = random(4, 7), random(4, 7, seed=1)
    pairs = zip(teacher.tolist(), student.tolist(), strict=True)
    assert soft_kl(student, teacher, temperature).item() == pytest.approx(
        sum(kl_of_row(a, b, temperature) for a, b in pairs)
    )


def test_soft_kl_leaves_out_classes_that_do_not_exist():
    student, teacher = random(2, 5, grad=True), random(2, 5, seed=1)
    hole = torch.tensor([[0.0] * 5, [0.0, 0.0, 0.0, -math.inf, -math.inf]])
    loss = soft_kl(student + hole, teacher + hole, 2.0)
    loss.backward()
    rows = zip(teacher.tolist(), student.tolist(), (5, 3), strict=True)
    assert loss.item() == pytest.approx(sum(kl_of_row(a[:n], b[:n], 2.0) for a, b, n in rows))
    assert torch.isfinite(student.grad).all()
    assert (student.grad[1, 3:] == 0).all()


@pytest.mark.parametrize("place", [0, 1])
def test_nan_is_not_taken_for_a_class_that_does_not_exist(place):
    """A model whose weights are NaN must not look like a perfect student."""
    for loss, shape in ((soft_kl, (2, 5)), (lambda *given: attention_distance(*([one] for one in given)), (2, 3, 3))):
        given = [random(*shape), random(*shape, seed=1)]
        given[place].view(-1)[0] = math.nan
        assert loss(*given).isnan()


def test_binary_kl_decides_each_class_on_its_own():
    student, teacher = random(3, 4), random(3, 4, seed=1)
    expected = sum(
        kl_of_row([t, 0.0], [s, 0.0], 2.0)
        for t, s in zip(teacher.flatten().tolist(), student.flatten().tolist(), strict=True)
    )
    assert binary_kl(student, teacher, 2.0).item() == pytest.approx(expected / 4)


def test_cosine_distance_is_one_minus_the_cosine_of_each_token():
    student, teacher = random(8, 5), random(8, 5, seed=1)
    expected = sum(
        1 - np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b))
        for a, b in zip(student.numpy(), teacher.numpy(), strict=True)
    )
    assert cosine_distance(student, teacher).item() == pytest.approx(expected)


def test_hidden_distance_is_the_mean_square_of_each_sequence():
    student, teacher = random(8, 5), random(8, 5, seed=1)
    parts = [(a.numpy(), b.numpy()) for a, b in zip(BATCH.split(student), BATCH.split(teacher), strict=True)]
    assert hidden_distance(student, teacher, BATCH).item() == pytest.approx(
        sum(np.mean((a - b) ** 2) for a, b in parts)
    )


def test_attention_distance_compares_scores_and_skips_masked_ones():
    student, teacher = ([random(2, n, n, seed=seed + n) for n in LENGTHS] for seed in (0, 10))
    expected = sum(float(((a - b) ** 2).mean()) for a, b in zip(student, teacher, strict=True))
    assert attention_distance(student, teacher).item() == pytest.approx(expected)
    causal = [torch.full((n, n), -math.inf).triu(1) for n in LENGTHS]
    leaves = [one.detach().requires_grad_() for one in student]
    loss = attention_distance(
        [a + c for a, c in zip(leaves, causal, strict=True)], [b + c for b, c in zip(teacher, causal, strict=True)]
    )
    loss.backward()
    expected = sum(float(((a - b).tril() ** 2).mean()) for a, b in zip(student, teacher, strict=True))
    assert loss.item() == pytest.approx(expected)
    assert all(torch.isfinite(one.grad).all() for one in leaves)


def test_attention_distance_compares_mean_heads_if_their_numbers_differ():
    student, teacher = [random(2, 3, 3)], [random(3, 3, 3, seed=1)]
    expected = float(((student[0].mean(0) - teacher[0].mean(0)) ** 2).mean())
    assert attention_distance(student, teacher).item() == pytest.approx(expected)


def relation_reference(student, teacher, heads):
    """MiniLMv2, eq. 4 to 6: relation heads by splitting the joined heads anew; KL of scaled dot-products, by row."""
    total, start = 0.0, 0
    for length in LENGTHS:
        for head in range(heads):
            relations = []
            for x in (teacher, student):
                flat = x.flatten(1).numpy()[start : start + length]
                size = flat.shape[1] // heads
                part = flat[:, head * size : (head + 1) * size]
                relations.append(part @ part.T / math.sqrt(size))
            total += sum(kl_of_row(a, b) for a, b in zip(*map(np.ndarray.tolist, relations), strict=True)) / (
                heads * length
            )
        start += length
    return total


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_relations_of_students_with_other_heads_and_widths(heads):
    student, teacher = random(8, 2, 4), random(8, 3, 4, seed=1)
    found = relation_kl(student.float(), teacher.float(), BATCH, heads)
    assert found.item() == pytest.approx(relation_reference(student, teacher, heads), rel=1e-5)


def test_relation_heads_divide_both_widths():
    assert relation_heads(384, 384) == 48
    assert relation_heads(312, 384) == 24
    assert relation_heads(7, 11) == 1


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: soft_kl(x, random(8, 6, seed=1), 2.0),
        lambda x: binary_kl(x, random(8, 6, seed=1), 2.0),
        lambda x: cosine_distance(x, random(8, 6, seed=1)),
        lambda x: hidden_distance(x, random(8, 6, seed=1), BATCH),
        lambda x: attention_distance([x.view(3, 4, 4)], [random(3, 4, 4, seed=1)]),
    ],
)
def test_gradients(loss):
    assert gradcheck(loss, (random(8, 6, grad=True),))


def test_the_gradient_of_relations():
    x = random(8, 2, 4, grad=True)
    loss = relation_kl(x, random(8, 3, 4, seed=1), BATCH, 2)
    (found,) = torch.autograd.grad(loss, x)
    for place in [(0, 0, 0), (4, 1, 2), (7, 0, 3)]:
        step = torch.zeros_like(x)
        step[place] = 1e-2
        change = relation_reference(x.detach() + step, random(8, 3, 4, seed=1), 2)
        change -= relation_reference(x.detach() - step, random(8, 3, 4, seed=1), 2)
        assert found[place].item() == pytest.approx(change / 2e-2, rel=1e-2, abs=1e-4)


def make_heads(width=4, teacher_width=6, vocabulary=9):
    heads = Head(HeadSpec("masked", vocabulary), width), Head(HeadSpec("masked", vocabulary), teacher_width)
    for seed, head in enumerate(heads):
        for parameter in head.parameters():
            parameter.data = random(*parameter.shape, seed=seed)
    return heads


@pytest.mark.parametrize("rows", [2, 100])
def test_vocabulary_kl_equals_its_parts_whatever_the_blocks(rows, monkeypatch):
    monkeypatch.setattr("weft.objectives.distil_vocabulary.rows_of_a_block", lambda device, vocabulary: rows)
    (head, teacher), targets = make_heads(), torch.tensor([0, 3, 8, 1, 1])
    x, y = random(5, 4, grad=True), random(5, 6, seed=5)
    loss = vocabulary_kl(head, x, teacher, y, targets, temperature=2.0, soft=5.0, hard=2.0)
    loss.backward()
    assert teacher.out.weight.grad is None
    found = [x.grad, head.out.weight.grad, head.out.bias.grad]
    x.grad = head.out.weight.grad = head.out.bias.grad = None
    ours, theirs = head.out(x), teacher.out(y)
    expected = 5 * soft_kl(ours, theirs, 2.0) + 2 * torch.nn.functional.cross_entropy(ours, targets, reduction="sum")
    expected.backward()
    assert loss.item() == pytest.approx(expected.item())
    for one, other in zip(found, [x.grad, head.out.weight.grad, head.out.bias.grad], strict=True):
        torch.testing.assert_close(one, other)


def test_vocabulary_kl_passes_gradcheck():
    head, teacher = make_heads()
    targets, y = torch.tensor([0, 3, 8]), random(3, 6, seed=5)

    def loss(x):
        return vocabulary_kl(head, x, teacher, y, targets, temperature=2.0, soft=1.0, hard=0.5)

    assert gradcheck(loss, (random(3, 4, grad=True),))


def test_layers_are_mapped_uniformly():
    assert uniform_mapping(3, 6) == (2, 4, 6)  # TinyBERT: the output of layer i with that of layer i N / M
    assert uniform_mapping(4, 12) == (3, 6, 9, 12)
    assert uniform_mapping(4, 6)[-1] == 6
    assert uniform_mapping(6, 6) == (1, 2, 3, 4, 5, 6)
