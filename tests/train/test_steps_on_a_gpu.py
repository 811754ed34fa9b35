"""Training steps on the pretend GPU (tests/pretend_gpu.py): one wait per step, and the weights of a CPU."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

import pretend_gpu
from pretend_gpu import OnGpu
from random_models import ENCODERS, SHAPES, make_random
from weft.model.network import Network
from weft.model.packed import pack
from weft.objectives.objective import Batch, HeadObjective
from weft.train.batches import StepPiece
from weft.train.build import _with_dropout
from weft.train.engine import Engine
from weft.train.optimizers import OptimizerSpec
from weft.train.pending_checkpoint import PendingCheckpoint
from weft.train.processes import Processes
from weft.train.step import Step
from weft.train.validation import validate

FAMILIES = (*ENCODERS, *SHAPES)
WIDE = {"width": 32, "heads": 2}  # heads of 16, which flash attention takes
VARLEN, BACKWARD = "torch_attn::_varlen_attn", "torch_attn::_varlen_attn_backward"
# Without a deterministic version on CUDA: see the documentation of torch.use_deterministic_algorithms.
NOT_DETERMINISTIC = {
    "aten::cumsum", "aten::put_", "aten::histc", "aten::bincount", "aten::kthvalue.values", "aten::median",
    "aten::nll_loss2d_forward", "aten::_ctc_loss", "aten::grid_sampler_2d", "aten::_embedding_bag",
    "aten::reflection_pad1d", "aten::replication_pad1d", "aten::adaptive_avg_pool2d",
}  # fmt: skip
READ = "tolist in engine.py"  # loss and gradient norm, together
LENGTHS = (7, 5, 5, 18)  # longer than ModernBERT's window


def network_of(family, dropout=0.0):
    """Random weights, and this rate wherever the family has dropout."""
    shape = {} if family == "lstm" else WIDE | ({"key_value_heads": 1} if family in ("llama", "qwen3") else {})
    plain = make_random(family, **shape).network
    network = Network(_with_dropout(plain.architecture, dropout, everywhere=dropout > 0))
    network.load_state_dict(plain.state_dict())
    return network.train()


def batch_for(network):
    texts = [[10 + (3 * number + place) % 50 for place in range(length)] for number, length in enumerate(LENGTHS)]
    packed = pack(texts)
    decoder = pack([[3, *text[:4]] for text in texts]) if network.architecture.is_encoder_decoder else None
    count = len((decoder or packed).tokens)
    head = next(kind for kind in network.heads if kind in ("masked", "causal", "seq2seq"))
    return Batch(packed, torch.arange(count) % 60 + 3, None, decoder, counts={head: count})


def train(network, device, precision=torch.float32, *, kind="adamw", steps=2, pieces=1, objective=None):
    """Losses and norms. The batch is moved before, as the prefetcher does."""
    batch = batch_for(network).to(device, non_blocking=True)
    step = Step(network, objective or HeadObjective(smoothing=0.1), precision)
    engine = Engine(step, OptimizerSpec(kind, learning_rate=1e-3), clip=0.5, pieces=pieces)
    pretend_gpu.waits(), pretend_gpu.used()
    return [engine.take_step([StepPiece(number, [batch]) for number in range(pieces)], step) for step in range(steps)]


def waits_of_steps():
    return [wait.rpartition(":")[0] for wait in pretend_gpu.waits()]


@pytest.fixture
def gpu():
    with pretend_gpu.pretend_gpu(is_like_cuda=True) as device:
        yield device


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_waits_once_and_reaches_the_weights_of_a_cpu(family, gpu):
    expected, network = network_of(family), network_of(family).to(gpu)
    on_cpu, found = train(expected, torch.device("cpu")), train(network, gpu)
    assert waits_of_steps() == [READ] * 2
    assert pretend_gpu.used().isdisjoint({VARLEN, BACKWARD})  # flash attention does not take fp32
    for ours, theirs in zip(found, on_cpu, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-4)
    for (name, ours), theirs in zip(network.named_parameters(), expected.parameters(), strict=True):
        assert isinstance(ours, OnGpu), name
        torch.testing.assert_close(ours.detach().cpu(), theirs.detach(), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_in_bfloat16_every_family_without_a_bias_takes_the_kernel_for_variable_lengths(family, gpu):
    on_cpu = train(network_of(family), torch.device("cpu"), torch.bfloat16, kind="muon")
    found = train(network_of(family).to(gpu), gpu, torch.bfloat16, kind="muon")
    assert waits_of_steps() == [READ] * 2
    used = pretend_gpu.used()
    assert used.isdisjoint(NOT_DETERMINISTIC)
    kernels = used & {VARLEN, BACKWARD}
    # The LSTM has no attention. T5's cross-attention has no bias, its self-attention does.
    assert kernels == (set() if family == "lstm" else {VARLEN, BACKWARD})
    for ours, theirs in zip(found, on_cpu, strict=True):
        assert ours == pytest.approx(theirs, rel=0.05)


@pytest.mark.parametrize("family", ["bert", "lstm", "t5"])
def test_with_dropout_and_pieces_a_step_still_waits_once(family, gpu):
    train(network_of(family, dropout=0.1).to(gpu), gpu, torch.bfloat16, pieces=2)
    assert waits_of_steps() == [READ] * 2


def test_a_run_that_goes_on_from_a_checkpoint_waits_once_as_well(gpu, tmp_path):
    network = network_of("gpt2").to(gpu)
    pieces = [StepPiece(number, [batch_for(network).to(gpu, non_blocking=True)]) for number in range(2)]
    before, after = (Engine(Step(network, HeadObjective()), OptimizerSpec(), pieces=2) for _ in range(2))
    before.take_step(pieces, 0)
    files = before.checkpoint_files()
    PendingCheckpoint(tmp_path, 1, files, keep=1, state={}, processes=Processes(device=str(gpu))).finish()
    after.restore_newest(tmp_path)
    after.take_step(pieces, 1)  # brings the counts of steps back to the CPU
    pretend_gpu.waits()
    after.take_step(pieces, 2)
    assert waits_of_steps() == [READ]


@dataclass(frozen=True)
class Waiting(HeadObjective):
    wait: Callable[[torch.Tensor], object]

    def loss(self, network, batch, totals):
        found = super().loss(network, batch, totals)
        self.wait(found.detach()[None])
        return found


@pytest.mark.parametrize(
    ("wait", "noted"),
    [
        (lambda x: x.item(), "item"),
        (lambda x: x.tolist(), "tolist"),
        (lambda x: bool(x > 0), "item"),
        (lambda x: x.cpu(), "copy to the CPU"),
        (lambda x: x[x > 0], "indexing by a mask"),
        (lambda x: x[torch.zeros(1, dtype=torch.int64)], "indexing by a tensor of the CPU"),
        (lambda x: x.nonzero(), "aten.nonzero"),
        (lambda x: torch.repeat_interleave(x, x.long()), "aten.repeat_interleave"),
        (lambda x: x + torch.tensor([1.0], device=x.device), "copy from the CPU"),
    ],
)
def test_any_other_wait_in_a_step_is_noticed(wait, noted, gpu):
    train(network_of("gpt2").to(gpu), gpu, steps=1, objective=Waiting(wait))
    first, second = waits_of_steps()
    assert first.startswith(f"{noted} in ") and second == READ


def test_tensors_of_two_devices_do_not_mix(gpu):
    with pytest.raises(RuntimeError, match="same device"):
        network_of("gpt2").to(gpu)(batch_for(network_of("gpt2")).packed)


@pytest.mark.parametrize("family", ["bert", "transformer", "lstm"])
def test_a_gpu_without_float64_trains_and_validates(family):
    """Apple's; the pretend one then refuses to make such a tensor."""
    with pretend_gpu.pretend_gpu(has_float64=False) as gpu:
        with pytest.raises(TypeError, match="float64"):
            torch.zeros(1, device=gpu).double()
        network, expected = network_of(family).to(gpu), network_of(family)
        assert train(network, gpu)[0] == pytest.approx(train(expected, torch.device("cpu"))[0], rel=1e-4)
        train(network_of(family).to(gpu), gpu, pieces=2)
        batch = batch_for(expected)
        assert validate(network, [batch]) == pytest.approx(validate(expected, [batch]), rel=1e-3)


def test_a_batch_reaches_the_gpu_in_one_copy(gpu):
    batch = batch_for(network_of("t5"))
    batch.to(gpu), batch.packed.to(gpu)
    assert waits_of_steps() == ["copy from the CPU in transfer.py"] * 2
    batch.to(gpu, non_blocking=True)
    assert waits_of_steps() == []


def test_validation_waits_once_for_all_batches(gpu):
    network = network_of("gpt2").to(gpu)
    batches = [batch_for(network)] * 3
    pretend_gpu.waits()
    validate(network, batches)
    assert waits_of_steps() == ["tolist in validation.py"]
