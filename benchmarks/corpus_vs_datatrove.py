"""Build a corpus of 100,000 documents (read, filter, deduplicate, write) with weft and with datatrove.

    python benchmarks/corpus_vs_datatrove.py [--data ../shared/data] [--rounds 3] [--documents 100000] [--quick]

The documents are the messages of 20 Newsgroups, paragraphs of Gutenberg's books and of Chinese text, repeated with
some words changed until there are enough, in four .jsonl files. Both apply MassiveText's rules of quality and
repetition, deduplicate by MinHash (datatrove 14 bands of 8, its default; weft 20 of 6) and write Parquet, with one
process per core. weft also detects languages, repairs text and writes a report. Every turn runs in its own process.
Memory is the peak of the proportional set size (PSS), summed over all processes.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from contest import report

FILES, WORKERS = 4, os.cpu_count() or 1


def real_documents(data: Path) -> Iterator[str]:
    with tarfile.open(data / "classify/20news-bydate.tar.gz") as archive:
        for member in archive:
            if member.isfile():
                yield archive.extractfile(member).read().decode("latin-1")
    for book in sorted((data / "lm/gutenberg").glob("*.txt")):
        paragraphs = re.split(r"\n\s*\n", book.read_text("utf-8", "replace"))
        yield from ("\n\n".join(paragraphs[at : at + 3]) for at in range(0, len(paragraphs), 3))
    yield from re.split(r"\n\s*\n", (data / "lm/zh-cluecorpussmall-sample.txt").read_text("utf-8"))


def write_documents(data: Path, place: Path, count: int) -> int:
    """Returns the bytes of text."""
    chance = random.Random(1)
    real = [text for text in real_documents(data) if text.strip()]
    chance.shuffle(real)
    place.mkdir()
    size = 0
    files = [(place / f"{number}.jsonl").open("w", encoding="utf-8") for number in range(FILES)]
    for number in range(count):
        text = real[number % len(real)]
        if number >= len(real):  # repeated documents get some other words
            share = chance.choice([0.0, 0.02, 0.1, 0.5])
            text = " ".join(word if chance.random() >= share else word[::-1] for word in text.split(" "))
        size += len(text.encode())
        files[number % FILES].write(json.dumps({"text": text, "id": str(number)}, ensure_ascii=False) + "\n")
    for file in files:
        file.close()
    return size


def run_weft(documents: Path, place: Path) -> None:
    from weft.corpus.build import build_corpus
    from weft.recipe.corpus import CorpusSection

    section = CorpusSection.model_validate({"sources": [{"path": str(documents)}], "build": {}})
    build_corpus(section, Path(), place / "corpus", workers=WORKERS)


def run_datatrove(documents: Path, place: Path) -> None:
    from datatrove.executor.local import LocalPipelineExecutor
    from datatrove.pipeline.dedup import MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import (
        MinhashConfig,
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
    )
    from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter
    from datatrove.pipeline.readers import JsonlReader, ParquetReader
    from datatrove.pipeline.writers import ParquetWriter

    config = MinhashConfig()
    good, work = str(place / "good"), {name: str(place / name) for name in ("signatures", "buckets", "remove")}
    stages = [
        ([JsonlReader(str(documents)), GopherRepetitionFilter(), GopherQualityFilter(), ParquetWriter(good)], FILES),
        ([ParquetReader(good), MinhashDedupSignature(work["signatures"], config=config)], FILES),
        ([MinhashDedupBuckets(work["signatures"], work["buckets"], config=config)], config.num_buckets),
        ([MinhashDedupCluster(work["buckets"], work["remove"], config=config)], 1),
        ([ParquetReader(good), MinhashDedupFilter(work["remove"]), ParquetWriter(str(place / "corpus"))], FILES),
    ]
    for number, (pipeline, tasks) in enumerate(stages):
        LocalPipelineExecutor(
            pipeline, tasks=tasks, workers=WORKERS, logging_dir=str(place / f"logs-{number}"), start_method="spawn"
        ).run()


RUNS = {"weft": run_weft, "datatrove": run_datatrove}


def memory_of(process: int) -> int:
    """Memory of a process and its children, in bytes."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
            except OSError:
                continue
    total, waiting = 0, [process]
    while waiting:
        one = waiting.pop()
        waiting += parents.get(one, [])
        try:
            found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{one}/smaps_rollup").read_text(), re.MULTILINE)
        except OSError:
            continue
        total += 1024 * int(found[1]) if found else 0
    return total


def measured(command: list[str]) -> tuple[float, int]:
    """Returns seconds and peak memory."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    most, said = 0, []
    listener = threading.Thread(target=lambda: said.append(process.stderr.read()))
    listener.start()
    while process.poll() is None:
        most = max(most, memory_of(process.pid))
        time.sleep(0.5)
    seconds = time.perf_counter() - began
    listener.join()
    assert process.returncode == 0, said[0][-3000:]
    return seconds, most


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--turn", nargs=3, metavar=("WHO", "DOCUMENTS", "PLACE"))
    options = parser.parse_args()
    if options.turn:
        who, documents, place = options.turn
        RUNS[who](Path(documents), Path(place))
        return
    count, rounds = (2000, 1) if options.quick else (options.documents, options.rounds)
    rates: dict[str, list[float]] = {who: [] for who in RUNS}
    memory: dict[str, int] = dict.fromkeys(RUNS, 0)
    kept = {}
    with tempfile.TemporaryDirectory() as name:
        size = write_documents(options.data, Path(name) / "documents", count)
        for turn in range(rounds):
            for who in list(RUNS) if turn % 2 else list(reversed(RUNS)):
                place = Path(name) / who
                place.mkdir()
                command = [sys.executable, __file__, "--turn", who, f"{name}/documents", str(place)]
                seconds, most = measured(command)
                rates[who].append(count / seconds)
                memory[who] = max(memory[who], most)
                kept[who] = rows_in(place / "corpus")
                shutil.rmtree(place)
    facts = {f"megabytes of memory, {who}": round(most / 1e6) for who, most in memory.items()}
    report(
        f"a corpus of {count:,} documents ({size / 1e6:.0f} MB)",
        rates,
        "datatrove",
        2.0,
        unit="documents/s",
        **facts,
        **{f"kept, {who}": found for who, found in kept.items()},
    )


def rows_in(folder: Path) -> int:
    import pyarrow.parquet as parquet

    files = [file for file in folder.rglob("*.parquet") if "dropped" not in file.parts]
    return sum(parquet.ParquetFile(file).metadata.num_rows for file in files)


if __name__ == "__main__":
    main()
