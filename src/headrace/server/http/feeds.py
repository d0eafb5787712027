"""`GET /subscribe/{name}`: a subscription as server-sent events, or as an Arrow stream.

Rows are pulled from the log when the client has taken those before, so a slow client holds nothing back and fills no
memory. One that takes nothing for a minute is disconnected; it continues from its cursor.

An event has the cursor as its `id`, which browsers send back as `Last-Event-ID`. A batch of an Arrow stream has it in
its metadata, with `cti` in ticks and `snapshot`; a batch without rows shows that the stream lives. Inside a snapshot
there are no cursors: it is whole or begins again. `?only=snapshot` ends after it.
"""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

import anyio
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.errors import HeadraceError, SchemaError
from headrace.server.http.replies import ARROW, accepts_arrow, event_data
from headrace.server.http.ways import Ways
from headrace.server.interface import Form, SubscribedRows, Subscription, Who
from headrace.server.problems import error_to_json

__all__ = ["subscribe"]

_FORMS: tuple[Form, ...] = ("events", "upsert", "final")
#: Rows that the event loop turns into bytes itself.
_SMALL = 1_000
#: A message without a description ends an Arrow stream.
_ARROW_END = b"\xff\xff\xff\xff\0\0\0\0"


async def subscribe(ways: Ways, request: Request, who: Who) -> Response:
    """Begin or continue a subscription."""
    name, form = str(request.path_params["name"]), _form(request)
    cursor = request.headers.get("last-event-id") or request.query_params.get("cursor") or None
    key = [column for column in request.query_params.get("key", "").split(",") if column]
    most, only = _most(request, ways.limits.sent_rows), _only(request)
    held = ExitStack()

    def begin() -> Subscription:
        try:
            held.enter_context(ways.subscriptions.use(who))
            connection = held.enter_context(ways.connected(who, request))
            subscription = connection.subscribe(name, form, cursor, *([key] if key else []))
            held.callback(subscription.close)
        except BaseException:
            held.close()
            raise
        return subscription

    what = f"SUBSCRIBE {name} WITH {form.upper()}"
    try:
        subscription = await ways.wait(begin)
    except Exception as error:
        ways.note(request, who, what, error)
        raise
    ways.note(request, who, what)
    make: Callable[[Subscription], _Encoding] = _ArrowBatches if accepts_arrow(request) else _SentEvents
    return _Feed(ways, subscription, make(subscription), held, most, only=only)


def _form(request: Request) -> Form:
    given = request.query_params.get("form", "events")
    for form in _FORMS:
        if given == form:
            return form
    raise SchemaError(f"there is no form {given!r}", given=given, allowed=", ".join(_FORMS), instead="form=events")


def _most(request: Request, allowed: int) -> int:
    given = request.query_params.get("rows", str(allowed))
    if not given.isdecimal() or not 0 < int(given) <= allowed:
        raise SchemaError("this is no number of rows to send at once", given=given, allowed=f"1 to {allowed}")
    return int(given)


def _only(request: Request) -> bool:
    given = request.query_params.get("only", "")
    if given not in ("", "snapshot"):
        raise SchemaError("there is no such part of a subscription", given=given, allowed="only=snapshot")
    return bool(given)


