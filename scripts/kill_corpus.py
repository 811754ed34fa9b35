"""Kill a corpus build many times at random moments, and resume it each time.

    python scripts/kill_corpus.py --kills 20

At the end every file must have the same bytes as after an uninterrupted build. Half of the kills hit only the main
process and leave its workers behind, as when memory runs out; the others hit all processes.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

# Small pieces, so that little text makes many of them.
SMALL_PIECES = "from weft.corpus import plan; plan.PIECE_BYTES = 2**20; from weft.__main__ import start; start()"
BOOKS = [Path(__file__).parent.parent / "examples" / name for name in ("alice.txt", "austen.txt", "tang.txt")]


def write_sources(place: Path, copies: int) -> list[str]:
    """Passages of books, repeated with some words replaced, in several files."""
    chance = random.Random(1)
    for book in BOOKS:
        words = book.read_text("utf-8").split()
        with (place / f"{book.stem}.jsonl").open("w", encoding="utf-8") as file:
            for _ in range(copies):
                for start in range(0, len(words) - 120, 120):
                    chosen = [w if chance.random() > 0.05 else chance.choice(words) for w in words[start : start + 120]]
                    file.write(json.dumps({"text": " ".join(chosen)}, ensure_ascii=False) + "\n")
    return [f"{book.stem}.jsonl" for book in BOOKS]


def start(place: Path, sources: list[str], output: str) -> subprocess.Popen:
    command = [sys.executable, "-c", SMALL_PIECES, "corpus", *sources, "-o", output, "--workers", "2"]
    return subprocess.Popen(
        command, cwd=place, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    )


def finish(place: Path, sources: list[str], output: str) -> float:
    began = time.monotonic()
    process = start(place, sources, output)
    _, said = process.communicate()
    assert process.returncode == 0, said
    return time.monotonic() - began


def kill_once(place: Path, sources: list[str], output: str, seconds: float, chance: random.Random) -> bool:
    """Returns False if the build ended first."""
    process = start(place, sources, output)
    end = time.monotonic() + chance.uniform(0.0, seconds)
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    ended = process.poll() is not None
    if chance.random() < 0.5:
        process.kill()  # its workers are left behind
    else:
        end_all(process.pid)
    process.wait()
    return not ended


def end_all(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def tree_of(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def test(kills: int, copies: int, seed: int) -> dict[str, int]:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        sources = write_sources(place, copies)
        seconds = finish(place, sources, "unbroken/corpus")
        done = finished = 0
        while done < kills:
            if kill_once(place, sources, "killed/corpus", seconds, chance):
                done += 1
            else:  # it finished before the kill: start a new one
                finished += 1
                (place / "killed").rename(place / f"whole-{finished}")
        finish(place, sources, "killed/corpus")
        whole = tree_of(place / "unbroken/corpus")
        assert whole
        for folder in ("killed", *(f"whole-{number + 1}" for number in range(finished))):
            assert tree_of(place / folder / "corpus") == whole, folder
        return {"kills": done, "finished": finished + 1, "files": len(whole)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--copies", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(json.dumps({"same bytes": True, **test(options.kills, options.copies, options.seed)}))
