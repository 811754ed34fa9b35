"""Every format gives the same documents as every other, plain, compressed and in archives; bad ones are skipped."""

import bz2
import csv
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from weft.errors import InputError
from weft.sources import archives
from weft.sources.documents import Document, read_documents, scan
from weft.sources.files import find_files
from weft.sources.reading import Reading
from weft.sources.records import BadRecord

TEXTS = ['Once, there was a comma, and a "quote".', "第二个文档。\nin two lines", "ümläut 🦊"]
PAGE = "<html><head><title>T</title></head><body><nav>Home About</nav><article><p>{}</p></article></body></html>"
SENTENCE = "This is a paragraph of an article that is long enough to read like one, with a comma or two. "


def as_jsonl(texts):
    return "".join(json.dumps({"text": text, "id": 1}) + "\n" for text in texts).encode()


def as_csv(texts):
    out = io.StringIO()
    csv.writer(out).writerows([["id", "text"], *([str(i), text] for i, text in enumerate(texts))])
    return out.getvalue().encode()


def as_tsv(texts):
    return "".join(f"{number}\t{text}\n" for number, text in enumerate(["text", *texts])).encode()


def as_wet(texts):
    out = io.BytesIO()
    writer = WARCWriter(out, gzip=False)
    for text in texts:
        body = io.BytesIO(text.encode())
        record = writer.create_warc_record("http://a.org", "conversion", payload=body, warc_content_type="text/plain")
        writer.write_record(record)
    return out.getvalue()


def as_parquet(texts):
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"id": list(range(len(texts))), "text": texts}), out)
    return out.getvalue()


FORMATS = {
    "a.jsonl": as_jsonl(TEXTS),
    "a.csv": as_csv(TEXTS),
    "a.tsv": as_tsv([text.replace("\n", " ") for text in TEXTS]),  # where a row is a line
    "a.parquet": as_parquet(TEXTS),
    "a.json": json.dumps([{"text": text} for text in TEXTS]).encode(),
    "data.json": json.dumps({"version": 1, "data": [{"text": text} for text in TEXTS]}).encode(),
    "lines.json": as_jsonl(TEXTS),
    "a.warc.wet": as_wet(TEXTS),
}


def as_zip(name, data):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"folder/{name}", data)
    return out.getvalue()


