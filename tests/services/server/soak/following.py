"""Clients that follow a query by HTTP, `hr.connect` and psycopg.

Each folds the rows that it gets, up to the last cursor; when the connection breaks, what follows the cursor is dropped
and asked for again. A client ends when it has the last row of the stream.
"""

from __future__ import annotations

import asyncio
import http.client
import json
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg
import pyarrow as pa
from tests.services.server.soak.client import LOST, Shared, SoakClient
from tests.services.server.soak.folding import EventsFold, FinalFold, Fold, UpsertFold
from tests.services.server.soak.rows import END

import headrace as hr
from headrace.server.client import Subscriber
from headrace.server.interface import Form

__all__ = [
    "ArrowFollower", "AsyncFollower", "ConnectFollower", "Follower", "PsycopgFollower", "SentEventsFollower", "Wanted",
]  # fmt: skip

_SILENCE = 45.0
_FOLDS = {"events": EventsFold, "final": FinalFold, "upsert": UpsertFold}
_COLUMNS = {
    "sums": ("sensor", "total", "n"), "peaks": ("sensor", "peak", "n"), "large": ("sensor", "total"),
    "stock": ("item", "amount", "n"), "places": ("place", "devices", "weight"),
}  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """What a client follows, and how: it may read slowly, and leave and come back."""

    stream: str
    form: Form = "events"
    slow: float = 0.0
    leaves: float = 0.0
    rows: int = 1000

    @property
    def columns(self) -> tuple[str, ...]:
        return _COLUMNS[self.stream]

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row, for upserts."""
        return self.columns[:1] if self.form == "upsert" else ()

    def statement(self, cursor: str | None) -> str:
        """The subscription in SQL."""
        since = f" AS OF '{cursor}'" if cursor else ""
        key = f" ({', '.join(self.key)})" if self.key else ""
        return f"SUBSCRIBE {self.stream}{since} WITH {self.form.upper()}{key}"


class Follower(SoakClient):
    """Follows a stream to its end."""

    def __init__(self, shared: Shared, name: str, wanted: Wanted) -> None:
        super().__init__(shared, name)
        self.wanted = wanted
        self.fold: Fold = _FOLDS[wanted.form](wanted.columns, wanted.key)
        self.cursor: str | None = None
        self.finished = False
        self._held: list[Mapping[str, Any]] = []

    def work(self) -> None:
        while not self.finished and not self.shared.ended.is_set():
            self._held = []
            try:
                self.follow()
            except LOST:
                self.lost()

    @abstractmethod
    def follow(self) -> None:
        """Follow from the cursor on, until the client leaves or the connection breaks."""

    def take(self, rows: Iterable[Mapping[str, Any]], cursor: str | None) -> bool:
        """Take rows, and the cursor after them if there is one; whether the client stays."""
        self._held += rows
        if not cursor:
            return True
        for row in self._held:
            self.fold.add(row)
            self.finished |= END in (row.get(name) for name in self.wanted.columns)
        self._held, self.cursor = [], cursor
        if self.finished:
            return False
        if self.shared.stopping.is_set():
            return True
        self.shared.stopping.wait(self.wanted.slow * self.chance.random())
        if self.chance.random() < self.wanted.leaves:
            self.shared.count("left and returned")
            self.shared.stopping.wait(self.chance.random() * 3)
            return False
        return True


class SentEventsFollower(Follower):
    """Server-sent events."""

    def __init__(self, shared: Shared, name: str, wanted: Wanted) -> None:
        super().__init__(shared, name, wanted)
        self._http = self.connections.enter_context(httpx.Client(timeout=httpx.Timeout(10, read=_SILENCE)))

    def follow(self) -> None:
        wanted = {"form": self.wanted.form, "key": ",".join(self.wanted.key), "rows": str(self.wanted.rows)}
        if self.cursor:
            wanted["cursor"] = self.cursor
        url = f"{self.shared.server.url}/subscribe/{self.wanted.stream}"
        with self._http.stream("GET", url, params=wanted) as reply:
            if reply.status_code == 503:
                raise ConnectionError
            assert reply.status_code == 200, reply.read()
            for cursor, rows in self._events(reply.iter_lines()):
                if not self.take(rows, cursor):
                    return

    @staticmethod
    def _events(lines: Iterator[str]) -> Iterator[tuple[str | None, list[dict[str, Any]]]]:
        event: dict[str, str] = {}
        for line in lines:
            if not line:
                if "data" in event:
                    assert event["event"] == "rows", event
                    yield event.get("id"), json.loads(event["data"])["rows"]
                event = {}
            elif not line.startswith(":"):
                name, _, value = line.partition(": ")
                event[name] = value


class ArrowFollower(Follower):
    """An Arrow stream, as pyarrow reads one."""

    def follow(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.shared.server.port, timeout=_SILENCE)
        try:
            self._follow(connection)
        except http.client.HTTPException as error:
            raise ConnectionError from error
        finally:
            connection.close()

    def _follow(self, connection: http.client.HTTPConnection) -> None:
        cursor = f"&cursor={self.cursor}" if self.cursor else ""
        path = f"/subscribe/{self.wanted.stream}?form={self.wanted.form}&rows={self.wanted.rows}{cursor}"
        connection.request("GET", path, headers={"accept": "application/vnd.apache.arrow.stream"})
        reply = connection.getresponse()
        if reply.status == 503:
            raise ConnectionError
        assert reply.status == 200, reply.read()
        try:
            reader = pa.ipc.open_stream(reply)
            while True:
                batch, about = reader.read_next_batch_with_custom_metadata()
                found = dict(about or {})
                assert b"headrace.error" not in found, found
                if not self.take(batch.to_pylist(), found.get(b"headrace.cursor", b"").decode()):
                    return
        except (OSError, StopIteration) as error:
            raise ConnectionError from error
        except pa.ArrowInvalid as error:
            if not reply.isclosed():  # it was not cut off
                raise
            raise ConnectionError from error


class ConnectFollower(Follower):
    """`hr.connect`, which goes on by itself when the connection breaks."""

    def __init__(self, shared: Shared, name: str, wanted: Wanted) -> None:
        super().__init__(shared, name, wanted)
        self._client = self.connections.enter_context(hr.connect(shared.server.url))

    def follow(self) -> None:
        subscriber = self._subscriber()
        for batch in subscriber:
            if not self._taken(subscriber, batch):
                return

    def _subscriber(self) -> Subscriber:
        return self._client[self.wanted.stream].subscribe(
            self.wanted.form, self.cursor, key=self.wanted.key, rows=self.wanted.rows
        )

    def _taken(self, subscriber: Subscriber, batch: pa.RecordBatch) -> bool:
        cursor = subscriber.cursor if subscriber.cursor != self.cursor else None
        return self.take(batch.to_pylist(), cursor)


class AsyncFollower(ConnectFollower):
    """The same in an event loop."""

    def follow(self) -> None:
        asyncio.run(self._follow())

    async def _follow(self) -> None:
        subscriber = self._subscriber()
        batches: AsyncIterator[pa.RecordBatch] = aiter(subscriber)
        async for batch in batches:
            if not self._taken(subscriber, batch):
                await batches.aclose()  # type: ignore[attr-defined]
                return


class PsycopgFollower(Follower):
    """A cursor of psycopg."""

    def follow(self) -> None:
        with psycopg.connect(self.shared.server.dsn, autocommit=True) as connection:
            connection.execute("SET subscribe_timeout = '2 s'")
            connection.execute(f"DECLARE c CURSOR FOR {self.wanted.statement(self.cursor)}".encode())
            while not self.shared.ended.is_set():
                fetched = connection.execute(f"FETCH {self.wanted.rows} FROM c".encode())
                assert fetched.description is not None
                names = [column.name for column in fetched.description]
                for values in fetched.fetchall():
                    row = dict(zip(names, values, strict=True))
                    if not self.take([row], row["_cursor"]):
                        return
