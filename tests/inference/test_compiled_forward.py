"""When the forward pass in C is used, when not, and what `weft.load(precision=…)` does."""

import os
import signal

import numpy as np
import pytest
import torch

import weft
from random_models import make_random
from weft import compiled
from weft.errors import InputError
from weft.generate.prepare import prepared
from weft.inference import compiled_forward, forward_trials
from weft.inference.compiled_forward import compile_forward
from weft.inference.forward_trials import load_forward_kernels
from weft.model.network import Network
from weft.model.packed import pack

BATCH = pack([[1, 2, 3, 4], [5, 6]])

needs_kernels = pytest.mark.skipif(load_forward_kernels() is None, reason="there is no C compiler")


def fresh(family: str = "bert") -> Network:
    return make_random(family).network.eval()


def was_fast(network: Network, monkeypatch) -> bool:
    """Whether a forward pass does without the modules."""
    seen = []
    stack = network.encoder or network.decoder
    with monkeypatch.context() as patch:
        forward = type(stack).forward
        patch.setattr(type(stack), "forward", lambda *given, **named: seen.append(1) or forward(*given, **named))
        network(BATCH)
    return not seen


@needs_kernels
def test_only_plain_inference_is_fast(monkeypatch):
    network = fresh()
    compile_forward(network, "fp32")
    assert not was_fast(network, monkeypatch)  # gradients
    with torch.no_grad():
        assert was_fast(network, monkeypatch)
        network.train()
        assert not was_fast(network, monkeypatch)
        network.eval()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert not was_fast(network, monkeypatch)
        hook = network.encoder.blocks[0].feedforward.up.register_forward_hook(lambda *_: None)
        assert not was_fast(network, monkeypatch)
        hook.remove()
        assert was_fast(network, monkeypatch)
        network.to(torch.bfloat16)
        assert not was_fast(network, monkeypatch)


@needs_kernels
@pytest.mark.parametrize("how", ["in place", "data", "parameter", "module", "state dict"])
def test_changed_weights_are_noticed(how):
    network, other = fresh(), fresh()
    compile_forward(network, "fp32")
    with torch.no_grad():
        before = network(BATCH)
        up = network.encoder.blocks[0].feedforward.up
        changed = up.weight * 2
        match how:
            case "in place":
                up.weight.mul_(2)
            case "data":
                up.weight.data = changed
            case "parameter":
                up.weight = torch.nn.Parameter(changed)
            case "module":
                network.encoder.blocks[0].feedforward.up = torch.nn.Linear(up.in_features, up.out_features)
                network.encoder.blocks[0].feedforward.up.load_state_dict({"weight": changed, "bias": up.bias})
            case "state dict":
                state = {name: value.clone() for name, value in network.state_dict().items()}
                state["encoder.blocks.0.feedforward.up.weight"] = changed
                network.load_state_dict(state)
        found = network(BATCH)
        other.load_state_dict(network.state_dict())
        assert not torch.allclose(found, before, atol=1e-4)
        assert torch.allclose(found, other(BATCH), atol=1e-4)


@needs_kernels
def test_training_does_not_change_at_all():
    plain, fast = fresh(), fresh()
    compile_forward(fast, "int8")
    for network in (plain, fast):
        network.train()
        torch.manual_seed(0)
        network(BATCH).square().sum().backward()
    pairs = zip(plain.parameters(), fast.parameters(), strict=True)
    assert all((a.grad is None and b.grad is None) or torch.equal(a.grad, b.grad) for a, b in pairs)


@needs_kernels
def test_a_copy_of_a_network_computes_by_its_modules():
    import copy

    network = fresh()
    compile_forward(network, "fp32")
    assert copy.deepcopy(network).fast is None
    assert all(head.fast is None for head in copy.deepcopy(network).heads.values())


