"""`weft page` on the command line: the command and its options."""

from pathlib import Path
from typing import Annotated

import typer

from weft.commands import options as opt
from weft.commands import serve_options as served

RunsFolder = Annotated[Path, typer.Argument(help="A folder with runs in it, or a run.", metavar="RUNS")]


def watch_page(
    runs: RunsFolder,
    host: served.Host = "127.0.0.1",
    port: served.Port = 8000,
    api_key_file: served.KeyFile = None,
    allowed_host: served.AllowedHost = None,
    allow_control: served.AllowControl = False,
    as_json: opt.AsJson = False,
) -> None:
    """Watch training runs in a browser: curves, samples, plans, logs, reports; several runs over each other."""
    from weft.commands.page import serve_page

    serve_page(
        runs,
        host=host,
        port=port,
        key_file=api_key_file,
        allowed_hosts=allowed_host or [],
        allow_control=allow_control,
        as_json=as_json,
    )
