"""`POST /modules` and `DELETE /modules/{name}`: packages of modules."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from headrace.server.http.bodies import content_type, read_body
from headrace.server.http.replies import json_response
from headrace.server.http.ways import Ways
from headrace.server.interface import Connection, Said, Who

__all__ = ["ZIP", "install", "remove"]

ZIP = "application/zip"


async def install(ways: Ways, request: Request, who: Who) -> Response:
    """Install the modules of the wheel in the body."""
    content_type(request, ZIP)
    wheel = await read_body(request, ways.limits)
    return await _done(ways, request, who, lambda connection: connection.install_modules(wheel))


async def remove(ways: Ways, request: Request, who: Who) -> Response:
    """Remove a package."""
    name = request.path_params["name"]
    return await _done(ways, request, who, lambda connection: connection.remove_modules(name))


async def _done(ways: Ways, request: Request, who: Who, act: Callable[[Connection], Said]) -> Response:
    def run() -> Response:
        with ways.connected(who, request) as connection:
            return json_response([act(connection)])

    return await ways.call(run)
