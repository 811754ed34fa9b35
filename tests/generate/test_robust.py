"""What went wrong once, or could: modes, types, numbers at the edge, folders that say odd things."""

import copy
import json
import os
import signal
import time

import numpy as np
import pytest
import torch

import weft
from random_models import make_random
from weft.errors import InputError, WeftError
from weft.generate.kernels import load_generation_kernels


def test_streams_side_by_side_leave_the_callers_mode_alone(letters):
    expected = letters.generate("Alice ", max_new_tokens=20)
    first, second = (letters.stream("Alice ", max_new_tokens=20) for _ in range(2))
    pairs = []
    for pair in zip(first, second, strict=True):
        pairs.append(pair)
        weight = torch.ones(2, requires_grad=True)
        (weight * 2).sum().backward()  # training may go on between pieces
    assert "".join(a for a, _ in pairs) == "".join(b for _, b in pairs) == expected
    assert not torch.is_inference_mode_enabled()


def test_the_callers_autocast_does_not_matter():
    load_generation_kernels.cache_clear()
    with torch.autocast("cpu", torch.bfloat16):
        make_random("gpt2").generate([1, 2, 3])  # the first of all
    for family in ("gpt2", "llama", "t5"):
        model = make_random(family)
        expected = model.generate([[1, 2, 3]], max_new_tokens=10)
        with torch.autocast("cpu", torch.bfloat16):
            assert model.generate([[1, 2, 3]], max_new_tokens=10) == expected


def test_a_model_left_in_training_mode_writes_and_scores_without_dropout():
    model = make_random("gpt2", dropout=0.5)
    written, score = model.generate([1, 2, 3]), model.score([1, 2, 3])
    model.network.train()
    assert (model.generate([1, 2, 3]), model.score([1, 2, 3])) == (written, score)
    assert model.network.training


def test_half_precision_weights_write():
    model = make_random("llama")
    model.network.bfloat16()
    for how in ({}, {"beams": 2}, {"strategy": "sample"}, {"int8": True}):
        assert len(model.generate([1, 2, 3], max_new_tokens=5, **how)) == 5


def test_the_number_of_threads_may_change(threads):
    model = make_random("gpt2", vocabulary=5000)  # large enough to be shared out
    threads(2)
    expected = model.generate([1, 2, 3])
    threads(1)
    assert model.generate([1, 2, 3]) == expected


def test_many_answers_come_in_portions_and_are_the_same():
    model = make_random("gpt2")
    how = {"strategy": "sample", "seed": 3, "max_new_tokens": 4}
    many = model.generate([5, 6], n=150, **how)
    assert len(many) == 150
    assert many[:3] == model.generate([5, 6], n=3, **how)


def test_copies_of_a_prompt_longer_than_the_context_forget_the_same():
    model = make_random("gpt2", positions=16)
    how = {"strategy": "sample", "seed": 3, "max_new_tokens": 20, "slide": True}
    prompt = list(range(30))
    assert model.generate(prompt, n=3, **how) == model.generate([prompt] * 3, **how)


def test_a_forced_end_comes_where_the_text_is_cut_off(tmp_path):
    model = make_random("transformer", positions=12)
    model.description.config.update(forced_eos_token_id=9)
    for how in ({}, {"max_new_tokens": 5}, {"beams": 2}):
        answer = model.generate([[4, 5, 6]], **how)[0]
        assert answer[-1] == 9
        assert 9 not in answer[:-1]
        assert len(answer) == how.get("max_new_tokens", 12)


def test_what_leaves_nothing_to_write_is_said():
    model = make_random("gpt2", vocabulary=6, positions=16)
    for how, words in (
        ({"banned": [0, 1, 2, 3], "stop_tokens": [4, 5], "min_new_tokens": 3}, "Every token is banned"),
        ({"min_new_tokens": 50}, "Ask for at most 15"),
        ({"n": 3, "max_new_tokens": np.int64(0)}, "max_new_tokens"),
        ({"n": np.array([1, 2])}, "n cannot be"),
        ({"int8": [1]}, "int8 is true or false"),
    ):
        with pytest.raises(InputError, match=words):
            model.generate([1, 2], **how)
    assert len(model.generate([1, 2], max_new_tokens=np.int64(3), banned=(np.int64(1),))) == 3
    with torch.no_grad():
        next(model.network.parameters()).fill_(torch.nan)
    with pytest.raises(WeftError, match="logits are NaN"):
        model.generate([1, 2])


def test_beams_that_never_were_are_not_handed_out():
    model = make_random("gpt2", vocabulary=6)
    found = model.generate([1, 2], beams=10, n=10, max_new_tokens=1, details=True)
    assert len(found) == 6
    assert all(one.score > -100 for one in found)


