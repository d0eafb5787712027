"""Bytes in pieces that nobody has put together: what a table is written as, without a copy of its columns.

Memory that is touched for the first time costs several times as much as to write it to a file, so data that only has
to be written is never copied together.
"""

from __future__ import annotations

import zlib
from typing import TypeAlias

import pyarrow as pa

__all__ = ["Data", "Pieces", "checksum", "ipc_pieces", "joined", "length"]


class Pieces(list["bytes | pa.Buffer"]):
    """The parts of something, in order. It is also the file that Arrow writes them to."""

    closed = False
    _size = 0

    def write(self, data: bytes | pa.Buffer) -> int:
        """Take a part as it is."""
        size = memoryview(data).nbytes
        self.append(data)
        self._size += size
        return size

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing has to be closed: Arrow asks for it."""


Data: TypeAlias = "bytes | pa.Buffer | Pieces"


def ipc_pieces(table: pa.Table) -> Pieces:
    """A table as an Arrow IPC stream."""
    pieces = Pieces()
    sink = pa.PythonFile(pieces, "w")
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pieces


def length(data: Data) -> int:
    """How many bytes it is."""
    return sum(memoryview(piece).nbytes for piece in data) if isinstance(data, Pieces) else memoryview(data).nbytes


def checksum(data: Data) -> int:
    """Its CRC-32."""
    crc = 0
    for piece in data if isinstance(data, Pieces) else [data]:
        crc = zlib.crc32(piece, crc)
    return crc


def joined(data: Data) -> bytes | pa.Buffer:
    """All of it in one place."""
    return b"".join(map(memoryview, data)) if isinstance(data, Pieces) else data
