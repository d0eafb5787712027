"""Bytes in several pieces: a serialized table without a copy of its columns.

Touching new memory costs several times as much as writing it to a file, so data that only has to be written is never
copied into one buffer.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

__all__ = ["Data", "Pieces", "checksum", "flush_to_disk", "ipc_pieces", "joined", "length"]


class Pieces(list["bytes | pa.Buffer"]):
    """Parts of data, in order; also the file object to which Arrow writes them."""

    closed = False
    _size = 0

    def write(self, data: bytes | pa.Buffer) -> int:
        """Append a part without copying."""
        size = memoryview(data).nbytes
        self.append(data)
        self._size += size
        return size

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        """Do nothing: Arrow calls it."""


Data: TypeAlias = "bytes | pa.Buffer | Pieces"


def ipc_pieces(table: pa.Table) -> Pieces:
    """A table as an Arrow IPC stream."""
    pieces = Pieces()
    sink = pa.PythonFile(pieces, "w")
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pieces


def length(data: Data) -> int:
    """The number of bytes."""
    return sum(memoryview(piece).nbytes for piece in data) if isinstance(data, Pieces) else memoryview(data).nbytes


def checksum(data: Data) -> int:
    """Its CRC-32."""
    crc = 0
    for piece in data if isinstance(data, Pieces) else [data]:
        crc = zlib.crc32(piece, crc)
    return crc


def joined(data: Data) -> bytes | pa.Buffer:
    """The data in one buffer."""
    return b"".join(map(memoryview, data)) if isinstance(data, Pieces) else data


def flush_to_disk(path: str | Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
