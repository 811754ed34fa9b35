"""Trained weights: the same texts as transformers, and texts that get better with training."""

import numpy as np
import pytest
import torch
import transformers

from trained import EXAMPLES, train
from weft.evaluate.ngram import NGram


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
