"""Run the benchmarks and write their results to results.jsonl, RESULTS.md and the tables of both READMEs.

    python benchmarks/run_all.py [--only pretrain_vs_trainer …] [--quick] [--rounds 7] [--data ../shared/data]

`--only` measures the named ones and keeps the results of the others. Without a name after it, nothing is measured and
the pages are written again. text8.py takes most of an hour and is not included.
"""

import argparse
import json
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path

import torch

HERE = Path(__file__).parent
OTHERS = ["generate", "serve", "staggered", "time_to_quality"]
SCRIPTS = [*sorted(script.stem for script in HERE.glob("*_vs_*.py")), *OTHERS]
READMES = [HERE.parent / name for name in ("README.md", "README.zh-CN.md")]
IN_README = (
    *("forward_vs_transformers", "infer_vs_engines", "pretrain_vs_trainer", "finetune_vs_trainer"),
    *("predict_vs_pipeline", "generate", "decode_vs_llama"),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=SCRIPTS, nargs="*")
    parser.add_argument("--quick", action="store_true", help="check that all run; nothing is written")
    options, rest = parser.parse_known_args()
    known = [json.loads(line) for line in (HERE / "results.jsonl").read_text().splitlines()]
    for script in SCRIPTS if options.only is None else options.only:
        print(f"== {script}", file=sys.stderr, flush=True)
        command = [sys.executable, HERE / f"{script}.py", *rest, *(["--quick"] if options.quick else [])]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        known = [line for line in known if line["script"] != script]
        known += [{"script": script, "date": str(date.today()), **line} for line in found]
    if not options.quick:
        known.sort(key=lambda line: SCRIPTS.index(line["script"]))
        (HERE / "results.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in known))
        (HERE / "RESULTS.md").write_text(as_markdown(known))
        for readme in READMES:
            before, begin, rest = readme.read_text("utf-8").partition("<!-- speed -->\n")
            _, end, after = rest.partition("<!-- end of speed -->")
            readme.write_text(before + begin + as_table(known) + end + after, "utf-8")
    print(as_markdown(known))


def as_markdown(lines: list[dict]) -> str:
    threads, chip = torch.get_num_threads(), platform.machine()
    rows = [
        "# Benchmarks",
        "",
        f"torch {torch.__version__} on {threads} cores ({chip}), measured by `make bench`.",
        "Contestants take turns. Ratio: of their medians. Spread: the least and greatest ratio of one round.",
        "",
        "| what | weft | peer | ratio | spread | goal | share of the matmul peak | date |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        low, high = line["spread"]
        rows.append(
            f"{compared(line)} "
            f"| {low}–{high} | {line['at_least']}× | {line.get('share_of_matmul_peak', '')} | {line['date']} |"
        )
    return "\n".join(rows) + "\n"


def as_table(lines: list[dict]) -> str:
    """The README's table: only the speeds."""
    rows = [f"{compared(line)} |" for script in IN_README for line in lines if line["script"] == script]
    return "\n".join(["| what | weft | peer | |", "|---|---|---|---|", *rows, ""])


def compared(line: dict) -> str:
    keys = list(line)
    peer = keys[keys.index("weft") + 1]
    ours = f"{line['weft']:,} {line['unit']}"
    return f"| {line['benchmark']} | {ours} | {peer} {line[peer]:,} | **{line['ratio']}×**"


if __name__ == "__main__":
    main()
