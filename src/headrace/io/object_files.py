"""Input on object stores: a key, all keys below a prefix, or a pattern, as `files.py` reads directories.

Access uses the same settings as checkpoints and outputs on object stores (`store/objects.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from glob import has_magic
from typing import Any

import pyarrow as pa

from headrace.store.objects import SCHEMES, ObjectStorage

__all__ = ["find_objects", "is_object", "object_now", "open_object"]

Found = tuple[int, str, int]


def is_object(path: str) -> bool:
    """Whether a path is a URL of an object store."""
    scheme, separator, _ = path.partition("://")
    return bool(separator) and scheme.lower() in SCHEMES


def open_object(url: str) -> Any:
    """A file with random access."""
    store, key = _split(url)
    return pa.PythonFile(_RemoteFile(store.open(key)), mode="r")


def object_now(url: str) -> Found | None:
    """The modification time, URL and size of a file; None if it does not exist."""
    store, key = _split(url)
    try:
        size, modified = store.about(key)
    except FileNotFoundError:
        return None
    return modified, url, size


def find_objects(url: str, after: str = "") -> Iterator[Found]:
    """The files of a URL: itself, all files below it, or those that match its pattern.

    `after` is the URL of one of several files: only those that follow it in the order of names are listed.
    Raise `FileNotFoundError` if there are none, unless the URL is a pattern or ends with `/`: files may come later.
    """
    store, key = _split(url)
    start = _split(after)[1] if after else ""
    if has_magic(key):
        parts = key.split("/")
        fixed = next(place for place, part in enumerate(parts) if has_magic(part))
        yield from _below(store, "/".join(parts[:fixed]), parts[fixed:], start)
        return
    own = object_now(url) if key and not url.endswith("/") and not after else None
    if own is not None:
        yield own
        return
    files = list(_below(store, key.rstrip("/"), ["**"], start))
    if not files and not url.endswith("/") and not after:
        raise FileNotFoundError(url)
    yield from files


def _below(store: ObjectStorage, prefix: str, pattern: Sequence[str], after: str) -> Iterator[Found]:
    for key, size, modified in store.listed(prefix, after):
        parts = key.removeprefix(f"{prefix}/" if prefix else "").split("/")
        if not any(part.startswith(("_", ".")) for part in parts) and _matches(parts, pattern):
            yield modified, store.uri(key), size


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a key match those of a pattern, in which `**` stands for any number of them."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[place:], pattern[1:] or ["*"]) for place in range(len(parts)))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def _split(url: str) -> tuple[ObjectStorage, str]:
    """The bucket, and the key in it."""
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    return ObjectStorage(f"{scheme}://{bucket}"), key


class _RemoteFile:
    """A file object for Arrow."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file

    def read(self, size: int = -1) -> memoryview:
        return memoryview(self._file.read() if size < 0 else self._file.read(size))

    def seek(self, place: int, whence: int = 0) -> int:
        return int(self._file.seek(place, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
