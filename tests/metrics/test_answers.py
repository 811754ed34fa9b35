"""Answers against the functions of SQuAD 2.0's official script, written anew, and Chinese by characters."""

import re
import string
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import InputError
from weft.metrics.answers import answer_figures, exact, normalized, overlap


def official_normalize(text):
    text = "".join(character for character in text.lower() if character not in set(string.punctuation))
    return " ".join(re.compile(r"\b(a|an|the)\b", re.UNICODE).sub(" ", text).split())


def official_f1(gold, predicted):
    gold, predicted = official_normalize(gold).split(), official_normalize(predicted).split()
    same = sum((Counter(gold) & Counter(predicted)).values())
    if not gold or not predicted:
        return int(gold == predicted)
    if same == 0:
        return 0
    precision, recall = same / len(predicted), same / len(gold)
    return 2 * precision * recall / (precision + recall)


def official_scores(predicted, golds):
    golds = [gold for gold in golds if official_normalize(gold)] or [""]
    exacts = [int(official_normalize(gold) == official_normalize(predicted)) for gold in golds]
    return max(exacts), max(official_f1(gold, predicted) for gold in golds)


pieces = [
    "the",
    "The",
    "a",
    "an",
    "cat",
    "Cat",
    "cat's",
    "“cat”",
    "U.S.",
    "sat",
    "—",
    "cat—the—cat",
    "é",
    "1,000",
    "$5",
    "\n",
    "theatre",
]
answers = st.lists(st.sampled_from(pieces), max_size=5).map(" ".join)


@settings(max_examples=200)
@given(answers, st.lists(answers, max_size=3))
def test_scores_equal_the_official_script(predicted, golds):
    assert (exact(predicted, golds), overlap(predicted, golds)) == pytest.approx(official_scores(predicted, golds))


@given(st.text(st.characters(max_codepoint=0x2FFF), max_size=40))
def test_normalization_equals_the_official_script(text):
    assert normalized(text) == official_normalize(text)


@given(st.lists(st.tuples(answers, st.lists(answers.filter(str.strip), max_size=2)), min_size=1, max_size=12))
def test_figures_are_the_official_means(examples):
    predictions, golds = zip(*examples, strict=True)
    figures = answer_figures(predictions, golds)
    kinds = {"": examples}
    if not all(golds):
        kinds["_answerable"] = [one for one in examples if one[1]]
        kinds["_unanswerable"] = [one for one in examples if not one[1]]
    wanted = {}
    for ending, some in kinds.items():
        scores = [official_scores(*one) for one in some]
        if scores:
            wanted[f"exact{ending}"], wanted[f"f1{ending}"] = (
                sum(row) / len(scores) for row in zip(*scores, strict=True)
            )
    assert figures == pytest.approx(wanted)


def test_silence_answers_what_has_no_answer():
    assert (exact("", []), overlap("", [])) == (1, 1)
    assert (exact("the", [""]), overlap("the", [""])) == (1, 1)
    assert (exact("a cat", []), overlap("a cat", [])) == (0, 0)


def test_chinese_is_compared_by_characters():
    assert overlap("北京大学", ["北京"]) == pytest.approx(2 / 3)
    assert overlap("1998年5月", ["1998年"]) == pytest.approx(2 * 2 / 6)
    assert overlap("上海", ["北京", "上海市"]) == pytest.approx(4 / 5)


def test_chinese_punctuation_and_spaces_do_not_count():
    assert exact("《红楼梦》。", ["红楼梦"]) == 1
    assert exact("“红楼 梦”", ["红楼梦"]) == 1
    assert exact("红楼梦", ["红楼"]) == 0


def test_a_letter_with_an_accent_of_its_own_is_no_article():
    assert exact("a\u0300", ["a\u0301"]) == 0
    assert exact("a\u0300", [""]) == 0


def test_no_questions_are_an_error():
    with pytest.raises(InputError):
        answer_figures([], [])