@needs_kernels
def test_what_is_traced_is_not_a_constant():
    """torch.jit.trace records what torch computes, and nothing else."""
    network, found = fresh(), []
    compile_forward(network, "fp32")

    def step(x: torch.Tensor) -> torch.Tensor:
        found.append(network.fast.stack("encoder", BATCH, None, None))
        return x

    with torch.no_grad():
        step(torch.zeros(1))
        torch.jit.trace(step, torch.zeros(1), check_trace=False)
    assert [one is None for one in found] == [False, True]


@needs_kernels
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_fork_during_a_pass_of_another_thread_computes():
    network = fresh()
    compile_forward(network, "fp32")
    with torch.no_grad():
        expected = network(BATCH)
        with network.fast.sides["encoder"].known.kernel.lock:  # as another thread would hold it
            child = os.fork()
            if child == 0:
                signal.alarm(30)  # ends a child that waits for the lock
                os._exit(0 if (network(BATCH).numpy() == expected.numpy()).all() else 1)
        assert os.waitpid(child, 0)[1] == 0


@needs_kernels
def test_a_shared_batch_takes_the_memory_that_it_needs_once(threads):
    network, batch = fresh(), pack([[1] * 100])
    compile_forward(network, "fp32")
    threads(3)
    with torch.no_grad():
        network(batch), network(batch)  # with one thread, then with all
    kernel = network.fast.sides["encoder"].known.kernel
    assert len(kernel.room) == kernel.kernels.room_bytes(kernel.address, 100, 0, 100, 3)


@needs_kernels
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
def test_heads_over_the_vocabulary_follow(precision):
    if precision == "bf16" and not load_forward_kernels().has_bfloat():
        pytest.skip("this processor has no bf16 products")
    network = fresh()
    with torch.no_grad():
        hidden = network(BATCH)
        expected = network.head("masked")(hidden, BATCH)
        compile_forward(network, precision)
        found = network.head("masked")(hidden, BATCH)
        assert torch.equal(network.head("masked")(hidden[2:3], BATCH), found[2:3])
    assert torch.equal(found, expected) <= (precision == "fp32")
    assert torch.nn.functional.cosine_similarity(found, expected).min() > 0.99


@pytest.fixture
def folder(tmp_path):
    make_random("bert").save(tmp_path / "model")
    return tmp_path / "model"


@needs_kernels
def test_load_takes_a_precision(folder):
    ids = [[1, 2, 3, 4, 5], [6, 7]]
    plain = weft.load(folder)
    assert plain.precision == "fp32"
    expected = np.concatenate(plain.logits(ids))
    for precision in ("int8", "auto"):
        model = weft.load(folder, precision=precision)
        assert model.precision == precision if precision == "int8" else model.precision in ("fp32", "bf16")
        found = np.concatenate(model.logits(ids))
        assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.97


def test_a_wrong_precision_is_a_sentence(folder):
    with pytest.raises(InputError, match="precision cannot be 'fp8'; it is auto, fp32, bf16, int8"):
        weft.load(folder, precision="fp8")


def test_without_a_compiler_fp32_still_works_and_the_others_say_why(folder, monkeypatch):
    for module in (compiled_forward, forward_trials):
        monkeypatch.setattr(module, "load_forward_kernels", lambda: None)
    monkeypatch.setitem(compiled._reasons, "inference", "there is no C compiler (cc)")
    model = weft.load(folder)
    assert model.network.fast is None
    assert len(model.logits([[1, 2]])[0]) == 2
    for precision in ("bf16", "int8"):
        with pytest.raises(InputError, match=f"{precision} needs C kernels, which are missing here: there is no C"):
            weft.load(folder, precision=precision)


@needs_kernels
def test_a_wrong_kernel_is_not_used(monkeypatch):
    kernels = forward_trials.open_forward_kernels()
    wrong = kernels._replace(forward=lambda *given: 0)  # leaves what was in the memory
    found = compiled.load_tried("trial", lambda: wrong, (forward_trials._encodes,))
    assert found is None
    assert "wrong numbers" in compiled.why_missing("trial")


@needs_kernels
def test_generation_uses_it_for_sources():
    model = make_random("t5")
    ready = prepared(model.network)
    assert ready.network.fast is not None
    assert model.network.fast is None