def as_tar(name, data, mode="w"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        entry = tarfile.TarInfo(f"folder/{name}")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


WRAPPINGS = {
    "{}": lambda name, data: data,
    "{}.gz": lambda name, data: gzip.compress(data),
    "{}.xz": lambda name, data: lzma.compress(data),
    "{}.bz2": lambda name, data: bz2.compress(data),
    "{}.zst": lambda name, data: zstandard.compress(data),
    "b.zip": as_zip,
    "b.tar": as_tar,
    "b.tar.gz": lambda name, data: as_tar(name, data, "w:gz"),
    "b.tgz": lambda name, data: as_tar(name, data, "w:gz"),
    "b.tar.xz": lambda name, data: as_tar(name, data, "w:xz"),
    "b.tar.zst": lambda name, data: zstandard.compress(as_tar(name, data)),
}


def write(folder, name, data):
    (folder / name).write_bytes(data)
    return folder / name


def skips(file, **reading):
    bad = [found for found in scan(file, Reading(**reading)) if isinstance(found, BadRecord)]
    return [f"{found.place} {found.reason}".removeprefix(file.name) for found in bad]


def documents(file, **reading):
    return [found.text for found in scan(file, Reading(**reading)) if isinstance(found, Document)]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_the_same_documents_from_every_format_in_every_wrapping(name, wrapping, tmp_path):
    file = write(tmp_path, wrapping.format(name), WRAPPINGS[wrapping](name, FORMATS[name]))
    found = [document.text for document in read_documents([file])]
    assert found == [text.replace("\n", " ") if name == "a.tsv" else text for text in TEXTS]
    assert find_files([tmp_path]) == [file]
    assert find_files([tmp_path / "*"]) == [file]


def test_a_crawl_gives_the_articles_of_its_pages(tmp_path):
    with (tmp_path / "a.warc.gz").open("wb") as out:
        writer = WARCWriter(out, gzip=True)
        answers = [("200 OK", "text/html; charset=gb2312", "gb2312"), ("404 Not Found", "text/html", "utf-8")]
        answers += [("200 OK", "image/png", "utf-8"), ("200 OK", "text/html", "utf-8")]
        for number, (status, kind, charset) in enumerate(answers):
            body = PAGE.format(f"第{number}页。" + SENTENCE).encode(charset)
            headers = StatusAndHeaders(status, [("Content-Type", kind)], protocol="HTTP/1.1")
            address = f"http://example.org/{number}"
            record = writer.create_warc_record(address, "response", payload=io.BytesIO(body), http_headers=headers)
            writer.write_record(record)
    found = list(scan(tmp_path / "a.warc.gz", Reading()))
    assert [(d.text, d.address) for d in found] == [
        (f"第{number}页。" + SENTENCE.strip(), f"http://example.org/{number}") for number in (0, 3)
    ]


def test_a_missing_column_is_named_with_the_columns_that_exist(tmp_path):
    for name in ("a.csv", "a.parquet"):
        file = write(tmp_path, name, FORMATS[name])
        with pytest.raises(InputError, match=r'no column "txt" \(did you mean text\?\); the columns are: id, text'):
            list(scan(file, Reading(text="txt")))


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.txt", b"caf\xe9", "line 1 is not UTF-8 at byte 4"),
        ("a.txt", b"\xef\xbb\xbfcaf\xe9", "line 1 is not UTF-8 at byte 7"),
        ("a.txt", b"MZ\x00\x01" * 10, "is a binary file"),
        ("a.jsonl", b'{"text": 5}\n', "line 1 has a text that is int"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', "half of a surrogate"),
        ("a.jsonl", b"[" * 100_000 + b"\n", "is not JSON that can be read"),
        ("a.jsonl", b"[1]\n", "line 1 is not a JSON object, but a list"),
        ("a.json", b'{"txt": "a"}', 'item 1 is a JSON object without a "text"'),
        ("a.csv", b"id,text\n1,caf\xe9\n", "line 2 is not UTF-8 at byte 6"),
        ("a.csv", b'id,text\n1,"a\n2,b\n', "line 2 opens a quote that is never closed"),
        ("a.parquet", as_parquet(TEXTS)[:-20], "is not a whole Parquet file"),
        ("a.parquet", as_parquet(TEXTS).replace(b"text", b"tex\xe9"), "is not a whole Parquet file"),
        ("a.jsonl.gz", gzip.compress(as_jsonl(TEXTS * 1000))[:-300], "is damaged or cut off"),
        ("a.jsonl.gz", b"no gzip at all", "is damaged or cut off"),
        ("a.jsonl.xz", lzma.compress(as_jsonl(TEXTS))[:-10], "is damaged or cut off"),
        ("a.jsonl.bz2", bz2.compress(as_jsonl(TEXTS))[:20] + b"xxxxxxxxxxxxxxxxxxxxxxxxxx", "is damaged or cut off"),
        ("a.jsonl.zst", b"no zstandard at all", "is damaged or cut off"),
        ("a.zip", as_zip("a.jsonl", as_jsonl(TEXTS))[:-30], "is damaged or cut off"),
        ("a.tar.gz", as_tar("a.jsonl", as_jsonl(TEXTS * 9999), "w:gz")[:-900], "is damaged or cut off"),
        ("a.tar", as_tar("a.jsonl", as_jsonl(TEXTS * 9999))[:90_000], "is damaged or cut off"),
        ("a.zip", as_zip("a.exe", b"MZ"), "holds no text files"),
        ("a.zip", as_zip("b.zip", as_zip("a.txt", b"text")), "is an archive inside an archive"),
        ("a.txt.zst", zstandard.compress(bytes(range(32, 127)) * 9999)[:-20], "is damaged or cut off"),
        ("b.tar", as_tar("a.jsonl", as_jsonl(TEXTS))[:1024], "is damaged or cut off"),  # no end
        ("a.tar", as_tar("a.jsonl", as_jsonl(TEXTS))[:1024] + b"x" * 512 + bytes(1024), "is damaged or cut off"),
        ("a.parquet", as_parquet([b"\xff\xfe"]), "of binary, not of text"),
        ("a.parquet", as_parquet([["a", "list"]]), "of list<element: string>, not of text"),
        ("a.parquet", as_parquet([None]), "has a text that is NoneType"),
        ("a.warc", b"no warc at all\r\n" * 10, "is not a whole WARC file"),
    ],
)
def test_what_cannot_be_read_is_skipped_with_its_reason(name, data, reason, tmp_path):
    file = write(tmp_path, name, data)
    assert any(reason in skipped for skipped in skips(file)), skips(file)
    with pytest.raises(InputError):
        list(read_documents([file]))


