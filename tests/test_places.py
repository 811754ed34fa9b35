"""Addresses of other machines where a path is meant: refused in a sentence, before anything is written."""

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from weft import cli
from weft.errors import FolderError, address_in, not_found
from weft.folders import replace_folder

COMMANDS = typer.main.get_command(cli.app).commands
WRITERS = [name for name, command in COMMANDS.items() if any("--output" in p.opts for p in command.params)]


@pytest.mark.parametrize("name", WRITERS)
def test_no_command_writes_to_an_address(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = COMMANDS[name]
    arguments = ["x" for parameter in command.params if parameter.param_type_name == "argument" and parameter.required]
    target = {"export": ["--to", "gguf"], "compare": ["--data", "x"]}.get(name, [])
    monkeypatch.setattr(sys, "argv", ["weft", name, *arguments, *target, "-o", "s3://bucket/a corpus"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert "s3://bucket/a corpus is not on this machine" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_python_does_not_either(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with (
        pytest.raises(FolderError, match="gs://bucket/x is not on this machine"),
        replace_folder(Path("gs://bucket/x"), mark=""),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_drives_and_names_are_paths():
    for path in ("C:/x", "a/b", "a:b", "./x", "2026-11-17T10:00/x"):
        assert address_in(path) is None


def test_an_address_to_read_is_said_to_be_one():
    assert not_found(Path("recipes") / "s3://bucket/a.txt").startswith("s3://bucket/a.txt is not on this machine. Copy")
    assert not_found(Path("a.txt"), " (did you mean b.txt?)") == "a.txt does not exist (did you mean b.txt?)."
    found = subprocess.run(
        [sys.executable, "-m", "weft", "corpus", "hdfs://cluster/texts", "-o", "never"], capture_output=True, text=True
    )
    assert found.returncode == 2 and found.stderr.startswith("weft: hdfs://cluster/texts is not on this machine.")
