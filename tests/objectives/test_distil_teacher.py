"""A teacher on a CPU: the compiled forward pass, in its own precision, also while a student trains under autocast."""

import pytest
import torch

from random_models import make_random
from weft.inference.forward_trials import load_forward_kernels
from weft.inference.precision import packed_precision, set_precision, teaching
from weft.model.packed import pack
from weft.objectives.distil_teacher import Teacher, Wanted
from weft.objectives.objective import Batch

KERNELS = load_forward_kernels()
needs_bf16 = pytest.mark.skipif(KERNELS is None or not KERNELS.has_bfloat(), reason="no bf16 kernels here")


@pytest.fixture
def model():
    return make_random("bert", head="masked")


@pytest.fixture
def batch():
    return Batch(pack([[5, 6, 7, 8, 9], [10, 11]]), rows=torch.tensor([1, 5]))


@needs_bf16
def test_teacher_computes_in_its_own_precision_under_autocast(model, batch):
    teacher = Teacher(model.network, Wanted(last=True, language_head="masked"))
    with teaching(model.network, None):
        alone = teacher.compute(batch)
        with torch.autocast("cpu", torch.bfloat16):
            training = teacher.compute(batch)
    set_precision(model.network, None)
    exact = teacher.compute(batch)
    for name in alone:
        assert torch.equal(alone[name], training[name])
        assert not torch.equal(alone[name], exact[name])  # so the kernels of bf16 were used
        torch.testing.assert_close(alone[name], exact[name], rtol=0.05, atol=0.05)


@needs_bf16
def test_teaching_ends_with_the_precision_of_the_model(model):
    with teaching(model.network, "bfloat16"):
        assert packed_precision(model.network) == "bf16"
    assert packed_precision(model.network) == "fp32"
    with teaching(model.network, "float32"):
        assert packed_precision(model.network) == "fp32"


def test_single_layers_are_computed_by_the_modules_in_the_precision_of_training(model, batch):
    teacher = Teacher(model.network, Wanted(hidden=(1,)))
    exact = teacher.compute(batch)["hidden.1"]
    with teaching(model.network, None), torch.autocast("cpu", torch.bfloat16):
        found = teacher.compute(batch)["hidden.1"]
    assert not torch.equal(found, exact)
    torch.testing.assert_close(found.float(), exact, rtol=0.1, atol=0.1)
