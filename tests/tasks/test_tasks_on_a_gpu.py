"""Every task on the pretend GPU (tests/pretend_gpu.py): it learns with one wait per step, and answers as on a CPU."""

import copy

import numpy as np
import pytest
import torch
from test_losses import CASES, WITH_CRF

import pretend_gpu
from task_models import make
from weft.tasks.learning.lora import adapt
from weft.tasks.task import TaskObjective
from weft.train.batches import StepPiece
from weft.train.engine import Engine
from weft.train.optimizers import OptimizerSpec
from weft.train.step import Step

GENERATES = "written"


@pytest.fixture
def gpu():
    with pretend_gpu.pretend_gpu() as device:
        yield device


def step_on(device, network, objective):
    """The loss and the norm of a step without dropout, and the lines of weft that waited for the device."""
    engine = Engine(Step(network.eval(), objective), OptimizerSpec(), clip=0.5)
    batch = objective.batch(list(range(len(objective))), [0] * len(objective), 0).to(device, non_blocking=True)
    pretend_gpu.waits()
    found = engine.take_step([StepPiece(0, [batch])], 0)
    return found, [wait.rpartition(":")[0] for wait in pretend_gpu.waits()]


def assert_alike(ours, theirs):
    """Nested answers: numbers nearly, the rest exactly."""
    if isinstance(ours, str | int | None):
        assert ours == theirs
    elif isinstance(ours, float | np.ndarray | np.floating):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
    else:
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_alike(one, other)


@pytest.mark.parametrize("case", [*CASES, WITH_CRF], ids=str)
def test_a_task_learns_and_answers_on_a_gpu_as_on_a_cpu(case, gpu):
    built, spec = make(case.task, case.family)
    network, examples = built.network, case.examples
    case.task.prepare(network, examples)
    moved = copy.deepcopy(network).to(gpu)
    inputs, sides = case.task.inputs(examples, spec), (network.eval(), moved.eval())
    on_cpu, on_gpu = (case.task.validation(side, examples, inputs) for side in sides)
    assert on_gpu == pytest.approx(on_cpu, rel=1e-3)
    if case.name != GENERATES:  # tests/generate
        on_cpu, on_gpu = (case.task.answers(side, examples, spec)[0] for side in sides)
        assert_alike(on_gpu, on_cpu)
    objective = TaskObjective(case.task, inputs, smoothing=case.smoothing)
    expected, _ = step_on(torch.device("cpu"), network, objective)
    found, waits = step_on(gpu, moved, objective)
    assert waits == ["tolist in engine.py"]
    assert found == pytest.approx(expected, rel=1e-3)


def test_adapters_of_low_rank_learn_on_a_gpu(gpu):
    case = CASES[0]
    built, spec = make(case.task, case.family)
    adapt(built.network, 2, 0)
    objective = TaskObjective(case.task, case.task.inputs(case.examples, spec))
    expected, _ = step_on(torch.device("cpu"), copy.deepcopy(built.network), objective)
    found, waits = step_on(gpu, built.network.to(gpu), objective)
    assert waits == ["tolist in engine.py"] and found == pytest.approx(expected, rel=1e-3)
