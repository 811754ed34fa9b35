"""CSV and TSV: rows with any quotes."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.sources.formats import delimited
from weft.sources.formats.delimited import read_quoted, read_tabbed

plain = st.text("abc xyz", min_size=1, max_size=5).filter(str.strip)
cell = st.text('a", \n\r', max_size=8)


def quoted(text: str) -> list:
    return list(read_quoted(io.BytesIO(text.encode()), "utf-8"))


@given(st.lists(st.lists(cell, min_size=2, max_size=2), min_size=1, max_size=6))
def test_what_csv_writes_comes_back(rows):
    target = io.StringIO()
    csv.writer(target).writerows(rows)
    assert [fields for _, fields in quoted(target.getvalue())] == rows


@given(st.lists(st.tuples(plain, plain), min_size=1, max_size=8), st.data())
def test_one_open_quote_costs_one_row(rows, data):
    broken = data.draw(st.integers(0, len(rows) - 1))
    lines = [f"{a},{b}\n" for a, b in rows]
    lines[broken] = f'x,"{rows[broken][1]}\n'
    found = quoted("".join(lines))
    assert [number for number, fields in found if isinstance(fields, str)] == [broken + 1]
    assert [fields for _, fields in found if isinstance(fields, list)] == [
        list(row) for number, row in enumerate(rows) if number != broken
    ]


def test_a_quote_that_a_later_row_closes_costs_no_row_in_between():
    found = quoted('id,text\n1,"open\n2,b\n3,c\n4,close" d\n5,e\n')
    assert [fields for _, fields in found if isinstance(fields, list)] == [
        ["id", "text"], ["2", "b"], ["3", "c"], ["4", 'close" d'], ["5", "e"],
    ]  # fmt: skip
    assert [number for number, fields in found if isinstance(fields, str)] == [2]


def test_the_lines_of_a_quoted_field_are_limited(monkeypatch):
    monkeypatch.setattr(delimited, "MOST_FIELD_LINES", 10)
    found = quoted('a,b\n1,"open\n' + "".join(f"{number},x\n" for number in range(100)) + '"')
    assert len([fields for _, fields in found if isinstance(fields, list)]) == 101


def test_quotes_that_stay_open_on_every_line_are_not_read_again_and_again(monkeypatch):
    monkeypatch.setattr(delimited, "MOST_FIELD_LINES", 1000)
    given_out = 0

    class Counted(delimited._Replayed):
        def __next__(self):
            nonlocal given_out
            given_out += 1
            return super().__next__()

    monkeypatch.setattr(delimited, "_Replayed", Counted)
    found = quoted('a,b\n"\n' + 'x","\n' * 3000 + "1,2\n")
    assert found[0] == (1, ["a", "b"])
    assert found[-1] == (3003, ["1", "2"])
    assert all(isinstance(fields, str) for _, fields in found[1:-1])
    assert given_out < 1000 + 3003 * 45  # once, and what is read again


def test_a_long_field_is_whole_although_quotes_before_it_were_left_open():
    body = "\n".join(f"line {number}" for number in range(500))
    found = quoted('a,b\n1,"open\n' + "".join(f"{number},x\n" for number in range(100)) + f'2,"{body}"\n')
    assert found[-1][1] == ["2", body]


@pytest.mark.parametrize("text", ['1\t"a\n2\t""\n3\tb"c"\n'])
def test_quotes_are_characters_like_any_other_between_tabs(text):
    found = list(read_tabbed(io.BytesIO(text.encode()), "utf-8"))
    assert [fields for _, fields in found] == [line.split("\t") for line in text.splitlines()]
