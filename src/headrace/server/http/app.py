"""The application: routes, who may use them, and errors as JSON."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headrace.dashboard.open_traces import TraceClosed
from headrace.errors import (
    AccessError,
    CheckpointError,
    HeadraceError,
    HostError,
    LimitError,
    ServerError,
    SqlError,
    StatementCancelled,
    SubscriptionError,
    TableError,
    Unavailable,
)
from headrace.server.access import ROUTES, check_role
from headrace.server.http import about, checks, modules, page, queries, traces
from headrace.server.http.bodies import ContentError
from headrace.server.http.feeds import subscribe
from headrace.server.http.guard import BrowserGuard
from headrace.server.http.inserts import insert
from headrace.server.http.statements import shows, sql
from headrace.server.http.traced_tables import traced_tables
from headrace.server.http.ways import HttpSettings, Ways
from headrace.server.interface import Server, Who
from headrace.server.metrics import Metrics
from headrace.server.problems import error_to_json

__all__ = ["make_app"]

_log = logging.getLogger("headrace.server.http")
_HANDLERS: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("POST", "/sql"): sql,
    ("POST", "/streams/{name}/rows"): insert,
    ("GET", "/subscribe/{name}"): subscribe,
    ("GET", "/queries"): shows("SHOW QUERIES"),
    ("GET", "/queries/{name}/batches"): shows("SHOW BATCHES"),
    ("GET", "/queries/{name}/diverted"): shows("SHOW DIVERTED"),
    ("GET", "/queries/{name}/log"): shows("SHOW LOG"),
    ("GET", "/queries/{name}/rates"): shows("SHOW RATES"),
    ("GET", "/queries/{name}/state"): shows("SHOW STATE"),
    ("GET", "/queries/{name}/trace"): traced_tables,
    ("GET", "/streams"): shows("SHOW STREAMS"),
    ("GET", "/modules"): shows("SHOW MODULES"),
    ("POST", "/modules"): modules.install,
    ("DELETE", "/modules/{name}"): modules.remove,
    ("GET", "/metrics"): about.metrics,
    ("GET", "/health"): about.health,
    ("GET", "/ready"): about.ready,
    ("GET", "/openapi.json"): about.openapi,
    ("GET", "/docs"): about.docs,
    ("GET", "/"): page.home,
    ("GET", "/ui/"): page.page,
    ("GET", "/ui/{name}"): page.file,
    ("GET", "/ui/data/about"): page.about,
    ("POST", "/ui/data/check"): checks.check,
    ("GET", "/ui/data/queries"): queries.queries,
    ("GET", "/ui/data/query"): queries.query("now"),
    ("GET", "/ui/data/query/plan"): queries.query("plan"),
    ("GET", "/ui/data/query/checkpoint"): queries.query("checkpoint"),
    ("POST", "/ui/data/traces"): traces.trace,
    ("GET", "/ui/data/traces/{name}/{part}"): traces.part,
}
#: The status of an error, by the first class that fits.
_STATUS: tuple[tuple[type[HeadraceError], int], ...] = (
    (ContentError, 415),
    (AccessError, 403),
    (SubscriptionError, 410),
    (TraceClosed, 410),
    (LimitError, 413),
    (StatementCancelled, 503),
    (TableError, 409),
    (Unavailable, 503),
    (HostError, 500),
    (CheckpointError, 500),
    (ServerError, 400),
    (HeadraceError, 400),
)
#: Of limits that are not about the size of something.
_LIMIT_STATUS = {"connections": 429, "subscriptions": 429, "traces": 429, "questions": 429, "statement_seconds": 504}


def make_app(
    server: Server, settings: HttpSettings | None = None, *, bound: str = "localhost", metrics: Metrics | None = None
) -> Starlette:
    """The application of a server; `bound` is the address under which it listens."""
    settings = settings or HttpSettings()
    ways = Ways(server, settings, metrics or Metrics())
    routes = [Route(_pattern(path), _guarded(ways, method, path), methods=[method]) for method, path in ROUTES]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(BrowserGuard, settings=settings, bound=bound)],
        exception_handlers={HTTPException: _no_route},
    )
    app.state.ways = ways
    return app


def _pattern(path: str) -> str:
    """The paths that Starlette matches: names of streams and queries may contain `/`."""
    named = path.startswith(("/queries/", "/streams/", "/subscribe/"))
    return path.replace("{name}", "{name:path}") if named else path


def _guarded(ways: Ways, method: str, path: str) -> Callable[[Request], Any]:
    """The endpoint of a route: it knows who asks, and replies with errors as JSON."""
    needed, handler = ROUTES[method, path], _HANDLERS[method, path]

    async def endpoint(request: Request) -> Response:
        started = time.monotonic()
        who: Who | None = None
        begun = False
        try:
            if needed is not None:
                who = await ways.identify(request)
                check_role(who, needed, f"{method} {path}")
            begun = True
            response: Response = await handler(ways, request, who)
        except AccessError as error:
            if not begun:
                ways.note(request, who, f"{method} {request.url.path}", error)
            response = _refused(error, 401 if who is None else 403)
        except HeadraceError as error:
            response = _refused(error, _status(error, named="{name}" in path))
        except Exception as error:  # noqa: BLE001 - its text may have anything in it: it is for the log
            _log.exception("%s %s failed", method, path)
            ways.note(request, who, f"{method} {request.url.path}", error)
            response = _refused(ServerError("the server failed at this; its log says why"), 500)
        ways.metrics.requested(method, path, response.status_code, time.monotonic() - started)
        return response

    return endpoint


def _refused(error: HeadraceError, status: int) -> Response:
    headers = {"www-authenticate": 'Bearer realm="headrace"'} if status == 401 else {}
    return JSONResponse(error_to_json(error), status, headers)


def _status(error: HeadraceError, *, named: bool) -> int:
    if isinstance(error, LimitError):
        return _LIMIT_STATUS.get(error.allowed.partition(":")[0], 413)
    if named and (type(error) is ServerError or isinstance(error, SqlError)):
        return 404
    return next(status for kind, status in _STATUS if isinstance(error, kind))


async def _no_route(_: Request, found: Exception) -> Response:
    assert isinstance(found, HTTPException)
    allowed = ", ".join(f"{method} {path}" for method, path in ROUTES)
    error = ServerError("there is no such route", allowed=allowed, instead="GET /docs")
    return JSONResponse(error_to_json(error), found.status_code, dict(found.headers or {}))
