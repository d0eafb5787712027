"""The promises of a log that come without rows: time passes, and nothing happens.

A table that queries follow promises each second that no statement happens earlier, and so do the answers of these
queries. Each promise says all that the ones before it said. So they are no frames of the log, which would grow for
ever: the last ones are in the slots of one small file, which are written again and again.

A promise has an offset, as a row has, which readers remember. An offset must never be used twice, whatever dies when:
offsets are *reserved* in the file, many at a time and on disk, before the first of them is used. A log that is opened
goes on after what is reserved; offsets that nothing has are skipped.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

__all__ = ["PromiseSlots", "promises_in"]

#: Of a slot: offset, time, the offset up to which offsets are reserved, and a checksum.
_SLOT = struct.Struct("<QqQI")
_SLOTS = 256
_RESERVED = 1024
_FILE = "promises"


def promises_in(folder: Path) -> tuple[list[tuple[int, int]], int]:
    """The offsets and times of the promises in a log's folder, in their order, and the first offset not reserved."""
    try:
        data = (folder / _FILE).read_bytes()
    except FileNotFoundError:
        return [], 0
    found = []
    for place in range(0, len(data) - _SLOT.size + 1, _SLOT.size):
        offset, time, reserved, checksum = _SLOT.unpack_from(data, place)
        if checksum == _checksum(offset, time, reserved):  # else the process died while it wrote the slot
            found.append((offset, time, reserved))
    return sorted((offset, time) for offset, time, _ in found), max((one[2] for one in found), default=0)


def _checksum(offset: int, time: int, reserved: int) -> int:
    return zlib.crc32(struct.pack("<QqQ", offset, time, reserved)) ^ 0xFFFFFFFF  # zeros are no slot


class PromiseSlots:
    """The file, as the process writes it that has the log open."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._path, self._durable = folder / _FILE, durable
        self._file: int | None = None
        known, self.reserved = promises_in(folder)
        self._next = len(known)

    def write(self, offset: int, time: int) -> None:
        """Write a promise over the oldest one; it is on disk when its offset had not been reserved."""
        new = offset >= self.reserved
        if new:
            self.reserved = offset + _RESERVED
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        slot = _SLOT.pack(offset, time, self.reserved, _checksum(offset, time, self.reserved))
        os.pwrite(self._file, slot, self._next % _SLOTS * _SLOT.size)
        self._next += 1
        if new and self._durable:
            os.fsync(self._file)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
