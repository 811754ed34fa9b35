"""Web pages: an HTML file is one record, a WARC or WET file one for each page.

A record has the `text` of the article, the `address` of the page, and its `facts` (title, author, date). `is_part` is
set if the page is nested too deeply to be read to its end.
"""

import logging
import re
from collections.abc import Iterator
from typing import IO, Any

from weft.errors import needs
from weft.sources.formats.lines import read_whole, too_long
from weft.sources.formats.text import text_record
from weft.sources.pages.limits import why_too_large
from weft.sources.reading import Reading
from weft.sources.records import BadRecord, Origin, Record

# A page that its server compressed may grow to so many times its size. Smaller pages are not checked.
MOST_PAGE_GROWTH, PAGE_GROWTH_FROM = 200, 2**20


def read_page(stream: IO[bytes], reading: Reading, origin: Origin) -> Iterator[Record | BadRecord]:
    data = read_whole(stream, reading.most_page)
    yield BadRecord(too_long(reading.most_page), origin) if data is None else page_record(data, origin)


def page_record(
    data: bytes, origin: Origin, number: int = 0, address: str | None = None, charset: str | None = None
) -> Record | BadRecord:
    """`charset` is that of the HTTP header."""
    needs("lxml", "corpus", "to read pages")
    from weft.sources.pages.article import extract

    place = address or ""
    if reason := why_too_large(data):
        return BadRecord(reason, origin, number, within=place)
    article = extract(data, charset)
    if not article.text and article.is_cut:
        return BadRecord("nests its elements more than 2,000 deep", origin, number, within=place)
    if not article.text:
        return BadRecord("has no article", origin, number, "empty", within=place)
    values = {"text": article.text, "address": address, "facts": article.facts, "is_part": article.is_cut}
    return Record(values, origin, number)


def read_crawl(stream: IO[bytes], reading: Reading, origin: Origin) -> Iterator[Record | BadRecord]:
    """The HTML answers with status 200 of a WARC file (ISO 28500), and the texts of a WET file."""
    needs("warcio", "corpus", "to read WARC files")
    from warcio.exceptions import ArchiveLoadFailed

    number = 0
    answers = _answers(stream)
    while True:
        try:
            answer = next(answers, None)
            if answer is None:
                break
            if answer.length is None:  # warcio would read to the end of the file
                raise ValueError("a record does not say how long it is")
            address = answer.rec_headers.get_header("WARC-Target-URI")
            if address is None and answer.rec_type == "response":
                yield BadRecord("holds an answer without an address", origin)
            if not _is_plain(answer) and not _is_page(answer):
                continue
            data = read_whole(answer.content_stream(), reading.most_page)
            is_cut = data is not None and getattr(answer.raw_stream, "limit", 0) > 0
        except (ArchiveLoadFailed, EOFError, ValueError) as error:
            yield BadRecord(f"is not a whole WARC file ({error})", origin)
            return
        number += 1
        if data is None:
            yield BadRecord(too_long(reading.most_page), origin, number, within=address or "")
        elif is_cut:
            yield BadRecord("is cut off", origin, number, within=address or "")
        else:
            yield _answer_record(answer, data, address, origin, number)
    if answers.err_count:
        yield BadRecord(f"holds records that are longer than they say: {answers.err_count:,}", origin)


def _answer_record(answer: Any, data: bytes, address: str | None, origin: Origin, number: int) -> Record | BadRecord:
    if len(data) > max(PAGE_GROWTH_FROM, MOST_PAGE_GROWTH * answer.length):
        reason = f"grows to more than {MOST_PAGE_GROWTH} times its size: it may be a bomb"
        return BadRecord(reason, origin, number, within=address or "")
    if not _is_plain(answer):
        charset = charset_of(answer.http_headers.get_header("Content-Type") or "")
        return page_record(data, origin, number, address, charset)
    record = text_record(data, Reading(), origin)
    if isinstance(record, BadRecord):
        return BadRecord(record.reason, origin, number, within=address or "", advice=record.advice)
    return Record({**record.values, "address": address}, origin, number)


def _answers(stream: IO[bytes]) -> Any:
    """warcio's iterator, without its messages: they would print what is in the file to the terminal."""
    from warcio.archiveiterator import ArchiveIterator
    from warcio.recordloader import ArcWarcRecordLoader

    class Loader(ArcWarcRecordLoader):
        """Accepts a record without an address."""

        def load_http_headers(self, rec_type: str, uri: str | None, stream: Any, length: int | None) -> Any:
            return super().load_http_headers(rec_type, uri or "", stream, length)

    logging.getLogger("warcio").setLevel(logging.CRITICAL)
    answers = ArchiveIterator(stream)
    answers.INC_RECORD = ""  # its message about a record that is longer than it says; these are counted
    answers.loader = Loader(verify_http=False, arc2warc=False)
    return answers


def _is_plain(answer: Any) -> bool:
    kind = answer.rec_headers.get_header("Content-Type") or ""
    return answer.rec_type == "conversion" and kind.startswith("text/plain")


def _is_page(answer: Any) -> bool:
    if answer.rec_type != "response" or answer.http_headers is None or answer.http_headers.get_statuscode() != "200":
        return False
    return "html" in (answer.http_headers.get_header("Content-Type") or "").lower()


def charset_of(content_type: str) -> str | None:
    """Of an HTTP header such as `text/html; charset=utf-8`."""
    found = re.search(r"charset\s*=\s*[\"']?([\w.:-]+)", content_type, re.IGNORECASE)
    return found.group(1) if found else None
