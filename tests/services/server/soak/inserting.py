"""Clients that insert rows into `readings`, each in its own way.

By HTTP and `hr.connect` an insert has a key, and is repeated until it is acknowledged, and now and then after that.
SQL has no keys: after a disconnect, such a client looks whether its rows are there, and repeats them if they are not.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Sequence

import httpx
import psycopg
import pyarrow as pa
from tests.services.server.soak.client import LOST, Shared, SoakClient
from tests.services.server.soak.rows import Row

import headrace as hr

__all__ = ["ArrowInserter", "ConnectInserter", "JsonInserter", "LinesInserter", "PsycopgInserter", "ShellInserter"]

_SECONDS = 60.0
_SCHEMA = pa.schema(
    [("id", pa.int64()), ("sensor", pa.string()), ("reading", pa.int64()), ("ts", pa.timestamp("us", "UTC"))]
)


def table_of(rows: Sequence[Row]) -> pa.Table:
    """Rows as Arrow."""
    return pa.Table.from_pylist([row.values() for row in rows], schema=_SCHEMA)


class Inserter(SoakClient):
    """Inserts some rows, and waits; `late` is the share of rows that are too late."""

    late = 0.02
    rows = 20
    seconds = 0.4

    def work(self) -> None:
        while rows := self.shared.ledger.take(
            self.chance, self.chance.randrange(1, self.rows), self.late, self.shared.stopping
        ):
            self.insert(rows)
            self.shared.ledger.acknowledge(rows)
            self.shared.count("inserts acknowledged")
            self.pause(self.seconds)

    @abstractmethod
    def insert(self, rows: list[Row]) -> None:
        """Insert rows; they are on disk when it returns."""


class KeyedInserter(Inserter):
    """Inserts with keys."""

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name)
        self._done: list[tuple[str, list[Row]]] = []

    def insert(self, rows: list[Row]) -> None:
        key = f"{self.name}/{rows[0].id}"
        self._until_acknowledged(key, rows)
        self._done.append((key, rows))
        if self.chance.random() < 0.1:
            self._until_acknowledged(*self.chance.choice(self._done[-100:]))
            self.shared.count("repeats of what was acknowledged")

    def _until_acknowledged(self, key: str, rows: list[Row]) -> None:
        while True:
            try:
                count = self.put(key, rows)
            except LOST:
                self.lost()
                self.shared.count("repeats after a disconnect")
                continue
            assert count == len(rows), f"{count} rows acknowledged, of {len(rows)}"
            return

    @abstractmethod
    def put(self, key: str, rows: list[Row]) -> int:
        """Insert rows under a key; the number that is acknowledged."""


class HttpInserter(KeyedInserter):
    """Inserts by HTTP, on one connection as long as it lives."""

    kind = "application/json"
    route = "/streams/readings/rows"

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name)
        self._http = self.connections.enter_context(httpx.Client(base_url=shared.server.url, timeout=_SECONDS))

    def put(self, key: str, rows: list[Row]) -> int:
        headers = {"content-type": self.kind, "idempotency-key": key}
        reply = self._http.post(self.route, content=self.body(rows), headers=headers)
        if reply.status_code == 503:  # it stops
            raise ConnectionError(reply.text)
        assert reply.status_code == 200, f"{reply.status_code}: {reply.text}"
        return self.acknowledged(reply.text)

    def body(self, rows: list[Row]) -> bytes:
        return json.dumps([row.json() for row in rows]).encode()

    def acknowledged(self, text: str) -> int:
        return int(json.loads(text)["rows"])


class JsonInserter(HttpInserter):
    """A JSON array for each insert."""


class LinesInserter(HttpInserter):
    """JSON lines, acknowledged in batches of seven while they are read."""

    kind = "application/x-ndjson"
    route = "/streams/readings/rows?batch=7"

    def body(self, rows: list[Row]) -> bytes:
        return b"".join(json.dumps(row.json()).encode() + b"\n" for row in rows)

    def acknowledged(self, text: str) -> int:
        last = json.loads(text.splitlines()[-1])
        assert "error" not in last, text
        return int(last["total"])


class ArrowInserter(HttpInserter):
    """An Arrow stream for each insert."""

    kind = "application/vnd.apache.arrow.stream"

    def body(self, rows: list[Row]) -> bytes:
        body, table = io.BytesIO(), table_of(rows)
        with pa.ipc.new_stream(body, table.schema) as stream:
            stream.write_table(table)
        return body.getvalue()


class ConnectInserter(KeyedInserter):
    """Inserts with `hr.connect`."""

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name)
        self._client = self.connections.enter_context(hr.connect(shared.server.url, timeout=_SECONDS))

    def put(self, key: str, rows: list[Row]) -> int:
        return self._client["readings"].insert(table_of(rows), key=key)


class UnkeyedInserter(Inserter):
    """Inserts by SQL, and looks after a disconnect whether the rows are there."""

    late = 0.0

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name)
        self._looking = self.connections.enter_context(hr.connect(shared.server.url, timeout=_SECONDS))

    def insert(self, rows: list[Row]) -> None:
        text = f"INSERT INTO readings (id, sensor, reading, ts) VALUES {', '.join(row.sql() for row in rows)}"
        while not self._inserted(text):
            self.lost()
            if self._is_there(rows[0]):
                self.shared.count("found there after a disconnect")
                return
            self.shared.count("repeats after a disconnect")

    def _inserted(self, text: str) -> bool:
        try:
            self.execute(text)
        except LOST:
            return False
        return True

    def _is_there(self, row: Row) -> bool:
        while True:
            try:
                return self._looking.sql(f"SELECT id FROM raw WHERE id = {row.id}").num_rows > 0
            except LOST:
                self.lost()

    @abstractmethod
    def execute(self, text: str) -> None:
        """Carry out a statement."""


class PsycopgInserter(UnkeyedInserter):
    """Inserts with psycopg, on one connection as long as it lives."""

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name)
        self._connection: psycopg.Connection | None = None

    def execute(self, text: str) -> None:
        try:
            if self._connection is None:
                self._connection = psycopg.connect(self.shared.server.dsn, autocommit=True)
                self.connections.callback(self._connection.close)
            self._connection.execute(text.encode())
        except psycopg.OperationalError:
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            raise


class ShellInserter(UnkeyedInserter):
    """Inserts with `headrace sql --server`, a process for each insert."""

    seconds = 6.0

    def execute(self, text: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "headrace", "sql", "--server", self.shared.server.url, "-c", text],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            if "does not answer" in done.stderr:
                raise ConnectionError(done.stderr)
            raise AssertionError(done.stderr)
        assert "inserted into readings" in done.stderr, done.stderr
