"""Words of every script: nothing that is read as part of a word is lost."""

import unicodedata

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from weft import words
from weft.words import folded, is_unspaced, letters_of, places_of_words, words_and_symbols, words_of

# Random Unicode seldom has two letters of one script side by side; these are what goes wrong.
tricky = st.sampled_from(
    "aZß9٣२éİ_'-+<#中々〇がーｶﾞกน้ำ๒ខ្ញុំမြန်दिनதமிழ்বাংলাשָׁלוֹםمَنያεά한글"
    "\u1112\u1161\u11ab\u0345\u0301\u0323\u200d\u200c❤️👍🏽 \n\t。"
)
texts = st.text(st.one_of(tricky, st.characters(exclude_categories=["Cs"])), max_size=40)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("दिन दान दीन दूना", ["दिन", "दान", "दीन", "दूना"]),
        ("বাংলা ভাষা", ["বাংলা", "ভাষা"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("مَدْرَسَةٌ جَدِيدَة", ["مَدْرَسَةٌ", "جَدِيدَة"]),
        ("שָׁלוֹם עוֹלָם", ["שָׁלוֹם", "עוֹלָם"]),
        ("ti\u1ebfng Vie\u0323\u0302t", ["ti\u1ebfng", "Vie\u0323\u0302t"]),
        ("ọ̀rọ̀ Yorùbá", ["ọ̀rọ̀", "Yorùbá"]),
        ("ሰላም ለዓለም።", ["ሰላም", "ለዓለም"]),
        ("\u1112\u1161\u11ab\u1100\u1173\u11af 말", ["\u1112\u1161\u11ab\u1100\u1173\u11af", "말"]),
        ("می‌خواهم بروم", ["می‌خواهم", "بروم"]),
        ("第3章iPhone手机", ["第", "3", "章", "iPhone", "手", "机"]),
        ("か\u3099データ", ["か\u3099", "デ", "ー", "タ"]),
        ("น้ำ", ["น้", "ำ"]),
        ("བོད་སྐད", ["བོད", "སྐད"]),
        ("can't x² 3.5 snake_case", ["can", "t", "x²", "3", "5", "snake", "case"]),
        ("❤️ 👍🏽 !", []),
    ],
)
def test_words_are_whole(text, found):
    assert words_of(text) == found


@given(texts)
def test_no_letter_digit_mark_or_symbol_is_lost(text):
    assert "".join(words_and_symbols(text)).translate({0x200C: None, 0x200D: None}) == "".join(
        regex.findall(r"[\p{L}\p{N}\p{M}\p{S}]", text)
    )


@given(texts)
def test_words_are_those_between_the_symbols(text):
    # What stands first in a word is no symbol, whatever mark follows.
    assert words_of(text) == [word for word in words_and_symbols(text) if not regex.match(r"\p{S}", word)]


@given(texts)
def test_places_are_those_of_the_words(text):
    assert [text[start:end] for start, end in places_of_words(text)] == words_of(text)


@given(texts, texts, st.sampled_from([" ", "\n", "\u3000", "\t", "\u2028"]))
def test_white_space_divides(one, other, space):
    assert words_of(one + space + other) == words_of(one) + words_of(other)


@given(texts)
def test_the_normal_form_of_the_words_is_the_words_of_the_normal_form(text):
    assert words_of(unicodedata.normalize("NFC", text)) == [
        unicodedata.normalize("NFC", word) for word in words_of(text)
    ]


@given(texts)
def test_a_word_is_one_word(text):
    assert all(words_of(word) == [word] for word in words_of(text))


def test_the_quick_ways_are_the_general_one():
    """For every character there is, alone and between two letters."""
    for code in [*range(0xD800), *range(0xE000, 0x20000), 0x20000, 0x2FFFF, 0x30000, 0xE0100]:
        text = f"a{chr(code)}b {chr(code)}"
        assert words_of(text) == words._WORD.findall(text), hex(code)
        assert words_and_symbols(text) == words._BOTH.findall(text), hex(code)


@given(texts)
def test_folding_again_changes_nothing_and_sees_neither_case_nor_spacing(text):
    assert folded(folded(text)) == folded(text)
    assert folded(f" \n{text.replace(' ', '  ')} ") == folded(text)


def test_signs_and_vowels_tell_texts_apart():
    for one, other in [("a < b", "a > b"), ("2+2", "2-2"), ("C++", "C#"), ("दिन", "दान"), ("x²", "x2"), ("ab", "a b")]:
        assert folded(one) != folded(other)
    assert folded("STRASSE") == folded("Straße")


def test_scripts_without_spaces_are_told_and_marks_are_no_letters():
    assert is_unspaced("据说他每天早上都要去公园 walk") and is_unspaced("ราคาน้ำมัน") and is_unspaced("မြန်မာစာ")
    assert not is_unspaced("The 中文 words of a text") and not is_unspaced("दिन दान") and not is_unspaced("")
    assert letters_of("दिन") == 2 and letters_of("Vie\u0323\u0302t") == 4 and letters_of("한글") == 6
