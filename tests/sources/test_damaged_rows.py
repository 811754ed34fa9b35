"""Damaged files: a bad row is reported with its reason, and the rest is read."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from row_files import archive, contents, faults, packings
from weft.errors import InputError
from weft.sources.formats import lines
from weft.sources.formats.catalog import ROW_FORMATS
from weft.sources.records import BadRecord, Record
from weft.sources.rows import read_rows

FORMS = {  # a first line that is not counted, and a row with an "a" in it
    "x.csv": ("text,label", "a,0"), "x.tsv": ("text\tlabel", "a\t0"), "x.jsonl": ("", '{"t": "a"}'),
    "x.conll": ("-DOCSTART- O", "a O\n"), "x.conllu": ("", "1\ta" + "\t_" * 8 + "\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
@given(bad=st.lists(st.booleans(), min_size=1, max_size=8), packing=packings)
def test_bytes_that_are_not_in_the_encoding_cost_only_their_row(place, name, bad, packing):
    head, form = FORMS[name]
    rows = [form.encode().replace(b"a", b"\xe9") if is_bad else form.encode() for is_bad in bad]
    file = place(name, b"\n".join([head.encode(), *rows]), packing)
    found = list(read_rows(file))
    step = 1 + form.count("\n")
    assert list(faults(found)) == [2 + step * number for number, is_bad in enumerate(bad) if is_bad]
    assert all(reason.startswith("is not UTF-8 at byte ") for reason in faults(found).values())
    assert [isinstance(row, BadRecord) for row in found] == bad
    assert not faults(read_rows(file, encoding="latin-1"))


@given(st.lists(st.sampled_from([b"a", b"", b"\xe9", " 体".encode(), b" \t"]), min_size=1), packings)
def test_a_text_file_gives_a_row_per_line_and_empty_or_undecodable_lines_are_bad(place, data, packing):
    found = list(read_rows(place("x.txt", b"".join(line + b"\r\n" for line in data), packing)))
    reasons = [row.reason if isinstance(row, BadRecord) else "" for row in found]
    assert reasons == [
        "is not UTF-8 at byte 1" if b"\xe9" in line else "" if line.strip() else "is empty" for line in data
    ]
    assert [row.values["text"].encode() for row in found if isinstance(row, Record)] == [
        line for line in data if line.strip() and b"\xe9" not in line
    ]
    assert [row.number for row in found] == list(range(1, len(data) + 1))


def test_rows_of_a_wrong_width_are_counted(place):
    rows = list(read_rows(place("w.csv", b'a,b\n1,2\n1\n1,2,3\n"1\n",2\n\n3,"4\n5,6\n7,8\n')))
    assert faults(rows) == {
        3: "has 1 field for 2 columns",
        4: "has 3 fields for 2 columns",
        8: "opens a quote that is never closed",
    }
    assert [row.number for row in rows if isinstance(row, Record)] == [2, 5, 9, 10]


def test_a_sentence_with_lines_of_unequal_width_is_left_out(place):
    rows = list(read_rows(place("w.conll", b"a O\nb O\n\nc O\nd\ne O\n\nf O\n")))
    assert faults(rows) == {5: "has 1 column, and the sentence's first line, 4, has 2"}
    assert [row.values["words"] for row in rows if isinstance(row, Record)] == [["a", "b"], ["f"]]


def test_lines_that_are_not_json_objects_are_bad_records(place):
    half, whole = '{"text": "\\ud83d"}', '{"text": "\\uD83D\\uDE00"}'
    text = "\n".join(['{"a": 1}', "[1]", '{"a": ', half, whole, "[" * 100_000])
    rows = list(read_rows(place("j.jsonl", text.encode())))
    assert sorted(faults(rows)) == [2, 3, 4, 6]
    assert [row.values for row in rows if isinstance(row, Record)] == [{"a": 1}, {"text": "😀"}]


@pytest.mark.parametrize("name", ["l.csv", "l.tsv", "l.txt", "l.jsonl", "l.conll"])
def test_a_line_without_an_end_is_passed_over(place, monkeypatch, name):
    monkeypatch.setattr(lines, "MOST_LINE_BYTES", 100)
    monkeypatch.setattr(lines, "PIECE", 10)
    good = {"l.jsonl": b'{"a": 1}', "l.conll": b"a O\n"}.get(name, b"a")
    rows = list(read_rows(place(name, b"\n".join([good, good, b"x" * 1000, good, good]))))
    assert len(faults(rows)) == 1 and "has no end in 100 bytes" in str(faults(rows))
    assert sum(isinstance(row, Record) for row in rows) >= 3


@pytest.mark.parametrize(("name", "content", "said"), [
    ("e.csv", b"", "holds no rows"), ("e.csv", b"a,b\n", "holds no rows"), ("e.json", b" ", "holds no rows"),
    ("e.conll", b"\n\n", "holds no rows"), ("e.parquet", b"", "holds no rows"),
    ("e.jsonl.gz", gzip.compress(b"", mtime=0), "holds no rows"),
    ("e.csv", b"a,a\n1,2\n", "more than one column 'a'"), ("e.csv", b"\xff,a\n", "names of the columns is not UTF-8"),
    ("e.doc", b"x", r"an ending that is not known \(\.doc\).*\.csv"), ("e", b"x", "no ending"),
    ("e.json", b'{"a": 1}', "neither a list of objects nor like SQuAD"),
    ("e.zip", b"x", "damaged"), ("e.tar", b"", "damaged"),
])  # fmt: skip
def test_a_file_without_usable_rows_is_an_error_in_a_sentence(place, name, content, said):
    file = place(name, content)
    with pytest.raises(InputError, match=said) as caught:
        list(read_rows(file))
    assert str(file.name) in str(caught.value)


def test_a_missing_place_is_an_error_before_anything_is_read(tmp_path):
    (tmp_path / "train.csv").write_text("a\n1\n")
    packed = archive(tmp_path / "all.zip", {"set/train.tsv": b"a\n1\n", "set/test.tsv": b"a\n2\n"})
    for path, said in {
        tmp_path / "trian.csv": r"does not exist \(did you mean train\.csv\?\)",
        Path(f"{packed}::sett"): r"holds nothing beneath sett \(did you mean set\?\)\. It has: set\.",
        Path(f"{tmp_path / 'train.csv'}::x"): "is not an archive",
    }.items():
        with pytest.raises(InputError, match=said):
            read_rows(path)
    with pytest.raises(InputError, match=r"is lines of text, and .* is not: they cannot be parallel"):
        (tmp_path / "a.txt").write_text("x")
        read_rows([tmp_path / "a.txt", tmp_path / "train.csv"])
    with pytest.raises(InputError, match="no encoding 'utf-9'"):
        read_rows(tmp_path / "train.csv", encoding="utf-9")
    assert contents(read_rows(Path(f"{packed}::set/test.tsv"))) == [{"a": "2"}]


def test_a_cut_off_file_gives_what_comes_before_the_cut(place):
    whole = gzip.compress(b"a\tb\n" + b"".join(b"%d\tx%d\n" % (n, n * n) for n in range(100_000)))
    rows = list(read_rows(place("cut.tsv.gz", whole[: len(whole) // 2])))
    assert isinstance(rows[-1], BadRecord) and "cut off" in rows[-1].reason and rows[-1].number == 0
    assert 10_000 < sum(isinstance(row, Record) for row in rows) < 90_000


@given(
    st.binary(max_size=200) | st.text('{}[]",:\t\n #-=0aé', max_size=60).map(str.encode),
    st.sampled_from([*ROW_FORMATS, ".zip", ".tar", ".csv.gz", ".json.zst"]),
    st.sampled_from(["utf-8", "latin-1", "gbk", "gb18030", "shift_jis", "ascii", "cp1252", "iso2022_jp"]),
)
def test_no_bytes_crash_the_reader(place, data, ending, encoding):
    try:
        rows = list(read_rows(place(f"any{ending}", data), encoding=encoding))
    except InputError:
        return
    assert rows and all(row.place.startswith(f"any{ending}") for row in rows)
