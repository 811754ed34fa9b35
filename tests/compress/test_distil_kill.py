"""A distillation that was killed with SIGKILL in each stage ends with the same bytes as one that nobody touched."""

import json
import signal
import subprocess
import sys
import time

from distilling import teacher_of, write_distil

from small_tasks import weft

STEPS = 14


def start(recipe, output):
    command = [sys.executable, "-m", "weft", "distil", str(recipe), "-o", str(output), "--resume"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def kill_after(recipe, output, place, step):
    """Kill as soon as the checkpoint of this step is there."""
    process = start(recipe, output)
    while process.poll() is None and not any(
        int(item.name[5:]) >= step for item in (output / place / "checkpoints").glob("step-*")
    ):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    _, said = process.communicate()
    assert process.returncode == -signal.SIGKILL, said


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: line[key] for key in line if key not in ("seconds", "tokens_per_second")} for line in lines]


def test_a_killed_distillation_ends_with_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    tuned = teacher_of(tmp_path / "teacher", "classify")
    student = {"layers": 1, "width": 16, "heads": 4, "inner": 40}  # with projections, which must resume as well
    recipe = write_distil(
        tmp_path, tuned, "classify", student=student, budget=f"{2 * STEPS} steps", dropout=0.1, validate_every=7,
        keep=2,
        cache=str(tmp_path / "cache"),
    )  # fmt: skip
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    assert weft("distil", recipe, "-o", unbroken).code == 0
    kill_after(recipe, broken, "intermediate", 4)
    kill_after(recipe, broken, "intermediate", STEPS)
    kill_after(recipe, broken, ".", 4)
    process = start(recipe, broken)
    _, said = process.communicate()
    assert process.returncode == 0, said
    assert "Resuming from step" in said
    for name in ("", "intermediate"):
        assert losses(unbroken / name) == losses(broken / name)
    weights = [(folder / "model/model.safetensors").read_bytes() for folder in (unbroken, broken)]
    assert weights[0] == weights[1]


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    tuned = teacher_of(tmp_path / "teacher", "classify")
    recipe = write_distil(tmp_path, tuned, "classify", budget="100000 steps", checkpoint_every=100000)
    output = tmp_path / "run"
    process = start(recipe, output)
    log = output / "intermediate/metrics.jsonl"
    while process.poll() is None and not (log.is_file() and log.read_text()):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert "--resume" in said
    assert list((output / "intermediate/checkpoints").glob("step-*"))
