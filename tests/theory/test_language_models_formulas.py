"""The chapter on language models: each formula as written gives what weft computes."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from random_models import next_token, tiny_gpt
from weft.generate.log_probs import log_probs_of, to_score
from weft.metrics.ngram import NGram
from weft.objectives.causal import Causal
from weft.objectives.objective import head_scores
from weft.theory.written import language_models as written
from weft.tokens.shards import TokenShards
from weft.train.validation import figures_of

VOCABULARY = 7
tokens = st.integers(0, VOCABULARY - 1)
seeds = st.integers(0, 1000)


@given(st.lists(st.lists(tokens, min_size=2, max_size=8), min_size=1, max_size=4), seeds)
def test_chain_rule(texts, seed):
    model = tiny_gpt(seed)
    with torch.no_grad():
        found = log_probs_of(model.network, texts, None, 32)
    for text, numbers in zip(texts, found, strict=True):
        expected = written.text_log_probability(next_token(model), text)
        assert to_score(numbers, "").log_prob == pytest.approx(expected, abs=1e-5)


@given(st.lists(tokens, min_size=6, max_size=20), st.integers(2, 5), st.integers(0, 1), seeds)
def test_causal_loss(tape, length, seen, seed):
    """Also where the first tokens of a sample are context from the one before, and not scored again."""
    objective = Causal(np.array(tape), length, seen)
    model = tiny_gpt(seed)
    samples = list(range(len(objective)))
    batch = objective.batch(samples, [0] * len(samples), 0)
    expected, count = 0.0, 0
    for sample in samples:
        x = tape[sample * (length - seen) :][: length + 1]
        context = seen if sample else 0
        expected += length * written.language_model_loss(next_token(model), x)
        expected -= context and context * written.language_model_loss(next_token(model), x[: context + 1])
        count += length - context
    assert batch.counts == {"causal": count}
    assert float(head_scores(model.network, batch)["loss/causal"]) == pytest.approx(expected, abs=1e-4)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 200)), min_size=1, max_size=3), st.floats(0.01, 8))
def test_perplexity(parts, loss):
    shards = [TokenShards(None, np.dtype(np.int64), 0, (size,), letters, 2 * letters) for size, letters in parts]
    size, letters = (sum(part[place] for part in parts) for place in (0, 1))
    found = figures_of(shards, "causal")({"validation_causal_loss": loss})
    assert found["perplexity"] == pytest.approx(written.perplexity_of(loss))
    assert found["bits_per_character"] == pytest.approx(written.bits_per_character(loss, size, letters))
    assert found["bits_per_byte"] == pytest.approx(written.bits_per_character(loss, size, 2 * letters))
    masked = figures_of(shards, "masked")({"validation_masked_loss": loss})
    assert masked == {"perplexity": pytest.approx(written.perplexity_of(loss))}
    assert math.isfinite(figures_of(shards, "masked")({"validation_masked_loss": 1e4})["perplexity"])


@given(st.lists(tokens, min_size=4, max_size=30), st.lists(tokens, min_size=4, max_size=8), st.integers(1, 4))
def test_n_gram(text, asked, order):
    found = NGram(np.array(text), VOCABULARY, order).losses(np.array(asked))
    expected = [
        -math.log(written.witten_bell(text, VOCABULARY, tuple(asked[i - order + 1 : i]), asked[i]))
        for i in range(order - 1, len(asked))
    ]
    np.testing.assert_allclose(found, expected, atol=1e-12)
