"""What people ask for: ends, stops, streams, lengths, windows; and what they get when they ask for the impossible."""

import gc
import math

import numpy as np
import psutil
import pytest
import torch

import weft
from random_models import make_random
from weft.errors import InputError


def test_one_prompt_gives_one_answer_and_a_list_a_list(pieces):
    text = pieces.generate("Alice was", max_new_tokens=5)
    assert isinstance(text, str)
    assert pieces.generate(["Alice was"], max_new_tokens=5) == [text]
    ids = pieces.tokenizer.encode("Alice was")
    written = pieces.generate(ids, max_new_tokens=5)
    assert len(written) == 5
    assert pieces.generate([ids], max_new_tokens=5) == [written]
    assert pieces.generate(np.array([ids]), max_new_tokens=5) == [written]
    assert pieces.tokenizer.decode(ids + written) == "Alice was" + text
    assert pieces.generate([]) == []
    assert [len(row) for row in pieces.generate(["a", "b"], strategy="sample", n=3, max_new_tokens=2)] == [3, 3]


def test_log_probs_are_those_of_the_model_and_the_score_their_sum(pieces):
    found = pieces.generate("Alice was", max_new_tokens=8, details=True, strategy="sample", temperature=0.5, seed=1)
    ids = pieces.tokenizer.encode("Alice was")
    logits = torch.from_numpy(pieces.logits([ids + found.tokens])[0]).log_softmax(-1)
    rows = range(len(ids) - 1, len(ids) - 1 + len(found.tokens))
    expected = [float(logits[row, token]) for row, token in zip(rows, found.tokens, strict=True)]
    np.testing.assert_allclose(found.log_probs, expected, atol=1e-4)
    assert math.isclose(found.score, sum(expected), abs_tol=1e-3)
    assert found.finish == "length"


@pytest.mark.parametrize(
    "how", [{}, {"strategy": "sample", "seed": 3}, {"stop": "e"}, {"stop": ["the ", "q"]}], ids=str
)
def test_a_stream_joins_to_what_generate_gives(letters, pieces, how):
    for model in (letters, pieces):
        whole = model.generate("Alice was ", max_new_tokens=40, **how)
        parts = list(model.stream("Alice was ", max_new_tokens=40, **how))
        assert "".join(parts) == whole
        assert len(parts) > 1 or "stop" in how
    ids = pieces.tokenizer.encode("Alice")
    assert list(pieces.stream(ids, max_new_tokens=6)) == pieces.generate(ids, max_new_tokens=6)


def test_characters_of_several_tokens_are_streamed_whole(pieces):
    from weft.generate.text import Text, new_text

    prompt, story = pieces.tokenizer.encode("She said: "), "你好, 👩‍🚀 café!"
    tokens = pieces.tokenizer.encode(story)
    text, parts = Text(pieces.tokenizer, prompt), []
    for token in tokens:
        text.add(token)
        parts.append(text.ready())
    parts.append(text.rest())
    assert "".join(parts) == story == new_text(pieces.tokenizer, prompt, tokens)
    assert all("�" not in part for part in parts)


def test_a_stop_string_ends_the_text_before_it_even_across_tokens(letters):
    plain = letters.generate("Alice ", max_new_tokens=50)
    stop = plain[10:14]
    found = letters.generate("Alice ", max_new_tokens=50, stop=stop, details=True)
    assert found.text == plain[: plain.index(stop)]
    assert found.finish == "stop"
    assert stop not in "".join(letters.stream("Alice ", max_new_tokens=50, stop=stop))
    beams = letters.generate("Alice ", max_new_tokens=30, beams=3, stop=" ")
    assert " " not in beams
    # One that never comes does no harm.
    assert letters.generate("Alice ", max_new_tokens=50, stop="@@@") == plain


def test_the_end_token_ends_and_the_least_length_puts_it_off():
    model = make_random("gpt2")
    prompt = [5, 6, 7]
    plain = model.generate(prompt, max_new_tokens=20)
    end = plain[4]
    first = plain.index(end)
    found = model.generate(prompt, max_new_tokens=20, stop_tokens=[end], details=True)
    assert (found.tokens, found.finish) == (plain[: first + 1], "end")
    longer = model.generate(prompt, max_new_tokens=20, stop_tokens=[end], min_new_tokens=first + 3)
    assert end not in longer[: first + 3]
    assert len(longer) >= first + 3
    assert end not in model.generate(prompt, max_new_tokens=20, banned=[end])


def test_the_context_slides_as_if_its_older_half_had_never_been():
    model = make_random("gpt2", positions=16)
    prompt = list(range(10))
    written = model.generate(prompt, max_new_tokens=40, slide=True)
    known, begin = list(prompt), 0
    for token in written:
        if len(known) - begin > 16:
            begin = len(known) - 8
        assert int(model.logits([known[begin:]])[0][-1].argmax()) == token
        known.append(token)
    several = model.generate([prompt, list(range(30)), [3]], max_new_tokens=40, slide=True)
    assert several[0] == written
    assert several[1] == model.generate(list(range(30)), max_new_tokens=40, slide=True)


