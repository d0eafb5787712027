"""The routes as OpenAPI 3.1 describes them, and the texts of `/docs`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.server.access import ROUTES
from headrace.server.http.modules import ZIP
from headrace.server.http.replies import ARROW, JSON, JSON_LINES
from headrace.server.http.statements import SQL

__all__ = ["DESCRIBED", "description"]


@dataclass(frozen=True)
class _Described:
    """What people should know of a route. `queries` are the parameters after `?`."""

    text: str
    replies: tuple[str, ...]
    bodies: tuple[str, ...] = ()
    queries: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    example: str = ""


_ERROR = "An error: code, message, given, allowed, instead; of SQL also line and column."
DESCRIBED: Mapping[tuple[str, str], _Described] = {
    ("POST", "/sql"): _Described(
        "Carries out statements of Headrace SQL, all or none. Numbers that 64-bit floats would round (integers beyond "
        "2^53, DECIMAL with more than 15 digits) are texts in JSON. With Accept: "
        f"{ARROW} the reply is one Arrow stream for each statement.",
        (JSON, ARROW), (JSON, SQL),
        example="curl localhost:8080/sql -H 'Content-Type: application/json' -d '{\"sql\": \"SHOW STREAMS\"}'",
    ),
    ("POST", "/streams/{name}/rows"): _Described(
        "Inserts rows into a table or a stream, and replies when they are on disk. A request that is repeated with the "
        "same Idempotency-Key inserts nothing. JSON lines with ?batch=N are acknowledged as they arrive.",
        (JSON, JSON_LINES), (JSON, JSON_LINES, ARROW),
        {"batch": "acknowledge each N lines, and those before an empty line"},
        {"Idempotency-Key": "identifies the request"},
        "curl localhost:8080/streams/trades/rows -H 'Content-Type: application/json' "
        "-H 'Idempotency-Key: 1' -d '[{\"symbol\": \"A\", \"price\": 1.5}]'",
    ),
    ("GET", "/subscribe/{name}"): _Described(
        "The present answer of a stream, a query, a table or a materialized view, then its changes, as server-sent "
        "events or as an Arrow stream. A client continues with the id of the last event.",
        ("text/event-stream", ARROW),
        queries={
            "form": "events, upsert or final", "cursor": "continue after it", "key": "columns of a key, for upsert",
            "rows": "the most rows that are sent at once", "only": "snapshot: end after it",
        },
        headers={"Last-Event-ID": "the cursor, as browsers send it"},
        example="curl -N 'localhost:8080/subscribe/trades?form=events'",
    ),
    ("GET", "/queries"): _Described("The queries and their states.", (JSON, ARROW)),
    ("GET", "/queries/{name}/batches"): _Described(
        "The latest batches of a query: rows, changes and corrections, the CTI, the state, and where time was spent.",
        (JSON, ARROW), queries={"limit": "at most so many batches; 600 are kept"},
    ),
    ("GET", "/queries/{name}/diverted"): _Described(
        "The rows that a query has not used, with their source, the reason, and the row as text; the newest ones.",
        (JSON, ARROW), queries={"limit": "at most so many rows; 1000 by default"},
        example="curl localhost:8080/queries/minutes/diverted?limit=10",
    ),
    ("GET", "/queries/{name}/log"): _Described(
        "When a query was started, stopped and altered, why it failed, what it has lost; the newest lines.",
        (JSON, ARROW), queries={"limit": "at most so many lines; 1000 by default"},
    ),
    ("GET", "/queries/{name}/rates"): _Described(
        "The latest seconds of a query that had batches, each with the sums of its batches.",
        (JSON, ARROW), queries={"limit": "at most so many seconds; 600 are kept"},
    ),
    ("GET", "/queries/{name}/state"): _Described(
        "The state of each operator of a query: its rows, its bytes, and what holds it.", (JSON, ARROW)
    ),
    ("GET", "/queries/{name}/trace"): _Described(
        "What every operator of a query did, as tables: over everything that its streams have now, or in some batches "
        "as they ran.",
        (JSON, ARROW),
        queries={
            "batches": "120..140; by default everything is computed again",
            "batch_rows": "the rows of a batch, without batches",
            "tables": "of text, operators, batches, edges and changes, with commas between them; text by default",
            "operator": "changes only of this one, by its number; a question is about it",
            "question": "of why, why_not, why_retracted, why_cti and forward; the last table is its answer",
            "condition": "which event the question is about: columns compared with values, symbol = 'A' AND price > 9",
            "at": "with why and why_not: a time at which the event lasts, or should",
        },
        example="curl 'localhost:8080/queries/minutes/trace?batches=120..140&tables=operators,changes'",
    ),
    ("GET", "/streams"): _Described("The streams.", (JSON, ARROW)),
    ("GET", "/modules"): _Described("The modules, with their packages, versions and checksums.", (JSON, ARROW)),
    ("POST", "/modules"): _Described(
        "Installs the modules of a wheel of plain Python, as a whole or not at all. It becomes the current version of "
        "its package; queries keep the version that they began with. Nothing is fetched: what the wheel needs must "
        "be installed with the server.",
        (JSON,), (ZIP,),
        example="curl localhost:8080/modules -H 'Content-Type: application/zip' "
        "--data-binary @headrace_finance-0.1.0-py3-none-any.whl",
    ),
    ("DELETE", "/modules/{name}"): _Described("Removes a package of modules that nothing uses.", (JSON,)),
    ("GET", "/metrics"): _Described("Metrics for Prometheus.", ("text/plain",)),
    ("GET", "/health"): _Described(
        "Whether the server lives (503: it needs a new start), whether its queries are well, and their states.",
        (JSON,),
    ),
    ("GET", "/ready"): _Described("Whether requests are taken: 503 while the server stops.", (JSON,)),
    ("GET", "/openapi.json"): _Described("This description.", (JSON,)),
    ("GET", "/docs"): _Described("This description, for people.", ("text/html",)),
    ("GET", "/"): _Described("Leads to the dashboard.", ("text/html",)),
    ("GET", "/ui/"): _Described("The dashboard: a page for browsers.", ("text/html",)),
    ("GET", "/ui/{name}"): _Described("A file of the dashboard.", ("text/javascript", "text/css", "image/svg+xml")),
    ("GET", "/ui/data/about"): _Described("The screens of the dashboard, and who asks.", (JSON,)),
    ("POST", "/ui/data/check"): _Described(
        "What is wrong with a text, and where; or the plan of its query at the caret. Nothing is carried out.",
        (JSON,), (JSON,), example='{"sql": "SELECT * FROM prices", "caret": 10}',
    ),
    ("GET", "/ui/data/queries"): _Described("All queries and their last minute, for the dashboard.", (JSON,)),
    ("GET", "/ui/data/query"): _Described(
        "The live values of a query, its batches and its curves since a time, for the dashboard.", (JSON,),
        queries={"name": "of the query", "since": "seconds since 1970; 0 by default"},
    ),
    ("GET", "/ui/data/query/plan"): _Described(
        "The plan of a query as a graph and as EXPLAIN shows it, and its SQL.", (JSON,),
        queries={"name": "of the query"},
    ),
    ("GET", "/ui/data/query/checkpoint"): _Described(
        "The checkpoint of a query: what headrace checkpoint show prints.", (JSON,), queries={"name": "of the query"}
    ),
    ("POST", "/ui/data/traces"): _Described(
        "Traces a query over what its streams have now; the trace stays open for a while. Replies with its graph.",
        (JSON,), (JSON,), example='{"query": "prices", "batch_rows": 100}',
    ),
    ("GET", "/ui/data/traces/{name}/{part}"): _Described(
        "A part of an open trace: its graph, a batch, changes, a history, a state, or the answer to a question.",
        (JSON,), queries={"operator": "A number.", "batch": "A number.", "row": "A number, of a question."},
    ),
}  # fmt: skip


def description() -> dict[str, Any]:
    """The document of `/openapi.json`."""
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), about in DESCRIBED.items():
        paths.setdefault(path, {})[method.lower()] = _operation(path, about, ROUTES[method, path])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headrace",
            "version": "1",
            "description": "Statements in, rows in, answers and their corrections out.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": {"type": "object", "description": _ERROR, "required": ["code", "message"]}},
        },
    }


def _operation(path: str, about: _Described, role: str | None) -> dict[str, Any]:
    places = {"query": about.queries, "header": about.headers}
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": place, "description": text, "schema": {"type": "string"}}
        for place, names in places.items()
        for name, text in names.items()
    ]
    parameters += [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in ("name", "part")
        if f"{{{name}}}" in path
    ]
    error = {"description": _ERROR, "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}}
    found: dict[str, Any] = {
        "description": about.text,
        "x-role": role,
        "parameters": parameters,
        "responses": {"200": {"description": "Done.", "content": {k: {} for k in about.replies}}, "default": error},
    }
    if about.bodies:
        found["requestBody"] = {"required": True, "content": {kind: {} for kind in about.bodies}}
    if role is not None:
        found["security"] = [{"token": []}]
    if about.example:
        found["x-example"] = about.example
    return found
