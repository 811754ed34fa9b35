"""Extract articles from 330 real pages: the share of wanted text kept, of unwanted text dropped, and the speed.

    python benchmarks/extract_vs_trafilatura.py [--data ../shared/data] [--rounds 5] [--quick] [--write]

Each page comes with strings that a good extraction contains and strings that it does not. A plain loop over
`trafilatura.extract` is the baseline for speed; weft uses a process per core. `--write` writes the table to
docs/pages.md.
"""

import argparse
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import trafilatura
from bs4 import BeautifulSoup

from contest import race, report
from weft.sources.pages.article import extract

ROOT = Path(__file__).parent.parent
Extractor = Callable[[bytes], str | None]


def weft_text(page: bytes) -> str:
    return extract(page).text


CONTESTANTS: dict[str, Extractor] = {
    "weft": weft_text,
    "trafilatura": trafilatura.extract,
    "trafilatura, fast": lambda page: trafilatura.extract(page, fast=True),
    "trafilatura, precision": lambda page: trafilatura.extract(page, favor_precision=True),
    "trafilatura, recall": lambda page: trafilatura.extract(page, favor_recall=True),
    "BeautifulSoup, all text": lambda page: BeautifulSoup(page, "lxml").get_text(" "),
}


def read_pages(data: Path) -> Iterator[tuple[bytes, list[str], list[str]]]:
    expected = json.loads((data / "html/expected.json").read_text())
    with zipfile.ZipFile(data / "html/pages.zip") as archive:
        names = {Path(name).name: name for name in archive.namelist()}
        for entry in expected.values():
            yield archive.read(names[entry["file"]]), entry["must_contain"], entry["must_not_contain"]


def quality(extractor: Extractor, pages: list[tuple[bytes, list[str], list[str]]]) -> dict[str, float]:
    kept = dropped = wanted = unwanted = 0
    for page, must, must_not in pages:
        text = extractor(page) or ""
        kept += sum(string in text for string in must)
        dropped += sum(string not in text for string in must_not)
        wanted, unwanted = wanted + len(must), unwanted + len(must_not)
    kept, dropped = kept / wanted, dropped / unwanted
    return {"kept": kept, "dropped": dropped, "mean": 2 * kept * dropped / (kept + dropped)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    pages = list(read_pages(options.data))[: 10 if options.quick else None]
    found = {name: quality(extractor, pages) for name, extractor in CONTESTANTS.items()}
    if options.write and not options.quick:
        (ROOT / "docs/pages.md").write_text(as_markdown(found, pages))
    data = [page for page, _, _ in pages]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        contestants = {
            "weft": lambda: list(pool.map(weft_text, data, chunksize=8)),
            "trafilatura": lambda: [trafilatura.extract(page) for page in data],
        }
        rates = race(contestants, rounds=1 if options.quick else options.rounds, work=len(data))
    quality_of = {name: round(figures["mean"], 4) for name, figures in found.items()}
    report("articles out of pages", rates, "trafilatura", 1.5, unit="pages/s", quality=quality_of)


def as_markdown(found: dict[str, dict[str, float]], pages: list[tuple[bytes, list[str], list[str]]]) -> str:
    wanted, unwanted = (sum(len(page[part]) for page in pages) for part in (1, 2))
    rows = [
        "# Extracting articles from web pages",
        "",
        f"{len(pages)} real pages. {wanted:,} strings must be in the extracted text, {unwanted:,} must not. Written by",
        "`python benchmarks/extract_vs_trafilatura.py --write`.",
        "",
        "| | wanted strings kept | unwanted strings dropped | harmonic mean |",
        "|---|---|---|---|",
    ]
    for name, figures in found.items():
        rows.append(f"| {name} | {figures['kept']:.3f} | {figures['dropped']:.3f} | **{figures['mean']:.3f}** |")
    rows += [
        "",
        "weft's lists of names and phrases (`src/weft/sources/pages/boilerplate.py`) were written with these pages in",
        "view. Expect slightly worse figures on other pages.",
        "",
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    main()
