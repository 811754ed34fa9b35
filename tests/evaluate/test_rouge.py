"""ROUGE against Google's `rouge_score`, and Chinese by characters."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from weft.errors import InputError
from weft.evaluate.rouge import rouge, rouge_figures

KINDS = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
scorer = RougeScorer(KINDS)
few_words = st.lists(
    st.sampled_from(["a", "b", "c", "D", "e-f", "don't", "9.5", "\n", "\n\n", "!", "é", "_"]), max_size=30
)


def reference(predicted, gold):
    return {kind: score.fmeasure for kind, score in scorer.score(gold, predicted).items()}


@settings(max_examples=300)
@given(few_words, few_words)
def test_it_equals_rouge_score_where_words_repeat(predicted, gold):
    predicted, gold = " ".join(predicted), " ".join(gold)
    assert rouge(predicted, gold) == pytest.approx(reference(predicted, gold))


@given(st.text(st.characters(codec="latin-1"), max_size=80), st.text(st.characters(codec="latin-1"), max_size=80))
def test_it_equals_rouge_score_on_any_european_text(predicted, gold):
    assert rouge(predicted, gold) == pytest.approx(reference(predicted, gold))


@pytest.mark.parametrize("lines", [1, 6])
def test_it_equals_rouge_score_on_long_texts(lines):
    """Longer than 64 words: the bits take several machine words."""
    generator = random.Random(lines)
    words = [f"w{number}" for number in range(300)]
    for _ in range(10):
        predicted, gold = (
            "\n".join(
                " ".join(generator.choices(words, [1 / (n + 1) for n in range(300)], k=120 // lines))
                for _ in range(lines)
            )
            for _ in range(2)
        )
        assert rouge(predicted, gold) == pytest.approx(reference(predicted, gold))


@given(st.text("天地玄黄\n", max_size=30), st.text("天地玄黄\n", max_size=30))
def test_a_chinese_character_counts_as_a_word_does(predicted, gold):
    names = dict(zip("天地玄黄", (" heaven ", " earth ", " dark ", " yellow "), strict=True))
    in_english = reference(*("".join(names.get(character, "\n") for character in text) for text in (predicted, gold)))
    assert rouge(predicted, gold) == pytest.approx(in_english)


def test_figures_are_means():
    found = rouge_figures(["a b c", "x"], ["a b c", "y"])
    assert found == dict.fromkeys(KINDS, 0.5)


def test_no_summaries_are_an_error():
    with pytest.raises(InputError):
        rouge_figures([], [])
