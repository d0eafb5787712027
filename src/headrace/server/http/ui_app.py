"""The dashboard without a server: the application of `headrace ui`, for one query, on this machine.

It listens on loopback, and data needs a token, which is in the fragment of the address that the command prints: other
users of the machine do not know it, and browsers do not send fragments.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol

import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

import headrace
from headrace.dashboard.debugging import DebuggingPage
from headrace.dashboard.open_traces import OpenTraces, TraceClosed
from headrace.errors import AccessError, HeadraceError, ServerError
from headrace.server.http.bodies import json_of
from headrace.server.http.guard import BrowserGuard
from headrace.server.http.page import sent_file
from headrace.server.http.traces import TraceRequest, opened
from headrace.server.http.ways import HttpSettings
from headrace.server.problems import error_to_json
from headrace.tracing.debugging import DebugSession
from headrace.tracing.traced import TracedRun

__all__ = ["UiTarget", "make_ui_app"]

_log = logging.getLogger("headrace.ui")
#: Bodies of this application are small.
_MOST_BYTES = 100_000


class UiTarget(Protocol):
    """What `headrace ui` shows."""

    def about(self) -> dict[str, Any]:
        """Its `mode`, its `name`, and the `screens` that fit it."""

    def trace(self, batch_rows: int | None) -> TracedRun:
        """Its query, traced."""

    def debug(self, batch_rows: int | None) -> DebugSession:
        """Its query, to be run step by step."""

    def data(self) -> dict[str, Any]:
        """Of a saved query, what is known of it."""


class _Ui:
    """The handlers of the routes."""

    def __init__(self, target: UiTarget, token: str) -> None:
        self._target, self._token = target, token
        self._traces = OpenTraces(each=8)
        self._debugging = DebuggingPage(str(target.about()["name"]), self._traces, target.debug)

    def allow(self, request: Request) -> None:
        """Raise if a request does not have the token."""
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            raise AccessError(
                "this page belongs to the user who started it",
                allowed="the address that headrace ui printed, whole: it has the token behind #",
            )

    async def about(self, request: Request) -> Response:
        del request
        return JSONResponse({"version": headrace.__version__, "role": "", **self._target.about()})

    async def saved(self, request: Request) -> Response:
        del request
        return JSONResponse(await _called(self._target.data))

    async def trace(self, request: Request) -> Response:
        wanted = TraceRequest.of(await _json(request))
        name = str(self._target.about()["name"])
        run = partial(self._target.trace, wanted.batch_rows)
        return JSONResponse(await _called(lambda: opened(self._traces, name, run)))

    async def debug(self, request: Request) -> Response:
        body = await _json(request)
        return JSONResponse(await _called(lambda: self._debugging.act(body)))

    async def part(self, request: Request) -> Response:
        name, part = request.path_params["name"], request.path_params["part"]
        return JSONResponse(await _called(lambda: self._traces.part(name, part, request.query_params)))


def make_ui_app(target: UiTarget, token: str) -> Starlette:
    """The application; requests for data need the token."""
    ui = _Ui(target, token)

    def guarded(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                ui.allow(request)
                return await handler(request)
            except HeadraceError as error:
                return JSONResponse(error_to_json(error), _status(error))
            except Exception:  # noqa: BLE001 - its text is for the terminal
                _log.exception("%s failed", request.url.path)
                return JSONResponse(error_to_json(ServerError("this failed; the terminal says why")), 500)

        return endpoint

    routes = [
        Route("/", _home),
        Route("/ui/", _file),
        Route("/ui/{name}", _file),
        Route("/ui/data/about", guarded(ui.about)),
        Route("/ui/data/saved", guarded(ui.saved)),
        Route("/ui/data/debug", guarded(ui.debug), methods=["POST"]),
        Route("/ui/data/traces", guarded(ui.trace), methods=["POST"]),
        Route("/ui/data/traces/{name}/{part}", guarded(ui.part)),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(BrowserGuard, settings=HttpSettings())],
        exception_handlers={HTTPException: _no_route},
    )


async def _home(request: Request) -> Response:
    del request
    return RedirectResponse("/ui/")


async def _file(request: Request) -> Response:
    try:
        return sent_file(request.path_params.get("name"))
    except ServerError as error:
        return JSONResponse(error_to_json(error), 404)


async def _json(request: Request) -> Mapping[str, Any]:
    """The body of a request."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST_BYTES:
            raise ServerError("this is too much", given=len(body), allowed=f"{_MOST_BYTES} bytes")
    found = json_of(bytes(body), "the body")
    if not isinstance(found, Mapping):
        raise ServerError("the body is an object", given=str(found)[:100])
    return found


async def _called(function: Callable[[], Any]) -> Any:
    return await anyio.to_thread.run_sync(function)


async def _no_route(_: Request, found: Exception) -> Response:
    assert isinstance(found, HTTPException)
    return JSONResponse(error_to_json(ServerError("there is no such route", instead="GET /ui/")), found.status_code)


def _status(error: HeadraceError) -> int:
    return 401 if isinstance(error, AccessError) else 410 if isinstance(error, TraceClosed) else 400
