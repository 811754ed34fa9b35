"""The console script `weft`, and `python -m weft`."""

import os
import sys
from typing import Any

from weft.cli import main
from weft.corpus import engine


def start() -> None:
    engine.is_command = True
    if os.name == "nt":  # where pipes have a regional encoding that cannot hold most texts
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            use_utf8(stream)
    try:
        main()
    except SystemExit as end:
        engine.exit_process(end.code)


def use_utf8(stream: Any) -> None:
    if stream is not None:  # None in a program without a console
        stream.reconfigure(encoding="utf-8", errors=stream.errors)


if __name__ == "__main__":
    start()
