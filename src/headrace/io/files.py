"""Where files are: paths, URIs, and the order in which a directory's files arrived.

A path may be plain, a `file:` URI in either of its spellings (percent-encoded, as Spark reports paths), or any URI
that Arrow's file systems understand. Names that start with `_` or `.` are not data: writers use them for what is
unfinished.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from glob import has_magic
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from headrace.errors import HeadraceError, SourceError

__all__ = ["MAX_EXPANSION", "list_files", "local_path", "modified_at", "open_file", "open_stream", "source_errors"]

#: How many times its size a compressed file may decompress to, unless its reader says otherwise.
MAX_EXPANSION = 200
_EXPANSION_FROM = 64 << 20  # bytes: less does no harm
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def local_path(path: str) -> str | None:
    """The local path meant by a plain path or a `file:` URI; None for other URIs.

    >>> local_path("file:///a/b%20c"), local_path("file:/a"), local_path("a%20b"), local_path("s3://bucket/a")
    ('/a/b c', '/a', 'a%20b', None)
    """
    if path.lower().startswith("file:"):
        rest = path[5:]
        return unquote("/" + rest[2:].partition("/")[2] if rest.startswith("//") else rest)
    return None if _SCHEME.match(path) and "://" in path else path


def open_stream(path: str, max_expansion: int = MAX_EXPANSION) -> Any:
    """The file as a stream of bytes; decompressed when its name says so (`.gz`, `.zst`, …).

    A file that decompresses to more than `max_expansion` times its size is an error, once it is large.
    """
    files, name = _file_system(path)
    stream = files.open_input_stream(name, compression="detect")
    if not name.lower().endswith(_COMPRESSED):
        return stream
    return _Decompressed(stream, path, files.get_file_info(name).size or 0, max_expansion)


class _Decompressed:
    """A stream that counts what it gives, so that a small file cannot fill the memory or run for ever."""

    def __init__(self, stream: Any, path: str, size: int, max_expansion: int) -> None:
        self.stream, self.path, self.size, self.max_expansion = stream, path, size, max_expansion
        self.given = 0

    def read(self, size: int) -> bytes:
        data: bytes = self.stream.read(size)
        self.given += len(data)
        if self.given > max(_EXPANSION_FROM, self.max_expansion * self.size):
            raise SourceError(
                f"{self.path!r} decompresses to more than {self.max_expansion} times its size",
                given=f"{self.given:,} bytes from {self.size:,}, and more to come",
                allowed=f"max_expansion={self.max_expansion}",
                instead=f"max_expansion={self.max_expansion * 10}, if the file is meant to be so",
            )
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()


def open_file(path: str) -> Any:
    """The file with random access."""
    files, name = _file_system(path)
    return files.open_input_file(name)


def _file_system(path: str) -> tuple[Any, str]:
    local = local_path(path)
    if local is not None:
        return pafs.LocalFileSystem(), str(Path(local).absolute())
    found = pafs.FileSystem.from_uri(path)
    return found[0], str(found[1])


def modified_at(path: str) -> int:
    """When a file was last modified, in ticks."""
    with source_errors(path):
        files, name = _file_system(path)
        found = files.get_file_info(name)
        if found.type == pafs.FileType.NotFound:
            raise FileNotFoundError(path)
        return (found.mtime_ns or 0) // 1000


@contextmanager
def source_errors(path: str) -> Iterator[None]:
    """Whatever goes wrong with the file is a SourceError that names it."""
    try:
        yield
    except SourceError as error:
        if path not in error.message:
            error.message = f"cannot read {path!r}: {error.message}"
        raise
    except HeadraceError:
        raise
    except FileNotFoundError as error:
        raise SourceError(f"there is no file {path!r}", given=path, instead="check the path") from error
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"cannot read {path!r}: {_first_line(error)}", given=path) from error


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def list_files(path: str) -> list[str]:
    """The data files of a path, a directory with its sub-directories, or a glob, oldest first.

    Files of equal modification time are in the order of their names. A glob or directory may be empty; a plain path
    must exist.
    """
    local = local_path(path)
    with source_errors(path):
        return _local_files(local) if local is not None else _remote_files(path)


def _local_files(path: str) -> list[str]:
    place = Path(path)
    if place.is_dir():
        found = [entry for entry in place.rglob("*") if all(map(_is_data, entry.relative_to(place).parts))]
    elif place.exists():
        return [path]
    elif has_magic(path):
        found = [entry for entry in _matches(place) if all(map(_is_data, set(entry.parts) - set(place.parts)))]
    else:
        raise FileNotFoundError(path)
    files = [(entry.stat().st_mtime_ns, str(entry)) for entry in found if entry.is_file()]
    return [name for _, name in sorted(files)]


def _matches(pattern: Path) -> Iterator[Path]:
    return Path(pattern.anchor or ".").glob(str(pattern.relative_to(pattern.anchor)))


def _remote_files(uri: str) -> list[str]:
    files, name = _file_system(uri)
    info = files.get_file_info(name)
    if info.type == pafs.FileType.NotFound:
        raise FileNotFoundError(uri)
    if info.type == pafs.FileType.File:
        return [uri]
    entries = files.get_file_info(pafs.FileSelector(name, recursive=True))
    below = [(entry, entry.path[len(name) :].strip("/")) for entry in entries if entry.type == pafs.FileType.File]
    data = [(entry.mtime_ns or 0, path) for entry, path in below if all(map(_is_data, path.split("/")))]
    return [f"{uri.rstrip('/')}/{path}" for _, path in sorted(data)]


def _is_data(name: str) -> bool:
    return not name.startswith(("_", "."))
