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
    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    engine.exit_process(code, at_once="weft.train.process_group" in sys.modules and is_one_of_several())


def is_one_of_several() -> bool:
    """Whether gloo's threads may still run. They can abort the interpreter during shutdown on a busy machine, and
    torchrun would then take a finished run for a failed one.
    """
    from weft.train.process_group import is_launched

    return is_launched()


def use_utf8(stream: Any) -> None:
    if stream is not None:  # None in a program without a console
        stream.reconfigure(encoding="utf-8", errors=stream.errors)


if __name__ == "__main__":
    start()
