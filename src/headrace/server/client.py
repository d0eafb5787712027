"""The client of a server for Python: `hr.connect(url)`.

Statements go in as text and answers come out as Arrow tables. A stream of the server has the methods that a stream has
here: `cht()`, `rows()`, `to_pandas()`; and `subscribe()`, `insert()`, `publish()`. What the server raises is raised
here, as the same class.

A subscription continues by its cursor when the connection breaks or the server starts again. Rows are given when the
cursor after them has arrived, so that none comes twice; of a snapshot, that is all of it at once.
"""

from __future__ import annotations

import io
import json
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import HeadraceError, ServerError, Unavailable
from headrace.server.arrow_messages import ArrowMessages
from headrace.server.interface import Form, Reply, RowsReply, Said
from headrace.server.problems import error_from_json

if TYPE_CHECKING:  # loaded when somebody connects
    import httpx
    import pandas as pd

__all__ = ["Client", "ServerStream", "Subscriber", "connect"]

_ARROW = "application/vnd.apache.arrow.stream"
#: A server that lives shows it every 15 seconds.
_SILENCE = 45.0
_PAUSES = (0.05, 0.2, 0.5, 1.0, 2.0)


def connect(
    url: str, token: str | None = None, *, ca: str | Path | None = None, timeout: float = 60.0, patience: float = 60.0
) -> Client:
    """A client of the server at `url`, such as `http://localhost:8080`.

    `token` is what `headrace token create` printed; a server on this machine may need none. `ca` is a PEM file with the
    certificates that are trusted, for a server whose certificate nobody else knows. A request fails after `timeout`
    seconds, and a subscription when the server does not answer for `patience` seconds.
    """
    return Client(url, token, ca=ca, timeout=timeout, patience=patience)


