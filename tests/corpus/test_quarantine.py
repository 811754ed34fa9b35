"""What kills the process that reads it is put aside after two deaths, and all else is as if it had not been there."""

import json
import os
import signal
from pathlib import Path

import pytest

from test_corpus import paragraph, section
from weft.corpus import first_pass, passes, quarantine
from weft.corpus.build import build_corpus
from weft.corpus.quarantine import Mark, work_safely_on
from weft.errors import InputError

DEATHS_FILE = "WEFT_TEST_DEATHS"


@pytest.fixture(autouse=True)
def _found_by_workers(monkeypatch, tmp_path):
    places = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))
    monkeypatch.setenv(DEATHS_FILE, str(tmp_path / "deaths"))


def deaths(tmp_path):
    return len((tmp_path / "deaths").read_text()) if (tmp_path / "deaths").exists() else 0


def deadly_filter(piece):
    """Reading "deadly" kills the process; so does memory that runs out, in a kinder way."""
    real = first_pass.clean

    def clean(text, cleaning):
        if "deadly" in text or "greedy" in text:
            with Path(os.environ[DEATHS_FILE]).open("a") as file:
                file.write("x")
            if "greedy" in text:
                raise MemoryError
            os.kill(os.getpid(), signal.SIGKILL)
        return real(text, cleaning)

    first_pass.clean = clean
    try:
        return first_pass.filter_piece(piece)
    finally:
        first_pass.clean = real


@pytest.mark.parametrize(("word", "workers"), [("deadly", 2), ("greedy", 1)])
def test_the_file_that_kills_is_put_aside_and_the_rest_is_as_without_it(word, workers, tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "filter_piece", deadly_filter)
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        for number in range(3):
            (tmp_path / folder / f"{number}.txt").write_text(paragraph(number + 10 * len(folder)))
    settings = section("first", "second", documents="file", splits={"validation": 0.0})
    build_corpus(settings, tmp_path, tmp_path / "without", workers=1)
    (tmp_path / "second/1b.txt").write_text(f"{word} {paragraph(77)}")
    facts = build_corpus(settings, tmp_path, tmp_path / "with", workers=workers)
    assert facts["dropped"] == {"put aside": 1}
    assert deaths(tmp_path) == 2
    report = json.loads((tmp_path / "with/report.json").read_text())
    assert "second/1b.txt" in report["examples"]["put aside"][0]
    for file in (tmp_path / "without/train").rglob("*.parquet"):
        assert file.read_bytes() == (tmp_path / "with" / file.relative_to(tmp_path / "without")).read_bytes()


def fragile(piece):
    with Mark(piece) as mark:
        for number in range(len(piece["parts"])):
            mark.at(number)
            if str(number) not in piece.get("aside", {}) and piece["parts"][number]["shown"] == "deadly":
                os.kill(os.getpid(), signal.SIGKILL)
    Path(piece["folder"]).mkdir(exist_ok=True)
    return {"aside": sorted(piece.get("aside", {}))}


def test_a_resumed_build_does_the_piece_that_may_have_killed_it_alone(tmp_path):
    """Alone means: not in this process, which would die."""
    piece = {"folder": str(tmp_path / "00000"), "parts": [{"shown": "good"}, {"shown": "deadly"}]}
    quarantine.mark_of(piece).write_text(json.dumps([1, 1]))
    stable = {**piece, "parts": [{"shown": "good"}]}
    list(work_safely_on([stable], fragile))
    assert not quarantine.mark_of(piece).exists()
    quarantine._work_alone_on(piece, fragile, deaths=0)
    assert Path(piece["folder"]).is_dir()


@pytest.mark.parametrize("deaths", [0, 1])
def test_an_old_mark_is_no_sign_that_its_next_process_is_stalled(deaths, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(quarantine, "STALLED_SECONDS", 60.0)
    piece = {"folder": str(tmp_path / "00000"), "parts": [{"shown": "good"}]}
    quarantine.mark_of(piece).write_text(json.dumps([1, 0]))
    os.utime(quarantine.mark_of(piece), (0, 0))
    runs = []
    real = quarantine._run_alone
    monkeypatch.setattr(quarantine, "_run_alone", lambda *arguments: runs.append(real(*arguments)) or runs[-1])
    quarantine._work_alone_on(piece, fragile, deaths=deaths)
    assert runs == [None]
    assert capsys.readouterr().err == ""


def stuck(piece):
    with Mark(piece) as mark:
        mark.at(0)
        if "0" not in piece.get("aside", {}):
            signal.pause()
    return {}


def test_a_process_without_a_sign_of_life_is_ended(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(quarantine, "STALLED_SECONDS", 0.5)
    piece = {"folder": str(tmp_path / "00000"), "parts": [{"shown": "stuck.html"}]}
    quarantine._work_alone_on(piece, stuck, deaths=1)
    assert "stuck.html blocked a process" in capsys.readouterr().err


def mistaken(piece):
    with Mark(piece):
        raise InputError("not this one")


def test_what_a_user_can_put_right_is_raised_from_there_too(tmp_path):
    piece = {"folder": str(tmp_path / "00000"), "parts": [{"shown": "a"}]}
    with pytest.raises(InputError, match="not this one"):
        quarantine._work_alone_on(piece, mistaken, deaths=0)
    assert not quarantine.mark_of(piece).exists()
