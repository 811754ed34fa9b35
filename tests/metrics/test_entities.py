"""Spans against seqeval, on tags of any kind, valid or not."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import seqeval.metrics as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from weft.errors import InputError
from weft.metrics.entities import (
    Entity,
    are_bare,
    entities_in,
    entity_counts,
    entity_figures,
    entity_figures_from_counts,
    guess_scheme,
    per_type,
    repaired_tags,
    tag_accuracy,
    tags_of,
    with_kind,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # seqeval's, where it divides by 0

KINDS = ("A", "B-I", "组织")


def tags(marks):
    return st.sampled_from(["O", "O-A", "B", "I", *(f"{mark}-{kind}" for mark in marks for kind in KINDS)])


@st.composite
def sentence_pairs(draw, marks):
    lengths = draw(st.lists(st.integers(0, 7), min_size=1, max_size=5))
    sides = [[draw(st.lists(tags(marks), min_size=n, max_size=n)) for n in lengths] for _ in range(2)]
    if draw(st.booleans()):  # otherwise hardly a span would be found
        sides[1] = [
            [draw(st.sampled_from(pair)) for pair in zip(*rows, strict=True)] for rows in zip(*sides, strict=True)
        ]
    return tuple(sides)


@st.composite
def separate_spans(draw):
    length = draw(st.integers(0, 12))
    cuts = sorted(draw(st.sets(st.integers(0, length))))
    chosen = [pair for pair in pairwise(cuts) if draw(st.booleans())]
    return [Entity(*pair, draw(st.sampled_from(KINDS))) for pair in chosen], length


def written(spans, length, marks):
    """`marks`: of the only word, the first, those between and the last."""
    only, first, middle, last = marks
    found = ["O"] * length
    for start, end, kind in spans:
        inner = [first, *middle * (end - start - 2), last] if end - start > 1 else [only]
        found[start:end] = [f"{mark}-{kind}" for mark in inner]
    return found


def written_iob1(spans, length):
    found = written(spans, length, "IIII")
    for start, _, kind in spans:
        if any(before.end == start and before.kind == kind for before in spans):
            found[start] = f"B-{kind}"
    return found


@settings(max_examples=200)
@given(sentence_pairs("BI") | sentence_pairs("BIES"))
def test_figures_equal_seqeval_on_any_tags(pair):
    figures = entity_figures(*pair)
    assert figures["precision"] == pytest.approx(reference.precision_score(*pair))
    assert figures["recall"] == pytest.approx(reference.recall_score(*pair))
    assert figures["f1"] == pytest.approx(reference.f1_score(*pair))
    scores = per_type(*pair)
    if not scores:
        assert set(figures.values()) == {0.0}
        return
    report = reference.classification_report(*pair, output_dict=True)
    assert figures["f1_macro"] == pytest.approx(report["macro avg"]["f1-score"])
    assert set(scores) == set(report) - {"micro avg", "macro avg", "weighted avg"}
    for kind, score in scores.items():
        assert [score.precision, score.recall, score.f1, score.support] == pytest.approx(list(report[kind].values()))


@given(st.lists(tags("BIES"), max_size=12))
def test_spans_equal_seqeval(sequence):
    assert [(kind, start, end - 1) for start, end, kind in entities_in(sequence)] == get_entities(sequence)


@given(separate_spans())
def test_spans_survive_every_scheme(drawn):
    spans, length = drawn
    for scheme, sequence in {
        "iob2": tags_of(spans, length),
        "iob1": written_iob1(spans, length),
        "bioes": written(spans, length, "SBIE"),
    }.items():
        assert entities_in(sequence) == spans
        assert repaired_tags(sequence, scheme) == (tags_of(spans, length), 0)
    for marks in ("UBIL", "SBME"):
        assert repaired_tags(written(spans, length, marks), "bioes") == (tags_of(spans, length), 0)


@given(st.lists(separate_spans(), min_size=1, max_size=5))
def test_the_scheme_is_guessed(sentences):
    assert guess_scheme(tags_of(*one) for one in sentences) == "iob2"
    if any(spans for spans, _ in sentences):
        assert guess_scheme([written_iob1(*one) for one in sentences]) == "iob1"
        assert guess_scheme([written(*one, "SBIE") for one in sentences]) == "bioes"
        assert guess_scheme([written(*one, "UBIL") for one in sentences]) == "bioes"


def test_one_mistake_does_not_change_the_guess():
    assert guess_scheme([["B-A", "I-A", "O", "B-B"], ["I-A", "O", "B-A"]]) == "iob2"
    assert guess_scheme([["I-A", "I-A", "B-A", "I-B"], ["B-A", "O", "I-A"]]) == "iob1"


@pytest.mark.parametrize("sequence", [["NOUN", "VERB"], ["B-A", "X-A"], ["O", "PER"], ["B", "I"], ["B-"], ["X"]])
def test_tags_that_are_no_spans_are_plain(sequence):
    assert guess_scheme([["O", "B-A"], sequence]) == "plain"
    assert repaired_tags(sequence, "plain") == (sequence, 0)


def test_a_few_misspelt_tags_do_not_make_a_scheme_plain():
    sentences = [["B-A", "E-A", "O", "S-B"]] * 100
    assert guess_scheme([*sentences, ["O", "MISC"]]) == "bioes"
    assert guess_scheme([*sentences[:20], ["O", "MISC"]]) == "plain"


@given(st.lists(tags("BIESLUM"), max_size=12))
def test_what_is_repaired_is_valid_and_reads_the_same(sequence):
    for scheme in ("iob1", "iob2", "bioes"):
        fixed, _ = repaired_tags(sequence, scheme)
        assert entities_in(fixed) == entities_in(sequence)
        assert repaired_tags(fixed, "iob2") == (fixed, 0)


@pytest.mark.parametrize(
    ("sequence", "iob1", "iob2", "bioes"),
    [
        ("O I-A I-A O", 0, 1, 2),  # begins nowhere; ends nowhere
        ("B-A I-A I-B", 1, 1, 2),
        ("B-A B-A", 1, 0, 2),
        ("B-A E-A S-B", 3, 2, 0),
        ("B-A E-B", 2, 1, 2),
        ("B-A I-A E-A E-A", 3, 2, 1),
        ("O O", 0, 0, 0),
    ],
)
def test_invalid_tags_are_counted(sequence, iob1, iob2, bioes):
    assert [repaired_tags(sequence.split(), scheme)[1] for scheme in ("iob1", "iob2", "bioes")] == [iob1, iob2, bioes]


@given(sentence_pairs("BI"))
def test_summed_counts_give_the_figures_of_the_sentences_together(pair):
    _, counts = entity_counts(*pair)
    twice = entity_figures_from_counts(np.stack([counts.sum(0), 2 * counts.sum(0)]))
    for name, value in entity_figures(*pair).items():
        assert twice[name] == pytest.approx([value, value])


def test_a_kind_that_was_not_drawn_does_not_lower_the_mean():
    both_found, one_found = [[1, 0, 0], [2, 0, 0]], [[1, 0, 0], [0, 0, 0]]
    assert entity_figures_from_counts(np.array([both_found, one_found]))["f1_macro"].tolist() == [1, 1]


@given(sentence_pairs("BI"))
def test_tag_accuracy_is_the_share_of_equal_tags(pair):
    same = Counter(a == b for rows in zip(*pair, strict=True) for a, b in zip(*rows, strict=True))
    assert tag_accuracy(*pair) == pytest.approx(same[True] / max(same.total(), 1))


def test_spans_that_cannot_be_written_are_an_error():
    for spans in ([Entity(0, 3, "A")], [Entity(1, 1, "A")], [Entity(0, 2, "A"), Entity(1, 2, "B")]):
        with pytest.raises(ValueError, match="entity"):
            tags_of(spans, 2)


def test_sentences_of_unequal_length_and_no_sentences_are_errors():
    with pytest.raises(ValueError, match="sentence 1 has 2 gold tags, but 1"):
        entity_figures([["O"], ["O", "O"]], [["O"], ["O"]])
    with pytest.raises(InputError):
        entity_figures([], [])


@pytest.mark.parametrize(
    ("tags", "bare"),
    [
        ("B I O", True),
        ("I O", True),
        ("B M E S", True),
        ("B-A I-A O", False),
        ("S P O", False),
        ("M S", False),
        ("O", False),
    ],
)
def test_bare_tags_are_told_from_names_of_classes(tags, bare):
    assert are_bare([tags.split()]) is bare


def test_bare_tags_are_entities_of_one_kind():
    assert entities_in(with_kind("B I O S O".split())) == [(0, 2, "entity"), (3, 4, "entity")]
