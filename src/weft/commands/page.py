"""`weft page`: a page that watches runs, without any model."""

from collections.abc import Sequence
from pathlib import Path

from weft.commands.printing import as_json_line
from weft.commands.serve import watched_runs
from weft.errors import WeftError, needs
from weft.progress import say


def serve_page(
    folder: Path,
    *,
    host: str,
    port: int,
    key_file: Path | None,
    allowed_hosts: Sequence[str],
    allow_control: bool,
    as_json: bool,
) -> None:
    """Says where the page is, and answers until a signal comes."""
    for package in ("starlette", "uvicorn", "prometheus_client"):
        needs(package, "serve", "to watch runs")
    from weft.serve.app import create_app
    from weft.serve.arguments import address_of, open_listener
    from weft.serve.security import Security
    from weft.serve.served import Service
    from weft.serve.server import run_server

    security = Security.of(host, key_file, allowed_hosts)
    runs = watched_runs(folder, allow_control=allow_control)
    listener = open_listener(host, port)
    app = create_app(Service([]), security, runs=runs)
    address = address_of(listener)
    if as_json:
        print(as_json_line({"address": address, "runs": str(folder), "control": allow_control}), flush=True)
    else:
        can = "watch, stop and resume" if allow_control else "watch"
        say(f"Open {address} in a browser to {can} the runs in {folder} (Ctrl-C stops the page, not the runs).")
    if not run_server(app, listener):
        raise WeftError("Stopped before all requests were finished.")
