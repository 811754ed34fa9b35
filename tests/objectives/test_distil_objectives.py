"""The objectives of distillation: their losses are the sums of their parts, however a step is cut into pieces."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch

import pretend_gpu
import weft
from weft.model.keep import Keep
from weft.model.packed import pack
from weft.objectives.answers import ClassAnswers, MultiLabelAnswers, RegressionAnswers, SpanAnswers
from weft.objectives.distil_losses import cosine_distance, relation_heads, relation_kl, soft_kl
from weft.objectives.distil_projections import add_projections, in_teacher_width, remove_projections
from weft.objectives.distil_tasks import IntermediateDistillation, PredictionDistillation, wanted_for_layers
from weft.objectives.distil_teacher import Teacher, Wanted, key_of, scores_of
from weft.objectives.distil_text import TEXT_METHODS, TextDistillation, wanted_for_text
from weft.objectives.objective import Batch, head_scores
from weft.train.batches import StepPiece
from weft.train.engine import Engine
from weft.train.optimizers import OptimizerSpec
from weft.train.step import Step

LENGTHS = (5, 5, 3, 7)


def network(head="masked", seed=0, labels=2, **shape):
    shape = {"layers": 4, "width": 16, "heads": 2, **shape}
    model = weft.create("bert", vocabulary=40, seed=seed, head=head, labels=labels, **shape)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(seed)
        for parameter in model.network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return model.network.eval()


@dataclass(frozen=True)
class Texts:
    """Samples of fixed texts, with answers if a head is named."""

    head: str = ""

    def __len__(self):
        return len(LENGTHS)

    def batch(self, samples, epochs, seed):
        texts = [np.random.default_rng(sample).integers(0, 40, LENGTHS[sample]) for sample in samples]
        packed = pack(texts)
        if self.head:
            values = torch.tensor([sample % 2 for sample in samples])
            return Batch(packed, answers={"classify": ClassAnswers(self.head, values)}, counts={"classify": len(texts)})
        starts = packed.starts.tolist()
        rows = torch.tensor([row for a, b in pairwise(starts) for row in range(a, b, 2)])
        return Batch(packed, packed.tokens[rows], rows=rows, counts={"masked": len(rows)})

    def scores(self, network, batch):
        return head_scores(network, batch)


def totals_of(batches):
    return {kind: sum(batch.counts[kind] for batch in batches) for kind in batches[0].counts}


def text_objective(method, student, teacher):
    losses = TEXT_METHODS[method]
    layer = teacher.architecture.layers - 1
    return TextDistillation(Texts(), Teacher(teacher, wanted_for_text(losses, "masked", layer)), "masked", losses)


def test_distilbert_is_five_kl_two_cross_entropy_and_a_cosine():
    student, teacher = network(layers=2), network(seed=1)
    objective = text_objective("distilbert", student, teacher)
    batch = objective.batch([0, 1, 2, 3], [0] * 4, 0)
    loss = objective.loss(student, batch, batch.counts)
    hidden = [one(batch.packed) for one in (student, teacher)]
    ours, theirs = (
        one.head("masked")(x, batch.packed, batch.rows) for one, x in zip((student, teacher), hidden, strict=True)
    )
    rows, tokens = len(batch.rows), sum(LENGTHS)
    expected = 5 * soft_kl(ours, theirs, 2.0) / rows
    expected += 2 * torch.nn.functional.cross_entropy(ours, batch.targets)
    expected += cosine_distance(*hidden) / tokens
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_minilm_compares_queries_keys_and_values_of_the_last_layers():
    student, teacher = network(layers=2, width=24, heads=3), network(seed=1)
    objective = text_objective("minilm", student, teacher)
    batch = objective.batch([0, 1, 2, 3], [0] * 4, 0)
    loss = objective.loss(student, batch, batch.counts)
    kept = [
        one(batch.packed, keep=Keep(heads=(one.architecture.layers - 1,)))[1].heads[one.architecture.layers - 1]
        for one in (student, teacher)
    ]
    count = relation_heads(24, 16)
    expected = sum(relation_kl(a, b, batch.packed, count) for a, b in zip(*kept, strict=True)) / len(LENGTHS)
    assert count == 8
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_kept_heads_are_the_projections_of_the_layers_input():
    model = network()
    batch = pack([np.arange(6), np.arange(3)])
    _, kept = model(batch, keep=Keep(hidden=(2,), heads=(2,)))
    q, k, v = kept.heads[2]
    joined = model.encoder.blocks[2].attention.qkv(kept.hidden[2])
    assert torch.equal(torch.cat([q.flatten(1), k.flatten(1), v.flatten(1)], 1), joined)
    plain = model(batch)
    torch.testing.assert_close(model(batch, keep=Keep(heads=(0, 1)))[0], plain)


OBJECTIVES = {
    **{method: lambda s, t, method=method: text_objective(method, s, t) for method in TEXT_METHODS},
    "intermediate": lambda s, t: IntermediateDistillation(
        Texts("sequence"), Teacher(t, wanted_for_layers((2, 4))), (2, 4)
    ),
    "prediction": lambda s, t: PredictionDistillation(Texts("sequence"), Teacher(t, Wanted(answers=True)), 2.0, 0.3),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_pieces_of_a_step_add_up(name):
    head = "sequence" if name in ("intermediate", "prediction") else "masked"
    student, teacher = network(head, layers=2), network(head, seed=1)
    objective = OBJECTIVES[name](student, teacher)
    parts = [[0, 1, 2, 3]], [[0, 1], [2], [3]]
    found = []
    for pieces in parts:
        batches = [objective.batch(piece, [0] * len(piece), 0) for piece in pieces]
        student.zero_grad()
        losses = [objective.loss(student, batch, totals_of(batches)) for batch in batches]
        torch.stack(losses).sum().backward()
        found.append((sum(losses).item(), student.embed.tokens.weight.grad.clone()))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_student_learns_on_a_gpu_with_one_wait_per_step(name):
    """On the pretend GPU (tests/pretend_gpu.py), and as on a CPU. A teacher with a store on disk does wait."""
    head = "sequence" if name in ("intermediate", "prediction") else "masked"
    found = []
    with pretend_gpu.pretend_gpu() as gpu:
        for device in (torch.device("cpu"), gpu):
            student, teacher = (network(head, layers=layers, seed=layers).to(device) for layers in (2, 4))
            objective = OBJECTIVES[name](student, teacher)
            batch = objective.batch([0, 1, 2, 3], [0] * 4, 0).to(device, non_blocking=True)
            pretend_gpu.waits()
            found.append(Engine(Step(student, objective), OptimizerSpec()).take_step([StepPiece(0, [batch])], 0))
            waits = pretend_gpu.waits()
    assert [wait.rpartition(":")[0] for wait in waits] == ["tolist in engine.py"]
    assert found[1] == pytest.approx(found[0], rel=1e-3)


@pytest.mark.parametrize("name", [*OBJECTIVES])
def test_a_student_equal_to_its_teacher_has_nothing_to_learn(name):
    head = "sequence" if name in ("intermediate", "prediction") else "masked"
    teacher = network(head)
    student = network(head)
    objective = OBJECTIVES[name](student, teacher)
    if name == "intermediate":
        objective = IntermediateDistillation(
            objective.inner, Teacher(teacher, wanted_for_layers((1, 2, 3, 4))), (1, 2, 3, 4)
        )
    if name == "prediction":
        objective = PredictionDistillation(objective.inner, objective.teacher)
    batch = objective.batch([0, 1, 2, 3], [0] * 4, 0)
    loss = objective.loss(student, batch, batch.counts)
    hard = 0.0
    if name == "distilbert":
        hard = 2 * objective.scores(student, batch)["loss/masked"] / batch.counts["masked"]
    assert loss.item() == pytest.approx(float(hard), abs=1e-5)


def test_a_teacher_is_neither_trained_nor_saved():
    student, teacher = network(layers=2), network(seed=1)
    teacher.train()
    before = {name: tensor.clone() for name, tensor in teacher.state_dict().items()}
    objective = text_objective("minilm+kl", student, teacher)
    assert not teacher.training
    engine = Engine(Step(student, objective), OptimizerSpec())
    for step in range(2):
        engine.take_step([StepPiece(0, [objective.batch([0, 1, 2, 3], [0] * 4, 0)])], step)
    assert all(torch.equal(before[name], tensor) for name, tensor in teacher.state_dict().items())
    assert len(list(engine.step.parameters())) == len(list(student.parameters()))


def test_projections_learn_and_go_away():
    student, teacher = network("sequence", layers=2, width=8, heads=2), network("sequence", seed=1)
    plain = set(student.state_dict())
    add_projections(student, ("embedding", "hidden"), 16, kept=list(range(0, 16, 2)))
    x = torch.randn(3, 8)
    assert torch.equal(in_teacher_width(student, "hidden", x)[:, ::2], x)  # first, each dimension is put into its place
    objective = OBJECTIVES["intermediate"](student, teacher)
    engine = Engine(Step(student, objective), OptimizerSpec(learning_rate=1e-2))
    losses = [
        engine.take_step([StepPiece(0, [objective.batch([0, 1, 2, 3], [0] * 4, 0)])], step)[0] for step in range(20)
    ]
    assert losses[-1] < losses[0]
    assert not torch.equal(in_teacher_width(student, "hidden", x)[:, ::2], x)
    remove_projections(student)
    assert set(student.state_dict()) == plain
    assert in_teacher_width(student, "hidden", x) is x


@pytest.mark.parametrize(
    ("answers", "labels", "head"),
    [
        (ClassAnswers("sequence", torch.tensor([0, 2, 1, 0])), 3, "sequence"),
        (MultiLabelAnswers("sequence", torch.ones(4, 3)), 3, "sequence"),
        (RegressionAnswers("sequence", torch.ones(4)), 1, "sequence"),
        (SpanAnswers("span", torch.zeros(4, 2, dtype=torch.int64)), 2, "span"),
        (ClassAnswers("token", torch.tensor([0, 1, 1]), rows=torch.tensor([0, 4, 9])), 2, "token"),
    ],
)
def test_every_kind_of_answer_has_a_distance_from_a_teacher(answers, labels, head):
    student, teacher = network(head, labels=labels), network(head, seed=1, labels=labels)
    batch = Texts().batch([0, 1, 2, 3], [0] * 4, 0).packed
    ours, theirs = (answers.logits(one, one(batch), batch) for one in (student, teacher))
    assert answers.distance(ours, ours, 2.0).item() == pytest.approx(0, abs=1e-6)
    assert answers.distance(ours, theirs, 2.0).item() > 0
    (gradient,) = torch.autograd.grad(answers.distance(ours, theirs.detach(), 2.0), student.embed.tokens.weight)
    assert torch.isfinite(gradient).all()


def test_scores_come_back_as_they_were():
    teacher = Teacher(network(), Wanted(scores=(1,)))
    batch = Texts().batch([0, 1, 2, 3], [0] * 4, 0)
    outputs = teacher(batch)
    _, kept = teacher.network(batch.packed, keep=Keep(scores=(1,)))
    for one, other in zip(scores_of(outputs, 1, batch.packed), kept.scores[1], strict=True):
        assert torch.equal(one, other)


def test_a_store_is_asked_by_what_a_batch_holds():
    class Memory(dict):
        def find(self, key):
            return self.get(key)

        def add(self, key, outputs):
            self[key] = outputs

    store = Memory()
    teacher = Teacher(network(), Wanted(last=True), store)
    a, same, other = (Texts().batch(samples, [0] * 2, 0) for samples in ([0, 1], [0, 1], [1, 0]))
    assert key_of(a) == key_of(same) != key_of(other)
    first = teacher(a)["last"]
    assert teacher(same)["last"] is first
    assert len(store) == 1
    teacher(other)
    assert len(store) == 2
