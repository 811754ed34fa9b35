"""Run every benchmark and write what they print into RESULTS.md. Arguments go to the benchmarks (`--quick`)."""

import json
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path

import torch

HERE = Path(__file__).parent


def main() -> None:
    lines = []
    for script in [*sorted(HERE.glob("*_vs_*.py")), HERE / "time_to_quality.py"]:  # text8.py takes most of an hour
        print(f"== {script.name}", file=sys.stderr, flush=True)
        done = subprocess.run([sys.executable, script, *sys.argv[1:]], stdout=subprocess.PIPE, text=True, check=True)
        lines += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if "--quick" not in sys.argv:
        (HERE / "RESULTS.md").write_text(as_markdown(lines))
    print(as_markdown(lines))


def as_markdown(lines: list[dict]) -> str:
    threads, chip = torch.get_num_threads(), platform.machine()
    rows = [
        "# Benchmarks",
        "",
        f"Measured {date.today()} with torch {torch.__version__} on {threads} cores ({chip}), by `make bench`.",
        "Contestants take turns in one run; the ratio is that of the medians, the spread that of single rounds.",
        "",
        "| what | weft | peer | ratio | spread | wanted | share of the matmul peak |",
        "|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        peer = next(key for key in list(line)[3:] if key not in ("ratio", "spread"))
        low, high = line["spread"]
        rows.append(
            f"| {line['benchmark']} | {line['weft']:,} {line['unit']} | {peer} {line[peer]:,} | **{line['ratio']}×** "
            f"| {low}–{high} | {line['at_least']}× | {line.get('share_of_matmul_peak', '')} |"
        )
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
