"""`/ui/data/traces`: the Debugger of the dashboard. What is in a trace, `dashboard/open_traces.py` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headrace.dashboard.open_traces import OpenTraces
from headrace.display.words import clipped
from headrace.errors import HeadraceError, ServerError
from headrace.server.http.bodies import content_type, json_of, read_body
from headrace.server.http.replies import JSON
from headrace.server.http.ways import Ways
from headrace.server.interface import Who
from headrace.tracing.traced import TracedRun

__all__ = ["TraceRequest", "opened", "part", "trace"]


_WHOLE_FILES = "Each file is read whole, in one batch: the rows of a batch bound what streams and tables give."
#: The most rows of a batch that can be asked for.
_MOST_BATCH_ROWS = 1_000_000_000
#: Parts that run a query again, or read whole histories or files.
_QUESTIONS = frozenset({"compare", "forward", "lines", "stop", "why", "why_cti", "why_not", "why_retracted"})


class TraceRequest(NamedTuple):
    """Which query to trace, and the most rows of a batch."""

    query: str
    batch_rows: int | None

    @classmethod
    def of(cls, body: Any) -> TraceRequest:
        """From the JSON of a request."""
        query, rows = (body.get("query", ""), body.get("batch_rows")) if isinstance(body, Mapping) else (None, None)
        counts = rows is None or (type(rows) is int and 0 < rows <= _MOST_BATCH_ROWS)
        if not isinstance(query, str) or not counts or set(body) - set(cls._fields):
            raise ServerError(
                "a trace is of a query by its name, with the most rows of a batch, and nothing else",
                given=str(body)[:200], allowed=f"query, and batch_rows from 1 to {_MOST_BATCH_ROWS:,}",
                instead='{"query": "prices", "batch_rows": 100}',
            )  # fmt: skip
        return cls(query, rows)


async def trace(ways: Ways, request: Request, who: Who) -> Response:
    """Trace a query, and keep the trace open."""
    content_type(request, JSON)
    wanted = TraceRequest.of(json_of(await read_body(request, ways.limits), "the body"))

    def run() -> TracedRun:
        with ways.tracing.use(who):
            return ways.server.trace(wanted.query, batch_rows=wanted.batch_rows)

    what = f"TRACE {clipped(wanted.query, 200)}"
    try:
        found = await ways.call_in_time(lambda: opened(ways.traces, wanted.query, run, who.name))
    except HeadraceError as error:
        ways.note(request, who, what, error)
        raise
    ways.note(request, who, what)
    whole = wanted.batch_rows is not None and ways.traces.get(found["trace"], who.name).reads_files
    return JSONResponse({**found, "notes": [_WHOLE_FILES] if whole else []})


async def part(ways: Ways, request: Request, who: Who) -> Response:
    """A part of an open trace."""
    name, wanted = request.path_params["name"], request.path_params["part"]

    def found() -> dict[str, Any]:
        with ways.questions.use(who) if wanted in _QUESTIONS else nullcontext():
            return ways.traces.part(name, wanted, request.query_params, who.name)

    return JSONResponse(await ways.call_in_time(found))


def opened(traces: OpenTraces, name: str, run: Callable[[], TracedRun], owner: str = "") -> dict[str, Any]:
    """A new trace: its key and its graph."""
    key = traces.add(name, run(), owner)
    return {"trace": key, **traces.get(key, owner).graph()}
