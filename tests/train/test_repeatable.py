"""What makes training on CUDA repeat to the last bit."""

import pytest
import torch

from weft.train.repeatable import WORKSPACE, fix_workspace, repeatable_kernels, repeatable_lines, why_not_repeatable

CUDA, SET = torch.device("cuda"), {WORKSPACE: ":4096:8"}


def test_the_workspace_of_cublas_is_set_for_cuda_unless_the_user_has_set_it():
    for device, before, after in (
        ("cuda:1", {}, SET),
        ("cuda", {WORKSPACE: ":16:8"}, {WORKSPACE: ":16:8"}),
        ("cpu", {}, {}),
        ("mps", {}, {}),
    ):
        environment = dict(before)
        fix_workspace(device, environment)
        assert environment == after


def test_kernels_are_deterministic_within_a_step_only():
    memory = torch.utils.deterministic
    assert not torch.are_deterministic_algorithms_enabled()
    with repeatable_kernels(CUDA, SET):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()  # it would leave flash attention as it is
        assert not memory.fill_uninitialized_memory
    assert not torch.are_deterministic_algorithms_enabled() and memory.fill_uninitialized_memory
    for device, environment in ((torch.device("cpu"), SET), (CUDA, {}), (CUDA, {WORKSPACE: ":0:0"})):
        with repeatable_kernels(device, environment):  # cuBLAS would refuse to compute without its workspace
            assert not torch.are_deterministic_algorithms_enabled()


def test_the_users_own_choice_comes_back():
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with repeatable_kernels(CUDA, SET):
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("device", "environment", "says"),
    [
        ("cuda", SET, "the same bytes in every run"),
        ("cuda", {}, "CUBLAS_WORKSPACE_CONFIG is not set; set it to :4096:8 before the program starts"),
        ("cuda", {WORKSPACE: ":0:0"}, "is :0:0;"),
        ("mps", {}, "may differ in the last bits"),
    ],
)
def test_the_log_says_whether_a_run_repeats(device, environment, says):
    (line,) = repeatable_lines(torch.device(device), environment)
    assert says in line
    assert repeatable_lines(torch.device("cpu"), environment) == []
    assert why_not_repeatable(torch.device("cpu"), {}) is None
