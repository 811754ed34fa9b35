"""Rows survive a round trip through every format, plain, compressed and in archives."""

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from row_files import COMPRESS, archive, contents, faults, packings
from weft.errors import InputError
from weft.sources.records import BadRecord, Record
from weft.sources.rows import read_rows

DATA = Path(__file__).parents[3] / "shared/data"
any_text = st.text(st.characters(codec="utf-8"), max_size=20)
fields = st.text(st.characters(codec="utf-8", exclude_characters="\t\r\n"), max_size=20)
words = st.text(st.characters(codec="utf-8", exclude_characters="\t\r\n "), min_size=1, max_size=8)
scalars = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | any_text
values = st.recursive(
    scalars, lambda inside: st.lists(inside, max_size=3) | st.dictionaries(any_text, inside, max_size=3)
)
objects = st.lists(st.dictionaries(any_text, values, max_size=4), min_size=1, max_size=5)
NAMES = ("id", "first text", "label")


def written(records, **how) -> str:
    target = io.StringIO()
    csv.writer(target, **how).writerows(records)
    return target.getvalue()


@given(st.lists(st.tuples(any_text, any_text, any_text), min_size=1, max_size=5), packings, st.booleans())
def test_a_csv_comes_back_and_every_row_knows_the_line_where_it_begins(place, records, packing, has_mark):
    text = written([NAMES, *records])
    file = place("train.csv", text.encode("utf-8-sig" if has_mark else "utf-8"), packing)
    rows = list(read_rows(file))
    assert [tuple(row.values) for row in rows] == [NAMES] * len(records)
    assert [tuple(row.values.values()) for row in rows] == records
    begins = [1 + written([NAMES, *records[:count]]).count("\n") for count in range(len(records))]
    assert [row.number for row in rows] == begins
    member = ", data/train.csv" if rows[0].member else ""
    assert rows[0].place == f"{file.name}{member}, line 2"


@given(st.lists(st.tuples(fields, fields, fields), min_size=1, max_size=5), packings, st.sampled_from(["\n", "\r\n"]))
def test_a_tsv_is_literal(place, records, packing, end):
    text = end.join("\t".join(record) for record in [NAMES, *records])
    rows = read_rows(place("train.tsv", text.encode("utf-8-sig"), packing))
    assert contents(rows) == [dict(zip(NAMES, record, strict=True)) for record in records]


@given(objects, packings, st.booleans(), st.sampled_from([".jsonl", ".ndjson", ".json"]))
def test_json_lines_come_back(place, items, packing, plain, ending):
    """Also under the ending .json, if there is more than one line."""
    text = "\n\n".join(json.dumps(item, ensure_ascii=plain) for item in [*items, {"last": 1}])
    assert contents(read_rows(place(f"train{ending}", text.encode(), packing))) == [*items, {"last": 1}]


@given(objects, packings, st.booleans())
def test_a_list_in_json_comes_back(place, items, packing, has_key):
    text = json.dumps({"version": 1, "data": items} if has_key else items, indent=1)
    assert contents(read_rows(place("train.json", text.encode(), packing))) == items


records = st.fixed_dictionaries(
    {"text": any_text, "label": st.none() | st.integers(0, 5), "words": st.lists(any_text, max_size=3)}
)


@given(st.lists(records, min_size=1, max_size=200), packings)
def test_parquet_comes_back(place, items, packing):
    target = io.BytesIO()
    schema = pyarrow.schema(
        [("text", pyarrow.string()), ("label", pyarrow.int64()), ("words", pyarrow.list_(pyarrow.string()))]
    )
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(items, schema), target)
    rows = list(read_rows(place("train.parquet", target.getvalue(), packing)))
    assert contents(rows) == items
    assert [row.number for row in rows] == list(range(1, len(items) + 1))
    assert rows[0].place.endswith(", row 1")


sentences = st.lists(
    st.lists(st.tuples(words.filter(lambda word: word != "-DOCSTART-"), words, words), min_size=1, max_size=4),
    min_size=1, max_size=4,
)  # fmt: skip