@pytest.mark.parametrize("extra", [{}, {"top_k": 5}, {"top_p": 0.5}, {"typical_p": 0.9}, {"min_p": 0.1}], ids=str)
def test_a_temperature_near_nothing_is_greedy(extra):
    model = make_random("llama")
    expected = model.generate([1, 2, 3], max_new_tokens=10)
    assert model.generate([1, 2, 3], max_new_tokens=10, temperature=1e-4, **extra) == expected


def test_length_penalties_at_their_bounds_give_numbers():
    model = make_random("lstm")
    for penalty in (-20.0, 20.0):
        found = model.generate([1], beams=2, max_new_tokens=300, length_penalty=penalty, details=True)
        assert np.isfinite(found.score)


@pytest.mark.parametrize("value", ["0", 0.5, True, [["a"]], {"a": 1}], ids=repr)
def test_a_generation_config_that_makes_no_sense_is_left_out_with_a_word(letters, tmp_path, capsys, value):
    letters.save(tmp_path / "model")
    config = {"eos_token_id": value, "temperature": "hot", "top_k": -1, "repetition_penalty": [2]}
    (tmp_path / "model/generation_config.json").write_text(json.dumps(config))
    model = weft.load(tmp_path / "model")
    how = {"strategy": "sample", "seed": 1, "max_new_tokens": 20}
    assert model.generate("Alice ", **how) == letters.generate("Alice ", **how)
    said = capsys.readouterr().err
    assert "eos_token_id cannot be" in said
    assert "temperature cannot be 'hot'" in said


@pytest.mark.parametrize(
    "prompt",
    [
        "a\udcff",
        [[[1], [2, 3]]],
        bytearray(b"ab"),
        memoryview(b"ab"),
        torch.zeros(2, device="meta"),
        [np.array([1], dtype="timedelta64[D]")],
        [torch.tensor([0.5])],
        "x" * 1_000_001,
    ],
    ids=lambda value: type(value).__name__,
)
def test_odd_prompts_are_one_sentence(letters, prompt):
    with pytest.raises(InputError):
        letters.generate(prompt)


def test_prompts_that_end_within_a_character_go_on_with_it(pieces):
    from weft.generate.text import new_text

    ids = pieces.tokenizer.encode("cat 猫")
    assert len(ids) > 4  # several bytes, several tokens
    for cut in range(3, len(ids)):
        assert new_text(pieces.tokenizer, ids[:cut], ids[cut:]).endswith("猫")
    literal = pieces.tokenizer.encode("a�")
    assert new_text(pieces.tokenizer, literal, pieces.tokenizer.encode("b")) == "b"


def test_options_may_be_an_array_and_must_be_a_list_of_texts(letters):
    assert letters.choose("Alice ", np.array(["was", "zzz"])) in ("was", "zzz")
    for options in (None, 5, [1], {"a": 1}.values()):
        with pytest.raises(InputError, match="list of texts"):
            letters.choose("Alice ", options)


def test_a_source_too_long_to_be_compared_with_itself_is_said():
    with pytest.raises(InputError, match="reads at most 16384"):
        make_random("t5").generate([[5] * 20_000])


def test_nothing_has_no_perplexity(letters):
    score = letters.score("")
    assert np.isnan(score.perplexity)
    assert score.bits_per_byte is None


def test_a_model_that_has_written_can_be_copied_and_its_copy_changed():
    model = make_random("llama")
    written = model.generate([1, 2, 3])
    other = copy.deepcopy(model)
    assert other.generate([1, 2, 3]) == written
    with torch.no_grad():
        for parameter in other.network.parameters():
            parameter.copy_(parameter.flip(0))
    assert other.generate([1, 2, 3]) != written
    assert model.generate([1, 2, 3]) == written


def test_weights_that_get_another_memory_during_a_stream_do_not_pull_it_away():
    model = make_random("gpt2")
    written = model.generate([1, 2, 3], max_new_tokens=20)
    stream = model.stream([1, 2, 3], max_new_tokens=20)
    begun = [next(stream) for _ in range(5)]
    for block in model.network.decoder.blocks:
        block.double().float()
        for parameter in block.parameters():
            parameter.data = parameter.data.clone()
    assert [*begun, *stream] == written


@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_forked_process_writes_on_without_the_threads_of_its_parent(is_loaded, two_threads):
    """Also where the kernels are first asked for, and tried, in the child."""
    model = make_random("gpt2", vocabulary=5000)
    written = model.generate([1, 2, 3], max_new_tokens=4)
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)  # as every worker of a data loader does; torch's own threads are not there either
        if not is_loaded:
            load_generation_kernels.cache_clear()
            load_generation_kernels()
        os._exit(0 if model.generate([1, 2, 3], max_new_tokens=4) == written else 1)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("it waits for ever")
        time.sleep(0.01)
    assert ended[1] == 0
