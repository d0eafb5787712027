"""Messages to clients: values to bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from headrace.server.postgres.columns import WireColumn

__all__ = [
    "BIND_COMPLETE", "CLOSE_COMPLETE", "COPY_DONE", "EMPTY_QUERY", "NO_DATA", "PARSE_COMPLETE", "PASSWORD_WANTED",
    "PORTAL_SUSPENDED", "TRUSTED", "backend_key", "command_complete", "copy_data", "copy_out", "data_row", "fault",
    "negotiate", "parameter_description", "parameter_status", "ready", "row_description",
]  # fmt: skip


def _message(letter: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return letter + struct.pack("!i", len(body) + 4) + body


def _text(value: str) -> bytes:
    # A text ends with a zero, so it has none inside; half characters are none of UTF-8.
    return value.replace("\0", "").encode(errors="replace") + b"\0"


TRUSTED = _message(b"R", struct.pack("!i", 0))
PASSWORD_WANTED = _message(b"R", struct.pack("!i", 3))
PARSE_COMPLETE = _message(b"1")
BIND_COMPLETE = _message(b"2")
CLOSE_COMPLETE = _message(b"3")
NO_DATA = _message(b"n")
EMPTY_QUERY = _message(b"I")
PORTAL_SUSPENDED = _message(b"s")
COPY_DONE = _message(b"c")


def negotiate(unknown: Sequence[str]) -> bytes:
    """The client wants a newer version, or options that are not known: only 3.0 is there."""
    return _message(b"v", struct.pack("!ii", 0, len(unknown)), *map(_text, unknown))


def backend_key(process: int, secret: int) -> bytes:
    """The key with which the client can interrupt its statements."""
    return _message(b"K", struct.pack("!ii", process, secret))


def parameter_status(name: str, value: str) -> bytes:
    """A setting that the client should know."""
    return _message(b"S", _text(name), _text(value))


def ready(status: str) -> bytes:
    """Ready for a statement: idle (`I`), in a transaction (`T`), or in one that has failed (`E`)."""
    return _message(b"Z", status.encode())


def command_complete(tag: str) -> bytes:
    """A statement was carried out."""
    return _message(b"C", _text(tag))


def parameter_description(oids: Sequence[int]) -> bytes:
    """The types of a statement's parameters."""
    return _message(b"t", struct.pack("!H", len(oids)), *(struct.pack("!I", oid) for oid in oids))


def row_description(columns: Sequence[WireColumn], formats: Sequence[int]) -> bytes:
    """The columns of rows, and the format of each."""
    parts = [struct.pack("!h", len(columns))]
    for column, form in zip(columns, formats, strict=True):
        parts += [_text(column.name), struct.pack("!ihIhih", 0, 0, column.oid, column.size, column.modifier, form)]
    return _message(b"T", *parts)


def data_row(values: Iterable[bytes | None]) -> bytes:
    """A row; None is NULL."""
    parts, count = bytearray(), 0
    for value in values:
        count += 1
        if value is None:
            parts += b"\xff\xff\xff\xff"
        else:
            parts += len(value).to_bytes(4, "big") + value
    return b"D" + (len(parts) + 6).to_bytes(4, "big") + count.to_bytes(2, "big") + bytes(parts)


def copy_out(columns: int) -> bytes:
    """Rows of text follow, without an end that is known."""
    return _message(b"H", struct.pack("!bh", 0, columns), b"\0\0" * columns)


def copy_data(line: bytes) -> bytes:
    """A line of COPY."""
    return _message(b"d", line)


def fault(kind: Literal["error", "notice"], fields: Mapping[str, str]) -> bytes:
    """An ErrorResponse or a NoticeResponse; fields are letters and texts."""
    parts = [letter.encode() + _text(value) for letter, value in fields.items() if value]
    return _message(b"E" if kind == "error" else b"N", *parts, b"\0")
