"""`/ui/data/queries` and `/ui/data/query`: the screens Queries and A query of the dashboard.

A query is named by `?name=`, since its name may have any character.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headrace.errors import ServerError
from headrace.server.http.ways import Ways
from headrace.server.interface import Who

__all__ = ["queries", "query"]


async def queries(ways: Ways, request: Request, _: Who) -> Response:
    """All queries, for a page that asks every second."""
    del request
    return JSONResponse(await ways.call(ways.server.watch))


def query(part: str) -> Callable[[Ways, Request, Who], object]:
    """A route that is a part of one query."""

    async def reply(ways: Ways, request: Request, _: Who) -> Response:
        name = request.query_params.get("name")
        if name is None:
            raise ServerError("the route is about a query", given=request.url.path, instead="?name=q")
        since = _since(request.query_params.get("since", "0"))
        return JSONResponse(await ways.call(lambda: ways.server.watch(name, part, since)))

    return reply


def _since(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ServerError("a time is a number of seconds since 1970", given=text, instead="?since=0")
    return found
