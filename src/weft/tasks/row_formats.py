"""Rows out of a stream, by the ending of its name: tables, JSON, Parquet, columns of tags, lines of text.

Each comes as its number (of the line where it begins, or of the row where there are no lines) with its values, or
with the reason why it cannot be used; reading goes on after it. In a `.csv` quotes hold a field together, newlines
included; in a `.tsv` they are characters like any other, as GLUE's files have single ones in their sentences. Both
begin with the names of their columns; where they do not, `header` says them (if the first line says just the same,
it is not a row).
"""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from weft.corpus.formats import read_whole
from weft.errors import InputError, needs
from weft.tasks.conll import read_columns, read_universal
from weft.tasks.lines import MOST_DOCUMENT, MOST_LINE, read_document, read_lines

Numbered = tuple[int, dict[str, Any] | str]
LONGEST_NAME = 64  # of a column; what is longer is a sentence
SOME_ROWS = 64  # of Parquet, at a time
TEXT = (".txt", ".text")
UNNUMBERED = (".json", ".parquet")  # have rows and no lines


def read_stream(ending: str, stream: IO[bytes], encoding: str, header: Sequence[str] | None) -> Iterator[Numbered]:
    if ending == ".csv":
        return _table(_quoted(stream, encoding), header)
    if ending == ".tsv":
        return _table(_tabbed(stream, encoding), header)
    return READERS[ending](stream, encoding)


def _table(records: Iterator[tuple[int, list[str] | str]], header: Sequence[str] | None) -> Iterator[Numbered]:
    first = next(records, None)
    if first is None:
        return
    number, fields = first
    if header is None and isinstance(fields, str):
        raise InputError(f"the line with the names of the columns {fields}.")
    names = list(header) if header is not None else _column_names(list(fields))
    _refuse_twins(names)
    if header is not None and (isinstance(fields, str) or [name.strip() for name in fields] != names):
        yield _row(number, fields, names)
    for number, fields in records:
        yield _row(number, fields, names)


def _row(number: int, fields: list[str] | str, names: list[str]) -> Numbered:
    if isinstance(fields, str):
        return number, fields
    if len(fields) != len(names):
        return number, f"has {len(fields)} field{'s' if len(fields) != 1 else ''} for {len(names)} columns"
    return number, dict(zip(names, fields, strict=True))


def _column_names(fields: list[str]) -> list[str]:
    """A column without a name is called by its number, if it is the first: so pandas writes its index."""
    names = [name.strip() for name in fields]
    if any(_looks_like_data(name) for name in names[1:]) or (names[0] and _looks_like_data(names[0])):
        shown = ", ".join(name if len(name) <= 20 else f"{name[:20]}…" for name in names[:5])
        raise InputError(
            f"its first line looks like data ({shown}), not like column names. Give it a first line of names, or name "
            "them with finetune.data.columns."
        )
    return [names[0] or "column 0", *names[1:]]


