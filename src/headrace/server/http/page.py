"""The dashboard (`headrace.dashboard`): the page, its files, and what a server says of itself."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

import headrace
from headrace.dashboard.assets import PAGE, PAGE_HEADERS, asset
from headrace.errors import ServerError
from headrace.server.http.ways import Ways
from headrace.server.interface import Who

__all__ = ["about", "file", "home", "page", "sent_file"]

_SCREENS = ["queries", "query", "answers", "editor", "debug"]


async def home(ways: Ways, request: Request, _: Who | None) -> Response:
    """Browsers that ask for the server itself are sent to its page."""
    del ways, request
    return RedirectResponse("/ui/")


async def page(ways: Ways, request: Request, _: Who | None) -> Response:
    """The page."""
    del ways, request
    return sent_file()


async def file(ways: Ways, request: Request, _: Who | None) -> Response:
    """A file of the page."""
    del ways
    return sent_file(str(request.path_params["name"]))


async def about(ways: Ways, request: Request, who: Who) -> Response:
    """The screens that this host has, and who asks."""
    del ways, request
    found = {"mode": "server", "version": headrace.__version__, "name": who.name, "role": who.role}
    return JSONResponse({**found, "screens": _SCREENS})


def sent_file(name: str | None = None) -> Response:
    """A file of the page, by default the page itself."""
    found = asset(PAGE if name is None else name)
    if found is None:
        raise ServerError("the page has no such file", given=name, instead="GET /ui/")
    return Response(found[0], media_type=found[1], headers=PAGE_HEADERS)
