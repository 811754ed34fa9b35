"""What comes from outside does not steer the terminal."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft import progress
from weft.commands import printing
from weft.terminal import CONTROL_CHARACTERS, escape_controls

NASTY = "\x1b]0;title\x07\x9b31m\r\u202e[red]x[/] :smile: \x7f"


@given(st.text())
def test_what_is_shown_has_nothing_that_steers_and_keeps_the_rest(text):
    assert not CONTROL_CHARACTERS.search(escape_controls(text))
    assert escape_controls(CONTROL_CHARACTERS.sub("", text)) == CONTROL_CHARACTERS.sub("", text)


@pytest.mark.parametrize("show", [
    progress.say, lambda text: printing.print_facts({text: {text: [text]}, "b": text}, as_json=False),
    lambda text: printing.print_facts({"a": text}, as_json=True), lambda text: printing.print_lines([{text: text}]),
    lambda text: printing.print_next(text, text, quiet=False), lambda text: list(progress.track([1], text)),
])  # fmt: skip
def test_every_way_of_saying_something_shows_escapes_as_their_codes(show, capsys):
    show(NASTY)
    said = "".join(capsys.readouterr())
    assert not CONTROL_CHARACTERS.search(said)
    assert "1b" in said and ":smile:" in said and "[red]x[/]" in said.replace("\n", "")


def test_json_says_the_same_with_codes(capsys):
    printing.print_facts({"a": NASTY}, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"a": NASTY}


def test_a_name_in_an_error_is_shown_as_codes(tmp_path):
    command = [sys.executable, "-m", "weft", "corpus", f"{NASTY}.txt", "-o", "out"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert not CONTROL_CHARACTERS.search(done.stderr) and "does not exist" in done.stderr
