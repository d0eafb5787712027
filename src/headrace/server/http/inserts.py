"""`POST /streams/{name}/rows`: rows in, acknowledged when they are on disk.

JSON lines may be acknowledged as they arrive, `?batch=N`: each N lines, and those before an empty line, are inserted
together, and the reply has a line for them, `{"rows", "total"}`. With an `Idempotency-Key`, the batches have the keys
`KEY/0`, `KEY/1`, …: a client that repeats the same body inserts what is missing.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from headrace.errors import HeadraceError, SchemaError
from headrace.server.http.bodies import content_type, json_lines, key_of_request, read_body, rows_of
from headrace.server.http.replies import ARROW, JSON, JSON_LINES
from headrace.server.http.ways import Ways
from headrace.server.interface import Who
from headrace.server.problems import error_to_json

__all__ = ["insert"]

_MOST = 100_000


async def insert(ways: Ways, request: Request, who: Who) -> Response:
    """Insert the rows of the body."""
    kind = content_type(request, JSON, JSON_LINES, ARROW)
    key, name, batch = key_of_request(request), str(request.path_params["name"]), _batch(request, kind)
    if batch is not None:
        return _Acknowledging(ways, request, who, name, key, batch)
    body = await read_body(request, ways.limits)

    def run() -> int:
        with ways.connected(who, request) as connection:
            return connection.insert(name, rows_of(body, kind), key)

    count = await ways.call(run)
    ways.metrics.inserted(count)
    return JSONResponse({"rows": count, "key": key})


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
        total, number = 0, 0
        try:
            async for first, lines in self._batches():
                total += await self.ways.call(partial(self._insert, first, lines, number))
                number += 1
                await _line(send, {"rows": len(lines), "total": total})
        except (ClientDisconnect, OSError):
            return
        except HeadraceError as error:
            await _line(send, {"error": error_to_json(error), "total": total})
        finally:
            self.ways.metrics.inserted(total)
        await send({"type": "http.response.body", "body": b""})

    def _insert(self, first: int, lines: list[bytes], number: int) -> int:
        key = None if self.key is None else f"{self.key}/{number}"
        with self.ways.connected(self.who, self.request) as connection:
            return connection.insert(self.name, json_lines(lines, first), key)

    async def _batches(self) -> AsyncIterator[tuple[int, list[bytes]]]:
        """Lines that are inserted together, and the number of the first."""
        lines: list[bytes] = []
        read = 0
        async for line in self._lines():
            read += 1
            if line.strip():
                lines.append(line)
            if lines and (len(lines) == self.batch or not line.strip()):
                yield read - len(lines) + (1 if line.strip() else 0), lines
                lines = []
        if lines:
            yield read - len(lines) + 1, lines

    async def _lines(self) -> AsyncIterator[bytes]:
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
            for line in whole:
                yield bytes(line)
            waiting = bytearray(rest)
            self.ways.limits.check_body(len(waiting))
        if waiting:
            yield bytes(waiting)


async def _line(send: Send, value: object) -> None:
    await send({"type": "http.response.body", "body": json.dumps(value).encode() + b"\n", "more_body": True})
