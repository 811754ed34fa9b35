"""Test sets are found in every script, wherever they stand, and no more than needed is cut out."""

import json
import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from test_corpus import paragraph, rows, section, tree_of
from weft.corpus import plan
from weft.corpus.build import build_corpus
from weft.corpus.clean import Cleaning
from weft.corpus.contamination import HITS_FILE, LeakIndex, find_common_ngrams, pieces_without
from weft.corpus.ngrams import NGrams

CHINESE = "却说那女娲氏炼石补天之时于大荒山无稽崖炼成高十二丈见方二十四丈大的顽石三万六千五百零一块那娲皇只用了"
THAI = "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในศักดิ์ศรีและสิทธิต่างในตนมีเหตุผลและมโนธรรมและควรปฏิบัติต่อกัน"
LONG = " ".join(paragraph(number) for number in range(40, 60))


def wanted(*texts, words=13, least=8):
    return LeakIndex.of(texts, words, least, Cleaning())


def found(test, text, **settings):
    """What of the text is found, as text."""
    return [text[begin:end] for _, _, begin, end in wanted(test, **settings).hits(text, 0).tolist()]


@pytest.mark.parametrize("test", [CHINESE, THAI, " ".join(paragraph(3).split()[:30])])
@pytest.mark.parametrize("around", [LONG, CHINESE[::-1] * 40, THAI[::-1] * 40])
def test_a_test_text_is_found_in_a_document_of_any_script(test, around):
    text = f"{around} {test.upper()} {around}"
    hits = found(test, text)
    assert hits and all(hit.lower() in test.lower() for hit in hits)
    assert not found(test, around)


def test_a_mixture_of_scripts_is_found_too():
    test = "iPhone 15 Pro的价格是多少和iPhone 14 Pro Max相比哪一个更值得购买请说明理由"
    assert found(test, f"{LONG} 问：{test}？ {LONG}")


def test_a_short_test_text_is_found_as_a_whole_and_a_shorter_one_is_counted():
    nine, twelve = (" ".join(paragraph(3).split()[:count]) for count in (9, 12))
    made = wanted(nine, twelve, "Yes.", "是的", CHINESE[:20])
    assert (made.texts, made.whole, made.short) == (5, 3, 2)
    assert found(nine, f"{LONG} {nine} {LONG}") == [nine.rstrip(".,;")]
    assert not found(twelve, f"{LONG} {nine} {LONG}")
    assert found(CHINESE[:20], LONG + CHINESE) == [CHINESE[:20]]


@given(st.lists(st.sampled_from("ab中天กข"), max_size=40), st.integers(1, 4))
def test_ngrams_are_those_of_the_plain_definition(words, size):
    """From every word on, until words, characters (two to a word) and letters (four) are enough."""
    grams = NGrams.of(words)
    worth = {word: {"a": 4, "b": 4, "中": 2, "天": 2, "ก": 1, "ข": 1}[word] for word in set(words)}
    expected = []
    for start in range(len(words)):
        total = 0
        for end in range(start, len(words)):
            total += worth[words[end]]
            if total >= 4 * size:
                expected.append((start, end + 1))
                break
    starts, ends = grams.spans((size, 2 * size, 4 * size))
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == expected
    numbers = dict(zip(expected, grams.numbers(starts, ends).tolist(), strict=True))
    for one, other in ((a, b) for a in expected for b in expected):
        assert (numbers[one] == numbers[other]) == (words[slice(*one)] == words[slice(*other)])


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 300)), min_size=1, max_size=14))
def test_what_is_left_keeps_its_distance(places):
    text = LONG[:5000]
    spans = [(begin, min(begin + length, len(text))) for begin, length in places if begin < len(text)]
    pieces = pieces_without(text, spans, 200, 10)
    for begin, end in pieces:
        assert end - begin >= 200
        assert all(end <= start - 200 or begin >= stop + 200 for start, stop in spans)
        assert all(place in (0, len(text)) or text[place].isspace() for place in (begin, end))
    assert all(end <= begin for (_, end), (begin, _) in pairwise(pieces)) and len(pieces) <= 10


def test_a_document_in_too_many_pieces_goes():
    spans = [(place, place + 50) for place in range(1000, 11_000, 1000)]
    text = "word " * 3000
    assert len(pieces_without(text, spans[:9], 200, 10)) == 10 and pieces_without(text, spans, 200, 10) == []


def test_ngrams_of_many_documents_are_ignored_and_copies_do_not_count(tmp_path):
    made = wanted(paragraph(1), paragraph(2))
    pieces = []
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        texts = [paragraph(1), *([paragraph(2)] if number else []), *[paragraph(1)] * 4]
        hits = np.concatenate([made.hits(text, row) for row, text in enumerate(texts)])
        np.save(tmp_path / str(number) / HITS_FILE, hits)
        pieces.append((tmp_path / str(number), np.array([True, True, *[number == 0] * (len(texts) - 2)])))
    common = find_common_ngrams(pieces, len(made.numbers), 5)  # the first is in five that stay and one more
    assert common.sum() == len(wanted(paragraph(1)).numbers)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A long document with a test question in its middle, one that is little else, a commonplace in twelve."""
    monkeypatch.setattr(plan, "PIECE_BYTES", 20_000)
    chance = random.Random(0)
    fillers = [paragraph(number) for number in range(100, 160)]
    often = " ".join(paragraph(200).split()[:20])
    texts = [f"{text} {often}" if place < 12 else text for place, text in enumerate(fillers)]
    leaks = [f"{LONG} {CHINESE} {LONG[::-1]}", f"{paragraph(70)[:150]} {CHINESE} {paragraph(71)[:150]}"]
    texts += leaks
    chance.shuffle(texts)
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts) + "\n")
    tests = [CHINESE, often, "No."]
    (tmp_path / "tests.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in tests))
    return tmp_path


def test_the_place_is_cut_out_and_the_rest_of_the_document_stays(place):
    asked = section("a.jsonl", filter=None, decontaminate={"against": [{"path": "tests.jsonl"}]})
    facts = build_corpus(asked, place, place / "corpus", workers=1)
    kept = [row for split in ("train", "validation", "test") for row in rows(place / "corpus", split)]
    assert facts["dropped"] == {"contaminated": 1} and facts["documents"] == 61
    assert not any(CHINESE[:26] in row["text"] for row in kept)
    cut = [row for row in kept if "decontaminated" in row["changes"]]
    assert len(cut) == 2 and len({row["id"] for row in cut}) == 1
    assert sum(len(row["text"]) for row in cut) > 2 * len(LONG) - 600
    tests = json.loads((place / "corpus/report.json").read_text())["tests"]
    assert (tests["texts"], tests["short"], tests["cut"], tests["dropped"]) == (3, 1, 1, 1)
    assert tests["ignored"] == 8 and sum(paragraph(200)[:60] in row["text"] for row in kept) == 12
    build_corpus(asked, place, place / "again", workers=2)
    assert tree_of(place / "again") == tree_of(place / "corpus")
