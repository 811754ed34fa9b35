"""`weft serve`: models over HTTP."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.commands.printing import as_json_line
from weft.errors import WeftError, needs
from weft.progress import say

if TYPE_CHECKING:
    from weft.serve.run_service import RunService

_PURPOSE, _PACKAGES = "to serve models", ("starlette", "uvicorn", "prometheus_client")


def serve_folders(
    models: Sequence[str],
    *,
    host: str,
    port: int,
    key_file: Path | None,
    allowed_hosts: Sequence[str],
    origins: Sequence[str],
    memory: str,
    int8: bool,
    precision: str | None,
    draft: Path | None,
    runs: Path | None,
    allow_control: bool,
    logs: bool,
    as_json: bool,
    limits: dict[str, Any],
) -> None:
    """Loads the models, says where they are served, and answers until a signal comes. `runs`: a folder of runs to watch
    on the page. `limits`: of `ServiceLimits`, those that are not None.
    """
    for package in _PACKAGES:
        needs(package, "serve", _PURPOSE)
    from weft.serve.arguments import address_of, named_folders, open_listener, parse_bytes
    from weft.serve.limits import ServiceLimits
    from weft.serve.security import Security

    chosen = replace(ServiceLimits(), **{name: value for name, value in limits.items() if value is not None})
    security = Security.of(host, key_file, allowed_hosts, origins)
    folders, size = named_folders(models), parse_bytes(memory)
    watched = None if runs is None else watched_runs(runs, allow_control=allow_control)
    listener = open_listener(host, port)

    from weft.serve.app import create_app
    from weft.serve.loading import load_models
    from weft.serve.served import Service
    from weft.serve.server import run_server

    service = Service(
        load_models(folders, memory=size, int8=int8, precision=precision, draft=draft, limits=chosen), chosen
    )
    app = create_app(service, security, runs=watched, logs=logs)
    address = address_of(listener)
    if as_json:
        print(as_json_line({"address": address, "models": list(service.models)}), flush=True)
    else:
        say(_welcome(address, service, has_key=bool(security.key_hashes)))
    if not run_server(app, listener):
        raise WeftError("Stopped before all requests were finished.")


def watched_runs(folder: Path, *, allow_control: bool) -> "RunService":
    """Raises InputError if there is no such folder."""
    from weft.serve.run_service import RunService
    from weft.watch.watcher import RunWatcher

    return RunService(RunWatcher(folder), allow_control=allow_control)


def _welcome(address: str, service: Any, *, has_key: bool) -> str:
    writing = next((one.name for one in service.models.values() if one.writing is not None), None)
    name = writing or next(iter(service.models))
    if writing is not None:
        route, body = "/v1/completions", f'{{"model": "{name}", "prompt": "Once", "max_tokens": 32}}'
    else:
        route, body = "/v1/embeddings", f'{{"model": "{name}", "input": "Once upon a time"}}'
    key = ' -H "Authorization: Bearer $KEY"' if has_key else ""
    return (
        f"weft serves {', '.join(service.models)} at {address} (Ctrl-C stops). Open it in a browser. "
        f"Routes: {address}/openapi.json\n"
        f"Try: curl {address}{route}{key} -H 'Content-Type: application/json' -d '{body}'"
    )
