"""A small server for tests of the wire: one SQL session for all, and subscriptions that a test fills."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from tests.fixtures.waiting import PATIENCE

from headrace.api.running import run_quietly
from headrace.errors import AccessError, ServerError
from headrace.server.interface import (
    Form,
    Reply,
    RowsReply,
    Said,
    Subscribed,
    SubscribedRows,
    Subscription,
    Who,
)  # fmt: skip
from headrace.sql.outcomes import Answers, Done, Outcome, ShownTable, Words
from headrace.sql.peek import current
from headrace.sql.session import SqlSession

__all__ = ["StandIn"]


class Pieces:
    """A subscription whose pieces a test puts in."""

    def __init__(self, schema: pa.Schema, pieces: queue.Queue[SubscribedRows]) -> None:
        self.schema, self.waiting, self.closed = schema, pieces, False

    def next(self, timeout: float | None = None, rows: int | None = None) -> SubscribedRows | None:
        try:
            piece = self.waiting.get(timeout=max(timeout, 1e-3) if timeout is not None else None)
        except queue.Empty:
            return None
        if rows is not None and piece.rows.num_rows > rows:
            self.waiting.queue.appendleft(
                SubscribedRows(piece.rows.slice(rows), piece.cursor, piece.cti, piece.snapshot)
            )
            return SubscribedRows(piece.rows.slice(0, rows), f"{piece.cursor}.{rows}", piece.cti, piece.snapshot)
        return piece

    def close(self) -> None:
        self.closed = True


class StandInConnection:
    """A connection of the stand-in."""

    def __init__(self, server: StandIn, who: Who) -> None:
        self.server, self.who = server, who
        self.stop = threading.Event()
        self.closed = False

    def execute(self, text: str) -> Iterator[Reply]:
        self.stop.clear()
        if re.match(r"\s*SLEEP", text):
            self.server.sleeping += 1
            if self.stop.wait(PATIENCE):
                raise ServerError("interrupted")
        elif re.match(r"\s*BREAK", text):
            raise ZeroDivisionError("inside")
        elif found := re.match(r"\s*SUBSCRIBE\s+(\w+)", text):
            yield Subscribed("SUBSCRIBE", self.subscribe(found[1]))
        else:
            with self.server.lock:
                outcomes = list(self.server.session.execute(text))
                yield from map(self._reply, outcomes)

    def _reply(self, outcome: Outcome) -> Reply:
        if isinstance(outcome, Answers):
            result = run_quietly({"rows": outcome.shown}).results["rows"]
            rows = current(result, outcome.order) if outcome.relation else result.history()
            return RowsReply("SELECT", rows, ("a note",) if "noted" in outcome.stream.schema else ())
        if isinstance(outcome, ShownTable):
            columns = zip(*outcome.rows, strict=True) if outcome.rows else [()] * len(outcome.columns)
            return RowsReply("SHOW", pa.table([pa.array(c, pa.string()) for c in columns], list(outcome.columns)))
        if isinstance(outcome, Words):
            return RowsReply("EXPLAIN", pa.table({"plan": outcome.text.splitlines()}))
        assert isinstance(outcome, Done)
        tag = type(outcome.statement).__name__.upper()
        count = re.match(r"(\d+) rows?", outcome.message)
        return Said("INSERT" if "INSERT" in tag else tag, outcome.message, int(count[1]) if count else None)

    look_up = execute

    def columns(self, text: str, *, guess: bool = False) -> pa.Schema | None:
        del guess
        if not re.match(r"\s*(SELECT|WITH|VALUES)\b", text, re.IGNORECASE):
            return next(iter(self.execute(text))).table.schema if re.match("(?i)SHOW|EXPLAIN|DESC", text) else None
        with self.server.lock:
            (shown,) = list(self.server.session.execute(f"DESCRIBE {text}"))
        from headrace.schema import Schema  # the description is its text

        return Schema.of(", ".join(f"{name.replace(' ', '_')} {kind}" for name, kind, *_ in shown.rows)).arrow

    def insert(self, stream: str, rows: pa.Table | list[dict[str, Any]], key: str | None = None) -> int:
        raise NotImplementedError

    def subscribe(self, name: str, form: Form = "events", cursor: str | None = None) -> Subscription:
        del name, form, cursor
        found = Pieces(self.server.subscribed, self.server.pieces)
        self.server.subscriptions.append(found)
        return found

    def cancel(self) -> None:
        self.stop.set()

    def close(self) -> None:
        self.closed = True


class StandIn:
    """The server. With a token, loopback needs one, too."""

    subscribed = pa.schema([("kind", pa.string()), ("le", pa.int64()), ("x", pa.float64())])

    def __init__(self, script: str = "", token: str | None = None) -> None:
        self.session = SqlSession()
        list(self.session.execute(script)) if script else None
        self.token = token
        self.lock = threading.RLock()
        self.pieces: queue.Queue[SubscribedRows] = queue.Queue()
        self.subscriptions: list[Pieces] = []
        self.connections: list[StandInConnection] = []
        self.origins: list[str] = []
        #: How many statements have begun to wait.
        self.sleeping = 0

    def publish(self, *values: float, cursor: str = "c1") -> None:
        rows = [{"kind": "insert", "le": place, "x": value} for place, value in enumerate(values)]
        self.pieces.put(SubscribedRows(pa.Table.from_pylist(rows, self.subscribed), cursor, 0))

    def connect(self, who: Who, origin: str = "") -> StandInConnection:
        self.origins.append(origin)
        self.connections.append(StandInConnection(self, who))
        return self.connections[-1]

    def authenticate(self, token: str | None, *, loopback: bool) -> Who:
        if token is None and loopback and self.token is None:
            return Who("local", "admin")
        if token is None or token != self.token:
            raise AccessError("this token is not known", instead="a token of `headrace token create`")
        return Who("ann", "reader")

    def health(self) -> Mapping[str, Any]:
        return {"ok": True}
