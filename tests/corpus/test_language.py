import re
from pathlib import Path

import pytest

from weft.corpus import language
from weft.corpus.language import _evident, _identifier, check_languages, language_of
from weft.errors import RecipeError

EXAMPLES = Path(__file__).parents[2] / "examples"
SENTENCES = {
    "en": "The king was in his house, and they all went there with him to see what had been done.",
    "de": "Der König war in seinem Haus, und sie gingen alle mit ihm dorthin, um zu sehen, was getan war.",
    "fr": "Le roi était dans sa maison, et ils allèrent tous avec lui pour voir ce qui avait été fait.",
    "nl": "De koning was in zijn huis, en ze gingen er allemaal met hem heen om te zien wat er gedaan was.",
    "es": "El rey estaba en su casa, y todos fueron con él para ver lo que se había hecho.",
    "zh": "国王在他的房子里，他们都和他一起去看看做了什么。天气很好，大家都很高兴。",
    "ja": "王は家にいて、彼らは皆、何がなされたかを見るために彼と一緒に行った。",
    "ko": "왕은 그의 집에 있었고, 그들은 모두 무슨 일이 있었는지 보기 위해 그와 함께 갔다.",
    "ru": "Король был в своём доме, и все они пошли с ним, чтобы посмотреть, что было сделано.",
}


@pytest.mark.parametrize("expected", SENTENCES)
def test_languages_are_told_apart(expected):
    assert language_of(SENTENCES[expected]) == expected


def test_what_is_evident_is_what_the_model_says():
    """On all pieces of two English books and a Chinese one."""
    told = 0
    for book, expected in (("alice.txt", "en"), ("austen.txt", "en"), ("tang.txt", "zh")):
        text = re.sub(r"\s+", " ", (EXAMPLES / book).read_text("utf-8"))[:200_000]
        for start in range(0, len(text) - 400, 4000):
            part = text[start : start + 400]
            evident = _evident(part)
            assert evident in (None, expected)
            told += evident is not None
            if evident == "en":  # poems of the Tang it takes for other languages
                assert _identifier().classify(part)[0] == "en"
    assert told > 50


def test_too_little_to_tell_by():
    assert language_of("") is None
    assert language_of("12345 67890") is None


def test_unknown_languages_are_refused():
    check_languages(["en", "zh"])
    with pytest.raises(RecipeError, match="two letters"):
        check_languages(["english"])


def test_the_middle_is_looked_at():
    assert language_of("12 " * 50 + SENTENCES["en"] * 4 + " 34" * 50) == "en"
    assert language._SAMPLE_CHARACTERS == 400
