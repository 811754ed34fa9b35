import random
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test_corpus import rows, section
from weft.corpus.build import build_corpus
from weft.corpus.clean import Cleaning, clean

ENGLISH = "It was a truth that the fox had never been seen in the town, and nobody said that it would be."


def cleaned(text, **settings):
    return clean(text, Cleaning(**settings)).text


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        ("The Mona Lisa doesnâ€™t have eyebrows.", "The Mona Lisa doesn’t have eyebrows."),
        ("cafÃ© au lait", "café au lait"),
        ("Ð¿Ñ€Ð¸Ð²ÐµÑ‚", "привет"),
        ("Tom &amp; Jerry &#8211; a film", "Tom & Jerry – a film"),
        ("他说：“你好！”（真的）&amp; １２３", "他说：“你好！”（真的）& １２３"),
        ("e\u200b\u0301", "é"),
        ("one\r\ntwo\rthree\u2028four\x85five", "one\ntwo\nthree\nfour\nfive"),
        ("zero\u200bwidth, so\u00adft, \ufeffmark, \x00nul, \x1b escape", "zerowidth, soft, mark, nul, escape"),
        ("  many\u00a0\u3000 \t spaces \n\n\n\n and lines  ", "many spaces\n\nand lines"),
        ("e\u0301", "é"),
    ],
)
def test_what_is_broken_is_made_whole(broken, whole):
    assert cleaned(broken) == whole


@pytest.mark.parametrize(
    "text",
    [
        ENGLISH,
        "汉字没有空格，也不需要。\n\n第二段。",
        "👩‍👩‍👧 a family, می‌خواهم",  # joiners
        "“Quotes” – and dashes… stay; so does Œuvre, ÀÉÎ, straße and naïve.",
        "x < y & z",
    ],
)
def test_what_is_whole_stays_as_it_is(text):
    assert clean(text, Cleaning()) == clean(text, Cleaning(repair=False))
    assert cleaned(text) == text
    assert clean(text, Cleaning()).done == ()


@given(st.text(st.sampled_from("ae\u0301\u0308\u200b\u00ad \u3000\n\r\x85가ㄱ\u1100\u1161é")))
def test_cleaning_twice_changes_nothing_more(text):
    once = cleaned(text, repair=False)
    assert cleaned(once, repair=False) == once
    assert unicodedata.is_normalized("NFC", once)


def test_what_was_done_is_said():
    assert clean("cafÃ©\u200b  noir", Cleaning()).done == ("repaired", "invisible", "spaces")


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("write to ann.lee+news@mail.example.org now", "write to <email> now"),
        ("call +44 20 7946 0958 or (020) 7946-0958", "call <phone> or <phone>"),
        ("card 4111 1111 1111 1111, not 4111 1111 1111 1112", "card <card>, not 4111 1111 1111 1112"),
        ("卡号4111111111111111，电话010-6552-9988，邮箱ann@mail.com", "卡号<card>，电话<phone>，邮箱<email>"),
        ("4111 1111 1111 1111 12/25, +49 151 2345 67890, +44 (0)20 7946 0958", "<card> 12/25, <phone>, <phone>"),
        (
            "pages 100-102 104-108, 1 2 3 4 5 6 7, 192.168.100.200",
            "pages 100-102 104-108, 1 2 3 4 5 6 7, 192.168.100.200",
        ),
        ("on 03.04.2020 and 1/2/2020, ISBN 0-306-40615-2", "on 03.04.2020 and 1/2/2020, ISBN 0-306-40615-2"),
        ("on 2024-02-03 12:00 it was 3.14159265 and 1,234,567", "on 2024-02-03 12:00 it was 3.14159265 and 1,234,567"),
        ("ISBN 9780141439518 costs 12345678", "ISBN 9780141439518 costs 12345678"),
        ("手机13800138001，或+86 139-1234-5678。", "手机<phone>，或<phone>。"),
        ("手机 138 0013 8001", "手机 <phone>"),
        ("共13800138001元，¥15912345678，15000000000人", "共13800138001元，¥15912345678，15000000000人"),
        ("12345678901 and 1380013800 and 138001380012", "12345678901 and 1380013800 and 138001380012"),
        ("0.13812345678 and 13812345678.5", "0.13812345678 and 13812345678.5"),
        ("身份证11010519491231002X，号", "身份证<id>，号"),
        ("110105194912310021 and 110105194913310025", "110105194912310021 and 110105194913310025"),
        ("IBAN DE89 3704 0044 0532 0130 00 BIC COBADEFF", "IBAN <iban> BIC COBADEFF"),
        ("GB29NWBK60161331926819, BE68 5390 0754 7034 AND", "<iban>, <iban> AND"),
        ("DE88370400440532013000, AB12 3456 7890 1234", "DE88370400440532013000, AB12 3456 7890 1234"),
        ("josé.müller@bücher.example or иван@почта.рф", "<email> or <email>"),
        ("邮箱张三@例子.中国联系他，或ann@mail.com联系", "<email>联系他，或<email>联系"),
        ("user@xn--fsqu00a.xn--0zwm56d, ann@xn--bcher-kva.example.", "<email>, <email>."),
        ("a @ b, @name, 3@4, Preis@ und", "a @ b, @name, 3@4, Preis@ und"),
    ],
)
def test_addresses_and_numbers_of_people_are_masked(text, masked):
    assert cleaned(text, mask=True) == masked
    assert cleaned(text) == text


@pytest.mark.parametrize("seed", range(20))
def test_ordinary_long_numbers_stay(seed):
    """Order numbers, amounts, hashes: what is like none of the forms, or fails the check, is nobody's."""
    chance = random.Random(seed)
    numbers = [str(chance.randrange(10**12, 10**13)) for _ in range(20)]  # 13 digits: no form but a rare card
    numbers += [f"20{chance.randrange(10**9):09}", f"{chance.randrange(10**6):,}", f"{chance.random():.12f}"]
    text = " x ".join(numbers)
    masked = cleaned(text, mask=True)
    assert masked.count("<") == masked.count("<card>") <= 2 * 2  # one in ten passes Luhn's check, if it begins as one


def test_titles_and_authors_are_masked(tmp_path):
    page = "<html><head><title>Call +44 20 7946 0958</title><meta name=author content='Ann ann@mail.org'></head><body>"
    words = (Path(__file__).parents[2] / "examples/austen.txt").read_text("utf-8").split()
    (tmp_path / "a.html").write_text(f"{page}<article><p>{' '.join(words[:200])}</p></article></body></html>")
    for mask in (True, False):
        build_corpus(section("a.html", clean={"mask": mask}), tmp_path, tmp_path / f"corpus-{mask}", workers=1)
    title, author = (next(row[key] for row in rows(tmp_path / "corpus-True", "train")) for key in ("title", "author"))
    assert (title, author) == ("Call <phone>", "Ann <email>")
    assert rows(tmp_path / "corpus-False", "train")[0]["author"] == "Ann ann@mail.org"
