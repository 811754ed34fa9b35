"""Each rule keeps a good text and drops a bad one; the counts are those of the plain definition."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.corpus.quality import RULES, Thresholds, broken_rule, repeated_text

ROOT = Path(__file__).parents[2]
ENGLISH = " ".join((ROOT / "examples/alice.txt").read_text().split()[200:500])
CHINESE = (
    "却说那女娲氏炼石补天之时，于大荒山无稽崖炼成高十二丈、见方二十四丈大的顽石三万六千五百零一块。那娲皇只用了三万六千"
    "五百块，单单剩下一块未用，弃在青埂峰下。谁知此石自经锻炼之后，灵性已通，自去自来，可大可小。因见众石俱得补天，独自己"
    "无才，不得入选，遂自怨自愧，日夜悲哀。一日正当嗟悼之际，俄见一僧一道，远远而来，生得骨格不凡，丰神迥异，来到这青埂"
    "峰下，席地坐而长谈。"
)


def test_good_texts_stay():
    assert broken_rule(ENGLISH, "en") is None
    assert broken_rule(CHINESE, "zh") is None
    assert broken_rule(ENGLISH) is None  # in a language nobody knows


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("length", "Too short."),
        ("word length", "a b c d e f g h i j " * 20),
        ("symbols", " ".join(word if place % 4 else f"{word} #" for place, word in enumerate(ENGLISH.split()))),
        ("digits", " ".join(f"{word} {number:07}" for number, word in enumerate(ENGLISH.split()))),
        ("a list", "\n".join(f"- {part}" for part in ENGLISH.split(","))),
        ("cut-off lines", "\n".join(f"{part}..." for part in ENGLISH.split(","))),
        ("few letters", " ".join(f"{word} ====" for word in ENGLISH.split())),
        ("few stop words", " ".join(word for word in ENGLISH.split() if len(word) > 5) * 2),
        ("repeated lines", f"{ENGLISH}\n" + "The same line again and again, of some length.\n" * 20),
        ("repeated paragraphs", "\n".join(dict.fromkeys(ENGLISH.split())) + "\n\nThe same." * 3),
        ("common phrases", ENGLISH + " buy cheap" * 100),
        ("repeated phrases", " ".join(ENGLISH.split()[:200] + ENGLISH.split()[20:80])),
    ],
)
def test_each_rule_drops_what_it_is_for(reason, text):
    assert broken_rule(text, "en") == reason


def test_every_rule_has_such_a_text():
    marks = test_each_rule_drops_what_it_is_for.pytestmark[0]
    assert [reason for reason, _ in marks.args[1]] == list(RULES)


def test_chinese_that_repeats_itself_goes():
    assert broken_rule(CHINESE + "点击这里马上购买便宜的产品" * 20, "zh") in ("common phrases", "repeated phrases")
    assert broken_rule(CHINESE[:50], "zh") == "length"


def test_the_share_of_a_chinese_phrase_has_no_spaces_in_it():
    parts = [CHINESE[start : start + 26] for start in range(0, len(CHINESE), 26)]
    assert broken_rule("人民日报".join(parts), "zh") is None  # 13 % of it; 23 % with spaces


@pytest.mark.parametrize("text", ["", "!!!", "   "])
def test_texts_without_words_break_nothing(text):
    for language in (None, "en", "zh"):
        broken_rule(text, language, Thresholds(least_words=0))


def test_thresholds_can_be_changed_and_switched_off():
    short = " ".join(ENGLISH.split()[:20])
    assert broken_rule(short, "en", Thresholds(least_words=10)) is None
    hashes = ENGLISH.replace(" ", " # ")
    assert broken_rule(hashes, "en", Thresholds(symbols=None, letters=None, word_length=None)) is None


@given(st.lists(st.sampled_from(["a", "bb", "ccc"]), max_size=60), st.integers(2, 6))
def test_repeated_text_is_counted_as_defined(words, length):
    """Rae et al. 2021: walk along; a row that was seen counts, and the walk goes on behind it."""
    seen, repeated, place = set(), 0, 0
    while place + length <= len(words):
        row = "|".join(words[place : place + length])
        if row in seen:
            repeated += sum(map(len, words[place : place + length]))
            place += length
        else:
            seen.add(row)
            place += 1
    assert repeated_text(words, length) == repeated
