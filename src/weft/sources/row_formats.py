"""Rows out of a stream, by the ending of its name: tables, JSON, Parquet, columns of tags, lines of text.

Each comes as its number (of the line where it begins, or of the row where there are no lines) with its values, or
with the reason why it cannot be used; reading goes on after it. In a `.csv` quotes hold a field together, newlines
included; in a `.tsv` they are characters like any other, as GLUE's files have single ones in their sentences. Both
begin with the names of their columns; where they do not, `header` says them (if the first line says just the same,
it is not a row).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from weft.errors import InputError
from weft.sources.class_names import named_columns, names_in_schema
from weft.sources.conll import read_columns, read_universal
from weft.sources.json_parquet import objects_in, read_json, read_json_lines, read_parquet
from weft.sources.lines import read_lines
from weft.sources.tables import read_quoted, read_tabbed

Numbered = tuple[int, dict[str, Any] | str]
LONGEST_NAME = 64  # of a column; what is longer is a sentence
TEXT = (".txt", ".text")
UNNUMBERED = (".json", ".parquet")  # have rows and no lines


def read_stream(ending: str, stream: IO[bytes], encoding: str, header: Sequence[str] | None) -> Iterator[Numbered]:
    if ending == ".csv":
        return _table(read_quoted(stream, encoding), header)
    if ending == ".tsv":
        return _table(read_tabbed(stream, encoding), header)
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


def _json(stream: IO[bytes], encoding: str) -> Iterator[Numbered]:
    return read_json(stream, encoding, None, _rows_of_document)


def _rows_of_document(document: Any) -> Iterator[dict[str, Any] | str]:
    items = document.get("data") if isinstance(document, dict) else document
    if not isinstance(items, list):
        raise InputError('it is neither a list of objects nor like SQuAD ({"data": [{"paragraphs": …}]}).')
    for item in items:
        is_article = isinstance(item, dict) and isinstance(item.get("paragraphs"), list)
        yield from _questions(item) if is_article else objects_in([item])


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
    names: dict[str, list[str]] = {}

    def choose(schema: Any) -> None:
        _refuse_twins(schema.names)
        names.update(names_in_schema(schema.metadata))

    for number, values in read_parquet(stream, None, choose):
        yield number, values if isinstance(values, str) or not names else named_columns(values, names)


def _texts(stream: IO[bytes], encoding: str) -> Iterator[Numbered]:
    for line in read_lines(stream, encoding):
        text = line.content
        yield line.number, line.fault or ({"text": text} if text.strip() else "is empty")


READERS: dict[str, Callable[[IO[bytes], str], Iterator[Numbered]]] = {
    **dict.fromkeys((".jsonl", ".ndjson"), read_json_lines),
    ".json": _json,
    ".parquet": _parquet,
    **dict.fromkeys((".conll", ".iob", ".iob2", ".bio", ".ner", ".bioes", ".tags", ".annotated", ".pos"), read_columns),
    ".conllu": read_universal,
    **dict.fromkeys(TEXT, _texts),
}
ENDINGS = (".csv", ".tsv", *READERS)
