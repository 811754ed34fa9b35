"""`weft serve` on the command line: the command and its options, each with its help text."""

from pathlib import Path
from typing import Annotated, Any

import typer

from weft.commands import options as opt
from weft.errors import InputError


def _limit(help: str, minimum: float) -> Any:
    return typer.Option(help=help, min=minimum, rich_help_panel="Limits", show_default=False)


Models = Annotated[
    list[str],
    typer.Argument(
        help="Model folders; NAME=FOLDER gives a name of its own.", metavar="[NAME=]MODEL...", show_default=False
    ),
]
Host = Annotated[str, typer.Option(help="Address to listen at. Others than loopback need --api-key-file.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0: any that is free.")]
KeyFile = Annotated[
    Path | None, typer.Option("--api-key-file", help="A file with a key per line; every request needs one.")
]
AllowedHost = Annotated[
    list[str] | None, typer.Option("--allowed-host", help="A name that requests may use for this service. Repeatable.")
]
Cors = Annotated[
    list[str] | None, typer.Option(help="Origin of pages that may use it, such as https://example.org. Repeatable.")
]
Memory = Annotated[str, typer.Option(help="Memory for keys and values, for all models that write: 2GB, 512MB …")]
RunsToWatch = Annotated[Path | None, typer.Option("--runs", help="A folder of runs to watch on the page.")]
AllowControl = Annotated[
    bool, typer.Option("--allow-control", help="Let the page stop and resume runs; otherwise it only watches.")
]
LogRequests = Annotated[bool, typer.Option("--log-requests", help="Print a line per request; never texts.")]

Queue = Annotated[int | None, _limit("Requests that wait for each model; more are answered with 429. Default: 64.", 1)]
Timeout = Annotated[float | None, _limit("Seconds for an answer. Default: 600.", 0.1)]
ServedDraft = Annotated[
    Path | None,
    typer.Option(help="A smaller model with the same tokenizer that guesses, for requests with speculate."),
]
ShutdownTimeout = Annotated[float | None, _limit("Seconds to finish requests when stopping. Default: 60.", 0)]
MaxBody = Annotated[int | None, _limit("Bytes of a request's body. Default: 2097152.", 1)]
MaxAnswers = Annotated[int | None, _limit("Prompts × n of a request. Default: 512.", 1)]
MaxTokens = Annotated[int | None, _limit("Tokens of a request: prompts and new ones. Default: 1048576.", 1)]
MaxRequests = Annotated[int | None, _limit("Requests answered at a time. Default: 1200.", 1)]
MaxConnections = Annotated[int | None, _limit("Open connections. Default: 2000.", 1)]


def serve(
    models: Models,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    api_key_file: KeyFile = None,
    allowed_host: AllowedHost = None,
    cors: Cors = None,
    memory: Memory = "2GB",
    int8: opt.Int8 = False,
    precision: opt.PrecisionName = None,
    device: opt.DeviceName = None,
    draft: ServedDraft = None,
    runs: RunsToWatch = None,
    allow_control: AllowControl = False,
    log_requests: LogRequests = False,
    queue: Queue = None,
    timeout: Timeout = None,
    shutdown_timeout: ShutdownTimeout = None,
    max_body: MaxBody = None,
    max_answers: MaxAnswers = None,
    max_tokens: MaxTokens = None,
    max_requests: MaxRequests = None,
    max_connections: MaxConnections = None,
    as_json: opt.AsJson = False,
) -> None:
    """Serve models over HTTP: OpenAI's routes, embeddings, every task; many requests at once."""
    from weft.commands.serve import serve_folders

    if allow_control and runs is None:
        raise InputError("--allow-control goes with --runs: it is about the runs that are watched.")
    limits = {"queue": queue, "seconds": timeout, "shutdown_seconds": shutdown_timeout, "body_bytes": max_body}
    limits |= {"answers": max_answers, "tokens": max_tokens, "requests": max_requests, "connections": max_connections}
    access: dict[str, Any] = {"key_file": api_key_file, "allowed_hosts": allowed_host or [], "origins": cors or []}
    options: dict[str, Any] = {"memory": memory, "int8": int8, "draft": draft, "logs": log_requests, "as_json": as_json}
    options |= {"runs": runs, "allow_control": allow_control, "precision": precision}
    serve_folders(models, host=host, port=port, **access, **options, limits=limits)
