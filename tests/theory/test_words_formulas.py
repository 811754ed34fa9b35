"""The chapter on words as vectors: each formula as written gives what weft computes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.metrics.baselines.classify import one_hot
from weft.metrics.baselines.frozen import row_cosines
from weft.metrics.baselines.vectors import WordVectors, grams_of
from weft.model.embeddings import Embeddings, EmbeddingSpec
from weft.model.heads import Head, HeadSpec, mean_of_each
from weft.model.keep import Keep
from weft.model.loss import vocabulary_loss
from weft.model.packed import pack
from weft.theory.written import words as written

seeds = st.integers(0, 1000)
words = st.sampled_from(["the", "Cat", "cat", "sat", "on", "Mat"])
lengths = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_one_hot(numbers):
    np.testing.assert_array_equal(one_hot(numbers, 6), [written.indicator(v, 6) for v in numbers])


@given(st.lists(st.lists(words, min_size=1, max_size=8), min_size=1, max_size=4))
@settings(max_examples=30)
def test_bag_of_words(texts):
    bags = [written.with_word_pairs([word.lower() for word in text]) for text in texts]
    assert [grams_of(" ".join(text)) for text in texts] == bags
    vectors = WordVectors.fit([" ".join(text) for text in texts])
    columns = vectors.vectorizer.vocabulary_
    vocabulary = sorted(columns, key=columns.get)
    assert set(vocabulary) == {feature for bag in bags for feature in bag}
    counts = [written.bag_of(bag, vocabulary) for bag in bags]
    N_g = [sum(feature in bag for bag in bags) for feature in vocabulary]
    expected = [written.weighted_bag(b, len(texts), N_g) for b in counts]
    np.testing.assert_allclose(vectors.of([" ".join(text) for text in texts]).toarray(), expected, atol=1e-6)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(1, 5), st.booleans(), seeds)
def test_embedding(tokens, width, scaled, seed):
    torch.manual_seed(seed)
    table = Embeddings(EmbeddingSpec(5, width, scaled=scaled)).double()
    E = table.tokens.weight.detach().numpy()
    s = width**0.5 if scaled else 1.0
    expected = [written.look_up(token, E, s) for token in tokens]
    np.testing.assert_allclose(table(pack([tokens[:1], tokens[1:]])).detach(), expected, atol=1e-12)


@given(st.lists(st.integers(0, 4), min_size=2, max_size=6), st.integers(1, 3), st.integers(1, 4), seeds)
def test_skip_gram(text, distance, width, seed):
    torch.manual_seed(seed)
    table = Embeddings(EmbeddingSpec(5, width)).double()
    head = Head(HeadSpec("causal", 5, bias="none"), width).double()
    pairs = written.word_pairs_within(text, distance)
    centres, contexts = zip(*pairs, strict=True)
    found = vocabulary_loss(head, table(pack([centres])), torch.tensor(contexts), scale=1 / len(pairs))
    E, U = table.tokens.weight.detach().numpy(), head.out.weight.detach().numpy()
    assert float(found.detach()) == pytest.approx(written.skip_gram_loss(pairs, E, U), abs=1e-5)


@given(st.integers(1, 4), st.integers(1, 5), st.floats(0.01, 10), seeds)
def test_cosine(count, width, size, seed):
    u, v = size * np.random.default_rng(seed).normal(size=(2, count, width))
    np.testing.assert_allclose(row_cosines(u, v), [written.cosine_of(a, b) for a, b in zip(u, v, strict=True)])
    assert row_cosines(np.zeros((1, width)), v[:1]) == [0]  # no direction: not NaN


@given(lengths, st.integers(1, 2), st.sampled_from(["gpt2", "bert"]), seeds)
@settings(max_examples=12)
def test_hidden_states(lengths, layers, family, seed):
    """The states of a flat batch are those of each sequence alone."""
    model = weft.create(family, vocabulary=7, layers=layers, width=4, heads=2, positions=8, seed=seed)
    network = model.network.double()
    stack = network.decoder or network.encoder
    torch.manual_seed(seed)
    sequences = [torch.randint(7, (length,)).tolist() for length in lengths]
    batch = pack(sequences)
    with torch.no_grad():
        found = network(batch)
        _, kept = network(batch, keep=Keep(hidden=tuple(range(layers + 1))))
        assert found.shape == (sum(lengths), 4)
        for number, sequence in enumerate(sequences):
            alone = pack([sequence])
            views = stack.views(alone, torch.float64)
            blocks = [
                lambda H, block=block, view=view, alone=alone: block(H, alone, view)
                for block, view in zip(stack.blocks, views, strict=True)
            ]
            if stack.norm is not None:
                blocks[-1] = lambda H, last=blocks[-1]: stack.norm(last(H))
            H = written.states_after(blocks, network.embed(alone))
            np.testing.assert_allclose(batch.split(found)[number], H[-1], atol=1e-12)
            for layer, states in enumerate(H):
                np.testing.assert_allclose(batch.split(kept.hidden[layer])[number], states, atol=1e-12)


@given(lengths, st.integers(1, 4), seeds)
def test_text_vector(lengths, width, seed):
    torch.manual_seed(seed)
    batch = pack([[0] * length for length in lengths])
    H = torch.randn(sum(lengths), width, dtype=torch.float64)
    expected = [written.mean_state(part.numpy()) for part in batch.split(H)]
    np.testing.assert_allclose(mean_of_each(H, batch), expected, atol=1e-12)
