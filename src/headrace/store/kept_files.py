"""Files of remote stores that a machine keeps on its own disk, for all its workers.

What a worker has fetched or written is kept under the cache folder (`headrace.cache`) and mapped into memory from
there, so state is no memory of its own, and a bucket that moves to another worker fetches only what that machine lacks.
The files that were used least recently go first when all of them exceed a limit: HEADRACE_CACHE_MB, in megabytes.

A file ends with its length and its CRC-32, and has its name only when it is whole. A process looks at both before it
uses a file for the first time; one that is damaged is removed, and fetched again.
"""

from __future__ import annotations

import hashlib
import os
import struct
import uuid
import zlib
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from headrace.cache import cache_folder
from headrace.errors import StoreError
from headrace.pieces import Data, Pieces, checksum, length

__all__ = ["KeptFiles"]

LIMIT = "HEADRACE_CACHE_MB"
_DEFAULT = 10_000
#: After so many files the folder is looked at, if not sooner because of their bytes.
_LOOKED_EVERY = 50
_TAIL = struct.Struct("<QQ8s")
_MAGIC = b"HR-KEPT1"


class KeptFiles:
    """The files of one store that this machine has."""

    def __init__(self, place: str) -> None:
        self._place = place
        #: The checksums of those that this process has checked, by name.
        self._checked: dict[str, int] = {}
        #: How many were added since room was last made, and their bytes.
        self._added, self._added_bytes = 0, 0

    def get(self, key: str) -> pa.Buffer | None:
        """The content of a file, mapped into memory; None if it is not here."""
        path = self._path(key)
        if path is None:
            return None
        try:
            os.utime(path)  # it is the one that was used last
            with pa.memory_map(str(path)) as file:
                found = self._content(path, file.read_buffer())
        except (OSError, pa.ArrowInvalid):  # it is not here, or was removed meanwhile, or is empty
            return None
        if found is None:
            self.remove(key)
        return found

    def _content(self, path: Path, data: pa.Buffer) -> pa.Buffer | None:
        """What a file holds; None if it is damaged."""
        if data.size < _TAIL.size:
            return None
        size, crc, magic = _TAIL.unpack(data.slice(data.size - _TAIL.size))
        if magic != _MAGIC or size != data.size - _TAIL.size:
            return None
        found = data.slice(0, size)
        if self._checked.get(path.name) != crc:
            if zlib.crc32(found) != crc:
                return None
            self._checked[path.name] = crc
        return found

    def add(self, key: str, data: Data) -> None:
        """Keep a file, if there is room; others may have to go."""
        path, size = self._path(key), length(data)
        if path is None or size > _limit():
            return
        draft, crc = path.with_name(f".{uuid.uuid4().hex}"), checksum(data)
        try:
            with draft.open("xb") as file:
                file.writelines(map(memoryview, data if isinstance(data, Pieces) else [data]))
                file.write(_TAIL.pack(size, crc, _MAGIC))
            draft.replace(path)
            self._checked[path.name] = crc
        except OSError:  # the disk is full, or somebody clears the folder: it can do without
            with suppress(OSError):
                draft.unlink()
        self._added, self._added_bytes = self._added + 1, self._added_bytes + size
        if self._added % _LOOKED_EVERY == 1 or self._added_bytes > _limit() // 50:
            self._make_room(path.parent)

    def remove(self, key: str) -> None:
        """Do not keep a file any more."""
        path = self._path(key)
        if path is not None:
            self._checked.pop(path.name, None)
            with suppress(OSError):
                path.unlink()

    def _path(self, key: str) -> Path | None:
        folder = cache_folder("store") if _limit() else None
        name = hashlib.sha256(f"{self._place}/{key}".encode()).hexdigest()[:40]
        return None if folder is None else folder / name

    def _make_room(self, folder: Path) -> None:
        self._added_bytes = 0
        found = _listed(folder)
        there = {Path(path).name for _, _, path in found}
        self._checked = {name: crc for name, crc in self._checked.items() if name in there}
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= _limit():
                break
            total -= size
            with suppress(OSError):
                Path(path).unlink()


def _listed(folder: Path) -> list[tuple[int, int, str]]:
    """The files of a folder: when each was used last, its bytes and its path."""
    found = []
    with suppress(OSError), os.scandir(folder) as entries:  # somebody clears the folder
        for entry in entries:
            with suppress(OSError):  # another worker has removed it
                about = entry.stat()
                found.append((about.st_mtime_ns, about.st_size, entry.path))
    return found


def _limit() -> int:
    """How many bytes may be kept."""
    given = os.environ.get(LIMIT, str(_DEFAULT))
    if not given.isdecimal():
        raise StoreError(
            f"{LIMIT} is not a number of megabytes", given=given, allowed="a whole number; 0 to keep nothing"
        )
    return int(given) * 1_000_000
