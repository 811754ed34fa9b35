"""What is held out: nothing is lost, nothing stands on two sides, and it is the same every time."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.corpus.split import SPLITS, Shares, texts_of
from weft.errors import RecipeError
from weft.sources.documents import Document


def documents(texts):
    return lambda: (Document(text, Path("a.txt"), number) for number, text in enumerate(texts))


def split(texts, shares):
    return {part: list(texts_of(part, documents(texts), shares)) for part in SPLITS}


@given(st.text("ab\n", min_size=30, max_size=60), st.floats(0, 0.4), st.floats(0, 0.4))
def test_the_parts_of_a_text_join_to_it(text, validation, test):
    text = f"x{text.replace(chr(10), 'c')}x"
    parts = split([text], Shares(validation, test))
    assert "".join("".join(parts[part]) for part in SPLITS) == text


def test_a_single_text_gives_up_its_end_to_the_character():
    text = "".join(chr(97 + i % 26) for i in range(1000))
    assert split([text], Shares(0.1)) == {"train": [text[:900]], "validation": [text[900:]], "test": []}
    counted = split([text], Shares(40, 60))
    assert counted == {"train": [text[:900]], "validation": [text[900:940]], "test": [text[940:]]}


def test_of_a_few_short_texts_whole_ones_are_held_out():
    texts = [f"Paragraph {i} has two sentences. This is the second." for i in range(40)]
    parts = split(texts, Shares(0.1, 0.01))
    assert sorted(parts["train"] + parts["validation"] + parts["test"]) == sorted(texts)
    assert (len(parts["validation"]), len(parts["test"])) == (4, 1)
    assert split(texts[::-1], Shares(0.1, 0.01)) == {part: found[::-1] for part, found in parts.items()}


def test_of_a_few_books_the_ends_are_held_out():
    books = ["a" * 30_000, "b" * 50_000]
    assert split(books, Shares(0.1))["validation"] == ["a" * 3_000, "b" * 5_000]


def test_many_texts_are_divided_by_what_they_say_and_by_nothing_else():
    texts = [f"document number {i} says {i * i}" for i in range(3000)]
    parts = split(texts, Shares(0.1, 0.2))
    assert sorted(parts["train"] + parts["validation"] + parts["test"]) == sorted(texts)
    assert len(parts["validation"]) == pytest.approx(300, abs=60)
    assert len(parts["test"]) == pytest.approx(600, abs=80)
    again = split(texts[::-1] + texts, Shares(0.1, 0.2))
    assert {part: set(found) for part, found in again.items()} == {part: set(found) for part, found in parts.items()}


@pytest.mark.parametrize(
    ("texts", "shares", "says"),
    [
        (["a" * 50] * 3, (10, 0), "only if the source is one text"),
        (["a" * 50], (60, 0), "too short to hold out 60"),
        (["a" * 50, "b" * 50], (0.4, 0.4), "2 documents are too few to hold out 2"),
    ],
)
def test_the_impossible_is_refused(texts, shares, says):
    with pytest.raises(RecipeError, match=says):
        split(texts, Shares(*shares))


def test_shares_must_leave_something():
    with pytest.raises(RecipeError, match="leave nothing"):
        Shares(0.5, 0.5)