@pytest.mark.parametrize("page", [b"", b"<html><body></body></html>", bytes(range(256)) * 50])
def test_a_page_without_an_article_is_counted_and_is_not_an_error(page, tmp_path):
    file = write(tmp_path, "a.html", page)
    assert skips(file) == [" has no article"]
    assert list(read_documents([file])) == []


def test_after_a_bad_row_the_next_is_read(tmp_path):
    rows = [b"id,text", b"1,good", b"2,caf\xe9", b"3", b'4,"good, too"', b"", b"5,go\x00od"]
    file = write(tmp_path, "a.csv", b"\xef\xbb\xbf" + b"\r\n".join(rows))
    assert documents(file) == ["good", "good, too", "good"]
    assert skips(file) == [", line 3 is not UTF-8 at byte 6", ", line 4 has 1 field for 2 columns"]


def test_a_bad_member_does_not_take_the_others_with_it(tmp_path):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in ("a.txt", "b.txt", "__MACOSX/._b.txt", "Chapter 1: the end.txt"):
            archive.writestr(name, f"text of {name}")
    data = bytearray(out.getvalue())
    data[data.index(b"PK\x01\x02") + 10] = 99  # an unknown method of compression, in the directory's first entry
    file = write(tmp_path, "a.zip", bytes(data))
    assert documents(file) == ["text of b.txt", "text of Chapter 1: the end.txt"]
    assert len(skips(file)) == 1


def test_a_cut_off_crawl_gives_its_whole_pages(tmp_path):
    out = io.BytesIO()
    writer = WARCWriter(out, gzip=False)
    for number in range(3):
        headers = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
        body = io.BytesIO(PAGE.format(SENTENCE * 3).encode())
        record = writer.create_warc_record(f"http://a.org/{number}", "response", payload=body, http_headers=headers)
        writer.write_record(record)
    file = write(tmp_path, "a.warc", out.getvalue()[:-60])
    assert documents(file) == [(SENTENCE * 3).strip()] * 2
    assert skips(file) == [", http://a.org/2 is cut off"]


@pytest.mark.parametrize("name", ["nope", "hex", "undefined", "utf-16", "utf_32_le"])
def test_an_unusable_encoding_is_an_error_before_anything_is_read(name):
    with pytest.raises(InputError):
        Reading(encoding=name)


