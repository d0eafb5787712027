"""Bodies of requests: how much of them is read, and how they become statements or rows."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pyarrow as pa
from starlette.requests import ClientDisconnect, Request

from headrace.errors import BadRow, SchemaError, ServerError
from headrace.server.access import Limits
from headrace.server.http.replies import ARROW, JSON, JSON_LINES

__all__ = ["ContentError", "content_type", "json_lines", "json_of", "key_of_request", "read_body", "rows_of", "text_of"]

_KEY_LENGTH = 200


class ContentError(ServerError):
    """A body of a kind that the route does not take."""


def content_type(request: Request, *allowed: str) -> str:
    """The content type of a body; browsers send none of those that are allowed to other sites unasked."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in allowed:
        raise ContentError(
            "a body of this kind is not read here", given=given or "(no Content-Type)", allowed=", ".join(allowed),
            instead=f"Content-Type: {allowed[0]}",
        )  # fmt: skip
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise ContentError("compressed bodies are not read", given=encoding, allowed="identity")
    return given


async def read_body(request: Request, limits: Limits) -> bytes:
    """The whole body, if it is not too large and comes in time."""
    length = request.headers.get("content-length", "")
    if length.isdigit():
        limits.check_body(int(length))
    parts, size = [], 0
    try:
        with anyio.fail_after(limits.statement_seconds):
            async for part in request.stream():
                size += len(part)
                limits.check_body(size)
                parts.append(part)
    except TimeoutError as error:
        raise limits.out_of_time() from error
    except ClientDisconnect as error:
        raise BadRow("the body ended before it was whole") from error
    return b"".join(parts)


def text_of(body: bytes, kind: str, limits: Limits) -> str:
    """The statements of a body: a text, or `{"sql": …}`."""
    if kind == JSON:
        found = json_of(body, "the body")
        text = found.get("sql") if isinstance(found, dict) else None
        if not isinstance(text, str) or set(found) != {"sql"}:
            raise SchemaError("the body is no statement", allowed='{"sql": "SELECT …"}')
        return limits.check_text(text)
    try:
        return limits.check_text(body.decode())
    except UnicodeDecodeError as error:
        raise SchemaError("the text is not UTF-8", given=str(error)) from error


def rows_of(body: bytes, kind: str) -> pa.Table | list[dict[str, Any]]:
    """The rows of a body: a JSON array or object, JSON lines, or an Arrow stream."""
    if kind == ARROW:
        return _arrow(body)
    if kind == JSON_LINES:
        return json_lines(body.split(b"\n"))
    found = json_of(body, "the body")
    rows = found if isinstance(found, list) else [found]
    for number, row in enumerate(rows):
        _check_row(row, f"row {number + 1}")
    return rows


def json_lines(lines: list[bytes], first: int = 1) -> list[dict[str, Any]]:
    """The row of each line that is not empty; `first` is the number of the first line."""
    rows = []
    for number, line in enumerate(lines, first):
        if line.strip():
            row = json_of(line, f"line {number}")
            rows.append(_check_row(row, f"line {number}"))
    return rows


def key_of_request(request: Request) -> str | None:
    """The header `Idempotency-Key`."""
    key = request.headers.get("idempotency-key")
    if key is not None and (not 0 < len(key) <= _KEY_LENGTH or not key.isprintable()):
        raise SchemaError(
            "this is no Idempotency-Key", given=key[:_KEY_LENGTH], allowed="1 to 200 printable characters"
        )
    return key


def _check_row(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise BadRow(f"{where} is no row", given=str(row)[:100], allowed='an object, such as {"symbol": "A"}')
    return row


def json_of(body: bytes, where: str) -> Any:
    """A body as JSON."""
    try:
        return json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BadRow(f"{where} is not JSON: {error}", given=body[:100].decode(errors="replace")) from error


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no value of JSON")


def _arrow(body: bytes) -> pa.Table:
    try:
        with pa.ipc.open_stream(body) as stream:
            table = stream.read_all()
            table.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, ValueError, KeyError) as error:
        raise BadRow(f"the body is no Arrow stream: {error}") from error
    return table
