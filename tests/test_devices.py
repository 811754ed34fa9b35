"""Where a network computes: by name, by local rank, and what each device can do."""

import copy

import pytest
import torch

import pretend_gpu
import weft
from random_models import make_random
from small_tasks import weft as weft_command
from weft.devices import DEVICE_VARIABLE, checked_device, device_of_process, local_device
from weft.errors import InputError, RecipeError
from weft.inference.precision import set_precision
from weft.model.packed import pack
from weft.model.quantized import put_quantized, quantize_weight
from weft.recipe.file import check_recipe
from weft.recipe.recipe import Recipe
from weft.train.processes import Processes, alone

HERE = local_device({})


@pytest.mark.parametrize(
    ("wanted", "local", "gpus", "found"),
    [
        ("auto", 0, 0, "cpu"),
        ("auto", 3, 4, "cuda:3"),
        ("cuda", 1, 2, "cuda:1"),
        ("cpu", 1, 2, "cpu"),
    ],
)
def test_each_process_of_a_machine_has_a_gpu_of_its_own(wanted, local, gpus, found):
    assert device_of_process(wanted, local, gpus) == found


@pytest.mark.parametrize(("named", "found"), [("cpu", "cpu"), ("cuda:0", "cuda:1"), ("auto", "cuda:1")])
def test_the_environment_says_what_auto_means_to_one_of_several_processes(named, found):
    assert device_of_process("auto", 1, 2, {DEVICE_VARIABLE: named}) == found
    assert device_of_process("cuda", 1, 2, {DEVICE_VARIABLE: named}) == "cuda:1"
    with pytest.raises(InputError, match="'nonsense' is not available here"):
        device_of_process("auto", 1, 2, {DEVICE_VARIABLE: "nonsense"})


@pytest.mark.parametrize(
    ("wanted", "local", "gpus", "says"),
    [
        ("auto", 2, 2, "Process 3 of this machine has no GPU of its own: there are 2"),
        ("cuda", 0, 0, "no GPU for cuda"),
        ("mps", 0, 0, "mps takes one process"),
    ],
)
def test_a_process_without_a_gpu_is_told_what_to_do(wanted, local, gpus, says):
    with pytest.raises(InputError, match=says):
        device_of_process(wanted, local, gpus)


@pytest.mark.parametrize("name", ["nonsense", "cuda", "cuda:7", "mps"])
def test_a_device_that_is_not_there_is_a_sentence(name):
    if name == HERE:
        pytest.skip("it is there")
    with pytest.raises(InputError, match=f"device '{name}' is not available here .* Use auto or cpu."):
        checked_device(name)
    with pytest.raises(InputError, match="is not available here"):
        local_device({DEVICE_VARIABLE: name})


def test_a_device_without_numbers_is_refused():
    with pytest.raises(InputError, match="cannot compute"):
        checked_device("meta")


def test_the_recipe_names_the_device_of_training():
    assert alone(Recipe()).device == HERE
    assert alone(check_recipe({"processes": {"device": "cpu"}})).device == "cpu"
    with pytest.raises(RecipeError, match="processes\\.device"):
        check_recipe({"processes": {"device": "gpu"}})
    with pretend_gpu.pretend_gpu() as gpu:
        assert Processes().on(str(gpu)).device == str(gpu)


def test_the_command_line_names_the_device(monkeypatch, tmp_path):
    monkeypatch.setenv(DEVICE_VARIABLE, "cpu")  # restored after the test
    weft.create("bert", vocabulary=20, layers=1, width=16, heads=2).save(tmp_path / "model")
    for command in (["fill", tmp_path / "model", "a [MASK]"], ["evaluate", tmp_path / "model", tmp_path]):
        said = weft_command(*command, "--device", "cuda:9")
        assert "device 'cuda:9' is not available here" in said.sentence


@pytest.mark.parametrize("section", ["pretrain", "finetune", "distil"])
def test_float16_is_refused_with_a_reason(section):
    given = {"task": "classify", "data": {"train": "x.tsv"}} if section == "finetune" else {}
    with pytest.raises(RecipeError, match=f"{section}.precision: float16 cannot hold small gradients .* bfloat16"):
        check_recipe({section: {"precision": "float16", **given}})
    with pytest.raises(InputError, match="precision cannot be fp16: T5 and others overflow in it"):
        set_precision(make_random("gpt2").network, "fp16")


@pytest.mark.parametrize("family", ["bert", "llama", "t5"])
def test_a_gpu_reads_in_bfloat16_where_it_has_it(family):
    network = make_random(family, width=32, heads=2).network.eval()
    batch = pack([[5, 6, 7], [8, 9]])
    with pretend_gpu.pretend_gpu(is_like_cuda=True) as gpu, torch.inference_mode():
        target = batch if family == "t5" else None
        expected = network(batch, target)
        moved = copy.deepcopy(network).to(gpu)
        set_precision(moved, "bf16")
        found = moved(batch.to(gpu), None if target is None else target.to(gpu))
    assert found.dtype == torch.bfloat16
    assert torch.cosine_similarity(found.cpu().float(), expected).min() > 0.99


def test_integers_compute_on_a_gpu_what_they_compute_on_a_cpu_and_it_is_said(capsys):
    network = make_random("bert").network.eval()
    for name, module in list(network.named_modules()):
        if type(module) is torch.nn.Linear and not name.startswith("heads"):
            put_quantized(network, name, quantize_weight(module.weight))
    batch = pack([[5, 6, 7], [8, 9]])
    with pretend_gpu.pretend_gpu() as gpu, torch.inference_mode():
        expected, moved = network(batch), copy.deepcopy(network).to(gpu)
        set_precision(moved, None)
        torch.testing.assert_close(moved(batch.to(gpu)).cpu(), expected, atol=1e-4, rtol=1e-4)
        with pytest.raises(InputError, match="stored in int8"):
            set_precision(moved, "bf16")
    assert "stored in int8. A GPU multiplies its integers in fp32" in capsys.readouterr().err


def test_int8_of_an_fp32_model_is_for_cpus():
    with pretend_gpu.pretend_gpu() as gpu, pytest.raises(InputError, match="int8 is for CPUs"):
        set_precision(make_random("bert").network.to(gpu), "int8")


def test_a_model_on_a_gpu_is_pruned_and_quantized_by_a_copy_on_the_cpu(tmp_path):
    weft.create("gpt2", vocabulary=20, layers=2, width=16, heads=2).save(tmp_path / "model")
    with pretend_gpu.pretend_gpu() as gpu:
        model = weft.load(tmp_path / "model", device=gpu)
        weft.quantize(model, tmp_path / "small")
        copied = model.on_cpu()
        assert model.device == gpu and copied.device.type == "cpu" and copied.on_cpu() is copied
        expected = model.logits([[1, 2, 3]])[0]
    torch.testing.assert_close(torch.tensor(copied.logits([[1, 2, 3]])[0]), torch.tensor(expected))
    assert weft.load(tmp_path / "small", device="cpu").precision == "int8"