class Client:
    """A client of a server; `with hr.connect(url) as client:` closes it."""

    def __init__(
        self, url: str, token: str | None = None, *, ca: str | Path | None = None, timeout: float = 60.0,
        patience: float = 60.0,
    ) -> None:  # fmt: skip
        self.url, self.patience = url.rstrip("/"), patience
        self.transport = Transport(self.url, token, timeout, ca)

    def __repr__(self) -> str:
        return f"hr.connect({self.url!r})"

    def sql(self, text: str) -> pa.Table:
        """Carry out statements; the rows of the last one, without columns if it has none."""
        replies = self.replies(text)
        last = replies[-1] if replies else None
        return last.table if isinstance(last, RowsReply) else pa.table({})

    def replies(self, text: str) -> list[Reply]:
        """Carry out statements; the reply to each: `RowsReply` or `Said`."""
        return self._tables("POST", "/sql", text=text, json={"sql": text})

    def _tables(self, method: str, path: str, **request: Any) -> list[Reply]:
        reply = self.transport.request(method, path, headers={"accept": _ARROW}, **request)
        body, found = io.BytesIO(reply.content), []
        while body.tell() < len(reply.content):
            found.append(_reply(pa.ipc.open_stream(body).read_all()))
        return found

    def trace(self, query: str, tables: Sequence[str] = ("operators", "changes"), **options: Any) -> list[pa.Table]:
        """Tables of the trace of a query: text, operators, batches, edges, changes.

        Options: `batches="120..140"`, batches as they ran; else everything is computed again, with `batch_rows` rows in
        a batch. `operator`: changes only of this one, by its number; 0 is that of the answer. `question="why"`, or
        why_not, why_retracted, why_cti, forward, about the event with a `condition="symbol = 'A'"` and `at` a time:
        the answer is the last table.
        """
        given = {name: str(value) for name, value in options.items() if value is not None}
        found = self._tables(
            "GET", f"/queries/{quote(query, safe='')}/trace", params={"tables": ",".join(tables), **given}
        )
        return [reply.table for reply in found if isinstance(reply, RowsReply)]

    def stream(self, name: str) -> ServerStream:
        """A stream, a table, a view or a query of the server, by its name."""
        return ServerStream(self, name)

    __getitem__ = stream

    def install_modules(self, wheel: str | Path) -> str:
        """Install the modules of a wheel on the server, for an administrator; what the server says."""
        path = Path(wheel)
        if not path.is_file():
            raise ServerError(f"there is no file {str(path)!r}", given=str(path), instead="the path of a wheel")
        headers = {"content-type": "application/zip"}
        return self._said("POST", "/modules", content=path.read_bytes(), headers=headers)

    def remove_modules(self, package: str) -> str:
        """Remove a package of modules that nothing on the server uses; what the server says."""
        return self._said("DELETE", f"/modules/{quote(package, safe='')}")

    def _said(self, method: str, path: str, **request: Any) -> str:
        return str(self.transport.request(method, path, **request).json()["replies"][0]["message"])

    def health(self) -> dict[str, Any]:
        """Whether all is well, and the state of every query."""
        found: dict[str, Any] = self.transport.request("GET", "/health", most=503).json()
        return found

    def close(self) -> None:
        """Close its connections."""
        self.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ServerStream:
    """A stream, a table, a view or a query of a server."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name

    def __repr__(self) -> str:
        return f"{self.client!r}[{self.name!r}]"

    def cht(self) -> pa.Table:
        """The history so far: `le`, `re` and the columns."""
        parts = {"only": "snapshot"}
        reply = self.client.transport.request("GET", self.path("subscribe"), params=parts, headers={"accept": _ARROW})
        table = pa.ipc.open_stream(reply.content).read_all()
        return table.filter(pc.equal(table["kind"], "insert")).drop_columns(["kind", "re_new"])

    def rows(self) -> pa.Table:
        """The present answer: `SELECT * FROM name`."""
        quoted = self.name.replace('"', '""')
        return self.client.sql(f'SELECT * FROM "{quoted}"')  # noqa: S608 - the server parses it

    def to_pandas(self) -> pd.DataFrame:
        """The present answer as a data frame."""
        frame: pd.DataFrame = self.rows().to_pandas()
        return frame

    def subscribe(
        self, form: Form = "events", cursor: str | None = None, *, key: Sequence[str] = (), rows: int | None = None
    ) -> Subscriber:
        """The present answer, then its changes: an iterator, or an async iterator, of Arrow batches.

        With a cursor, only what follows it. `key` are the columns that identify a row, for `upsert`; at most `rows`
        rows are sent at once.
        """
        return Subscriber(self, form, cursor, key=key, rows=rows)

    def insert(self, rows: Any, key: str | None = None) -> int:
        """Insert an Arrow table, a data frame, a dict or a list of dicts; returns when the rows are on disk.

        The number of rows. A call that is repeated with the same `key` inserts nothing. Without one, the call has a key
        of its own, and is repeated if the connection breaks.
        """
        table = _table(rows)
        body = io.BytesIO()
        with pa.ipc.new_stream(body, table.schema) as stream:
            stream.write_table(table)
        headers = {"content-type": _ARROW, "idempotency-key": key or str(uuid.uuid4())}
        until = time.monotonic() + self.client.patience
        for pause in (*_PAUSES, None):
            try:
                reply = self.client.transport.request(
                    "POST", f"{self.path('streams')}/rows", content=body.getvalue(), headers=headers
                )
                return int(reply.json()["rows"])
            except Unavailable:
                if pause is None or time.monotonic() > until:
                    raise
                time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def publish(self, batches: Iterable[Any], key: str | None = None) -> int:
        """Insert batches one after the other; with a `key`, the same batches again insert what is missing."""
        key = key or str(uuid.uuid4())
        return sum(self.insert(batch, f"{key}/{number}") for number, batch in enumerate(batches))

    def path(self, route: str) -> str:
        """The address of one of its routes."""
        return f"/{route}/{quote(self.name, safe='')}"


class Subscriber:
    """A subscription: iterate over it, or over `frames()`.

    `cursor` is the place after the last batch that was given, with which another subscription continues; `cti` is the
    promise in force there, in ticks.
    """

    def __init__(
        self, stream: ServerStream, form: Form, cursor: str | None, *, key: Sequence[str], rows: int | None
    ) -> None:
        self.stream, self.form, self.cursor = stream, form, cursor
        self.cti: int | None = None
        self._key, self._rows = tuple(key), rows
        self._failed = 0
        self._silent_since = time.monotonic()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        transport = self.stream.client.transport
        self._begin()
        while True:
            try:
                with transport.reading() as http, http.stream("GET", self._path(), **self._request()) as reply:
                    if reply.status_code >= 400:
                        _check(reply, reply.read())
                    messages = ArrowMessages()
                    for part in reply.iter_bytes():
                        yield from self._given(messages, part)
            except (transport.httpx.TransportError, Unavailable) as error:
                time.sleep(self._pause(error))
            else:
                time.sleep(self._pause(None))

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        import anyio  # httpx brings it

        transport = self.stream.client.transport
        self._begin()
        while True:
            try:
                async with (
                    transport.reading_async() as http,
                    http.stream("GET", self._path(), **self._request()) as reply,
                ):
                    if reply.status_code >= 400:
                        _check(reply, await reply.aread())
                    messages = ArrowMessages()
                    async for part in reply.aiter_bytes():
                        for batch in self._given(messages, part):
                            yield batch
            except (transport.httpx.TransportError, Unavailable) as error:
                pause = self._pause(error)
            else:
                pause = self._pause(None)
            await anyio.sleep(pause)

    def frames(self) -> Iterator[pd.DataFrame]:
        """The batches as data frames."""
        for batch in self:
            yield batch.to_pandas()

    def _path(self) -> str:
        return self.stream.path("subscribe")

    def _request(self) -> dict[str, Any]:
        self._held: list[pa.RecordBatch] = []
        wanted = {"form": self.form, "cursor": self.cursor, "key": ",".join(self._key), "rows": self._rows}
        params = {name: value for name, value in wanted.items() if value not in (None, "")}
        return {"params": params, "headers": {"accept": _ARROW}}

    def _given(self, messages: ArrowMessages, part: bytes) -> Iterator[pa.RecordBatch]:
        """The batches that end with a cursor."""
        for batch, about in messages.feed(part):
            self._begin()  # the server lives
            if b"headrace.error" in about:
                raise error_from_json(json.loads(about[b"headrace.error"]))
            if batch.num_rows:
                self._held.append(batch)
            if cursor := about.get(b"headrace.cursor", b"").decode():
                *given, last = self._held or [None]
                self._held = []
                yield from given
                self.cursor, self.cti = cursor, int(about[b"headrace.cti"])
                if last is not None:
                    yield last

    def _begin(self) -> None:
        self._failed, self._silent_since = 0, time.monotonic()

    def _pause(self, error: Exception | None) -> float:
        """How long to wait before the next attempt; `Unavailable` if there were attempts for long enough."""
        if time.monotonic() - self._silent_since > self.stream.client.patience:
            raise Unavailable(
                f"the server does not answer: {error or 'it ends the subscription'}", given=self.stream.client.url,
                instead=f"subscribe(cursor={self.cursor!r}), when it does",
            ) from error  # fmt: skip
        self._failed += 1
        return _PAUSES[min(self._failed, len(_PAUSES)) - 1]


class Transport:
    """Requests to a server; what it raises is raised here."""

    def __init__(self, url: str, token: str | None, timeout: float, ca: str | Path | None = None) -> None:
        place = urlsplit(url)
        if place.scheme not in ("http", "https") or not place.hostname:
            raise ServerError("this is no address of a server", given=url, instead="http://localhost:8080")
        try:
            import httpx  # an extra, and takes time to load
        except ImportError as error:
            raise ServerError("a client needs httpx", instead="pip install 'headrace[server]'") from error
        self.httpx, self.url = httpx, url
        self._options: dict[str, Any] = {
            "base_url": url,
            "headers": {} if token is None else {"authorization": f"Bearer {token}"},
            "timeout": httpx.Timeout(timeout, read=max(timeout, _SILENCE)),
            # One for all its connections: to read the certificates takes 25 ms.
            "verify": httpx.create_ssl_context() if ca is None else _trusting(ca),
            "trust_env": place.hostname not in ("localhost", "127.0.0.1", "::1"),  # no proxy to this machine
        }
        self._client = httpx.Client(**self._options)

    def request(self, method: str, path: str, *, text: str = "", most: int = 399, **request: Any) -> httpx.Response:
        """The reply to a request, with a status of at most `most`."""
        try:
            reply = self._client.request(method, path, **request)
        except self.httpx.TransportError as error:
            raise Unavailable(
                f"the server does not answer: {str(error) or type(error).__name__}", given=self.url,
                instead="headrace serve, or another address",
            ) from error  # fmt: skip
        if reply.status_code > most:
            _check(reply, reply.content, text)
        return reply

    def reading(self) -> httpx.Client:
        """A client for one subscription."""
        return self.httpx.Client(**self._options)

    def reading_async(self) -> httpx.AsyncClient:
        """A client for one subscription, in an event loop."""
        return self.httpx.AsyncClient(**self._options)

    def close(self) -> None:
        self._client.close()


def _trusting(ca: str | Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca))
    except (OSError, ssl.SSLError) as error:
        raise ServerError(
            f"the certificates cannot be read: {error}", given=str(ca), allowed="a file of certificates, as PEM"
        ) from error


def _check(reply: httpx.Response, body: bytes, text: str = "") -> None:
    """Raise what the server raised."""
    if reply.status_code < 400:
        return
    try:
        found = json.loads(body)
        error: HeadraceError = error_from_json(found if isinstance(found, dict) else {}, text)
    except ValueError:
        error = ServerError(f"the server answers {reply.status_code}", given=body[:200].decode(errors="replace"))
    raise error


def _reply(table: pa.Table) -> Reply:
    about = {name.decode(): value.decode() for name, value in (table.schema.metadata or {}).items()}
    tag = about.pop("headrace.tag", "")
    if "headrace.message" in about:
        return Said(tag, about["headrace.message"], json.loads(about["headrace.count"]))
    notes = tuple(json.loads(about.pop("headrace.notes", "[]")))
    return RowsReply(tag, table.replace_schema_metadata(about or None), notes)


def _table(rows: Any) -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, dict):
        rows = [rows]
    if isinstance(rows, list | tuple):
        names = dict.fromkeys(name for row in rows for name in row)
        return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.table(rows)
    return pa.Table.from_pandas(rows, preserve_index=False)
