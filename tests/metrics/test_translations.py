"""BLEU and chrF against sacrebleu's own corpus figures."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF

from weft.errors import InputError
from weft.metrics.translations import (
    bleu_tokenizer_for,
    translation_counts,
    translation_figures,
    translation_figures_from_counts,
)

english = st.lists(st.sampled_from("the cat sat on a mat , & quot; 3.5 don't".split()), max_size=9).map(" ".join)
chinese = st.text("天地玄黄宇宙洪荒，。 A1", max_size=14)


def reference(predictions, golds, tokenizer):
    bleu = BLEU(tokenize=tokenizer).corpus_score(predictions, [golds]).score
    return {"bleu": bleu, "chrf": CHRF().corpus_score(predictions, [golds]).score}


@settings(max_examples=100)
@given(st.lists(st.tuples(english, english), min_size=1, max_size=8), st.booleans())
def test_figures_equal_sacrebleu_on_english(pairs, copied):
    predictions, golds = (list(side) for side in zip(*pairs, strict=True))
    golds[: len(golds) // 2] = predictions[: len(golds) // 2] if copied else golds[: len(golds) // 2]
    assert translation_figures(translation_counts(predictions, golds)) == pytest.approx(
        reference(predictions, golds, "13a")
    )


@given(st.lists(st.tuples(chinese, chinese), min_size=1, max_size=8))
def test_figures_equal_sacrebleu_on_chinese(pairs):
    predictions, golds = (list(side) for side in zip(*pairs, strict=True))
    golds.append("天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。" * 8)
    predictions.append("天地玄黄，宇宙洪荒。")
    assert translation_figures(translation_counts(predictions, golds)) == pytest.approx(
        reference(predictions, golds, "zh")
    )


def test_any_sum_of_counts_is_divided_as_sacrebleu_does():
    generator = np.random.default_rng(0)
    counts = generator.integers(0, 6, (300, 28)) * generator.integers(0, 2, (300, 28))
    counts[:, 6:10] = -np.sort(-(counts[:, 2:6] + counts[:, 6:10]), axis=-1)  # no more 4-grams than trigrams
    counts[:, 0] = counts[:, 6]
    counts[:, 12::3] = np.minimum(counts[:, 12::3], np.minimum(counts[:, 10::3], counts[:, 11::3]))
    found = translation_figures_from_counts(counts)
    for row, bleu, chrf in zip(counts.tolist(), found["bleu"], found["chrf"], strict=True):
        assert bleu == pytest.approx(BLEU()._compute_score_from_stats(row[:10]).score)
        assert chrf == pytest.approx(CHRF()._compute_score_from_stats(row[10:]).score)


def test_the_tokenizer_follows_the_script():
    assert bleu_tokenizer_for(["The cat sat.", "On the 垫子."]) == "13a"
    assert bleu_tokenizer_for(["猫坐在垫子上。", "The end"]) == "zh"
    assert bleu_tokenizer_for(["我在GitHub上用Python写了一个很长的函数。"]) == "zh"
    assert bleu_tokenizer_for(["고양이가 앉았다"]) == "13a"
    assert bleu_tokenizer_for([""]) == "13a"


def test_counts_are_kept_per_sentence():
    predictions, golds = ["the cat sat on the mat", "a dog"], ["the cat sat on a mat", "the dog barks"]
    counts = translation_counts(predictions, golds)
    for one in range(2):
        alone = translation_counts(predictions[one : one + 1], golds[one : one + 1])
        assert (counts[one] == alone[0]).all()


def test_no_translations_are_an_error():
    with pytest.raises(InputError):
        translation_figures(translation_counts([], []))


def test_without_sacrebleu_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(InputError, match=r'pip install "weft\[tasks\]"'):
        translation_figures(translation_counts(["a"], ["a"]))
