"""Does a corpus build keep its memory low with hostile files?

    python scripts/hostile_files.py [--small] [--only CASE]

For each case, builds a corpus from a hostile file and a good text. Compares the peak memory of all processes (psutil)
with that of a build from two good texts. Each build must succeed, report what it refused, keep the good text, and be
up to date when it is asked for again. Prints a table; exits with 1 if a case fails.
"""

import argparse
import gzip
import io
import json
import random
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

MOST_EXTRA_BYTES = 400e6  # above the build of two good texts
WORDS = "the of and to in that it was for on with as his he be by at which from had not are but have this".split()


def prose(seed: int, words: int) -> str:
    chance = random.Random(seed)
    known = WORDS + ["".join(chance.choices("abcdefghijklmnoprstuw", k=chance.randint(3, 9))) for _ in range(5000)]
    lines = [
        " ".join(chance.choices(WORDS, k=6) + chance.choices(known, k=8)) + "." for _ in range(max(1, words // 14))
    ]
    return "\n".join(lines) + "\n"


def bomb(file: Path, size: int) -> None:
    """A gzipped page inside a gzipped crawl."""
    headers = StatusAndHeaders(
        "200 OK", [("Content-Type", "text/html"), ("Content-Encoding", "gzip")], protocol="HTTP/1.1"
    )
    body = io.BytesIO(gzip.compress(b"<html><body><p>" + b"word " * (size // 5)))
    with file.open("wb") as out:
        writer = WARCWriter(out, gzip=True)
        address = "http://example.org"
        writer.write_record(writer.create_warc_record(address, "response", payload=body, http_headers=headers))


def nested(file: Path, size: int) -> None:
    file.write_bytes(b"<html><body>" + b"<div>some words in a nest of elements " * (size // 40))


def long_names(file: Path, size: int) -> None:
    with tarfile.open(file, "w:gz", format=tarfile.GNU_FORMAT) as archive:
        for number in range(10):
            entry = tarfile.TarInfo("x" * (size // 10) + f"{number}.txt")
            archive.addfile(entry, io.BytesIO(b""))


def one_line(file: Path, size: int) -> None:
    with file.open("wb") as out:
        for seed in range(max(1, size // 2_000_000)):
            out.write(prose(seed, 350_000).replace("\n", " ").encode()[:2_000_000])


def long_text(file: Path, size: int) -> None:
    paragraph = prose(1, 300_000).encode()
    with file.open("wb") as out:
        for number in range(size // len(paragraph) + 1):
            out.write(b"%d " % number + paragraph + b"\n")


CASES: dict[str, tuple[str, Callable[[Path, int], None], int, int]] = {  # file name, maker, size, small size
    "gzip in gzip, 32 MB page": ("bomb.warc.gz", bomb, 32_000_000, 32_000_000),
    "gzip in gzip, 1 GB page": ("bomb.warc.gz", bomb, 1_000_000_000, 100_000_000),
    "nested elements": ("nested.html", nested, 4_000_000, 1_000_000),
    "long names in a tar": ("names.tar.gz", long_names, 2_000_000_000, 100_000_000),
    "one long line": ("line.txt", one_line, 200_000_000, 10_000_000),
    "one long text": ("long.txt", long_text, 1_000_000_000, 20_000_000),
}


def peak_of(command: list[str], place: Path) -> tuple[int, float, str, str, int]:
    """Returns exit code, seconds, standard output, standard error and peak memory in bytes, children included."""
    began, peak = time.monotonic(), 0
    with (place / "out.txt").open("w+") as out, (place / "said.txt").open("w+") as said:
        process = subprocess.Popen(command, cwd=place, stdout=out, stderr=said)
        tree = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                taken = sum(one.memory_info().rss for one in (tree, *tree.children(recursive=True)))
            except psutil.Error:  # one has just ended
                taken = 0
            peak = max(peak, taken)
            time.sleep(0.05)
    texts = [(place / name).read_text() for name in ("out.txt", "said.txt")]
    return process.returncode, time.monotonic() - began, texts[0], texts[1], peak


def build(place: Path, *sources: str) -> tuple[int, float, str, str, int]:
    command = [sys.executable, "-m", "weft", "corpus", *sources, "-o", "corpus", "--validation", "0", "--json"]
    return peak_of([*command, "--no-filter", "--workers", "2"], place)


def verdict(place: Path, file: str, idle: int) -> list[str]:
    code, seconds, out, said, peak = build(place, "good.txt", file)
    row = [f"{(peak - idle) / 1e6:,.0f} MB", f"{seconds:,.0f} s"]
    if code != 0:
        return [*row, f"FAILED: exit code {code}: {said.strip().splitlines()[-1]}"]
    facts = json.loads(out)
    told = ", ".join(f"{count} {reason}" for reason, count in facts["dropped"].items()) or "nothing dropped"
    _, _, _, again, _ = build(place, "good.txt", file)
    if "up to date" not in again:
        return [*row, "FAILED: it was built a second time"]
    if facts["documents"] < 1 or (facts["documents"] == 1 and not facts["dropped"]):
        return [*row, f"FAILED: {facts['documents']} documents, {told}"]
    too_much = "" if peak - idle < MOST_EXTRA_BYTES else f"FAILED: more than {MOST_EXTRA_BYTES / 1e6:,.0f} MB. "
    return [*row, f"{too_much or 'ok: '}{facts['documents']} documents, {told}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="files of some megabytes")
    parser.add_argument("--only", help="only cases whose name contains this")
    asked = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "good.txt").write_text(prose(1, 500))
        (place / "second.txt").write_text(prose(2, 500))
        code, seconds, _, said, idle = build(place, "good.txt", "second.txt")
        if code:
            print(said, file=sys.stderr)
            return 1
        print(f"{'case':28} {'file':>10} {'above idle':>11} {'time':>7}  verdict")
        print(f"{'(idle build)':28} {'':>10} {idle / 1e6:>8,.0f} MB {seconds:>5,.0f} s")
        for name, (file, make, size, small) in CASES.items():
            if asked.only and asked.only not in name:
                continue
            make(place / file, small if asked.small else size)
            bytes_ = (place / file).stat().st_size
            above, took, said = verdict(place, file, idle)
            print(f"{name:28} {bytes_ / 1e6:>7,.1f} MB {above:>11} {took:>7}  {said}", flush=True)
            failed |= "FAILED" in said
            (place / file).unlink()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