@given(sentences, packings, st.sampled_from(["\t", " ", "  "]), st.sampled_from(["", "\t", " "]))
def test_columns_of_tags_come_back(place, sentences, packing, gap, blank):
    blocks = ["\n".join(gap.join(columns) for columns in sentence) for sentence in sentences]
    text = f"-DOCSTART- -X- O\n{blank}\n" + f"\n{blank}\n".join(
        f"# nr = {nr} = a\n{it}" for nr, it in enumerate(blocks)
    )
    rows = list(read_rows(place("train.conll", text.encode(), packing)))
    for number, (row, sentence) in enumerate(zip(rows, sentences, strict=True)):
        first, second, third = map(list, zip(*sentence, strict=True))
        assert row.values == {
            "nr": f"{number} = a", "column 0": first, "column 1": second, "column 2": third,
            "words": first, "tags": third,
        }  # fmt: skip
        assert text.split("\n")[row.number - 1] == f"# nr = {number} = a"


@given(sentences, packings)
def test_conllu_comes_back_without_ranges_and_empty_nodes(place, sentences, packing):
    text = ""
    for number, sentence in enumerate(sentences):
        text += f"# newpar\n# sent_id = s-{number}\n1-2\tau" + "\t_" * 8 + "\n"
        for place_in, (form, lemma, tag) in enumerate(sentence, 1):
            text += f"{place_in}\t{form}\t{lemma}\t{tag}\tx\tA=B\t0\troot\t_\t_\n{place_in}.1\tgone" + "\t_" * 8 + "\n"
        text += "\n"
    rows = contents(read_rows(place("train.conllu", text.encode(), packing)))
    for number, (row, sentence) in enumerate(zip(rows, sentences, strict=True)):
        forms, lemmas, tags = map(list, zip(*sentence, strict=True))
        same = len(sentence)
        assert row == {
            "sent_id": f"s-{number}", "words": forms, "lemma": lemmas, "upos": tags,
            "xpos": ["x"] * same, "feats": ["A=B"] * same, "deprel": ["root"] * same,
        }  # fmt: skip


def test_a_word_may_be_a_hash_sign_or_a_foreign_space(place):
    file = place("train.bio", "# O\n\u3000 O\n\n#\tB\n".encode())
    assert [row["words"] for row in contents(read_rows(file))] == [["#", "\u3000"], ["#"]]


lines_of_text = fields.filter(str.strip)


@given(st.lists(st.tuples(lines_of_text, lines_of_text), min_size=1, max_size=6), packings, packings)
def test_parallel_texts_meet_line_by_line(place, pairs, packing, other_packing):
    """Also as members of archives."""
    files = []
    for side, (language, how) in enumerate([("de", packing), ("en", other_packing)]):
        file = place(f"train.{language}", "".join(f"{pair[side]}\n" for pair in pairs).encode(), how)
        if file.name.startswith("data"):
            moved = file.rename(file.with_name(f"{language}-{file.name}"))
            file = Path(f"{moved}::data/train.{language}")
        files.append(file)
    assert contents(read_rows(files)) == [{"source": source, "target": target} for source, target in pairs]
    assert contents(read_rows(files, header=["x", "y"]))[0] == {"x": pairs[0][0], "y": pairs[0][1]}


def test_texts_of_unequal_length_are_not_parallel(place):
    files = [place("a.de", b"1\n2\n3\n"), place("a.en", b"1\n2\n3\n4\n5")]
    rows = read_rows(files)
    assert [next(rows).number for _ in range(3)] == [1, 2, 3]
    with pytest.raises(InputError, match=r"a\.de has 3 lines and .*a\.en has 5 lines: they are not parallel"):
        next(rows)


def test_lines_of_parallel_texts_that_cannot_be_used_do_not_shift_the_others(place):
    rows = list(read_rows([place("b.de", b"1\n\n\xff\n4\n5\n"), place("b.en", b"1\n2\n3\n \n5\n")]))
    assert [row.values for row in rows if isinstance(row, Record)] == [{"source": n, "target": n} for n in "15"]
    assert [row.place for row in rows if isinstance(row, BadRecord)] == ["b.de, line 2", "b.de, line 3", "b.en, line 4"]


