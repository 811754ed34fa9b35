"""Vocabularies out of text: what goes in comes out, and transformers reads the folder alike."""

import json
from pathlib import Path

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import InputError
from weft.tokenizer.build import build_tokenizer
from weft.tokenizer.read import load_tokenizer
from weft.tokenizer.report import report_on_tokenizer
from weft.tokenizer.special import FAMILY_SPECIALS
from weft.tokenizer.train import train_tokenizer

ALICE = Path(__file__).parents[2] / "examples/alice.txt"
CHINESE = "今天天气很好，我们去公园散步。\n春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。\n" * 20
TEXTS = [
    "The Queen of hearts, she made some tarts!", "", " ",
    "naïve café ½ ﬁ Å", "今天天气很好 mixed 中文", "🙂👩‍👩‍👧 emoji",
    "tabs\tand\nnewlines\r\n", "\x07bell\u200bzero width\ufeff", "a" * 300, "don't stop", "١٢٣ 12345",
]  # fmt: skip
KINDS = {"bpe": 600, "wordpiece": 600, "unigram": 600, "char": None}


@pytest.fixture(scope="module")
def trained():
    return {kind: train_tokenizer([ALICE], kind, size) for kind, size in KINDS.items()}


@pytest.fixture(scope="module")
def chinese(tmp_path_factory):
    file = tmp_path_factory.mktemp("zh") / "zh.txt"
    file.write_text(CHINESE, "utf-8")
    return file


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", [None, *FAMILY_SPECIALS])
def test_transformers_opens_the_folder_and_gives_the_same_ids(kind, family, tmp_path):
    build_tokenizer([ALICE], tmp_path / "tokenizer", kind, vocabulary=KINDS[kind], family=family)
    ours = load_tokenizer(tmp_path / "tokenizer")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    for text in TEXTS:
        assert theirs(text)["input_ids"] == ours.encode(text)
    assert theirs("one", "two")["input_ids"] == ours.engine.encode("one", "two").ids
    for role, token in ours.special.items():
        assert getattr(theirs, f"{role}_token") == token
        assert getattr(theirs, f"{role}_token_id") == ours.id_of(role)


@given(text=st.text(max_size=200))
def test_bytes_and_known_characters_come_back_as_they_went_in(trained, text):
    assert trained["bpe"].decode(trained["bpe"].encode(text)) == text
    known = "".join(character for character in text if trained["char"].engine.token_to_id(character) is not None)
    assert trained["char"].decode(trained["char"].encode(known)) == known


def test_bpe_knows_everything_and_others_say_what_is_unknown(trained):
    for kind, tokenizer in trained.items():
        unknown = [tokenizer.id_of("unk")] if kind != "bpe" else []
        assert ([number for number in tokenizer.encode("龘") if number in unknown] != []) == (kind != "bpe")


def test_each_family_gets_its_frame_around_a_text_and_a_pair():
    bert = train_tokenizer([ALICE], "wordpiece", 300)
    assert bert.engine.encode("alice", "the cat").tokens[0] == "[CLS]"
    pair = bert.engine.encode("alice", "the cat")
    assert pair.tokens.count("[SEP]") == 2
    assert pair.type_ids == [0] * (pair.tokens.index("[SEP]") + 1) + [1] * (
        len(pair.ids) - pair.tokens.index("[SEP]") - 1
    )
    roberta = train_tokenizer([ALICE], "bpe", 300, family="roberta").engine.encode("a", "b").tokens
    assert (roberta[0], roberta[-1], roberta.count("</s>")) == ("<s>", "</s>", 3)
    t5 = train_tokenizer([ALICE], "unigram", 300, family="t5")
    assert t5.engine.encode("alice").tokens[-1] == "</s>"
    assert t5.engine.token_to_id("<extra_id_99>") is not None


def test_chinese_characters_are_words_of_their_own_in_wordpiece(chinese):
    tokenizer = train_tokenizer([chinese], "wordpiece", 38)
    assert tokenizer.engine.encode("今天天气", add_special_tokens=False).tokens == ["今", "天", "天", "气"]


