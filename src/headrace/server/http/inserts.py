"""`POST /streams/{name}/rows`: rows in, acknowledged when they are on disk.

JSON lines may be acknowledged as they arrive, `?batch=N`: each N lines, and those before an empty line, are inserted
together, and the reply has a line for them, `{"rows", "total"}`. A client need not wait for it before it sends the next
lines. With an `Idempotency-Key`, the batches have the keys `KEY/0`, `KEY/1`, …: a client that repeats the same body
inserts what is missing. The first batch that is refused ends the reply.
"""

from __future__ import annotations

import json
from asyncio import wrap_future
from collections.abc import AsyncIterator, Sequence
from functools import partial

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from headrace.errors import HeadraceError, SchemaError
from headrace.server.http.bodies import content_type, json_lines, key_of_request, read_body, rows_of
from headrace.server.http.replies import ARROW, JSON, JSON_LINES
from headrace.server.http.ways import Ways
from headrace.server.interface import Connection, Insert, Who
from headrace.server.problems import error_to_json

__all__ = ["insert"]

_MOST = 100_000
#: Bytes of a body that the event loop decodes itself.
_SMALL = 16_384
#: The number of its first line, and its lines.
_Batch = tuple[int, list[bytes]]


async def insert(ways: Ways, request: Request, who: Who) -> Response:
    """Insert the rows of the body."""
    kind = content_type(request, JSON, JSON_LINES, ARROW)
    key, name, batch = key_of_request(request), str(request.path_params["name"]), _batch(request, kind)
    if batch is not None:
        return _Acknowledging(ways, request, who, name, key, batch)
    body = await read_body(request, ways.limits)
    with ways.connected(who, request) as connection:
        rows = rows_of(body, kind) if len(body) < _SMALL else await ways.call(partial(rows_of, body, kind))
        inserted = await wrap_future(connection.insert_all(name, [Insert(rows, key)]))
    if inserted.error is not None:
        raise inserted.error
    ways.metrics.inserted(inserted.counts[0])
    return JSONResponse({"rows": inserted.counts[0], "key": key})


def _batch(request: Request, kind: str) -> int | None:
    text = request.query_params.get("batch")
    if text is None:
        return None
    if kind != JSON_LINES or not text.isdecimal() or not 1 <= int(text) <= _MOST:
        raise SchemaError("this is no batch", given=text, allowed=f"1 to {_MOST} lines of {JSON_LINES}")
    return int(text)


class _Acknowledging(Response):
    """Reads lines and writes acknowledgements at the same time."""

    def __init__(self, ways: Ways, request: Request, who: Who, name: str, key: str | None, batch: int) -> None:
        super().__init__(media_type=JSON_LINES)
        self.ways, self.request, self.who, self.name, self.key, self.batch = ways, request, who, name, key, batch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - of the protocol
        del self.headers["content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        self.total, self.number = 0, 0
        try:
            with self.ways.connected(self.who, self.request) as connection:
                async for batches in self._batches():
                    await self._insert(connection, batches, send)
        except (ClientDisconnect, OSError):
            return
        except HeadraceError as error:
            await _send(send, [{"error": error_to_json(error), "total": self.total}])
        finally:
            self.ways.metrics.inserted(self.total)
        await send({"type": "http.response.body", "body": b""})

    async def _insert(self, connection: Connection, batches: list[_Batch], send: Send) -> None:
        """Insert batches that have arrived, and acknowledge them; raise the error of the first that is refused."""
        inserts: list[Insert] = []
        problem: Exception | None = None
        for first, lines in batches:
            key = None if self.key is None else f"{self.key}/{self.number + len(inserts)}"
            try:
                inserts.append(Insert(json_lines(lines, first), key))
            except HeadraceError as error:
                problem = error
                break
        inserted = await wrap_future(connection.insert_all(self.name, inserts))
        self.number += len(inserted.counts)
        acknowledged = []
        for count, (_, lines) in zip(inserted.counts, batches, strict=False):
            self.total += count
            acknowledged.append({"rows": len(lines), "total": self.total})
        await _send(send, acknowledged)
        if (problem := inserted.error or problem) is not None:
            raise problem

    async def _batches(self) -> AsyncIterator[list[_Batch]]:
        """The batches that are whole, as parts of the body arrive."""
        lines: list[bytes] = []
        read = 0
        async for arrived in self._lines():
            batches: list[_Batch] = []
            for line in arrived:
                read += 1
                if line.strip():
                    lines.append(line)
                if lines and (len(lines) == self.batch or not line.strip()):
                    batches.append((read - len(lines) + (1 if line.strip() else 0), lines))
                    lines = []
            if batches:
                yield batches
        if lines:
            yield [(read - len(lines) + 1, lines)]

    async def _lines(self) -> AsyncIterator[list[bytes]]:
        waiting = bytearray()
        stream = self.request.stream()
        while True:
            with anyio.move_on_after(self.ways.settings.patience) as patience:
                part = await anext(stream, None)
            if patience.cancelled_caught:
                raise self.ways.limits.out_of_time()
            if part is None:
                break
            waiting += part
            *whole, rest = waiting.split(b"\n")
            if whole:
                yield [bytes(line) for line in whole]
            waiting = bytearray(rest)
            self.ways.limits.check_body(len(waiting))
        if waiting:
            yield [bytes(waiting)]


async def _send(send: Send, values: Sequence[object]) -> None:
    lines = b"".join(json.dumps(value).encode() + b"\n" for value in values)
    await send({"type": "http.response.body", "body": lines, "more_body": True})
