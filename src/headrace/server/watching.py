"""Queries as the dashboard watches them: `Server.watch`. What is shown of batches and plans: `dashboard/queries.py`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from headrace.border import shown_time
from headrace.dashboard.queries import SPARK_SECONDS, batch_rows, chart_points, lately, nodes_lately, plan_shown
from headrace.errors import HeadraceError, ServerError, nearest, without_secrets
from headrace.host.driving.past import cti_and_lag
from headrace.host.saved.query import SavedQuery
from headrace.server.queries import ServedQuery
from headrace.server.sharing import operators_of
from headrace.time import NEG_INFINITY

if TYPE_CHECKING:
    from headrace.server.core import HeadraceServer, ServedObject

__all__ = ["watch_queries", "watch_query"]

#: The most batches that a page is sent.
_BATCHES = 200


def watch_queries(server: HeadraceServer) -> dict[str, Any]:
    """All queries: how they run, and what they did in the last minute."""
    now = time.time()
    served = [one for one in list(server.objects.values()) if one.query is not None]
    lost = [_unrecovered(stored.name, stored.kind, error) for stored, error in list(server.unrecovered.values())]
    return {"now": now, "queries": [*(_overview(one, now) for one in served), *lost]}


def _overview(served: ServedObject, now: float) -> dict[str, Any]:
    query = served.query
    assert query is not None
    recent = query.past(seconds=True, since=now - SPARK_SECONDS)
    latest = recent[-1:] or query.past(seconds=True)[-1:]
    cti, lag = cti_and_lag(min(query.ctis().values(), default=NEG_INFINITY), now, dates=query.dates)
    return {
        **_about(served), "cti": str(cti), "lag": lag, **lately(recent, now),
        "diverted": query.total("diverted"), "state_bytes": latest[0].state_size[1] if latest else None,
    }  # fmt: skip


def _about(served: ServedObject) -> dict[str, Any]:
    query = served.query
    assert query is not None
    run = query.runs.run_of(query)
    others = [] if run is None else [member.name for member in run.members if member is not query]
    error = query.error
    return {
        "name": query.name, "kind": served.stored.kind, "owner": served.stored.owner, "state": query.state,
        "error": None if error is None else without_secrets(str(error)), "runs_with": others,
        "published": served.published is not None,
    }  # fmt: skip


def _unrecovered(name: str, kind: str, error: HeadraceError) -> dict[str, Any]:
    about = {"name": name, "kind": kind, "owner": "", "state": "failed", "error": str(error), "runs_with": []}
    return {
        **about,
        "published": False,
        "cti": "",
        "lag": None,
        "diverted": None,
        "state_bytes": None,
        **lately([], 0.0),
    }


def watch_query(server: HeadraceServer, name: str, part: str, since: float) -> dict[str, Any]:
    """A part of one query: `now` (its batches and points since a time), its `plan`, or its `checkpoint`."""
    served = _found(server, name)
    assert served.query is not None
    if part == "plan":
        return _plan(served)
    if part == "checkpoint":
        return _checkpoint(served.query)
    return _now(served, since)


def _found(server: HeadraceServer, name: str) -> ServedObject:
    queries = {one.stored.name: one for one in list(server.objects.values()) if one.query is not None}
    if name not in queries:
        raise ServerError(
            f"there is no query {name!r}", given=name, allowed=", ".join(queries) or "(none yet: QUERY q AS SELECT …)",
            instead=nearest(name, queries) or "",
        )  # fmt: skip
    return queries[name]


def _now(served: ServedObject, since: float) -> dict[str, Any]:
    query = served.query
    assert query is not None
    now, dates = time.time(), query.dates
    seconds = query.past(seconds=True, since=min(int(since), now - SPARK_SECONDS))
    running = query.running
    last = None if running is None else running.driver.last
    held = {} if last is None else last.record["operators"]  # a report has none before the first batch of a run
    ctis = query.ctis()
    cti, lag = cti_and_lag(min(ctis.values(), default=NEG_INFINITY), now, dates=dates)
    points = [one for one in seconds if int(one.ended) >= int(since)]
    batches = query.past(since=since)[-_BATCHES:]
    return {
        "now": now, **_about(served), "alone_because": query.why_alone(), "cti": str(cti), "lag": lag,
        **lately(seconds, now), "diverted": query.total("diverted"),
        "nodes": nodes_lately(query.line, seconds, now, ctis, held, dates=dates),
        "points": chart_points(points, dates=dates), "batches": batch_rows(batches, dates=dates),
        "intake": query.report.get("intake", {}), "settings": query.settings,
    }  # fmt: skip


def _plan(served: ServedObject) -> dict[str, Any]:
    query = served.query
    assert query is not None
    shown = plan_shown(query.line, query.name)
    run = query.runs.run_of(query)
    others = [] if run is None else [member for member in run.members if member is not query]
    theirs = {other.name: operators_of(other.planned[0]) for other in others}
    for node in shown["graph"]["nodes"]:
        node["shared"] = [name for name, operators in theirs.items() if node["fingerprint"] in operators]
    return {"name": query.name, "sql": without_secrets(served.stored.text), **shown}


def _checkpoint(query: ServedQuery) -> dict[str, Any]:
    """What `headrace checkpoint show` prints, without places and the process: readers need not know them."""
    saved = SavedQuery(query.checkpoint).show()
    sinks = [{name: value for name, value in sink.items() if name != "path"} for sink in saved.get("sinks", ())]
    for sink in sinks:  # logs have ticks
        if isinstance(sink["cti"], int):
            sink["cti"] = shown_time(sink["cti"], dates=query.dates)
    return {name: value for name, value in saved.items() if name not in ("path", "driver")} | {"sinks": sinks}