class _Feed(Response):
    """Sends what a subscription gives until the client goes, or the server stops."""

    def __init__(
        self, ways: Ways, subscription: Subscription, encoding: _Encoding, held: ExitStack, most: int, *, only: bool
    ) -> None:
        super().__init__(media_type=encoding.media_type)
        del self.headers["content-length"]
        self.headers["x-accel-buffering"] = "no"
        self.ways, self.subscription, self.encoding, self.held, self.most = ways, subscription, encoding, held, most
        self.only = only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - of the protocol
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_until_gone, receive, tasks.cancel_scope)
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await self._send_all(send)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self.ways.wait(self.held.close)

    async def _send_all(self, send: Send) -> None:
        await self._send(send, self.encoding.begin())
        self.said = time.monotonic()
        try:
            with self.ways.news.about(self.subscription.source) as news:
                while not self.ways.stopping:
                    news.clear()
                    piece = await self._next()
                    if self.only and (piece is None or not piece.snapshot):
                        break
                    if piece is None:
                        await self._wait(send, news)
                        continue
                    self.ways.metrics.sent(piece.rows.num_rows)
                    await self._send(send, await self._encoded(piece))
                    if self.only and piece.cursor:
                        break
        except HeadraceError as error:
            await self._send(send, self.encoding.failure(error))
        except TimeoutError:
            return  # the client takes nothing: it is disconnected, and continues from its cursor
        await self._send(send, self.encoding.end(), more=False)

    async def _next(self) -> SubscribedRows | None:
        if self.subscription.at_hand:
            return self.subscription.next(0.0, self.most)
        return await self.ways.wait(lambda: self.subscription.next(0.0, self.most))

    async def _encoded(self, piece: SubscribedRows) -> bytes:
        """The bytes of a piece; those of a shared one are made once."""
        found = piece.encoded.get(self.encoding.media_type)
        if found is None:
            small = piece.rows.num_rows <= _SMALL
            found = self.encoding.piece(piece) if small else await self.ways.wait(lambda: self.encoding.piece(piece))
            piece.encoded[self.encoding.media_type] = found
        return found

    async def _wait(self, send: Send, news: asyncio.Event) -> None:
        """Wait for news; without any, show that the subscription lives."""
        with anyio.move_on_after(self.said + self.ways.settings.heartbeat - time.monotonic()) as waiting:
            await news.wait()
        if waiting.cancelled_caught:
            await self._send(send, self.encoding.heartbeat())

    async def _send(self, send: Send, data: bytes, *, more: bool = True) -> None:
        with anyio.fail_after(self.ways.settings.patience):
            await send({"type": "http.response.body", "body": data, "more_body": more})
        self.said = time.monotonic()


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


class _Encoding(Protocol):
    """A form of bytes for the pieces of a subscription."""

    media_type: str

    def begin(self) -> bytes: ...
    def piece(self, piece: SubscribedRows) -> bytes: ...
    def heartbeat(self) -> bytes: ...
    def failure(self, error: HeadraceError) -> bytes: ...
    def end(self) -> bytes: ...


class _SentEvents:
    """Server-sent events: `rows`, and `problem` if it cannot go on."""

    media_type = "text/event-stream"

    def __init__(self, subscription: Subscription) -> None:
        del subscription

    def begin(self) -> bytes:
        return b"retry: 1000\n\n"

    def piece(self, piece: SubscribedRows) -> bytes:
        cursor = b"id: " + piece.cursor.encode() + b"\n" if piece.cursor else b""
        return cursor + b"event: rows\ndata: " + event_data(piece) + b"\n\n"

    def heartbeat(self) -> bytes:
        return b": still here\n\n"

    def failure(self, error: HeadraceError) -> bytes:
        return b"event: problem\ndata: " + json.dumps(error_to_json(error)).encode() + b"\n\n"

    def end(self) -> bytes:
        return b""


class _ArrowBatches:
    """An Arrow stream: of a piece, the last batch has the cursor.

    A batch is the same bytes wherever in a stream it is, so the pieces of all streams with a schema are alike.
    """

    media_type = ARROW

    def __init__(self, subscription: Subscription) -> None:
        self._schema = subscription.schema
        self._begin = bytes(self._schema.serialize())

    def begin(self) -> bytes:
        return self._begin

    def piece(self, piece: SubscribedRows) -> bytes:
        batches = piece.rows.combine_chunks().cast(self._schema).to_batches() or [self._none()]
        about: dict[str, Any] = {"headrace.cti": str(piece.cti), "headrace.snapshot": "1" if piece.snapshot else ""}
        return b"".join(
            self._batch(batch, {**about, "headrace.cursor": piece.cursor if batch is batches[-1] else ""})
            for batch in batches
        )

    def heartbeat(self) -> bytes:
        return self._batch(self._none())

    def failure(self, error: HeadraceError) -> bytes:
        return self._batch(self._none(), {"headrace.error": json.dumps(error_to_json(error))})

    def end(self) -> bytes:
        return _ARROW_END

    def _batch(self, batch: pa.RecordBatch, about: dict[str, Any] | None = None) -> bytes:
        written = io.BytesIO()
        with pa.ipc.new_stream(written, self._schema) as writer:
            writer.write_batch(batch, custom_metadata=about)
            return written.getvalue()[len(self._begin) :]

    def _none(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in self._schema], schema=self._schema)
