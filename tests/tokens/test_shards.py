import shutil
from pathlib import Path

import numpy as np
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import FolderError, InputError
from weft.tokenizer.train import train_tokenizer
from weft.tokens.shards import build_shards, check_shards, open_shards, split_sentences

ALICE = Path(__file__).parents[2] / "examples/alice.txt"
TEXTS = [paragraph for paragraph in ALICE.read_text().split("\n\n") if paragraph.strip()][:300]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([ALICE], "bpe", 500)


@pytest.mark.parametrize("sentences", [False, True])
@pytest.mark.parametrize("shard_bytes", [10**9, 5_000])
def test_the_tape_is_every_document_and_a_separator(tokenizer, tmp_path, sentences, shard_bytes):
    shards = build_shards(TEXTS, tokenizer, tmp_path, separator=0, sentences=sentences, shard_bytes=shard_bytes)
    assert (len(shards.lengths) > 3) == (shard_bytes == 5_000)
    start = 0
    for text, end in zip(TEXTS, shards.documents, strict=True):
        document = shards[start:end]
        assert document[-1] == 0
        assert tokenizer.decode(document[:-1]) == text
        if not sentences:
            assert document[:-1].tolist() == tokenizer.encode(text)
        start = end
    assert start == len(shards)
    assert shards.dtype == np.uint16


def test_sentences_end_within_their_documents_and_the_last_with_it(tokenizer, tmp_path):
    shards = build_shards(TEXTS, tokenizer, tmp_path, separator=0, sentences=True, shard_bytes=9_000)
    assert (np.diff(shards.sentences) > 0).all()
    assert set(shards.documents) <= set(shards.sentences)
    parts = [part for text in TEXTS for part in split_sentences(text)]
    starts = [0, *shards.sentences[:-1]]
    for part, start, end in zip(parts, starts, shards.sentences, strict=True):
        assert tokenizer.decode([number for number in shards[start:end] if number != 0]) == part


@pytest.mark.parametrize(
    "text",
    [
        "यह पहला वाक्य है। यह दूसरा है॥ क्या यह तीसरा है?",
        "هل هذا أول؟ نعم، هذا هو. وهذا آخر!",
        "یہ پہلا ہے۔ یہ دوسرا ہے۔ یہ تیسرا ہے۔",
        "ပထမ၊ ဝါကျ။ ဒုတိယ။ တတိယ။",
        "ប្រយោគទីមួយ។ ប្រយោគទីពីរ។ ប្រយោគទីបី៕",
        "ይህ የመጀመሪያው ነው። ሁለተኛው ነው፧ ሦስተኛው ነው።",
        "Սա առաջինն է։ Սա երկրորդն է։ Սա երրորդն է։",
        "དང་པོ། གཉིས་པ། གསུམ་པ༎",
        "One, e.g.1 here. Two (with 3.5 in it)! Three?",
        "第一句。第二句！第三句？",
    ],
)
def test_sentences_of_every_script_end_where_they_do(text):
    parts = split_sentences(text)
    assert "".join(parts) == text
    assert len(parts) == 3


@pytest.mark.parametrize("marks", ["." * 60, "." * 100_000, "?!" * 50_000])
def test_a_long_row_of_marks_is_one_end(marks):
    assert split_sentences(f"One{marks} Two{marks}12 three") == [f"One{marks} ", f"Two{marks}12 three"]


def test_every_mark_of_unicode_that_ends_a_sentence_does_so():
    others = "\u104a\u2024‼‽⁇⁈⁉．" + "\u2e60\u2e61︒︕︖﹒﹖﹗"  # a comma, double and compatibility forms, too new
    marks = set(map(chr, range(0x10000))) - set(others)
    marks = [mark for mark in sorted(marks) if regex.match(r"\p{Sentence_Terminal}", mark)]
    assert len(marks) > 60
    for mark in marks:
        assert split_sentences(f"a{mark} b{mark} c") == [f"a{mark} ", f"b{mark} ", "c"], hex(ord(mark))


