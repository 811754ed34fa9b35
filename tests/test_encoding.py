"""Files are read and written as UTF-8 on every system, also where that is not the default."""

import ast
import io
from pathlib import Path

import pytest

import weft
from weft.__main__ import use_utf8

SOURCES = sorted(Path(weft.__file__).parent.rglob("*.py"))
MODULES = {"os", "tarfile", "zipfile", "gzip", "bz2", "lzma"}  # their `open` means bytes, unless told otherwise
MODE_AT = {"open": 0, "fdopen": 1, "NamedTemporaryFile": 0, "TemporaryFile": 0}
ENCODING_AT = {"read_text": 0, "write_text": 1}


def text_without_encoding(source):
    """The lines of calls that open a file as text and do not say in which encoding."""
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call) or any(word.arg in ("encoding", None) for word in call.keywords):
            continue
        is_method = isinstance(call.func, ast.Attribute)
        name = call.func.attr if is_method else getattr(call.func, "id", "")
        owner = call.func.value.id if is_method and isinstance(call.func.value, ast.Name) else ""
        words = {word.arg: word.value for word in call.keywords}
        if name in ENCODING_AT and len(call.args) <= ENCODING_AT[name]:
            yield call.lineno
        if name == "TextIOWrapper" and len(call.args) < 2:
            yield call.lineno
        if name in MODE_AT and not (name == "open" and owner in MODULES):
            at = MODE_AT[name] + (name == "open" and not is_method)
            mode = words.get("mode", call.args[at] if len(call.args) > at else None)
            default = "w+b" if "Temporary" in name else "r"
            if "b" not in (mode.value if isinstance(mode, ast.Constant) else "b" if mode is not None else default):
                yield call.lineno
        text = words.get("text", words.get("universal_newlines"))
        if isinstance(text, ast.Constant) and text.value is True:
            yield call.lineno


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.relative_to(SOURCES[0].parents[1]).as_posix())
def test_every_text_file_has_its_encoding(file):
    assert list(text_without_encoding(file.read_text("utf-8"))) == []


def test_a_stream_of_another_encoding_takes_every_text():
    pipe = io.BytesIO()
    stream = io.TextIOWrapper(pipe, "cp1252", errors="backslashreplace")
    use_utf8(stream)
    stream.write("狐狸")
    stream.flush()
    assert pipe.getvalue() == "狐狸".encode() and stream.errors == "backslashreplace"


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("open(x)", True),
        ("open(x, 'w')", True),
        ("open(x, 'rb')", False),
        ("open(x, encoding='utf-8')", False),
        ("x.open()", True),
        ("x.open('a')", True),
        ("x.open('ab+')", False),
        ("gzip.open(x)", False),
        ("os.fdopen(x, 'w')", True),
        ("x.read_text()", True),
        ("x.read_text('utf-8')", False),
        ("x.write_text(y)", True),
        ("x.write_text(y, 'utf-8')", False),
        ("subprocess.run(x, text=True)", True),
        ("subprocess.run(x, text=True, encoding='utf-8')", False),
    ],
)
def test_what_is_looked_for_is_found(source, is_found):
    assert bool(list(text_without_encoding(source))) is is_found
