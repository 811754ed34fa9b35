"""Small files that would expand to large ones are refused with a reason."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from weft.sources import archives
from weft.sources.documents import scan
from weft.sources.formats.cut_long import cut_stream, cut_text
from weft.sources.formats.pages import page_record
from weft.sources.pages import limits as page_limits
from weft.sources.pages.limits import why_too_large
from weft.sources.reading import Reading
from weft.sources.records import BadRecord, Origin, Record

SENTENCE = "This is a paragraph of an article that is long enough to read like one, with a comma or two. "


def warc(body, encoding):
    out = io.BytesIO()
    headers = [("Content-Type", "text/html"), *([("Content-Encoding", "gzip")] if encoding else [])]
    writer = WARCWriter(out, gzip=True)
    status = StatusAndHeaders("200 OK", headers, protocol="HTTP/1.1")
    writer.write_record(
        writer.create_warc_record("http://a.org", "response", payload=io.BytesIO(body), http_headers=status)
    )
    return out.getvalue()


def skips(file, reading):
    return [found.reason for found in scan(file, reading) if isinstance(found, BadRecord)]


@pytest.mark.parametrize(("size", "reason"), [(2**25, "is longer than"), (5_000_000, "it may be a bomb")])
def test_a_page_that_its_server_compressed_may_not_grow_without_end(tmp_path, size, reason):
    (tmp_path / "a.warc.gz").write_bytes(warc(gzip.compress(b"<p>" + b"0" * size), "gzip"))
    assert (tmp_path / "a.warc.gz").stat().st_size < 60_000
    (said,) = skips(tmp_path / "a.warc.gz", Reading())
    assert reason in said


def test_a_damaged_record_of_a_crawl_is_skipped_or_reported_as_the_end(tmp_path):
    page = gzip.decompress(warc(f"<p>{SENTENCE}</p>".encode(), None))
    headless = page.replace(b"WARC-Target-URI", b"WARC-Target-XYZ")
    (tmp_path / "a.warc").write_bytes(headless + page)
    found = list(scan(tmp_path / "a.warc", Reading()))
    assert found[0].reason == "holds an answer without an address"
    assert found[1].text == SENTENCE.strip()
    endless = page.replace(b"\r\nContent-Length", b"\r\nContent-Extent")
    (tmp_path / "b.warc").write_bytes(page + endless + page)
    found = list(scan(tmp_path / "b.warc", Reading()))
    assert found[0].text == SENTENCE.strip()
    assert [one.reason for one in found[1:]] == ["is not a whole WARC file (a record does not say how long it is)"]


def test_faults_of_a_crawl_are_counted_and_its_bytes_are_not_printed(tmp_path, capfd):
    page = gzip.decompress(warc(f"<p>{SENTENCE}</p>".encode(), None))
    nasty = page.replace(b"http://a.org", b"http://a .org/\x1b[31m")
    (tmp_path / "a.warc").write_bytes(page[:-4] + b"more\x1b[31m\r\n\r\n" + nasty)
    *found, last = scan(tmp_path / "a.warc", Reading())
    assert [document.text for document in found] == [SENTENCE.strip()] * 2
    assert last.reason == "holds records that are longer than they say: 1"
    assert capfd.readouterr() == ("", "")


def test_a_page_of_ten_megabytes_is_too_long(tmp_path):
    (tmp_path / "a.html").write_bytes(b"<p>" + b"word " * 2_100_000)
    assert skips(tmp_path / "a.html", Reading()) == ["is longer than 10,000,000 bytes"]


def test_pages_with_too_many_tags_or_attributes_are_refused(monkeypatch):
    monkeypatch.setattr(page_limits, "MOST_TAGS", 100)
    assert why_too_large(b"<b>" * 101) == "has more than 100 tags"
    many = b" ".join(b"a%d" % number for number in range(510))
    for page in (b"<p " + many + b">", b"<p " + many.replace(b" ", b"=''") + b">", b"<p " + many.replace(b" ", b"/")):
        assert why_too_large(page) == "has a tag with more than 500 attributes"
    for page in (b"<p>" + many, b"<script>i < " + many + b"</script>", b"<p title='" + many + b"'>", b"<!-- " + many):
        assert why_too_large(page) is None


@pytest.mark.parametrize(
    "begin",
    [
        "<p ",
        "</p ",
        "<scripts><p ",
        "<script/><p ",
        "<SCRIPT>a<b</Script><p ",
        "<script><p ",
        "<!-- <script> --><p ",
        "<!-- <script> --!><p ",
        "<!--><script><p ",
        "<!-- <p ",
        "<p title='<script>'><p ",
        '<p a=x" ',
        '<p a="b" " ',
        '<p a="<!" ',
        "<p a='>' ",
    ],
)
def test_nothing_before_the_attributes_of_a_tag_hides_them(begin):
    many = " ".join(f"a{number}" for number in range(510))
    assert why_too_large(f'{begin}{many} ">'.encode()) == "has a tag with more than 500 attributes"


def test_deeply_nested_text_is_extracted():
    page = "<html><body>" + "".join(f"<div>{number} {SENTENCE}" for number in range(1000))
    found = page_record(page.encode(), Origin(Path("a.html")))
    assert isinstance(found, Record)
    assert all(f"{number} {SENTENCE.strip()}" in found.values["text"] for number in range(1000))


def test_a_page_that_is_too_deep_to_be_read_wholly_is_marked_or_refused():
    nest = b"<div>" * 5000
    found = page_record(f"<html><body><p>{SENTENCE}</p>".encode() + nest + b"<p>lost</p>", Origin(Path("a.html")))
    assert isinstance(found, Record) and found.values["is_part"] and "lost" not in found.values["text"]
    found = page_record(b"<html><body>" + nest + SENTENCE.encode(), Origin(Path("a.html")))
    assert isinstance(found, BadRecord) and "deep" in found.reason


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_the_length_of_names_in_a_tar_is_limited(tmp_path, kind):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=kind) as archive:
        for name in ("first.txt", "x" * 2_000_000 + ".txt"):
            entry = tarfile.TarInfo(name)
            entry.size = 4
            archive.addfile(entry, io.BytesIO(b"text"))
    found = list(scan(tmp_path / "a.tar.gz", Reading()))
    assert found[0].text == "text"
    assert found[1].reason.startswith("holds a name of 2,000,0")


def test_the_global_headers_of_a_tar_are_limited(tmp_path):
    out = io.BytesIO()
    for number in range(30):
        note = tarfile.TarInfo.create_pax_global_header({f"k{number}.{key}": "v" for key in range(100)})
        entry = tarfile.TarInfo(f"{number}.txt")
        entry.size = 4
        out.write(note + entry.tobuf(tarfile.USTAR_FORMAT) + b"text".ljust(512, b"\0"))
    (tmp_path / "a.tar").write_bytes(out.getvalue())
    *found, last = scan(tmp_path / "a.tar", Reading())
    assert [document.text for document in found] == ["text"] * 11
    assert last.reason == "has more than 1,000 global headers"


def test_a_bomb_in_two_steps_is_refused_by_its_growth_in_both_together(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "GROWTH_FROM", 2**18)
    monkeypatch.setattr(archives, "MOST_GROWTH", 2000)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        for number in range(40):
            entry = tarfile.TarInfo(f"{number}.txt.gz")
            data = gzip.compress(bytes(2**20))
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    assert any("it may be a bomb" in reason for reason in skips(tmp_path / "a.tar.gz", Reading()))


@pytest.mark.parametrize("text", ["", "a", "ab\n\ncd\n" * 99, "ä" * 500, "x" * 500, "字字。" * 200, "one two " * 70])
def test_the_parts_of_a_long_text_join_to_the_text(text):
    parts = list(cut_stream(io.BytesIO(text.encode()), 100))
    assert b"".join(parts) == text.encode()
    assert all(part.decode() and len(part) <= 100 for part in parts)  # no character is cut
    parts = list(cut_text(text, 100))
    assert "".join(parts) == text and max(map(len, parts)) <= 100


@pytest.mark.parametrize("encoding", ["utf-8", "gbk", "gb18030", "big5", "shift_jis", "euc-kr", "latin-1", "cp1251"])
@pytest.mark.parametrize("before", ["", "a", "ab"])
def test_no_character_of_any_encoding_is_cut(encoding, before):
    letter = {"euc-kr": "한", "latin-1": "é", "cp1251": "ж"}.get(encoding, "字")
    data = (before + letter * 500).encode(encoding)
    parts = list(cut_stream(io.BytesIO(data), 101, encoding))
    assert "".join(part.decode(encoding) for part in parts) == before + letter * 500
    assert max(map(len, parts)) <= 101 and len(parts) <= len(data) // 97 + 1


def test_parts_end_with_paragraphs_or_lines_where_there_are_any():
    text = ("word " * 8 + "\n") * 3 + "\n"
    assert all(part.endswith(b"\n\n") for part in cut_stream(io.BytesIO(text.encode() * 30), 400))
