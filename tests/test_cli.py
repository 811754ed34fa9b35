"""The command line's promises: where output goes, exit codes, sentences for errors."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import weft
from weft.cli import main

SHAPE = {"vocabulary": 50, "layers": 2, "width": 16, "heads": 2}


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "weft", *map(str, arguments)], capture_output=True, text=True, **options
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "gpt"
    weft.create("gpt2", **SHAPE).save(folder)
    return folder


def test_info_prints_what_is_in_a_folder(folder):
    done = run("info", folder)
    assert done.returncode == 0
    for word in ("gpt2", "causal", "parameters", "vocabulary", "memory", "model.safetensors", "KB"):
        assert word in done.stdout


def test_info_as_json_is_one_object_and_nothing_else(folder):
    done = run("info", folder, "--json")
    facts = json.loads(done.stdout)
    assert done.stderr == ""
    assert facts["family"] == "gpt2"
    assert facts["parameters"] == weft.load(folder).parameters_count
    assert facts["decoder"]["layers"] == 2
    assert facts["memory"]["run"] == 4 * facts["parameters"]
    assert set(facts["files"]) == {"config.json", "generation_config.json", "model.safetensors", "weft.json"}


def test_info_alone_says_which_kernels_serve():
    facts = json.loads(run("info", "--json").stdout)
    assert set(facts["kernels"]) == {"attention", "layers", "inference", "generation", "generation layers"}
    assert all(text == "in use" or text.startswith("not used: ") for text in facts["kernels"].values())


def test_info_reads_a_recipe_with_changes(tmp_path):
    recipe = tmp_path / "big.yml"
    recipe.write_text("model: {family: gpt2, size: gpt3-175b}")
    facts = json.loads(run("info", recipe, "model.positions=rotary", "--json").stdout)
    assert facts["parameters"] == 174_604_259_328 - 2048 * 12_288
    assert facts["format"] == "weft"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["info", "nowhere"], 2, "nowhere does not exist"),
        (["predict"], 2, "Missing argument"),
        (["inf"], 2, "No such command"),
        (["info", "x", "--colour"], 2, "No such option"),
        (["info", "none.yml"], 2, "none.yml is not a file"),
    ],
)
def test_an_error_is_one_sentence_on_standard_error(arguments, code, says, tmp_path):
    done = run(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("weft: ")


def test_a_recipes_slip_names_file_key_and_the_nearest_name(tmp_path):
    (tmp_path / "recipe.yml").write_text("model: {family: bert, layerz: 2}")
    done = run("info", tmp_path / "recipe.yml")
    assert done.returncode == 2
    assert "recipe.yml: model: bert has no setting 'layerz' (did you mean layers?)" in done.stderr


def test_debug_shows_the_traceback():
    done = run("info", "nowhere", "--debug")
    assert "Traceback" in done.stderr
    assert "FolderError" in done.stderr


def too_large_a_tensor():
    torch.empty(2**60, dtype=torch.uint8)


def too_large_an_array():
    np.empty(2**60, np.uint8)


def too_much_for_a_gpu():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


@pytest.mark.parametrize("exhaust", [too_large_a_tensor, too_large_an_array, too_much_for_a_gpu])
def test_running_out_of_memory_is_a_sentence_with_advice(exhaust, monkeypatch, capsys):
    monkeypatch.setattr("weft.commands.info.describe_machine", exhaust)
    monkeypatch.setattr(sys, "argv", ["weft", "info"])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert said.startswith("weft: The memory is not enough.") and "accumulation" in said and "fault" not in said


def test_families_lists_sizes_with_parameters():
    facts = json.loads(run("families", "--json").stdout)
    assert facts["gpt2"]["gpt3-175b"] == 174_604_259_328
    assert len(facts) == 10


def test_schema_is_json():
    assert json.loads(run("schema").stdout)["title"] == "Recipe"


def test_version_and_help():
    assert run("--version").stdout.strip() == weft.__version__
    assert "info" in run("--help").stdout
    assert "info" in run().stdout


def test_a_reader_that_goes_away_is_no_fault(folder):
    process = subprocess.Popen(
        [sys.executable, "-m", "weft", "families"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()
    assert "fault" not in process.stderr.read()
    process.wait()


def test_ctrl_c_is_said_and_has_its_own_exit_code():
    code = """
import os, signal, sys, weft.cli, weft.commands.info
weft.commands.info.describe = lambda *_: os.kill(os.getpid(), signal.SIGINT)  # while the command is at work
signal.signal(signal.SIGINT, signal.default_int_handler)
weft.cli.main()
"""
    done = subprocess.run([sys.executable, "-c", code, "info", "x"], capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr.strip() == "weft: interrupted."


def test_threads_that_abort_as_the_interpreter_winds_down_do_not_hide_the_exit_code():
    code = """
import atexit, os, sys
from weft.__main__ import start
sys.modules["daft"] = os  # as if it had been at work
atexit.register(os.abort)
start()
"""
    done = subprocess.run([sys.executable, "-c", code, "info", "nowhere"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("weft: nowhere")


def test_a_name_that_the_terminal_cannot_show_is_no_fault(tmp_path):
    (tmp_path / "recipe.yml").write_text("name: 模型\nmodel: {family: bert, size: tiny}", "utf-8")
    done = run("info", tmp_path / "recipe.yml", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr


def test_paths_that_cannot_be_are_sentences(tmp_path):
    done = run("info", "x" * 300, cwd=tmp_path)
    assert done.returncode == 2
    assert "fault" not in done.stderr


@pytest.mark.parametrize("settings", ["dropout=0", "cls=3", "theta=.nan", "segments=-1", "layers=!!int x", "dropout=1"])
def test_odd_settings_are_taken_or_refused_in_a_sentence(settings, tmp_path):
    (tmp_path / "recipe.yml").write_text("model: {family: bert, size: tiny}")
    done = run("info", tmp_path / "recipe.yml", f"model.{settings}")
    assert done.returncode == (0 if settings == "dropout=0" else 2), done.stderr
    assert "fault" not in done.stderr