def _looks_like_data(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return not name or len(name) > LONGEST_NAME or name.endswith((".", "。"))
    return True


def _refuse_twins(names: list[str]) -> None:
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise InputError(f"there is more than one column {twins[0]!r}. Name them all with finetune.data.columns.")


def _quoted(stream: IO[bytes], encoding: str) -> Iterator[tuple[int, list[str] | str]]:
    faults: list[str] = []
    is_over = False

    def texts() -> Iterator[str]:
        nonlocal is_over
        for line in read_lines(stream, encoding):
            if line.fault:
                faults.append(line.fault)
            yield line.text
        is_over = True

    csv.field_size_limit(max(csv.field_size_limit(), MOST_LINE))
    records = csv.reader(texts())
    while True:
        begins = records.line_num + 1
        try:
            fields: list[str] | str = next(records)
        except StopIteration:
            return
        except csv.Error as error:
            fields = f"is not a row of a table ({error})"
        if faults:
            fields = faults[0]
            faults.clear()
        elif is_over:  # the reader asks for a line beyond the last only if a quote is open
            fields = f"opens a quote that is never closed, and {records.line_num - begins} lines below it are lost"
        if fields:
            yield begins, fields


def _tabbed(stream: IO[bytes], encoding: str) -> Iterator[tuple[int, list[str] | str]]:
    for line in read_lines(stream, encoding):
        if line.fault or line.content:
            yield line.number, line.fault or line.content.split("\t")


def _json_lines(stream: IO[bytes], encoding: str) -> Iterator[Numbered]:
    for line in read_lines(stream, encoding):
        if line.fault:
            yield line.number, line.fault
        elif line.text.strip():
            value, fault = _parsed(line.text)
            yield line.number, fault or _object(value, _may_be_half(line.text))


def _json(stream: IO[bytes], encoding: str) -> Iterator[Numbered]:
    text, fault = read_document(stream, encoding, MOST_DOCUMENT)
    if fault or not text.strip():
        if fault:
            yield 0, fault
        return
    document, fault = _parsed(text)
    if fault.startswith("is not JSON (Extra data"):  # many an ending .json stands for JSON lines
        yield from _json_lines(io.BytesIO(text.encode()), "utf-8")
        return
    if fault:
        yield 0, fault
        return
    items = document.get("data") if isinstance(document, dict) else document
    if not isinstance(items, list):
        raise InputError('it is neither a list of objects nor like SQuAD ({"data": [{"paragraphs": …}]}).')
    number, may_be_half = 0, _may_be_half(text)
    for item in items:
        is_article = isinstance(item, dict) and isinstance(item.get("paragraphs"), list)
        for values in _questions(item) if is_article else [item]:
            number += 1
            yield number, values if isinstance(values, str) and is_article else _object(values, may_be_half)


def _parsed(text: str) -> tuple[Any, str]:
    try:
        return json.loads(text), ""
    except json.JSONDecodeError as error:
        return None, f"is not JSON ({error.msg} at character {error.pos + 1})"
    except (ValueError, RecursionError) as error:  # a number with thousands of digits; a bottomless nest
        return None, f"is not JSON that can be read ({error})"


def _may_be_half(text: str) -> bool:
    """Whether there is an escape in it that stands for half a character, which no encoding can write; its other half
    may be there too.
    """
    return "\\ud" in text or "\\uD" in text


def _object(value: Any, may_be_half: bool) -> dict[str, Any] | str:
    if not isinstance(value, dict):
        return f"is not a JSON object, but a {type(value).__name__}"
    if may_be_half:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return "has half of a surrogate pair, which is no text"
    return value


def _questions(article: dict[str, Any]) -> Iterator[dict[str, Any] | str]:
    """SQuAD's articles hold paragraphs, and these questions: a row for each of those."""
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


def _parquet(stream: IO[bytes], encoding: str) -> Iterator[Numbered]:
    pyarrow = needs("pyarrow", "corpus", "to read Parquet")
    parquet = needs("pyarrow.parquet", "corpus", "to read Parquet")
    if not stream.seekable():
        data = read_whole(stream, MOST_DOCUMENT)
        if data is None:
            yield 0, f"is longer than {MOST_DOCUMENT:,} bytes; unpack it"
            return
        stream = io.BytesIO(data)
    if not stream.read(1):
        return
    try:
        file = parquet.ParquetFile(stream)
        _refuse_twins(file.schema_arrow.names)
        number = 0
        for batch in file.iter_batches(SOME_ROWS):
            for row in range(batch.num_rows):
                number += 1
                yield number, _taken(batch, row)
    except (pyarrow.ArrowException, OSError) as error:
        yield 0, f"is not a whole Parquet file ({str(error).splitlines()[0]})"


def _taken(batch: Any, row: int) -> dict[str, Any] | str:
    try:
        return {name: batch.column(place)[row].as_py() for place, name in enumerate(batch.schema.names)}
    except ValueError as error:  # a string that is not UTF-8; a time that Python cannot tell
        return f"has a value that cannot be read ({error})"


def _texts(stream: IO[bytes], encoding: str) -> Iterator[Numbered]:
    for line in read_lines(stream, encoding):
        text = line.content
        yield line.number, line.fault or ({"text": text} if text.strip() else "is empty")


READERS: dict[str, Callable[[IO[bytes], str], Iterator[Numbered]]] = {
    **dict.fromkeys((".jsonl", ".ndjson"), _json_lines),
    ".json": _json,
    ".parquet": _parquet,
    **dict.fromkeys((".conll", ".iob", ".iob2", ".bio", ".ner", ".bioes", ".tags", ".annotated", ".pos"), read_columns),
    ".conllu": read_universal,
    **dict.fromkeys(TEXT, _texts),
}
ENDINGS = (".csv", ".tsv", *READERS)
