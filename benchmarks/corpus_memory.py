"""Memory of a corpus build for 200 MB and for 1 GB of text: it should stay flat.

    python benchmarks/corpus_memory.py [--data ../shared/data] [--megabytes 200 1000]

The text is that of `corpus_vs_datatrove.py`: real documents, repeated with some words changed.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from corpus_vs_datatrove import measured, write_documents


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--megabytes", type=int, nargs=2, default=[200, 1000])
    options = parser.parse_args()
    found = []
    for megabytes in options.megabytes:
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            sample = write_documents(options.data, place / "sample", 20_000) / 20_000
            count = round(megabytes * 1e6 / sample)
            size = write_documents(options.data, place / "documents", count)
            command = [sys.executable, str(Path(__file__).with_name("corpus_vs_datatrove.py")), "--turn", "weft"]
            seconds, most = measured([*command, str(place / "documents"), str(place)])
            found.append(most)
            line = {"megabytes": round(size / 1e6), "documents": count, "seconds": round(seconds)}
            print(json.dumps({**line, "megabytes of memory": round(most / 1e6)}), flush=True)
    print(json.dumps({"benchmark": "memory, large to small", "ratio": round(found[1] / found[0], 2), "at most": 1.3}))


if __name__ == "__main__":
    main()