def test_chinese_clauses_do_not_become_pieces_across_punctuation(chinese):
    tokenizer = train_tokenizer([chinese], "unigram", 135)
    assert not any("，" in token[1:] or "," in token[1:] for token in tokenizer.engine.get_vocab())


def test_training_is_a_function_of_text_and_settings():
    for kind, size in KINDS.items():
        first, again = (train_tokenizer([ALICE], kind, size).files for _ in range(2))
        assert first == again, kind


def test_a_limit_takes_text_from_all_over_the_corpus(tmp_path):
    for number in range(40):
        (tmp_path / f"{number:02}.txt").write_text(chr(0x4E00 + number) * 100, "utf-8")
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    kept = train_tokenizer([tmp_path], "char", most_bytes=size // 4)
    found = [number for number in range(40) if kept.engine.token_to_id(chr(0x4E00 + number)) is not None]
    assert len(found) == 10
    assert found[0] < 8
    assert found[-1] > 32


def test_the_report_counts_what_a_count_by_hand_counts(trained):
    texts = ["alice alice queen", "龘"]
    report = report_on_tokenizer(trained["char"], texts)
    assert (report.documents, report.bytes, report.tokens) == (2, 20, 18)
    assert report.bytes_per_token == round(20 / 18, 3)
    assert report.unknown_rate == 1 / 18
    assert report.commonest[0] == "e"
    assert report.used == len(set("alice alice queen")) + 1


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("empty.txt", b"", "no text to train"),
        ("blank.txt", b" \n\n ", "no text to train"),
        ("binary.txt", b"MZ\x00\x01" * 100, "is a binary file"),
        ("latin.txt", "café".encode("latin-1"), "line 1 is not UTF-8 at byte 4"),
        ("half.jsonl", b'{"text": "\\ud800"}\n', "line 1 has half of a surrogate pair, which is not text"),
        ("broken.jsonl", b'{"text": "a"}\n{"txt": 1}\n', 'line 2 is a JSON object without a "text"'),
        ("list.jsonl", b"[1]\n", "line 1"),
        ("number.jsonl", b'{"text": 3}\n', "has a text that is int"),
        ("small.txt", b"abc abc", "supports a vocabulary of"),
    ],
)
def test_text_that_cannot_be_used_is_refused_in_a_sentence(tmp_path, name, data, says):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=says):
        build_tokenizer([tmp_path / name], tmp_path / "out", "bpe", vocabulary=1000)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram", "char"])
def test_a_size_that_nobody_asked_for_is_what_the_text_supports(tmp_path, kind):
    (tmp_path / "small.txt").write_text("The cat sat on the mat, and the dog on the log. " * 20)
    tokenizer = train_tokenizer([tmp_path / "small.txt"], kind)
    assert tokenizer.vocabulary < 1000
    assert "cat" in tokenizer.decode(tokenizer.encode("the cat")).lower()


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        ("bp", {}, "did you mean bpe"),
        ("bpe", {"vocabulary": 100}, "at least 257"),
        ("wordpiece", {"vocabulary": 5}, "too small"),
        ("bpe", {"vocabulary": -3}, "too small"),
        ("bpe", {"family": "brt"}, "no model family 'brt'"),
    ],
)
def test_impossible_settings_are_refused_in_a_sentence(tmp_path, kind, options, says):
    with pytest.raises(InputError, match=says):
        build_tokenizer([ALICE], tmp_path / "out", kind, **options)


def test_one_endless_line_is_only_a_long_text(tmp_path):
    (tmp_path / "line.txt").write_text("word and another " * 50_000)
    report = build_tokenizer([tmp_path / "line.txt"], tmp_path / "out", "bpe", vocabulary=270)
    assert report["bytes"] == 850_000


def test_the_folder_tells_its_story(tmp_path):
    build_tokenizer([ALICE], tmp_path, "bpe", vocabulary=300)
    story = json.loads((tmp_path / "weft.json").read_text())
    assert story["settings"]["kind"] == "bpe"
    assert set(story["files"]) == {"tokenizer.json", "tokenizer_config.json", "report.json"}
