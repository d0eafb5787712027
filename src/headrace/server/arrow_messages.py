"""Batches of an Arrow stream as its bytes arrive: Arrow's own readers wait for the next message in a thread.

A message is `FFFFFFFF`, the length of its description, the description (a flatbuffer) and a body, whose length is in
the description. Only that length is read here; the message itself is read by Arrow, behind the schema.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

import pyarrow as pa

from headrace.errors import ServerError

__all__ = ["ArrowMessages"]

_HEAD = 8
_BODY_LENGTH, _HEADER_TYPE = 3, 1
_RECORD_BATCH = 3


class ArrowMessages:
    """The messages of one stream."""

    def __init__(self) -> None:
        self._waiting = bytearray()
        #: The schema, and dictionaries, which all batches need.
        self._first = b""

    def feed(self, part: bytes) -> Iterator[tuple[pa.RecordBatch, Mapping[bytes, bytes]]]:
        """The batches that are whole now, each with its metadata."""
        self._waiting += part
        while (message := self._message()) is not None:
            whole, kind = message
            if kind != _RECORD_BATCH:
                self._first += whole
                continue
            with pa.ipc.open_stream(self._first + whole) as stream:
                batch, about = stream.read_next_batch_with_custom_metadata()
            yield batch, dict(about or {})

    def _message(self) -> tuple[bytes, int] | None:
        """The bytes of the next message, and its kind; None if it is not whole, or at the end."""
        if len(self._waiting) < _HEAD:
            return None
        mark, length = struct.unpack_from("<Ii", self._waiting)
        if mark != 0xFFFFFFFF or length < 0:
            raise ServerError("the server does not send an Arrow stream", given=bytes(self._waiting[:_HEAD]).hex())
        if not length or len(self._waiting) < _HEAD + length:
            return None
        about = bytes(self._waiting[_HEAD : _HEAD + length])
        end = _HEAD + length + _field(about, _BODY_LENGTH, "<q")
        if len(self._waiting) < end:
            return None
        whole = bytes(self._waiting[:end])
        del self._waiting[:end]
        return whole, _field(about, _HEADER_TYPE, "<B")


def _field(buffer: bytes, number: int, form: str) -> int:
    """A field of the table at the root of a flatbuffer; 0 if it is left out."""
    try:
        (table,) = struct.unpack_from("<I", buffer)
        (back,) = struct.unpack_from("<i", buffer, table)
        places = table - back
        (size,) = struct.unpack_from("<H", buffer, places)
        entry = 4 + 2 * number
        (place,) = struct.unpack_from("<H", buffer, places + entry) if entry < size else (0,)
        return int(struct.unpack_from(form, buffer, table + place)[0]) if place else 0
    except struct.error as error:
        raise ServerError("the server does not send an Arrow stream", given=buffer[:20].hex()) from error
