"""weft as a process of its own: the console script, and `python -m weft`."""

from weft.cli import main
from weft.corpus import engine


def start() -> None:
    engine.is_command = True
    try:
        main()
    except SystemExit as end:
        engine.leave(end.code)


if __name__ == "__main__":
    start()
