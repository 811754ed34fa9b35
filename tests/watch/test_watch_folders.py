"""What is found below a folder, in which state it is, and what a hostile folder cannot do."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from watching import line, make_run, write_lock
from weft.errors import FolderError, InputError
from weft.train import run_folder
from weft.train.checkpoints import CHECKPOINTS
from weft.watch import finding, holder, run
from weft.watch.finding import Finder, folder_id
from weft.watch.glance import MetricsGlance
from weft.watch.plain_files import bounded_copy, open_plain, shown_text
from weft.watch.run import flat_settings
from weft.watch.watcher import CurveQuery, NoSuchRun, RunWatcher

BIDI = "a\u202eb\x1b[31m<script>alert(1)</script>"


def summaries(root: Path) -> dict[str, dict]:
    return {one["name"]: one for one in RunWatcher(root).listing()["runs"]}


def test_the_names_are_those_that_training_uses():
    assert (run.RESOLVED_NAME, run.MODEL_NAME) == (run_folder.RESOLVED_RECIPE, run_folder.MODEL)
    assert (run.CHECKPOINTS_NAME, holder.LOCK_NAME) == (CHECKPOINTS, run_folder._LOCK_FILE)


def test_watching_does_not_import_torch():
    modules = "weft.commands.page, weft.serve.app, weft.serve.server, weft.watch.watcher"
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_runs_corpora_tokenizers_models_and_reports_are_found(tmp_path: Path):
    make_run(tmp_path / "gpt")
    make_run(tmp_path / "gpt/finetune")
    make_run(tmp_path / "sweep/a/deep/er")
    (tmp_path / "gpt/seed-3").mkdir()
    (tmp_path / "gpt/seed-3/metrics.jsonl").write_text(line(1))
    for kind in ("corpus", "tokenizer", "model"):
        (tmp_path / f"gpt/{kind}").mkdir()
        (tmp_path / f"gpt/{kind}/weft.json").write_text(json.dumps({"kind": kind}))
    (tmp_path / "bert").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "bert" / name).write_text("{}")
    (tmp_path / "judged").mkdir()
    for name in ("report.html", "report.json"):
        (tmp_path / "judged" / name).write_text("{}")
    (tmp_path / "gpt/checkpoints/step-1").mkdir(parents=True)
    (tmp_path / "gpt/checkpoints/step-1/weft.json").write_text('{"kind": "run"}')  # not looked into
    found = {one.name: (one.kind, one.inside) for one in Finder(tmp_path).find().folders}
    gpt = folder_id("gpt")
    assert found == {
        "gpt": ("run", None), "gpt/finetune": ("run", gpt), "gpt/seed-3": ("run", gpt),
        "sweep/a/deep/er": ("run", None),
        "gpt/corpus": ("corpus", gpt), "gpt/tokenizer": ("tokenizer", gpt), "gpt/model": ("model", gpt),
        "bert": ("model", None), "judged": ("report", None),
    }  # fmt: skip


def test_ids_stand_for_paths_and_the_root_may_be_a_run(tmp_path: Path):
    make_run(tmp_path / "run")
    watcher = RunWatcher(tmp_path / "run")
    (told,) = watcher.listing()["runs"]
    assert (told["name"], told["id"]) == ("run", folder_id(""))
    for id in ("", "..", "run", "/etc/passwd", folder_id("run"), "0" * 16):
        for ask in (
            watcher.run,
            watcher.details,
            watcher.report,
            lambda one: watcher.curves(one, CurveQuery(["loss"])),
        ):
            with pytest.raises(NoSuchRun):
                ask(id)
    with pytest.raises(InputError, match="does not exist"):
        RunWatcher(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="is a file"):
        RunWatcher(tmp_path / "file")


def test_loops_of_links_end_and_too_much_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make_run(tmp_path / "runs/a")
    (tmp_path / "runs/a/up").symlink_to(tmp_path / "runs")
    (tmp_path / "runs/self").symlink_to(tmp_path / "runs/self")
    make_run(tmp_path / "elsewhere/b")
    (tmp_path / "runs/linked").symlink_to(tmp_path / "elsewhere/b")
    found = Finder(tmp_path / "runs").find()
    assert sorted(one.name for one in found.folders) == ["a", "linked"]
    assert not found.is_cut
    monkeypatch.setattr(finding, "MOST_FOLDERS", 2)
    assert Finder(tmp_path / "runs").find().is_cut
    monkeypatch.setattr(finding, "MOST_FOLDERS", 4_000)
    make_run(tmp_path / "runs/1/2/3/4/5/6/7/8")
    deep = Finder(tmp_path / "runs").find()
    assert deep.is_cut
    assert len(deep.folders) == 2


def test_a_folder_that_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make_run(tmp_path / "good")
    (tmp_path / "shut").mkdir()
    real = os.scandir

    def scandir(path):
        if Path(path).name == "shut":  # as root, tests can read everything
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    told = RunWatcher(tmp_path).listing()
    assert [one["name"] for one in told["runs"]] == ["good"]
    assert told["problems"] == ["shut cannot be read: Permission denied."]


def test_states(tmp_path: Path):
    lines = "".join(line(step) for step in range(1, 41))
    make_run(tmp_path / "finished", lines, results={"parameters": 7, "validation": {"validation_loss": 2.5}})
    make_run(tmp_path / "stopped", lines, checkpoint=41)
    make_run(tmp_path / "failed", lines, checkpoint=30)
    make_run(tmp_path / "killed", lines)
    make_run(tmp_path / "nan", lines + line(41, float("nan")), checkpoint=41)
    make_run(tmp_path / "new")
    write_lock(make_run(tmp_path / "running", lines))
    write_lock(make_run(tmp_path / "dead", lines, checkpoint=40), process=2**22 + 1)
    old = make_run(tmp_path / "recycled", lines, checkpoint=40)
    write_lock(old)
    os.utime(old / ".lock", (1e9, 1e9))  # this process is younger than the lock: the number was given again
    write_lock(make_run(tmp_path / "far", lines), host="another-machine")
    stale = make_run(tmp_path / "stale", lines)
    write_lock(stale)
    os.utime(stale / "metrics.jsonl", (time.time() - 4000, time.time() - 4000))
    (make_run(tmp_path / "garbled") / ".lock").write_bytes(b"\xff\0process 1 on")
    diverged = make_run(tmp_path / "diverged", lines, checkpoint=40)
    told = "2026-01-01 10:00:01 At step 41 the loss is 99.0, after 2.00 at its lowest: training has exploded. Lower it."
    (diverged / "train.log").write_text(told + "\n")
    found = summaries(tmp_path)
    states = {name: (one["state"], one["stale"]) for name, one in found.items()}
    assert states == {
        "finished": ("finished", False), "stopped": ("stopped", False), "failed": ("failed", False),
        "killed": ("failed", False), "nan": ("diverged", False), "new": ("stopped", False),
        "running": ("running", False), "dead": ("stopped", False), "recycled": ("stopped", False),
        "far": ("running", False), "stale": ("running", True), "garbled": ("stopped", False),
        "diverged": ("diverged", False),
    }  # fmt: skip
    assert found["running"]["holder"] == {
        "process": os.getpid(), "host": socket.gethostname(), "since": "2026-01-01 00:00:00", "here": True,
    }  # fmt: skip
    assert found["nan"]["loss_text"] == "nan"
    assert found["running"]["seconds_left"] == pytest.approx(6.0)  # 60 steps at 10 in a second
    assert found["diverged"]["problem"].startswith("At step 41")
    assert found["finished"]["parameters"] == 7


def test_only_what_changed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("weft.watch.watcher._LOOK_SECONDS", 0.0)
    folders = [make_run(tmp_path / name, line(1)) for name in "abc"]
    watcher = RunWatcher(tmp_path)
    first = watcher.listing()
    assert [one["name"] for one in first["runs"]] == list("abc")
    assert watcher.listing(first["version"])["runs"] == []
    with (folders[1] / "metrics.jsonl").open("a") as file:
        file.write(line(2, 1.5))
    second = watcher.listing(first["version"])
    assert [(one["name"], one["loss"]) for one in second["runs"]] == [("b", 1.5)]
    assert second["ids"] == first["ids"]


def test_a_glance_at_a_long_file_is_that_of_all_its_lines(tmp_path: Path):
    rows = [
        line(step, 10 / step**0.2, **({"validation_loss": 2.0 + step} if step == 9_000 else {}))
        for step in range(1, 20_001)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(rows) + '{"step": 20001, "lo')
    glance = MetricsGlance(tmp_path)
    assert glance.look()
    assert glance.found.last["step"] == 20_000
    assert glance.found.validation["step"] == 9_000
    assert glance.found.steps_per_second == pytest.approx(10.0)
    steps = [step for step, _ in glance.found.shape]
    assert 40 <= len(steps) <= 82
    assert steps == sorted(steps)
    assert all(loss == pytest.approx(10 / step**0.2, rel=0.2) for step, loss in glance.found.shape[3:])
    assert not glance.look()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('ss": 1.25, "seconds": 2000.1}\n')
    assert glance.look()
    assert glance.found.last == {"step": 20001, "loss": 1.25, "seconds": 2000.1}
    (tmp_path / "metrics.jsonl").write_text(line(1) + line(2))  # begun again
    assert glance.look()
    assert glance.found.last["step"] == 2
    (tmp_path / "metrics.jsonl").unlink()
    assert glance.look()
    assert glance.found.last == {}


def test_links_pipes_and_folders_are_not_read_as_files(tmp_path: Path):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "."):
        with pytest.raises(OSError):
            open_plain(tmp_path / name)


def test_a_hostile_folder_breaks_nothing_and_leaks_nothing(tmp_path: Path):
    (tmp_path / "secret").write_text("secret\n" * 10)
    folder = make_run(tmp_path / "runs" / BIDI.replace("/", "_"))
    tree = {"name": BIDI, "pretrain": {"budget": "x" * 10**5}, "deep": [[[[[[[[[[[[1]]]]]]]]]]]], "n": float("nan")}
    facts = {"kind": "run", "asked": tree, "inputs": [1] * 10**5, "results": {"validation": "x", "parameters": 1e400}}
    (folder / "weft.json").write_text(json.dumps(facts))
    bomb = "a: &a [x, x, x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}, *{a}]\n" for a, b in zip("abcdefghij", "bcdefghijk", strict=True)
    )
    (folder / "recipe.yml").write_text(bomb)
    (folder / "train.log").symlink_to(tmp_path / "secret")
    (folder / "metrics.jsonl").write_bytes(
        b"\0\xff\n" + line(1, 2.0, sample=BIDI + "\ud800").encode() + b"[" * 10**5 + b"\n"
    )
    no_text = tmp_path / "runs" / os.fsdecode(b"\xff\xfe")
    no_text.mkdir()
    (no_text / "weft.json").write_text('{"kind": "run", "asked": []}')
    other = make_run(tmp_path / "runs/merge")
    merged = "a: &a {k: 1}\n" + "".join(
        f"{b}: &{b} {{<<: [*{a}, *{a}]}}\n" for a, b in zip("abcdefghi", "bcdefghij", strict=True)
    )
    (other / "recipe.yml").write_text(merged)
    (other / "report.html").symlink_to(tmp_path / "secret")
    (make_run(tmp_path / "runs/pipe") / "metrics.jsonl").unlink()
    os.mkfifo(tmp_path / "runs/pipe/metrics.jsonl")
    watcher = RunWatcher(tmp_path / "runs")
    told = watcher.listing()
    text = json.dumps(told, allow_nan=False)
    for id in told["ids"]:
        name = next(one["name"] for one in told["runs"] if one["id"] == id)
        if name == "pipe":
            with pytest.raises(FolderError, match="is not a file"):
                watcher.details(id)
            continue
        text += json.dumps(watcher.details(id), allow_nan=False)
        text += json.dumps(watcher.curves(id, CurveQuery(["loss"])), allow_nan=False)
        with pytest.raises(FolderError):
            watcher.report(id)
    assert "secret" not in text.replace(json.dumps(str(tmp_path))[1:-1], "")
    assert "\u202e" not in text
    assert "\\u202e" not in text.replace("\\\\u202e", "")
    assert len(text) < 2_000_000


def test_what_is_sent_is_bounded():
    deep: list = []
    for _ in range(900):
        deep = [deep]
    wide = {str(number): "x" * 10_000 for number in range(20_000)}
    assert len(json.dumps(bounded_copy([deep, wide, float("inf"), 10**400], 100))) < 500_000
    assert len(flat_settings({"a": wide, "b": deep})) <= 500
    assert shown_text("a\u202e\x00\ud800" + "x" * 100, 10) == "a\\u202e\\x00\\ud800xxxxxx…"


def test_lineage_and_plan(tmp_path: Path):
    folder = make_run(tmp_path / "runs/gpt", "".join(line(step, 3.0) for step in range(1, 51)), steps=100)
    corpus = tmp_path / "runs/books"
    corpus.mkdir()
    (corpus / "weft.json").write_text('{"kind": "corpus"}')
    (folder / "recipe.yml").write_text(
        f"corpus: {{path: {corpus}}}\npretrain: {{budget: 100 steps, batch_tokens: 64}}\n"
    )
    (folder / "model").mkdir()
    (folder / "model/weft.json").write_text('{"kind": "model", "files": {"model.safetensors": {"sha256": "beef"}}}')
    facts = json.loads((folder / "weft.json").read_text())
    facts["asked"]["pretrain"]["budget"] = "20m"
    (folder / "weft.json").write_text(json.dumps(facts))
    watcher = RunWatcher(tmp_path / "runs")
    told = watcher.details(folder_id("gpt"))
    assert [(row["role"], row["id"]) for row in told["lineage"]] == [
        ("corpus", folder_id("books")), ("written", folder_id("gpt/model")),
    ]  # fmt: skip
    plan = {row["what"]: row for row in told["plan"]}
    assert (plan["steps"]["planned"], plan["steps"]["actual"]) == (100, 50)
    assert (plan["tokens"]["planned"], plan["tokens"]["actual"], plan["tokens"]["expected"]) == (6400, 3200, 6400)
    assert (plan["seconds"]["planned"], plan["seconds"]["expected"]) == (1200, pytest.approx(10.0))
    assert set(watcher.details(folder_id("gpt"), ["log"])) >= {"log", "read"}
    model = watcher.details(folder_id("gpt/model"))
    assert (model["kind"], model["files"]) == ("model", [{"name": "model.safetensors", "sha256": "beef"}])
