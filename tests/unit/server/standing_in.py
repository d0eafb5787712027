"""A small server in memory, for the tests of the ways in: streams are lists of rows, subscriptions read them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
from tests.fixtures.waiting import PATIENCE

from headrace.errors import AccessError, HeadraceError, ServerError, SqlError, SubscriptionError, UnknownColumn
from headrace.metrics.queries import OperatorFigures, QueryFigures, Reached
from headrace.server.access import LOCAL, check_role, needs
from headrace.server.access.tokens import Tokens
from headrace.server.interface import Form, Insert, Inserted, Reply, RowsReply, Said, Subscribed, SubscribedRows, Who
from headrace.sql.parse import parse
from headrace.time import INFINITY
from headrace.tracing.traced import TracedRun

SCHEMA = pa.schema(
    [("kind", pa.string()), ("le", pa.int64()), ("re", pa.int64()), ("re_new", pa.int64()), ("n", pa.int64())]
)


class StandIn:
    """Tokens are the names of roles, unless there is a list of real ones."""

    def __init__(self, tokens: Tokens | None = None, *, required: bool = False) -> None:
        self.tokens, self.required = tokens, required
        self.streams: dict[str, list[int]] = {"numbers": []}
        self.keys: dict[str, int] = {}
        self.first = 0
        self.changed = threading.Condition()
        self.listeners: set[Callable[[], None]] = set()
        self.open: list[str] = []
        self.subscribed: list[StandInSubscription] = []
        self.cancelled = threading.Event()
        self.well = self.alive = True

    def connect(self, who: Who, origin: str = "") -> StandInConnection:
        del origin
        return StandInConnection(self, who)

    def authenticate(self, token: str | None, *, loopback: bool) -> Who:
        if self.tokens is not None:
            return self.tokens.authenticate(token, loopback=loopback)
        if token in ("reader", "writer", "admin"):
            return Who(f"a {token}", token)  # type: ignore[arg-type]
        if token is None and loopback and not self.required:
            return LOCAL
        raise AccessError("this token is not known")

    def health(self) -> Mapping[str, Any]:
        return {
            "alive": self.alive,
            "ok": self.alive and self.well,
            "version": "0",
            "queries": {"q": "running", "old": "stopped"},
        }

    def query_figures(self) -> Sequence[QueryFigures]:
        return [
            QueryFigures(
                "q", "running", 3, counts={"numbers": {"rows": 5, "late": 1}}, batch_seconds=[0.5, 0.25],
                sources=[Reached("numbers", 1704067200_000000, 1704067200_000000, dates=True)],
                operators=[OperatorFigures("join", 2, 64, "numbers")],
            )
        ]  # fmt: skip

    def trace(self, name: str, *, batch_rows: int | None = None, batches: tuple[int, int] | None = None) -> TracedRun:
        raise ServerError("nothing is traced here", given=f"{name}, {batch_rows}, {batches}")

    def watch(self, query: str | None = None, part: str = "now", since: float = 0.0) -> Mapping[str, Any]:
        if query not in (None, "q"):
            raise ServerError(f"there is no query {query!r}", given=query, allowed="q")
        return {"query": query, "part": part, "since": since}

    def check(self, who: Who, text: str, caret: int | None) -> Mapping[str, Any]:
        return {"error": None, "checked": [who.name, text, caret]}

    def figures(self) -> Mapping[str, Any]:
        return {"subscribers": len(self.subscribed), "log_bytes": dict.fromkeys(self.streams, 100)}

    def add(self, name: str, values: Sequence[int]) -> None:
        with self.changed:
            self.streams[name] += values
            self.changed.notify_all()
        for wake in list(self.listeners):
            wake()

    def listen(self, wake: Callable[[], None]) -> None:
        self.listeners.add(wake)

    def unlisten(self, wake: Callable[[], None]) -> None:
        self.listeners.discard(wake)


def answer() -> pa.Table:
    """A number that floats would round, a time, and a value that JSON lacks."""
    return pa.table({
        "n": pa.array([1, (1 << 53) + 1]),
        "at": pa.array([0, None], pa.timestamp("us", "UTC")),
        "x": pa.array([1.5, float("nan")]),
    })  # fmt: skip


def unknown_stream(name: str, known: Mapping[str, Any]) -> ServerError:
    return ServerError(f"there is no stream {name!r}", given=name, allowed=", ".join(known))


class StandInConnection:
    def __init__(self, server: StandIn, who: Who) -> None:
        self.server, self.who = server, who
        server.open.append(who.name)

    def execute(self, text: str) -> Iterator[Reply]:  # noqa: C901 - a list of made-up statements
        for statement in parse(text).statements:
            check_role(self.who, needs(statement), type(statement).__name__)
        for line in text.split(";"):
            word = line.strip().partition(" ")[0].upper()
            if word == "SELECT":
                yield RowsReply("SELECT", answer(), ("a note",))
            elif word == "SHOW":
                yield RowsReply("SHOW", pa.table({"name": pa.array(list(self.server.streams))}))
            elif word == "INSERT":
                self.server.add("numbers", [1])
                yield Said("INSERT", "1 row", 1)
            elif word == "DESCRIBE":
                yield Subscribed("SUBSCRIBE", self.subscribe("numbers"))
            elif word == "EXPLAIN":
                self.server.cancelled.wait(PATIENCE)
                yield Said("EXPLAIN", "late")
            elif word == "VERIFY":
                raise RuntimeError("a password is hunter2")
            elif word == "DROP":
                start = text.index("DROP")
                raise SqlError.of("there is nothing to drop", text, (start, start + 4), given="x", allowed="y")
            elif word:
                yield Said(word, "done")

    look_up = execute

    def columns(self, text: str, *, guess: bool = False) -> pa.Schema | None:
        raise NotImplementedError

    def insert(self, stream: str, rows: pa.Table | list[dict[str, Any]], key: str | None = None) -> int:
        if stream not in self.server.streams:
            raise unknown_stream(stream, self.server.streams)
        if key is not None and key in self.server.keys:
            return self.server.keys[key]
        values = rows.to_pylist() if isinstance(rows, pa.Table) else rows
        for row in values:
            if set(row) != {"n"}:
                raise UnknownColumn.of(next(iter({*row} - {"n"}), ""), ["n"])
        self.server.add(stream, [row["n"] for row in values])
        if key is not None:
            self.server.keys[key] = len(values)
        return len(values)

    def insert_all(self, stream: str, inserts: Sequence[Insert]) -> Future[Inserted]:
        counts: list[int] = []
        done: Future[Inserted] = Future()
        try:
            counts += [self.insert(stream, rows, key) for rows, key in inserts]
            done.set_result(Inserted(counts))
        except HeadraceError as error:
            done.set_result(Inserted(counts, error))
        return done

    def subscribe(
        self, name: str, form: Form = "events", cursor: str | None = None, key: Sequence[str] = ()
    ) -> StandInSubscription:
        del form, key
        if name not in self.server.streams:
            raise unknown_stream(name, self.server.streams)
        if cursor is not None and int(cursor) < self.server.first:
            raise SubscriptionError("no longer kept", given=cursor, allowed=f"{self.server.first} or later")
        return StandInSubscription(self.server, name, None if cursor is None else int(cursor))

    def install_modules(self, wheel: bytes) -> Said:
        return Said("INSTALL MODULES", f"{len(wheel)} bytes")

    def remove_modules(self, package: str) -> Said:
        return Said("REMOVE MODULES", package)

    def cancel(self) -> None:
        self.server.cancelled.set()

    def close(self) -> None:
        self.server.open.remove(self.who.name)


class StandInSubscription:
    """A snapshot of what there is, in pieces without a cursor but for the last; then what is added."""

    schema = SCHEMA

    def __init__(self, server: StandIn, name: str, place: int | None) -> None:
        self.server, self.name = server, name
        self.source, self.at_hand = server, False
        self.place = place or 0
        self.snapshot_end = len(server.streams[name]) if place is None else 0
        self.closed = False
        server.subscribed.append(self)

    def next(self, timeout: float | None = None, rows: int | None = None) -> SubscribedRows | None:
        stream = self.server.streams[self.name]
        until = time.monotonic() + (timeout or 0)
        with self.server.changed:
            while self.place >= len(stream):
                if not self.server.changed.wait(max(0, until - time.monotonic())):
                    return None
            snapshot = self.place < self.snapshot_end
            end = self.snapshot_end if snapshot else len(stream)
            values = stream[self.place : end][: rows or 10_000]
        self.place += len(values)
        if -1 in values:
            raise SubscriptionError("it ends here", given="-1")
        columns = [["insert"] * len(values), values, [INFINITY] * len(values), [None] * len(values), values]
        table = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
        cursor = "" if snapshot and self.place < self.snapshot_end else str(self.place)
        return SubscribedRows(table, cursor, self.place, snapshot)

    def close(self) -> None:
        if not self.closed:
            self.server.subscribed.remove(self)
        self.closed = True