def test_a_cut_off_file_gives_what_was_whole_before_the_cut(tmp_path):
    lines = [json.dumps({"text": f"{number} {number * 7919 % 104729}"}) for number in range(50_000)]
    whole = gzip.compress("\n".join(lines).encode())
    file = write(tmp_path, "a.jsonl.gz", whole[: len(whole) // 2])
    found = documents(file)
    assert 1000 < len(found) < 50_000
    assert found[-1].startswith(f"{len(found) - 1} ")
    assert len(skips(file)) == 1


def test_names_that_lead_out_of_an_archive_and_links_are_not_read(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("../../etc/passwd.txt", "/etc/passwd.txt", "good.txt"):
            entry = tarfile.TarInfo(name)
            entry.size = 4
            archive.addfile(entry, io.BytesIO(b"text"))
        link = tarfile.TarInfo("link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    file = write(tmp_path, "a.tar", out.getvalue())
    assert documents(file) == ["text"]
    assert [skipped.split(" ", 2)[1] for skipped in skips(file)] == [
        "../../etc/passwd.txt",
        "/etc/passwd.txt",
        "link.txt",
    ]


@pytest.mark.parametrize("wrapping", ["{}.gz", "{}.xz", "{}.bz2", "{}.zst", "b.zip", "b.tar.gz"])
def test_a_bomb_is_refused_by_its_growth(wrapping, tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "GROWTH_FROM", 2**20)
    data = b"0" * 2**24
    file = write(tmp_path, wrapping.format("a.txt"), WRAPPINGS[wrapping]("a.txt", data))
    assert file.stat().st_size < 2**24 / 200
    assert any("it may be a bomb" in skipped for skipped in skips(file)), skips(file)
    assert documents(file) == []


def test_many_small_members_are_a_bomb_together(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "GROWTH_FROM", 2**20)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(50):
            archive.writestr(f"{number}.txt", b"0" * 2**18)
    file = write(tmp_path, "a.zip", out.getvalue())
    assert any("it may be a bomb" in skipped for skipped in skips(file))


def test_a_bomb_is_refused_by_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MOST_EXPANDED", 2**16)
    data = bytes(range(32, 127)) * 1000
    assert skips(write(tmp_path, "a.txt.gz", gzip.compress(data))) == [" holds more than 65,536 bytes"]


@pytest.mark.parametrize(("name", "unit"), [("a.txt", "line"), ("a.txt", "block"), ("a.jsonl", "file")])
def test_after_a_line_without_end_the_next_is_read(name, unit, tmp_path):
    endless = b"x" * 5_000_000 + b"\n"
    good = as_jsonl(["good"]) if name == "a.jsonl" else b"good\n"
    file = write(tmp_path, name, good + b"\n" + endless + b"\n" + good)
    assert documents(file, unit=unit, most_line=100_000) == ["good", "good"]
    assert skips(file, unit=unit, most_line=100_000) == [", line 3 has no end in 100,000 bytes"]


def test_a_block_without_end_is_skipped_whole(tmp_path):
    file = write(tmp_path, "a.txt", b"good\n\n" + b"too long\n" * 1000 + b"\ngood\n")
    assert documents(file, unit="block", most_line=1000) == ["good", "good"]
    assert len(skips(file, unit="block", most_line=1000)) == 1


def test_another_encoding_is_read_if_it_is_named(tmp_path):
    file = write(tmp_path, "a.txt", "café".encode("latin-1"))
    assert documents(file, encoding="latin-1") == ["café"]


def test_a_source_that_is_missing_or_empty_is_an_error(tmp_path):
    for path in (tmp_path / "nothing.txt", tmp_path / "*.jsonl", tmp_path):
        with pytest.raises(InputError):
            find_files([Path(path)])


def test_a_table_with_a_byte_order_mark_and_quotes_and_an_empty_one(tmp_path):
    marked = write(tmp_path, "a.csv", b'\xef\xbb\xbf"text","b"\r\n"one, two",3\r\n')
    assert documents(marked) == ["one, two"]
    assert documents(write(tmp_path, "b.csv", b"")) == []


@pytest.mark.parametrize("encoding", ["utf-16", "utf-7", "idna", "unicode_escape", "utf\0-8", "base64", "x"])
def test_encodings_that_do_not_encode_text_are_refused(encoding):
    with pytest.raises(InputError):
        Reading(encoding=encoding)
