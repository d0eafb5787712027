"""Widgets: the graph, the timeline and the live table of the dashboard, in a notebook (anywidget).

A widget has a `kind` and plain `data`, which `ui/src/widget.js` draws. That of a running query is live: a thread looks
at the query twice a second, as long as it runs, and sends its report and new events. The events are those of a
subscription (`GET /subscribe/{name}`), so the page folds them the same way. A page that begins to show a widget says
`ready`, and gets the history so far.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import anywidget
import pyarrow as pa
import traitlets

from headrace.api.stream import Stream
from headrace.border import shown, shown_time
from headrace.changes import Changes
from headrace.dashboard.assets import FOLDER
from headrace.errors import HeadraceError
from headrace.events import physical_stream, to_physical
from headrace.explain.graph import plan_graph
from headrace.host.driving.query import Query
from headrace.host.result import Result
from headrace.io.encode import json_objects
from headrace.io.sinks import Memory
from headrace.plan.nodes import Output
from headrace.schema import Schema
from headrace.stages.cut import line_of
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["PictureWidget", "QueryFollower", "widget_of"]

_SECONDS = 0.5
#: The most events that a page gets at once, and rows of a timeline.
_EVENTS, _ROWS = 5_000, 2_000


class PictureWidget(anywidget.AnyWidget):
    """A picture of plain data."""

    _esm = FOLDER / "widget.js"
    _css = FOLDER / "widget.css"
    kind = traitlets.Unicode().tag(sync=True)
    data = traitlets.Dict().tag(sync=True)


def widget_of(thing: object) -> PictureWidget | None:
    """The widget of a stream, a running query or a result; None if there is none."""
    if isinstance(thing, Stream):
        try:
            return PictureWidget(kind="graph", data=plan_graph(line_of([Output(thing.node, "out")])))
        except HeadraceError:  # the stream of a group, or of a loop
            return None
    if isinstance(thing, Query):
        known = _FOLLOWED.get(id(thing))
        return QueryFollower(thing).widget if known is None or known.widget.comm is None else known.widget
    return PictureWidget(kind="timeline", data=_timeline(thing)) if isinstance(thing, Result) else None


def _timeline(result: Result) -> dict[str, Any]:
    """The history as rows with lifetimes, and how far it is final."""
    history = shown(result.history(), dates=result.dates)
    columns = list(result.schema.names)
    key = next((one["name"] for one in _columns(result.schema) if not one["number"]), "")
    about = {"columns": columns, "key": key, "dates": result.dates, "cti": _cti(result.cti, dates=result.dates)}
    return {"rows": _rows(history.slice(0, _ROWS)), "total": history.num_rows, **about}


#: The followers of running queries, by the identities of the queries: all cells that show a query share one.
_FOLLOWED: dict[int, QueryFollower] = {}


class QueryFollower:
    """Keeps the widget of a running query up to date, in a thread that ends with the query, or with the widget."""

    def __init__(self, query: Query) -> None:
        self._query = query
        found = [(number, sink) for number, sink in enumerate(query.sinks) if isinstance(sink, Memory)]
        self._memory = found[0][1] if found else None
        about = {
            "graph": plan_graph(query.line),
            "columns": _columns(query.line.outputs[found[0][0]].schema) if found else None,
        }
        self.widget = PictureWidget(kind="live", data={**about, **_report(query)})
        self._lock = threading.Lock()
        self._sent = 0
        self.widget.on_msg(self._asked)
        _FOLLOWED[id(query)] = self
        self.thread = threading.Thread(target=self._follow, name=f"headrace-widget-{query.name}", daemon=True)
        self.thread.start()

    def _follow(self) -> None:
        try:
            self._follow_query()
        finally:
            if _FOLLOWED.get(id(self._query)) is self:
                del _FOLLOWED[id(self._query)]

    def _follow_query(self) -> None:
        ended = False
        while not ended and self.widget.comm is not None:
            time.sleep(_SECONDS)
            ended = not self._query.is_active
            report = _report(self._query)
            if any(self.widget.data.get(name) != value for name, value in report.items()):
                self.widget.data = {**self.widget.data, **report}
            self._send_new()

    def _asked(self, _: Any, message: Any, __: Any) -> None:
        """A page has begun to show the widget: send the history."""
        if isinstance(message, dict) and message.get("type") == "ready" and self._memory is not None:
            with self._lock:
                self._sent = len(self._memory.batches)
                self._send_rows(_history_events(self._memory, self._sent), snapshot=True)

    def _send_new(self) -> None:
        """Send the batches since the last time."""
        if self._memory is None:
            return
        with self._lock:
            first, self._sent = self._sent, len(self._memory.batches)
            if self._sent > first:
                new = pa.concat_tables(physical_stream(self._memory.batches[first : self._sent]))
                self._send_rows(new, snapshot=False)

    def _send_rows(self, events: pa.Table, *, snapshot: bool) -> None:
        memory = self._memory
        assert memory is not None
        cti = memory.batches[self._sent - 1][1].cti if self._sent else NEG_INFINITY
        kept = events.slice(max(0, events.num_rows - _EVENTS))
        about = {"snapshot": snapshot, "left_out": events.num_rows - kept.num_rows}
        rows = _rows(shown(kept, dates=memory.dates))
        self.widget.send({"type": "rows", **about, "cti": _cti(cti, dates=memory.dates), "rows": rows})


def _history_events(memory: Memory, batches: int) -> pa.Table:
    """The events of the first batches of a memory, as inserts of its history."""
    if not batches:
        return pa.table({})
    return to_physical(Changes.concat([changes for changes, _ in memory.batches[:batches]]).consolidate())


def _columns(schema: Schema) -> list[dict[str, Any]]:
    """The names of the columns, and whether they are numbers."""
    types = pa.types
    numbers = (types.is_integer, types.is_floating, types.is_decimal)
    return [{"name": field.name, "number": any(check(field.type) for check in numbers)} for field in schema.arrow]


def _report(query: Query) -> dict[str, Any]:
    """The state of a query, and its latest report, as plain values."""
    failure = query.exception()
    state = "failed" if failure is not None else "running" if query.is_active else "ended"
    found = json.loads(json.dumps(query.report, default=str))
    return {"name": query.name, "state": state, "error": "" if failure is None else str(failure), "report": found}


def _cti(cti: int, *, dates: bool) -> Any:
    found: Any = {INFINITY: "inf", NEG_INFINITY: None}.get(cti, 0)
    return shown_time(cti, dates=dates) if found == 0 else found


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    texts = [
        text for batch in table.combine_chunks().to_batches() for text in json_objects(batch, exact=True).to_pylist()
    ]
    return [json.loads(text) for text in texts]
