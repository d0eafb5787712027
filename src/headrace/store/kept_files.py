"""Files of remote stores that a machine keeps on its own disk, for all its workers.

Files that a worker has fetched or written are kept in the cache folder (`headrace.cache`) and mapped into memory from
there. So state does not use the worker's own memory, and a bucket that moves to another worker fetches only the files
that its machine lacks. If all files exceed a limit, HEADRACE_CACHE_MB in megabytes, the least recently used ones are
removed.

A file ends with its length and its CRC-32, and gets its name when it is complete. A process checks both before it uses
a file for the first time; a damaged file is removed, and fetched again.
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
#: The number of files after which the size of the folder is checked, or earlier because of their bytes.
_LOOKED_EVERY = 50
_TAIL = struct.Struct("<QQ8s")
_MAGIC = b"HR-KEPT1"


class KeptFiles:
    """The files of one store that this machine has."""

    def __init__(self, place: str) -> None:
        self._place = place
        #: The checksums of the files that this process has checked, by name.
        self._checked: dict[str, int] = {}
        #: The number of files added, and their bytes since the last check of the folder.
        self._added, self._added_bytes = 0, 0

    def get(self, key: str) -> pa.Buffer | None:
        """The content of a file, mapped into memory; None if it is not here."""
        path = self._path(key)
        if path is None:
            return None
        try:
            os.utime(path)  # marks it as the most recently used
            with pa.memory_map(str(path)) as file:
                content = self._content(path, file.read_buffer())
        except (OSError, pa.ArrowInvalid):  # it is not here, or was removed meanwhile, or is empty
            return None
        if content is None:
            self.remove(key)
        return content

    def _content(self, path: Path, data: pa.Buffer) -> pa.Buffer | None:
        """The content of a file; None if it is damaged."""
        if data.size < _TAIL.size:
            return None
        size, crc, magic = _TAIL.unpack(data.slice(data.size - _TAIL.size))
        if magic != _MAGIC or size != data.size - _TAIL.size:
            return None
        content = data.slice(0, size)
        if self._checked.get(path.name) != crc:
            if zlib.crc32(content) != crc:
                return None
            self._checked[path.name] = crc
        return content

    def add(self, key: str, data: Data) -> None:
        """Keep a file, if it fits; others may be removed."""
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
        except OSError:  # the disk is full, or the folder is being cleared: the cache is optional
            with suppress(OSError):
                draft.unlink()
        self._added, self._added_bytes = self._added + 1, self._added_bytes + size
        if self._added % _LOOKED_EVERY == 1 or self._added_bytes > _limit() // 50:
            self._make_room(path.parent)

    def remove(self, key: str) -> None:
        """Remove a file."""
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
        files = _listed(folder)
        names = {Path(path).name for _, _, path in files}
        self._checked = {name: crc for name, crc in self._checked.items() if name in names}
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= _limit():
                break
            total -= size
            with suppress(OSError):
                Path(path).unlink()


def _listed(folder: Path) -> list[tuple[int, int, str]]:
    """The files of a folder: when each was used last, its bytes and its path."""
    files = []
    with suppress(OSError), os.scandir(folder) as entries:  # the folder may be cleared meanwhile
        for entry in entries:
            with suppress(OSError):  # another worker has removed it
                about = entry.stat()
                files.append((about.st_mtime_ns, about.st_size, entry.path))
    return files


def _limit() -> int:
    """The most bytes that are kept."""
    text = os.environ.get(LIMIT, str(_DEFAULT))
    if not text.isdecimal():
        raise StoreError(
            f"{LIMIT} is not a number of megabytes", given=text, allowed="a whole number; 0 to keep nothing"
        )
    return int(text) * 1_000_000
