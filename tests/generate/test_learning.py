"""Trained weights: the same texts as transformers, and texts that get better with training."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import weft
from trained import EXAMPLES, train
from weft.metrics.ngram import NGram
from weft.model.packed import pack


@pytest.mark.parametrize("name", ["letters", "pieces"])
def test_a_trained_model_writes_the_same_in_transformers(name, request, tmp_path):
    model = request.getfixturevalue(name)
    model.save(tmp_path / "model")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    for prompt in ("Alice was ", "The Queen said"):
        ids = torch.tensor([model.tokenizer.encode(prompt)])
        for beams in (1, 4):
            with torch.no_grad():
                out = theirs.generate(ids, max_new_tokens=30, num_beams=beams, do_sample=False)[0, ids.shape[1] :]
            ours = model.generate(ids[0].tolist(), max_new_tokens=30, strategy="beam", beams=beams)
            assert ours == out.tolist()[: len(ours)]
            assert len(set(ours)) > 3


def test_a_trained_t5_writes_the_same_in_transformers(tmp_path):
    model = train(tmp_path, "unigram", "t5", "1000", steps=60)
    sources = ["Alice was <extra_id_0> tired of sitting", "The Queen <extra_id_0> at once, and <extra_id_1>."]
    compare_answers(model, [model.tokenizer.encode(source) for source in sources], tmp_path)


def test_a_trained_transformer_writes_the_same_in_transformers(tmp_path):
    """The original Transformer (Marian's format), taught to turn rows of numbers round."""
    model = weft.create("transformer", layers=2, width=64, heads=4, vocabulary=20, positions=32, seed=1)
    model.description.config.update(pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, forced_eos_token_id=None)
    network, chance = model.network.train(), np.random.default_rng(0)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(150):
        rows = [chance.integers(2, 20, length).tolist() for length in chance.integers(2, 8, 32)]
        turned = [[*reversed(row), 1] for row in rows]
        source, target = pack([[*row, 1] for row in rows]), pack([[0, *row[:-1]] for row in turned])
        logits = network.head("seq2seq")(network(source, target), target)
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor([token for row in turned for token in row]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval()
    assert loss < 2.5  # it has learnt something: by chance it would be 3
    compare_answers(model, [[5, 9, 13, 1], [3, 3, 17, 8, 2, 11, 1], [19, 1]], tmp_path)


def compare_answers(model: weft.Model, sources: list[list[int]], place: Path) -> None:
    model.save(place / "model")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(place / "model").eval()
    for beams in (1, 4):
        for source in sources:
            with torch.no_grad():
                out = theirs.generate(torch.tensor([source]), max_new_tokens=15, num_beams=beams, do_sample=False)
            ours = model.generate(source, max_new_tokens=15, strategy="beam", beams=beams)
            assert ours == out[0, 1:].tolist()[: len(ours)]
            assert len(set(ours)) > 1


def test_samples_get_better_with_training(tmp_path):
    """A 3-gram of held-out text, by letters, judges what was written."""
    texts = {}
    for steps in (5, 120):
        place = tmp_path / str(steps)
        place.mkdir()
        model = train(place, "bpe", "gpt2", "500", steps=steps)
        samples = model.generate("Alice", strategy="sample", n=40, max_new_tokens=40, seed=1)
        texts[steps] = "".join(samples)
    story = (EXAMPLES / "alice.txt").read_text("utf-8")
    judge = NGram(_codes(story[-40_000:]), 128, order=3)
    perplexity = {steps: np.exp(judge.loss(_codes(text))) for steps, text in texts.items()}
    assert perplexity[120] < 0.6 * perplexity[5], perplexity


def _codes(text: str) -> np.ndarray:
    return np.array([min(ord(letter), 127) for letter in text], dtype=np.int64)
