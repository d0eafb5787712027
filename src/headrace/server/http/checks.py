"""`POST /ui/data/check`: the Editor of the dashboard asks whether a text is right, and for the plan of its query."""

from __future__ import annotations

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headrace.errors import SchemaError
from headrace.server.http.bodies import content_type, json_of, read_body
from headrace.server.http.replies import JSON
from headrace.server.http.ways import Ways
from headrace.server.interface import Who

__all__ = ["check"]

#: An editor asks while people type: longer texts, and texts that take longer, are only carried out.
_LETTERS, _SECONDS = 100_000, 10.0


async def check(ways: Ways, request: Request, who: Who) -> Response:
    """What is wrong with a text, or the plan of its query; nothing is carried out."""
    content_type(request, JSON)
    found = json_of(await read_body(request, ways.limits), "the body")
    text = found.get("sql") if isinstance(found, dict) else None
    caret = found.get("caret") if isinstance(found, dict) else None
    if not isinstance(text, str) or len(text) > _LETTERS or not (caret is None or type(caret) is int):
        raise SchemaError(
            "the body is no text to check", given=str(found)[:200],
            allowed=f'{{"sql": "SELECT …", "caret": 12}}, with at most {_LETTERS:,} letters',
        )  # fmt: skip
    try:
        with anyio.fail_after(_SECONDS), ways.connections.use(who):
            return JSONResponse(await ways.call(lambda: ways.server.check(who, text, caret)))
    except TimeoutError as error:
        raise ways.limits.out_of_time() from error