@given(st.integers(0, 5000), st.integers(0, 7000))
def test_any_span_reads_as_from_one_piece(built, a, b):
    many, one = built
    np.testing.assert_array_equal(many[a:b], one[a:b])


@pytest.fixture(scope="module")
def built(tokenizer, tmp_path_factory):
    many = build_shards(TEXTS[:40], tokenizer, tmp_path_factory.mktemp("many"), separator=0, shard_bytes=500)
    one = build_shards(TEXTS[:40], tokenizer, tmp_path_factory.mktemp("one"), separator=0)
    assert len(many) == len(one) > 5000
    return many, one


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_build_that_stopped_goes_on_and_ends_with_the_same_bytes(tokenizer, tmp_path, monkeypatch):
    options = {"separator": 0, "shard_bytes": 4_000}
    build_shards(TEXTS, tokenizer, tmp_path / "whole", **options)
    wanted = contents(tmp_path / "whole")

    import weft.tokens.shards as module

    written, real = [], module.write_file

    def fail_after(limit):
        def write(path, data):
            if len(written) >= limit:
                raise KeyboardInterrupt
            written.append(path.name)
            real(path, data)

        return write

    for limit in (1, 4, 5, 9, 17):
        monkeypatch.setattr(module, "write_file", fail_after(limit))
        with pytest.raises(KeyboardInterrupt):
            build_shards(TEXTS, tokenizer, tmp_path / "broken", **options)
        with pytest.raises(FolderError, match="not finished"):
            open_shards(tmp_path / "broken")
    monkeypatch.setattr(module, "write_file", real)
    encoded = []
    monkeypatch.setattr(module, "_encode", lambda *arguments: encoded.append(1) or real_encode(*arguments))
    build_shards(TEXTS, tokenizer, tmp_path / "broken", **options)
    assert contents(tmp_path / "broken") == wanted
    assert 0 < len(encoded) < len(open_shards(tmp_path / "whole").lengths)  # finished shards were not made again


from weft.tokens.shards import _encode as real_encode  # noqa: E402 (before any patch)


def test_changed_documents_are_made_again(tokenizer, tmp_path):
    build_shards(TEXTS, tokenizer, tmp_path / "a", separator=0, shard_bytes=4_000)
    changed = [*TEXTS[:100], "Something else.", *TEXTS[101:]]
    again = build_shards(changed, tokenizer, tmp_path / "a", separator=0, shard_bytes=4_000)
    fresh = build_shards(changed, tokenizer, tmp_path / "b", separator=0, shard_bytes=4_000)
    np.testing.assert_array_equal(again[0 : len(again)], fresh[0 : len(fresh)])


def test_damage_other_settings_and_nothing_are_refused(tokenizer, tmp_path):
    with pytest.raises(InputError, match="no text"):
        build_shards([], tokenizer, tmp_path / "empty", separator=0)
    build_shards(TEXTS, tokenizer, tmp_path / "a", separator=0)
    with pytest.raises(FolderError, match="other settings"):
        build_shards(TEXTS, tokenizer, tmp_path / "a", separator=8)
    with pytest.raises(FolderError, match="without sentences"):
        _ = open_shards(tmp_path / "a").sentences
    check_shards(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    data = bytearray((tmp_path / "b/00000.tokens").read_bytes())
    data[100] ^= 1
    (tmp_path / "b/00000.tokens").write_bytes(data)
    with pytest.raises(FolderError, match=r"00000\.tokens is damaged"):
        check_shards(tmp_path / "b")


@given(st.text(max_size=300))
def test_sentences_join_to_the_text(text):
    assert "".join(split_sentences(text)) == text


def test_sentences_end_where_people_end_them():
    assert split_sentences("One. Two! “Three?” he said.\nFour") == ["One. ", "Two! ", "“Three?” ", "he said.\n", "Four"]
    assert split_sentences("今天很好。我们走！“去哪？”他问。") == ["今天很好。", "我们走！", "“去哪？”", "他问。"]
    assert split_sentences("Pi is 3.14 or so.") == ["Pi is 3.14 or so."]
