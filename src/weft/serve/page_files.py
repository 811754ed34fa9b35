"""The page: static files that ship with the package, read once, sent with a strict Content-Security-Policy.

Nothing in them comes from a model or a user, so they need no key. What the page shows it asks the routes for, as any
other client does.
"""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from weft.serve.errors import HTTPProblem
from weft.serve.openapi import RouteEntry
from weft.serve.security import PAGE_FILES, wants_page
from weft.serve.status import service_index
from weft.version import VERSION

_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# No inline script or style, nothing from another origin, no frame around it. Reports are shown in frames of its own.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS = {
    "content-security-policy": _POLICY,
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


@dataclass(frozen=True)
class PageFile:
    content: bytes
    media_type: str
    tag: str  # the ETag: a browser that has this one is told so

    def response(self, request: Request) -> Response:
        headers = {**_PAGE_HEADERS, "etag": self.tag}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.media_type, headers=headers)


@cache
def page_files() -> dict[str, PageFile]:
    """By name, such as try/room.js. A request can name nothing else."""
    return dict(_read(files("weft.serve").joinpath("page"), ""))


def _read(folder: Traversable, before: str) -> list[tuple[str, PageFile]]:
    found = []
    for item in folder.iterdir():
        kind = _TYPES.get("." + item.name.rpartition(".")[2])
        if item.is_dir():
            found += _read(item, f"{before}{item.name}/")
        elif kind is not None:
            content = item.read_bytes()
            found.append((before + item.name, PageFile(content, kind, f'"{hashlib.sha256(content).hexdigest()[:20]}"')))
    return found


async def show_file(request: Request) -> Response:
    found = page_files().get(request.path_params["file"])
    if found is None:
        raise HTTPProblem(404, "The page has no such file.")
    return found.response(request)


async def show_page(request: Request) -> Response:
    """The page for browsers, the list of routes for others."""
    if not wants_page(request.headers):
        return await service_index(request)
    return page_files()["index.html"].response(request)


async def page_facts(request: Request) -> Response:
    """What the page shows: which models can be tried, and whether there are runs to watch."""
    state = request.app.state
    return JSONResponse({"weft": VERSION, "models": list(state.service.models), "runs": state.runs is not None})


def page_routes() -> list[RouteEntry]:
    tag = "page"
    return [
        RouteEntry("/", "GET", show_page, "The page; models and routes as JSON for other clients", tag=tag),
        RouteEntry("/page.json", "GET", page_facts, "What the page has to show", tag=tag),
        RouteEntry(PAGE_FILES + "{file:path}", "GET", show_file, "A file of the page", tag=tag),
    ]
