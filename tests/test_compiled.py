"""A kernel that does not serve says why, and what it stood for still gives the same numbers."""

import os
import stat
import subprocess
from pathlib import Path

import pytest
import torch

import weft
from weft import compiled
from weft.commands.info import describe_machine
from weft.compiled import KernelsMissing, load_tried, open_library, why_missing
from weft.model import kernel_report
from weft.model.kernel_report import lost_kernels

SOURCE = "int weft_seven(void) { return 7; }\n"


@pytest.fixture
def source(tmp_path, monkeypatch):
    """Something to compile, and a cache of its own to keep it in."""
    if os.name != "posix":
        pytest.skip("nothing is compiled here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    file = tmp_path / "seven.c"
    file.write_text(SOURCE)
    return file


def command(folder, text):
    file = folder / "compiler"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


def reason(source):
    load_tried("a test's", lambda: open_library(source), ())
    return why_missing("a test's")


def test_without_a_compiler_it_names_the_command(source, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    assert "no C compiler (no-such-compiler)" in reason(source)


def test_a_compiler_that_fails_is_quoted(source, monkeypatch, tmp_path):
    monkeypatch.setenv(
        "CC", command(tmp_path, '[ "$1" = --version ] && exit 0; echo "x.c: error: no room" >&2; exit 1')
    )
    assert "x.c: error: no room" in reason(source)


def test_a_compiler_that_hangs_is_ended(source, monkeypatch, tmp_path):
    def hang(command, **how):
        raise subprocess.TimeoutExpired(command, how["timeout"])

    monkeypatch.setattr(compiled.subprocess, "run", hang)
    monkeypatch.setenv("CC", command(tmp_path, "exit 0"))
    assert "longer than 60 seconds" in reason(source)


def test_a_compiler_that_cannot_be_run_is_named(source, monkeypatch, tmp_path):
    file = command(tmp_path, "exit 0")
    Path(file).write_bytes(b"\x00\x01")
    monkeypatch.setenv("CC", file)
    assert "cannot be run" in reason(source)


def test_a_cache_that_cannot_be_made_is_named(source, monkeypatch, tmp_path):
    monkeypatch.setenv("CC", command(tmp_path, "exit 0"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(source))  # a file
    assert f"the cache {source}" in reason(source)


def test_a_cache_that_others_write_to_is_not_used(source, monkeypatch, tmp_path):
    monkeypatch.setenv("CC", command(tmp_path, "exit 0"))
    (tmp_path / "cache" / "weft").mkdir(parents=True)
    (tmp_path / "cache" / "weft").chmod(0o777)
    assert "others may write" in reason(source)


def test_a_disk_that_is_full_is_named(source, monkeypatch, tmp_path):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("CC", command(tmp_path, "exit 0"))
    monkeypatch.setattr(compiled.tempfile, "TemporaryDirectory", full)
    assert "No space left on device" in reason(source)


def test_wrong_numbers_are_not_trusted_and_the_trial_is_named():
    def _one_that_passes(kernels):
        return True

    def _of_rotation(kernels):
        return False

    assert load_tried("a test's", lambda: 1, (_one_that_passes, _of_rotation)) is None
    assert "wrong numbers (of_rotation)" in why_missing("a test's")
    assert load_tried("a test's", lambda: 1, (_one_that_passes,)) == 1
    assert why_missing("a test's") is None


@pytest.mark.parametrize("fault", [TypeError, ValueError, AttributeError, RuntimeError])
def test_a_fault_of_our_own_is_not_taken_for_a_missing_kernel(fault):
    def _broken(kernels):
        raise fault("a bug")

    with pytest.raises(fault, match="a bug"):
        load_tried("a test's", lambda: 1, (_broken,))


needs_compiler = pytest.mark.skipif(compiled.shutil.which("cc") is None, reason="no C compiler")


@needs_compiler
def test_another_version_of_the_compiler_compiles_anew(source, monkeypatch, tmp_path):
    kept = []
    for version in ("1", "2", "2"):
        monkeypatch.setenv("CC", command(tmp_path, f'[ "$1" = --version ] && echo {version} && exit; exec cc "$@"'))
        assert open_library(source).weft_seven() == 7
        kept.append(len(list((tmp_path / "cache" / "weft").iterdir())))
    assert kept == [1, 2, 2]
    mode = stat.S_IMODE((tmp_path / "cache" / "weft").stat().st_mode)
    assert mode == 0o700


@needs_compiler
def test_a_library_that_was_cut_off_is_compiled_again(source):
    library = compiled._compiled(source)
    library.write_bytes(b"")
    assert open_library(source).weft_seven() == 7


def test_a_damaged_library_that_stays_damaged_is_named(source, monkeypatch, tmp_path):
    script = 'for last; do :; done; [ "$1" = --version ] || : > "$last"'
    monkeypatch.setenv("CC", command(tmp_path, script))
    with pytest.raises(KernelsMissing, match="cannot be opened"):
        open_library(source)


def test_a_network_is_told_which_kernels_it_goes_without(monkeypatch):
    kernel_report.missing_kernels()  # so that what is set below is not forgotten with the test
    for name in ("attention", "layers"):
        monkeypatch.setitem(compiled._reasons, name, None)
    monkeypatch.setattr(kernel_report, "register_width", lambda: 16)

    def lost(family, **settings):
        return lost_kernels(weft.create(family, vocabulary=20, layers=1, heads=2, **settings).network)

    assert lost("bert", width=64) == {}
    assert "multiple of 16" in lost("bert", width=40)["attention"]
    assert "bias of relative positions" in lost("t5", width=64)["attention"]
    network = weft.create("bert", vocabulary=20, layers=1, width=64, heads=2).network
    assert "bfloat16" in lost_kernels(network.to(torch.bfloat16))["layers"]
    assert "meta" in lost_kernels(network.to("meta"))["attention"]
    monkeypatch.setitem(compiled._reasons, "layers", "there is no C compiler (cc)")
    assert lost("bert", width=64) == {"layers": "there is no C compiler (cc)"}


def test_the_machine_is_described_with_its_kernels(monkeypatch):
    facts = describe_machine()
    assert set(facts["kernels"]) == {"attention", "layers", "inference", "generation", "generation layers"}
    monkeypatch.setitem(compiled._reasons, "attention", "there is no C compiler (cc)")
    assert describe_machine()["kernels"]["attention"] == "not used: there is no C compiler (cc)"
