"""Bundles: the one format of the store's files, blocks of bytes under names, with a checksum for each.

    magic, version                             16 bytes, then zeros up to a multiple of 64
    block, zeros up to a multiple of 64        as often as there are blocks
    directory                                  JSON: for each block its offset, length and CRC-32; and `meta`
    offset and length of the directory, its CRC-32, magic                            32 bytes

Blocks begin at multiples of 64, so that Arrow can use the data in mapped memory. Opening a file checks its length and
its directory; reading a block checks the block.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import StoreError
from headrace.pieces import Data, Pieces, checksum, length
from headrace.version import VERSION as HEADRACE

__all__ = ["VERSION", "Bundle", "Packed", "pack_bundle"]

#: From 2 on, traces consist of parts of segments.
VERSION = 2
_MAGIC = b"HEADRACE"
_HEAD = struct.Struct("<8sQ")
_TAIL = struct.Struct("<QQQ8s")
_ALIGN = 64


def pack_bundle(blocks: Mapping[str, Data], meta: Mapping[str, Any] | None = None) -> Packed:
    """A bundle, ready to be written; its blocks are not copied."""
    pieces = Pieces()
    pieces.write(_HEAD.pack(_MAGIC, VERSION))
    places: dict[str, tuple[int, int, int]] = {}
    for name, data in blocks.items():
        pieces.write(bytes(-pieces.tell() % _ALIGN))
        places[name] = (pieces.tell(), length(data), checksum(data))
        for piece in data if isinstance(data, Pieces) else [data]:
            pieces.write(piece)
    pieces.write(bytes(-pieces.tell() % _ALIGN))
    directory = json.dumps({"blocks": places, "meta": meta or {}}, separators=(",", ":")).encode()
    start, crc = pieces.tell(), zlib.crc32(directory)
    pieces.write(directory)
    pieces.write(_TAIL.pack(start, len(directory), crc, _MAGIC))
    return Packed(pieces, pieces.tell(), crc)


@dataclass(frozen=True, eq=False)
class Packed:
    """The bytes of a bundle, its length, and the checksum of its directory."""

    data: Pieces
    length: int
    checksum: int


@dataclass(frozen=True, eq=False)
class Bundle:
    """An open bundle. `checksum` is that of its directory, which contains those of its blocks."""

    name: str
    data: pa.Buffer
    blocks: Mapping[str, tuple[int, int, int]]
    meta: Mapping[str, Any]
    checksum: int

    @classmethod
    def open(cls, name: str, data: pa.Buffer, length: int | None = None, checksum: int | None = None) -> Bundle:
        """Read the directory; `StoreError` unless the file is undamaged and has this length and checksum."""
        if length is not None and data.size != length:
            raise _damaged(name, f"it has {data.size:,} bytes, and {length:,} were written")
        if data.size < _HEAD.size + _TAIL.size:
            raise _damaged(name, f"it has only {data.size:,} bytes")
        magic, version = _HEAD.unpack(data.slice(0, _HEAD.size))
        start, size, crc, end = _TAIL.unpack(data.slice(data.size - _TAIL.size))
        if magic != _MAGIC or end != _MAGIC or start + size + _TAIL.size != data.size:
            raise _damaged(name, "it does not begin and end like a file of the store")
        if version < 1:
            raise _damaged(name, f"there is no format {version}")
        if version > VERSION:
            raise StoreError(
                f"the file {name!r} was written by a newer Headrace",
                given=f"format {version}",
                allowed=f"up to format {VERSION}, which Headrace {HEADRACE} writes",
                instead="the Headrace that wrote the file, or a later one",
            )
        directory = data.slice(start, size)
        if zlib.crc32(directory) != crc or (checksum is not None and crc != checksum):
            raise _damaged(name, "its directory has a wrong checksum")
        content = json.loads(directory.to_pybytes())
        return cls(name, data, content["blocks"], content["meta"], crc)

    def block(self, name: str) -> pa.Buffer:
        """A block, checked."""
        data = self.unchecked(name)
        if zlib.crc32(data) != self.blocks[name][2]:
            raise _damaged(self.name, f"the block {name!r} has a wrong checksum")
        return data

    def unchecked(self, name: str) -> pa.Buffer:
        """A block, for the process that has just written it."""
        if name not in self.blocks:
            raise _damaged(self.name, f"it has no block {name!r}")
        start, size, _ = self.blocks[name]
        return self.data.slice(start, size)


def _damaged(name: str, why: str) -> StoreError:
    return StoreError(
        f"the file {name!r} of the checkpoint is damaged: {why}",
        given=name,
        instead="a copy of the checkpoint, or a new checkpoint, which reads all input again",
    )
