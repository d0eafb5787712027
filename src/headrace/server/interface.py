"""What ways into the server see of it: connections, replies and subscriptions.

Calls block, unless they return a future; ways in with an event loop call them in threads. Errors are `HeadraceError`s,
whose text a client may see: it never contains secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import pyarrow as pa

from headrace.metrics.queries import QueryFigures
from headrace.tracing.traced import TracedRun

__all__ = [
    "Connection", "Form", "Grows", "Insert", "Inserted", "Reply", "Role", "RowsReply", "Said", "Server", "Subscribed",
    "SubscribedRows", "Subscription", "Who",
]  # fmt: skip

Role = Literal["reader", "writer", "admin"]
#: What a subscriber gets: physical events (`kind, le, re, re_new` and the columns), the latest row of each key
#: (`_op` is `upsert` or `delete`), or rows that nothing changes any more (`le, re` and the columns).
Form = Literal["events", "upsert", "final"]


@dataclass(frozen=True)
class Who:
    """A client: the name of its token, or `local` on loopback without tokens; and what it may do."""

    name: str
    role: Role


@dataclass(frozen=True)
class Reply:
    """The reply to a statement. `tag` names the statement as PostgreSQL does: `SELECT`, `CREATE STREAM`, `INSERT`."""

    tag: str


@dataclass(frozen=True)
class RowsReply(Reply):
    """Rows: of a query over what holds now, of SHOW, DESCRIBE and EXPLAIN."""

    table: pa.Table
    #: What a person should know too, such as rows that were not used.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Said(Reply):
    """A statement was carried out; `count` is the number of rows that it changed, if it changes rows."""

    message: str
    count: int | None = None


class Insert(NamedTuple):
    """Rows to insert. `key` identifies them: repeated with the same key, they insert nothing."""

    rows: pa.Table | list[dict[str, Any]]
    key: str | None = None


class Inserted(NamedTuple):
    """How many rows each of several inserts has, up to one that was refused, and why that was."""

    counts: list[int]
    error: Exception | None = None


@dataclass(frozen=True)
class SubscribedRows:
    """Some rows of a subscription, and the cursor after them. `cti` is the promise in force after them, in ticks."""

    rows: pa.Table
    cursor: str
    cti: int
    #: Whether they belong to the snapshot with which a subscription begins.
    snapshot: bool = False
    #: The piece as bytes, by their kind, for all subscribers that get it; ways in fill it.
    encoded: dict[str, bytes] = field(default_factory=dict, compare=False, repr=False)


class Grows(Protocol):
    """What subscriptions read. A function that listens is called, in any thread, when there may be more."""

    def listen(self, wake: Callable[[], None]) -> None: ...
    def unlisten(self, wake: Callable[[], None]) -> None: ...


class Subscription(Protocol):
    """A place in a stream of answers."""

    #: The columns of its pieces.
    schema: pa.Schema

    @property
    def source(self) -> Grows:
        """What it reads."""

    @property
    def at_hand(self) -> bool:
        """Whether `next` that waits for nothing is so quick that an event loop may call it."""

    def next(self, timeout: float | None = None, rows: int | None = None) -> SubscribedRows | None:
        """The next rows, at most so many; None if there are none within `timeout` seconds.

        A cursor that is older than what is kept raises `SubscriptionError`, which names the first one that is.
        """

    def close(self) -> None:
        """End it."""


@dataclass(frozen=True)
class Subscribed(Reply):
    """A `SUBSCRIBE` statement: the subscription, which the client reads and closes."""

    subscription: Subscription


class Connection(Protocol):
    """One client: its role, its settings (`SET`), its statements. One thread at a time."""

    who: Who

    def execute(self, text: str) -> Iterator[Reply]:
        """Carry out the statements of a text, one after the other."""

    def look_up(self, text: str) -> Iterator[Reply]:
        """Carry out a `SHOW` or `DESCRIBE` for the way in itself: the audit log does not have it."""

    def columns(self, text: str, *, guess: bool = False) -> pa.Schema | None:
        """The columns of the rows that a statement will reply with; None if it replies with none.

        `guess`: the client has not sent this text, and the audit log does not have what is wrong with it.
        """

    def insert(self, stream: str, rows: pa.Table | list[dict[str, Any]], key: str | None = None) -> int:
        """Insert rows into a table or into a stream that clients feed, and return how many, when they are on disk.

        `key` identifies the call: one that is repeated with the same key inserts nothing, and returns the same.
        """

    def insert_all(self, stream: str, inserts: Sequence[Insert]) -> Future[Inserted]:
        """Begin several inserts, each for itself, in order up to one that is refused. This call does not block.

        The future is done when they are on disk; it has the error of the refused one, and raises none.
        """

    def subscribe(
        self, name: str, form: Form = "events", cursor: str | None = None, key: Sequence[str] = ()
    ) -> Subscription:
        """The present answer of a stream, a query, a table or a materialized view, and then its changes.

        With a cursor, only what follows it. `key` are the columns that identify a row, for `upsert`.
        """

    def install_modules(self, wheel: bytes) -> Said:
        """Install the modules of a wheel, as a whole or not at all; for administrators."""

    def remove_modules(self, package: str) -> Said:
        """Remove a package of modules that nothing uses; for administrators."""

    def cancel(self) -> None:
        """Interrupt the running statement, from another thread."""

    def close(self) -> None:
        """End it; subscriptions of this connection end too."""


class Server(Protocol):
    """A running server."""

    def connect(self, who: Who, origin: str = "") -> Connection:
        """A connection of a client; its way in has checked who it is. `origin` is its address, for the audit log."""

    def authenticate(self, token: str | None, *, loopback: bool) -> Who:
        """Who a token belongs to; `AccessError` if it is unknown, or if one is needed."""

    def health(self) -> Mapping[str, Any]:
        """What `/health` shows: `alive`, whether the server needs no new start; `ok`, whether its queries are well;
        and the state of every query.
        """

    def trace(self, name: str, *, batch_rows: int | None = None, batches: tuple[int, int] | None = None) -> TracedRun:
        """The trace of a query over what its streams and tables have now, or of batches (`server/tracing.py`)."""

    def check(self, who: Who, text: str, caret: int | None) -> Mapping[str, Any]:
        """What is wrong with a text, or the plan of its query (`server/checking.py`). Nothing is carried out."""

    def query_figures(self) -> Sequence[QueryFigures]:
        """What `/metrics` shows of every query that runs: `report` (`BatchReport`) and `batch_seconds` of the last."""

    def watch(self, query: str | None = None, part: str = "now", since: float = 0.0) -> Mapping[str, Any]:
        """What the dashboard shows of all queries, or of one: `now` (since a time), its `plan` or its `checkpoint`."""

    def figures(self) -> Mapping[str, Any]:
        """What `/metrics` shows of the server: `subscribers`, and `log_bytes` of every log by its name."""