def test_what_does_not_fit_the_context_is_said_and_without_a_wish_it_is_what_fits():
    model = make_random("gpt2", positions=16)
    with pytest.raises(InputError, match=r"at most 16.*slide"):
        model.generate(list(range(17)))
    with pytest.raises(InputError, match="Ask for at most 7"):
        model.generate(list(range(10)), max_new_tokens=8)
    assert len(model.generate(list(range(10)))) == 7
    assert len(model.generate(list(range(16)), beams=2)) == 1


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": 0}, "top_k"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"max_new_tokens": "many"}, "max_new_tokens"),
        ({"min_new_tokens": 9, "max_new_tokens": 3}, "more than max_new_tokens"),
        ({"strategy": "magic"}, "strategy"),
        ({"strategy": "greedy", "top_k": 3}, "top_k goes with strategy sample"),
        ({"strategy": "sample", "beams": 3}, "beams goes with strategy beam"),
        ({"beams": 3, "n": 4}, "3 beams give at most 3 answers, not 4"),
        ({"strategy": "greedy", "n": 2}, "one answer"),
        ({"beams": 4, "groups": 3}, "groups of the same size"),
        ({"beams": 4, "slide": True}, "cannot slide"),
        ({"stop": ""}, "cannot be empty"),
        ({"banned": [70]}, "0 to 69"),
        ({"banned": list(range(70))}, "Every token is banned"),
        ({"stop_tokens": [-1]}, "0 to 69"),
        ({"temprature": 1.0}, "did you mean temperature"),
        ({"stop": "x"}, "no tokenizer"),
    ],
    ids=str,
)
def test_impossible_wishes_are_one_sentence(how, words):
    with pytest.raises(InputError, match=words):
        make_random("gpt2").generate([1, 2, 3], **how)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ([1, 70], "no token id 70"),
        ([-1], "0 to 69"),
        ([1.5, 2.0], "neither a text nor a list"),
        ([[1], "x"], "no tokenizer"),
        ([[[1]]], "neither a text"),
        (None, "not NoneType"),
        (3, "not int"),
        (b"x", "not bytes"),
        ("text", "no tokenizer"),
        ([[]], "no start token"),
    ],
    ids=repr,
)
def test_prompts_that_are_none_are_one_sentence(prompt, words):
    with pytest.raises(InputError, match=words):
        make_random("gpt2").generate(prompt)


def test_who_does_not_write_says_so(minilm):
    with pytest.raises(InputError, match="encoder, which does not write; try fill"):
        weft.create("bert", layers=1, width=16, heads=2, vocabulary=50).generate([1, 2])
    with pytest.raises(InputError, match="does not write"):
        weft.load(minilm).generate("x")
    with pytest.raises(InputError, match="no language-model head"):
        weft.create("gpt2", head="sequence", layers=1, width=16, heads=2, vocabulary=50).generate([1, 2])


def test_unknown_characters_are_named(letters):
    with pytest.raises(InputError, match="never seen: '猫', '☂'"):
        letters.generate("Alice 猫 ☂")
    assert letters.generate("", max_new_tokens=5)  # begins with the start token


def test_streams_are_of_one_prompt_and_not_of_beams(letters):
    for how, words in (({"beams": 2}, "cannot be streamed"), ({"n": 2}, "one answer")):
        with pytest.raises(InputError, match=words):
            letters.stream("a", **how)
    with pytest.raises(InputError, match="one prompt"):
        letters.stream(["a", "b"])


def test_generating_leaves_the_model_as_it_was(tmp_path):
    model = make_random("llama")
    before = {name: tensor.clone() for name, tensor in model.network.state_dict().items()}
    logits = model.logits([[1, 2, 3]])[0]
    model.generate([1, 2, 3], max_new_tokens=5)
    model.generate([1, 2, 3], max_new_tokens=5, beams=2)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.network.state_dict().items())
    np.testing.assert_array_equal(model.logits([[1, 2, 3]])[0], logits)
    model.save(tmp_path / "model")
    assert weft.load(tmp_path / "model").generate([1, 2, 3]) == model.generate([1, 2, 3])


def test_memory_stays_flat_over_a_thousand_generations():
    model, process = make_random("gpt2"), psutil.Process()
    children = process.children()

    def many(count: int) -> int:
        for number in range(count):
            model.generate([1 + number % 60, 2], max_new_tokens=8, strategy="sample")
            stream = model.stream([1, 2, 3], max_new_tokens=50)
            next(stream)
            stream.close()  # left in the middle
        gc.collect()
        return process.memory_info().rss

    many(100)
    first = many(100)
    assert many(800) - first < 8_000_000
    assert process.children() == children
