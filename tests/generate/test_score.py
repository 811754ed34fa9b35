"""Scores against transformers' loss, windows against one long look, choices against scores."""

import copy
import math

import numpy as np
import pytest
import torch
import transformers

import weft
from random_models import make_random
from weft.errors import InputError


def test_perplexity_is_that_of_transformers(pieces, tmp_path):
    pieces.save(tmp_path / "model")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    texts = ["Alice was beginning to get very tired.", "x", "“What is the use of a book,” thought Alice"]
    for text, score in zip(texts, pieces.score(texts), strict=True):
        start = pieces.tokenizer.id_of("bos")
        ids = torch.tensor([[start, *pieces.tokenizer.encode(text)]])
        with torch.no_grad():
            loss = float(theirs(ids, labels=ids).loss)
        assert score.perplexity == pytest.approx(math.exp(loss), rel=1e-4)
        bits = loss * (ids.shape[1] - 1) / math.log(2) / len(text.encode())
        assert score.bits_per_byte == pytest.approx(bits, rel=1e-4)
    assert pieces.score(texts[0]) == pieces.score([texts[0]])[0]


def test_a_long_text_is_read_in_windows_and_every_token_is_scored_once():
    long, short = make_random("gpt2", positions=64), make_random("gpt2", positions=16)
    with torch.no_grad():
        for name, tensor in short.network.state_dict().items():
            tensor.copy_(long.network.state_dict()[name][: len(tensor)])
    ids = np.random.default_rng(0).integers(1, 70, 60).tolist()
    scored = short.score(ids).log_probs
    assert len(scored) == 59
    for place, number in enumerate(scored, start=1):
        # The window that it was scored in: full from its half on.
        end = 16 if place <= 16 else 16 + 8 * -(-(place - 16) // 8)
        given = ids[max(0, min(end, 59) - 16) : place]
        expected = torch.from_numpy(long.logits([given])[0][-1]).log_softmax(-1)[ids[place]]
        assert number == pytest.approx(float(expected), abs=1e-4)


def test_an_encoder_decoder_scores_answers_to_sources():
    model = make_random("t5")
    sources, texts = [[5, 6, 7], [8, 9]], [[10, 11, 12], [13]]
    for source, text, score in zip(sources, texts, model.score(texts, sources), strict=True):
        logits = torch.from_numpy(model.logits([source], [[0, *text[:-1]]])[0]).log_softmax(-1)
        expected = [float(logits[place, token]) for place, token in enumerate(text)]
        np.testing.assert_allclose(score.log_probs, expected, atol=1e-4)
    with pytest.raises(InputError, match="as the answer to a source"):
        model.score(texts)
    with pytest.raises(InputError, match="2 texts but 1"):
        model.score(texts, [[1]])


@pytest.mark.parametrize("normalize", ["none", "tokens", "bytes"])
def test_the_choice_is_the_likeliest_option(pieces, normalize):
    prompt, options = "Alice was beginning to get very", [" tired", " happy about it all", "\n", "tired"]
    found = pieces.choose(prompt, options, details=True, normalize=normalize)
    start = pieces.tokenizer.id_of("bos")
    for one in found:
        whole = [start, *pieces.tokenizer.encode(prompt + one.option)]
        logits = torch.from_numpy(pieces.logits([whole])[0]).log_softmax(-1)
        total = sum(float(logits[place - 1, whole[place]]) for place in range(len(whole) - one.tokens, len(whole)))
        assert one.log_prob == pytest.approx(total, abs=1e-3)
    assert sum(one.probability for one in found) == pytest.approx(1)
    assert pieces.choose(prompt, options, normalize=normalize) == found[0].option
    if normalize == "none":
        assert found[0].log_prob == max(one.log_prob for one in found)


def test_options_that_are_none_are_said(pieces):
    for options in ([], ["a", "a"], [""], "ab", [1]):
        with pytest.raises(InputError, match=r"options?|choose"):
            pieces.choose("x", options)
    assert pieces.choose("x", ["a"]) == "a"
    with pytest.raises(InputError, match="normalize"):
        pieces.choose("x", ["a"], normalize="words")


def test_a_single_option_has_room_in_double_precision(pieces):
    single = pieces.choose("Once upon a", [" time, long ago"], details=True)
    double = weft.Model(copy.deepcopy(pieces.network).double(), pieces.description, pieces.tokenizer)
    assert double.choose("Once upon a", [" time, long ago"], details=True)[0].log_prob == pytest.approx(
        single[0].log_prob, rel=1e-4
    )


def test_who_cannot_be_scored_says_so():
    with pytest.raises(InputError, match="does not write"):
        weft.create("bert", layers=1, width=16, heads=2, vocabulary=50).score([[1, 2]])
    with pytest.raises(InputError, match="by themselves"):
        make_random("gpt2").score([[1, 2]], [[3]])
