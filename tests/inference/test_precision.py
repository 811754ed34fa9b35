"""`weft.load(…, precision=…)`: all that a model does is computed in that precision, or the precision is refused."""

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn

import weft
from random_models import make_random
from task_models import TEXTS, make, save
from weft.compress.quantize.rounding import round_to_nearest
from weft.errors import InputError
from weft.inference.forward_trials import load_forward_kernels
from weft.model.quantized import put_quantized
from weft.tasks.rewrite import Translate

needs_kernels = pytest.mark.skipif(load_forward_kernels() is None, reason="no C compiler")
PROMPTS = [[5, 6, 7, 8], [20, 21, 9]]
WRITERS = ("gpt2", "llama", "t5")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    for family in (*WRITERS, "bert", "lstm"):
        make_random(family).save(place / family)
    return place


def needs_bfloat() -> None:
    if not load_forward_kernels().has_bfloat():
        pytest.skip("no bf16 products here")


def written(model: weft.Model, **more) -> np.ndarray:
    """Log-probabilities of what it writes."""
    found = model.generate(PROMPTS, details=True, max_new_tokens=6, min_new_tokens=6, **more)
    return np.array([one.log_probs for one in found])


def scored(model: weft.Model) -> np.ndarray:
    sources = PROMPTS[::-1] if model.network.architecture.is_encoder_decoder else None
    return np.concatenate([one.log_probs for one in model.score(PROMPTS, sources)])


def of_logits(model: weft.Model) -> np.ndarray:
    """The same log-probabilities as `scored`, from `logits`."""
    started = [[model.start_end.start_id or 0, *ids] for ids in PROMPTS]
    read = [ids[:-1] for ids in started]
    is_pair = model.network.architecture.is_encoder_decoder
    logits = model.logits(PROMPTS[::-1], read) if is_pair else model.logits(read)
    log_probs = [torch.tensor(part).log_softmax(-1).numpy() for part in logits]
    return np.concatenate([part[range(len(ids)), ids] for part, ids in zip(log_probs, PROMPTS, strict=True)])


@needs_kernels
@pytest.mark.parametrize("family", WRITERS)
def test_a_model_that_is_loaded_in_int8_writes_in_int8(family, folders):
    plain, small = weft.load(folders / family), weft.load(folders / family, precision="int8")
    np.testing.assert_array_equal(written(small), written(plain, int8=True))
    assert not np.array_equal(written(small), written(plain))


@needs_kernels
@pytest.mark.parametrize("precision", ["int8", "bf16"])
@pytest.mark.parametrize("family", WRITERS)
def test_scores_are_of_the_precision_that_logits_are_of(family, precision, folders):
    if precision == "bf16":
        needs_bfloat()
    plain, model = weft.load(folders / family), weft.load(folders / family, precision=precision)
    off = np.linalg.norm(scored(model) - of_logits(model))  # in bf16 the head scores in fp32
    assert 1.5 * off < np.linalg.norm(scored(model) - scored(plain))


@needs_kernels
def test_in_bf16_a_source_is_read_and_the_steps_are_in_fp32(folders):
    needs_bfloat()
    same = [
        np.array_equal(written(weft.load(folders / family, precision="bf16")), written(weft.load(folders / family)))
        for family in ("gpt2", "t5")
    ]
    assert same == [True, False]


@needs_kernels
def test_a_task_that_writes_follows(tmp_path):
    task = Translate(beams=1, most_new=12, head="causal")
    folder = save(task, *make(task, "llama"), tmp_path / "model")
    plain, small = weft.load(folder), weft.load(folder, precision="int8")
    texts = [text for text in TEXTS if len(text) < 70]  # the task cuts longer ones
    answers = [one["text"] for one in small.predict(texts)]
    assert answers == [text.strip() for text in plain.generate(texts, int8=True, strategy="greedy", max_new_tokens=12)]
    assert answers != [one["text"] for one in plain.predict(texts)]


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_an_lstm_is_refused_in_what_it_does_not_compute_in(precision, folders):
    with pytest.raises(InputError, match=f"An LSTM computes in fp32, so it cannot be loaded in {precision}"):
        weft.load(folders / "lstm", precision=precision)
    assert weft.load(folders / "lstm", precision="auto").precision == "fp32"


@needs_kernels
@pytest.mark.parametrize("int8", [False, True])
def test_a_model_writes_with_the_weights_it_has_now(int8, folders):
    """Also where torch does not count the change."""
    model, other = weft.load(folders / "gpt2"), weft.load(folders / "gpt2")
    before = written(model, int8=int8)
    for one in (model, other):
        one.network.decoder.blocks[1].feedforward.up.weight.data.mul_(2)
    assert not np.array_equal(written(model, int8=int8), before)
    np.testing.assert_array_equal(written(model, int8=int8), written(other, int8=int8))


def test_what_is_prepared_for_writing_goes_with_the_model(folders):
    model = weft.load(folders / "gpt2")
    written(model)
    network = weakref.ref(model.network)
    del model
    gc.collect()
    assert network() is None


@needs_kernels
def test_precision_is_that_of_the_weights_now(folders):
    model = weft.load(folders / "bert", precision="int8")
    assert model.precision == model.for_task("embed").precision == "int8"
    model.network.bfloat16()
    assert model.precision == "bf16"
    model.network.float()
    assert model.precision == "int8"
    model.network.to("meta")
    assert model.precision == "fp32", "the compiled forward pass is for CPUs"


def test_a_model_in_memory_has_its_precision(folders, tmp_path):
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(InputError, match="precision goes with a model's folder"):
        weft.evaluate(weft.load(folders / "gpt2"), tmp_path / "a.txt", precision="int8")


def in_four_bits(model: weft.Model, group: int) -> weft.Model:
    for name, layer in list(model.network.named_modules()):
        if type(layer) is nn.Linear and not name.startswith("heads."):
            put_quantized(model.network, name, round_to_nearest(layer.weight, 4, group=group))
    return model


@pytest.mark.parametrize("given", [None, "auto", "int4"])
def test_an_int4_model_loads_in_its_own_precision(given, tmp_path):
    in_four_bits(make_random("bert"), 16).save(tmp_path)
    assert weft.load(tmp_path, precision=given).precision == "int4"
    with pytest.raises(InputError, match="stored in int4, so it cannot be loaded in int8"):
        weft.load(tmp_path, precision="int8")


@needs_kernels
@pytest.mark.parametrize("group", [16, 12])
def test_groups_that_the_kernel_does_not_take_are_told(group, tmp_path, capfd):
    in_four_bits(make_random("bert"), group).save(tmp_path)
    capfd.readouterr()
    weft.load(tmp_path)
    assert ("int4 layers have groups of 12 inputs" in capfd.readouterr().err) == (group == 12)
