"""Routes that watch runs: the list, one run, its curves and its report; and, if allowed, stop and resume."""

import math
import re

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from weft.serve.body import RequestBody, read_body
from weft.serve.errors import HTTPProblem
from weft.serve.openapi import RouteEntry
from weft.serve.run_service import RunService
from weft.serve.security import REPORT_FRAMES
from weft.watch.curves import X_AXES
from weft.watch.details import PARTS
from weft.watch.watcher import CurveQuery

_KEY = re.compile(r"[\w+./ -]{1,80}")
_MOST_KEYS = 20
_FEWEST_POINTS, _MOST_POINTS = 10, 4_000
_NO_STORE = {"cache-control": "no-store"}


class ControlRequest(RequestBody):
    """Nothing is needed: an empty object."""


async def list_runs(request: Request) -> Response:
    runs = _runs(request)
    since = request.query_params.get("since")
    if since is not None and not re.fullmatch(r"\d{1,15}", since):
        raise HTTPProblem(400, "since is the version of an earlier answer, a number.", param="since")
    known = None if since is None else int(since)
    return _json(await runs.ask_json(lambda: {**runs.watcher.listing(known), "control": runs.allow_control}))


async def show_run(request: Request) -> Response:
    runs, id = _runs(request), request.path_params["id"]
    only = request.query_params.get("only")
    parts = PARTS if only is None else [part for part in dict.fromkeys(only.split(",")) if part]
    if wrong := [part for part in parts if part not in PARTS]:
        raise HTTPProblem(400, f"There is no part {wrong[0][:40]!r}. Parts: {', '.join(PARTS)}.", param="only")

    def find() -> dict[str, object]:
        found = runs.watcher.details(id, parts)
        return {**found, "report": runs.report_path(id) if found["has_report"] else None}

    return _json(await runs.ask_json(find))


async def run_curves(request: Request) -> Response:
    runs, query = _runs(request), _query(request)
    return _json(await runs.ask_json(runs.watcher.curves, request.path_params["id"], query))


def _query(request: Request) -> CurveQuery:
    given = request.query_params
    keys = [key for key in given.get("keys", "loss").split(",") if key]
    if len(keys) > _MOST_KEYS or not all(_KEY.fullmatch(key) for key in keys):
        raise HTTPProblem(400, f"keys are at most {_MOST_KEYS} names, such as loss,lr.", param="keys")
    x = given.get("x", "step")
    if x not in X_AXES:
        raise HTTPProblem(400, f"x is one of {', '.join(X_AXES)}.", param="x")
    points = _number(request, "points", _FEWEST_POINTS, _MOST_POINTS)
    width = _number(request, "width", 1e-6, 1e15)
    begin, end = _number(request, "from", 0.0, 1e15), _number(request, "to", 0.0, 1e15)
    since = given.get("since")
    return CurveQuery(keys, x, int(points or CurveQuery.points), width, begin or 0.0, end, since and since[:200])


def _number(request: Request, name: str, least: float, most: float) -> float | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not least <= found <= most:
        raise HTTPProblem(400, f"{name} is a number from {least:g} to {most:g}.", param=name)
    return found


async def run_report(request: Request) -> Response:
    return await _report(_runs(request), request.path_params["id"])


async def report_in_frame(request: Request) -> Response:
    runs = _runs(request)
    id, _, ticket = request.path_params["ticket"].partition("-")
    if not ticket.isascii() or not runs.knows_ticket(id, ticket):
        raise HTTPProblem(404, "This view of a report has ended. Open it again on the page.")
    return await _report(runs, id)


async def report_link(request: Request) -> Response:
    """Where a browser can show the report of a folder that is no run."""
    runs, id = _runs(request), request.path_params["id"]
    await runs.ask(runs.watcher.report, id)
    return JSONResponse({"report": runs.report_path(id)}, headers=_NO_STORE)


async def _report(runs: RunService, id: str) -> Response:
    found = await runs.ask(runs.watcher.report, id)
    headers = {"content-security-policy": found.policy, "referrer-policy": "no-referrer", **_NO_STORE}
    return Response(found.content, media_type="text/html", headers=headers)


async def stop_run(request: Request) -> Response:
    runs = _runs(request)
    await read_body(request, ControlRequest)
    runs.check_control()
    return JSONResponse(await runs.stop(request.path_params["id"]), 202)


async def resume_run(request: Request) -> Response:
    runs = _runs(request)
    await read_body(request, ControlRequest)
    runs.check_control()
    told, has_begun = await runs.resume(request.path_params["id"])
    return JSONResponse(told, 200 if has_begun else 202)


def _json(data: bytes) -> Response:
    return Response(data, media_type="application/json", headers=_NO_STORE)


def _runs(request: Request) -> RunService:
    found: RunService = request.app.state.runs
    return found


def run_routes() -> list[RouteEntry]:
    tag = "runs"
    listed = {"version": 12, "now": 1790000000.0, "ids": ["4f0e…"], "control": False, "runs": [{"id": "4f0e…"}]}
    drawn = {"x": "step", "width": 5, "first": 0, "cursor": "…", "series": {"loss": {"mean": [9.1], "ends": None}}}
    one, control = "/runs/{id}", ControlRequest
    return [
        RouteEntry("/runs", "GET", list_runs, "The runs, with what each is doing", None, "All.", listed, tag),
        RouteEntry(one, "GET", show_run, "One run: recipe, plan, lineage, samples, log", None, "The run.", None, tag),
        RouteEntry(f"{one}/curves", "GET", run_curves, "Curves, thinned", None, "Buckets by key.", drawn, tag),
        RouteEntry(f"{one}/report", "GET", run_report, "Its report.html", tag=tag),
        RouteEntry(f"{one}/report.json", "GET", report_link, "Where a browser can show its report", tag=tag),
        RouteEntry(f"{one}/stop", "POST", stop_run, "Stop it, as Ctrl-C does", control, "stopping.", None, tag),
        RouteEntry(f"{one}/resume", "POST", resume_run, "Resume it", control, "running, or starting.", None, tag),
        RouteEntry(REPORT_FRAMES + "{ticket}", "GET", report_in_frame, "A report in a frame", tag=tag),
    ]