classes = st.dictionaries(
    st.sampled_from(["sci.space", "alt.atheism", "体育"]),
    st.dictionaries(st.sampled_from(["1", "2.txt", "3.pos", "readme"]), any_text, min_size=1),
    min_size=1,
)


@given(classes, packings.filter(lambda packing: packing not in ("", *COMPRESS)))
def test_a_folder_per_class_is_the_same_in_an_archive(tmp_path_factory, classes, packing):
    root = tmp_path_factory.mktemp("classes")
    files = {f"all/train/{label}/{name}": text for label, texts in classes.items() for name, text in texts.items()}
    files |= {
        "all/train/extra/only.txt": "there",
        "all/train/other/1": "here",
        "all/test/extra/9": "elsewhere",
        "all/README": "note",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode())
    packed = archive(root / f"all{packing}", {name: text.encode() for name, text in files.items()})
    expected = {}
    for name, text in files.items():
        if name.startswith("all/train/"):
            is_text = text.strip() and "\0" not in text
            expected[name] = {"text": text.removeprefix("\ufeff"), "label": Path(name).parent.name} if is_text else None
    in_folder = list(read_rows(root / "all/train"))
    in_archive = list(read_rows(Path(f"{packed}::all/train")))
    assert {str(row.file.relative_to(root)): getattr(row, "values", None) for row in in_folder} == expected
    assert {row.member: getattr(row, "values", None) for row in in_archive} == expected
    assert in_archive[0].place == f"{packed.name}, {in_archive[0].member}"
    assert len(list(read_rows(packed))) == len(expected) + 1  # and that of the test


def test_a_text_beside_the_folders_of_classes_is_a_bad_record(tmp_path):
    for name in ("pos/1.txt", "neg/1.txt", "urls.txt", "README.md", ".hidden", "pos/.DS_Store"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    rows = list(read_rows(tmp_path))
    assert [row.values["label"] for row in rows if isinstance(row, Record)] == ["neg", "pos"]
    assert [row.place for row in rows if isinstance(row, BadRecord)] == ["urls.txt"]


def test_files_of_rows_in_a_folder_follow_each_other(tmp_path):
    (tmp_path / "b.jsonl").write_text('{"x": 2}')
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"x\n1\n"))
    (tmp_path / "README.md").write_text("about")
    assert contents(read_rows(tmp_path)) == [{"x": "1"}, {"x": 2}]
    assert contents(read_rows([tmp_path / "b.jsonl", tmp_path / "a.csv.gz"])) == [{"x": 2}, {"x": "1"}]


def test_squad_1_and_2_are_rows_of_questions(place):
    answers = [{"text": "b", "answer_start": 2}]
    first = {"id": "1", "question": "?", "answers": answers}
    second = {"id": "2", "question": "!", "answers": [], "is_impossible": True, "plausible_answers": answers}
    broken = {"title": "C", "paragraphs": [{"qas": []}, {"context": "c", "qas": [{"id": "3"}, first]}]}
    data = {
        "version": "v2.0",
        "data": [{"title": "T", "paragraphs": [{"context": "a b", "qas": [first, second]}]}, broken],
    }
    rows = list(read_rows(place("dev.json", json.dumps(data).encode())))
    assert rows[0].values == {"id": "1", "title": "T", "context": "a b", "question": "?", "answers": answers}
    assert list(rows[1].values) == ["id", "title", "context", "question", "answers", "is_impossible"]
    assert faults(rows) == {
        3: 'is a paragraph without "context" and "qas"', 4: 'is an item of "qas" without "question"'
    }  # fmt: skip
    assert rows[4].place == "dev.json, item 5"


