"""JSON lines, and JSON: a list of objects, a list under "data", or the articles of SQuAD."""

import io
import json
from collections.abc import Iterator
from typing import IO, Any

from weft.errors import InputError
from weft.sources.formats.lines import read_document, read_lines
from weft.sources.reading import Reading
from weft.sources.records import BadRecord, Origin, Record


def read_json_lines(stream: IO[bytes], reading: Reading, origin: Origin) -> Iterator[Record | BadRecord]:
    for line in read_lines(stream, reading.encoding, reading.most_line, reading.first_number + 1):
        if line.fault:
            yield BadRecord(line.fault, origin, line.number)
        elif line.text.strip():
            value, fault = _parsed(line.text)
            values = fault or _checked_object(value, _has_surrogates(line.text))
            yield _record(values, origin, line.number)


def read_json_file(stream: IO[bytes], reading: Reading, origin: Origin) -> Iterator[Record | BadRecord]:
    """A file of JSON lines that is called .json is read as JSON lines."""
    text, fault = read_document(stream, reading.encoding, reading.most_json)
    if not fault and not text.strip():
        return
    document, fault = (None, fault) if fault else _parsed(text)
    if fault.startswith("is not JSON (Extra data"):
        yield from read_json_lines(io.BytesIO(text.encode()), Reading(most_line=reading.most_json), origin)
        return
    if fault:
        yield BadRecord(fault, origin)
        return
    has_surrogates = _has_surrogates(text)
    for number, values in enumerate(_items(document, is_rows=reading.text is None), start=1):
        yield _record(values if isinstance(values, str) else _checked_object(values, has_surrogates), origin, number)


def _record(values: dict[str, Any] | str, origin: Origin, number: int) -> Record | BadRecord:
    """A string is the reason why there are no values."""
    return BadRecord(values, origin, number) if isinstance(values, str) else Record(values, origin, number)


def _items(document: Any, *, is_rows: bool) -> Iterator[dict[str, Any] | str]:
    """One object can be one document, but rows come in lists. Only rows take SQuAD apart: a document with "paragraphs"
    may have a "text" as well.
    """
    if isinstance(document, dict) and isinstance(document.get("data"), list):
        document = document["data"]
    if not isinstance(document, list):
        if is_rows:
            raise InputError('it is neither a list of objects nor like SQuAD ({"data": [{"paragraphs": …}]}).')
        document = [document]
    for item in document:
        if is_rows and isinstance(item, dict) and isinstance(item.get("paragraphs"), list):
            yield from _questions(item)
        else:
            yield item if isinstance(item, dict) else _no_object(item)


def _questions(article: dict[str, Any]) -> Iterator[dict[str, Any] | str]:
    """A row for each question of each paragraph of an article of SQuAD."""
    for paragraph in article["paragraphs"]:
        context = paragraph.get("context") if isinstance(paragraph, dict) else None
        questions = paragraph.get("qas") if isinstance(paragraph, dict) else None
        if not isinstance(context, str) or not isinstance(questions, list):
            yield 'is a paragraph without "context" and "qas"'
            continue
        for question in questions:
            if not isinstance(question, dict) or not isinstance(question.get("question"), str):
                yield 'is an item of "qas" without "question"'
                continue
            values = {"id": question.get("id"), "title": article.get("title"), "context": context}
            yield values | {key: question[key] for key in ("question", "answers", "is_impossible") if key in question}


def _parsed(text: str) -> tuple[Any, str]:
    """Returns the value, and a fault or an empty string."""
    try:
        return json.loads(text), ""
    except json.JSONDecodeError as error:
        return None, f"is not JSON ({error.msg} at character {error.pos + 1})"
    except (ValueError, RecursionError) as error:  # a number with thousands of digits; nesting without end
        return None, f"is not JSON that can be read ({error})"


def _has_surrogates(text: str) -> bool:
    """Whether the JSON has escapes of surrogates. Pairs of them are characters; a single one cannot be encoded."""
    return "\\ud" in text or "\\uD" in text


def _checked_object(value: Any, has_surrogates: bool) -> dict[str, Any] | str:
    if not isinstance(value, dict):
        return _no_object(value)
    if has_surrogates:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return "has half of a surrogate pair, which is not text"
    return value


def _no_object(value: Any) -> str:
    return f"is not a JSON object, but a {type(value).__name__}"