def test_column_names_can_be_given_to_tables_with_and_without_a_header(place):
    without, with_them = place("n.tsv", b"gj04\t1\t\tHello .\n"), place("m.tsv", b"a\tb\tc\td\ngj04\t1\t\tHello .\n")
    for file in (without, with_them):
        rows = contents(read_rows(file, header=["a", "b", "c", "d"]))
        assert rows == [{"a": "gj04", "b": "1", "c": "", "d": "Hello ."}]
    with pytest.raises(InputError, match=r"n\.tsv: its first line looks like data \(gj04, 1.*finetune\.data\.columns"):
        list(read_rows(without))


def test_the_nameless_index_of_pandas_is_a_column_of_its_own(place):
    assert contents(read_rows(place("p.csv", b",text\n0,hello\n"))) == [{"column 0": "0", "text": "hello"}]


COUNTS = {  # those of the README beside the data, where it says one
    "classify/20news-bydate.tar.gz::20news-bydate-train": 11314,
    "classify/20news-bydate.tar.gz::20news-bydate-test": 7532,
    "classify/sst2/train.tsv": 67349, "classify/sst2/dev.tsv": 872,
    "classify/cola/train.tsv": 8551, "classify/cola/dev.tsv": 1043,
    "classify/chnsenticorp/train.tsv": 9600, "classify/chnsenticorp/dev.tsv": 1200,
    "classify/chnsenticorp/test.tsv": 1200,
    "pair/rte/train.tsv": 2490, "pair/rte/dev.tsv": 277, "pair/stsb/train.tsv": 5749, "pair/stsb/dev.tsv": 1500,
    "tag/wnut17-ner/wnut17train.conll": 3394, "tag/wnut17-ner/emerging.dev.conll": 1009,
    "tag/wnut17-ner/emerging.test.annotated": 1287, "tag/wnut17-ner": 5690,
    "tag/ud-english-ewt-pos/en_ewt-ud-train.conllu": 12544, "tag/ud-english-ewt-pos/en_ewt-ud-dev.conllu": 2001,
    "tag/ud-english-ewt-pos/en_ewt-ud-test.conllu": 2077,
    "tag/cluener-zh/train.jsonl": 10748, "tag/cluener-zh/dev.jsonl": 1343,
    "qa/squad-dev-v1.1.json": 10570,
    "translate/multi30k/train": 29000, "translate/multi30k/val": 1014, "translate/multi30k/test_2016_flickr": 1000,
    "translate/tatoeba-en-zh.tsv": 29155,  # the README also counts the empty line at the end
    "summarize/samsum/train.csv": 14731, "summarize/samsum/validation.csv": 818, "summarize/samsum/test.csv": 819,
    "dialogue/cornell/validation.jsonl": 11064, "dialogue/cornell/test.jsonl": 11064,
}  # fmt: skip
HEADERS = {"cola": ["source", "label", "mark", "sentence"], "tatoeba": ["en", "zh", "attribution"]}
CLASSES = {"20news": 20, "sst2": 2, "cola": 2, "chnsenticorp": 2, "rte": 2}


@pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not here")
@pytest.mark.parametrize("name", COUNTS)
def test_public_data_sets_are_read_wholly(name):
    source = [DATA / f"{name}.{side}.gz" for side in ("de", "en")] if "multi30k" in name else DATA / name
    header = next((header for part, header in HEADERS.items() if part in name), None)
    rows = list(read_rows(source, encoding="latin-1" if "20news" in name else "utf-8", header=header))
    assert [f"{row.place} {row.reason}" for row in rows if isinstance(row, BadRecord)] == []
    assert len(rows) == COUNTS[name]
    for part, count in CLASSES.items():
        assert part not in name or len({row.values["label"] for row in rows}) == count
    for row in rows if "wnut" in name or "ud-english" in name else []:
        assert len(row.values["words"]) == len(row.values.get("tags") or row.values["upos"]) > 0


def test_a_line_with_a_nul_is_a_row_like_others(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"one\ntw\0o\nthree\n")
    assert [row.values for row in read_rows(file)] == [{"text": "one"}, {"text": "tw\0o"}, {"text": "three"}]
