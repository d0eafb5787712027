"""Where files are: paths, URIs, and the order in which a directory's files arrived.

A path may be plain, a `file:` URI in either of its spellings (percent-encoded, as Spark reports paths), a URL of an
object store (`object_files.py`), or any other URI that Arrow's file systems understand. Names that start with `_` or
`.` are not data: writers use them for what is unfinished.

`listing` defines the order in which files are read: by modification time in nanoseconds, then by path; or by path alone
for files whose names contain their times. The order applies to the files that are there: a file that comes later is
read later, in either order. Links to directories are not followed, since they may lead back. When a listed file is
read, it may be missing or changed: `ListedFile.state` tells, and readers count and report it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from glob import has_magic
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from headrace.errors import HeadraceError, SourceError
from headrace.io.object_files import find_objects, is_object, object_now, open_object

__all__ = [
    "MAX_EXPANSION", "ORDERS", "FileOrder", "FileState", "ListedFile", "behind_link", "changed_or_new", "in_order",
    "list_files", "listing", "local_path", "open_file", "open_stream", "source_errors",
]  # fmt: skip

#: How many times its size a compressed file may decompress to, by default.
MAX_EXPANSION = 200
_EXPANSION_FROM = 64 << 20  # bytes: smaller files are not checked
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".br")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def local_path(path: str) -> str | None:
    """The local path of a plain path or a `file:` URI; None for other URIs.

    >>> local_path("file:///a/b%20c"), local_path("file:/a"), local_path("a%20b"), local_path("s3://bucket/a")
    ('/a/b c', '/a', 'a%20b', None)
    """
    if path.lower().startswith("file:"):
        rest = path[5:]
        return unquote("/" + rest[2:].partition("/")[2] if rest.startswith("//") else rest)
    return None if _SCHEME.match(path) and "://" in path else path


def open_stream(path: str, max_expansion: int = MAX_EXPANSION) -> Any:
    """The file as a stream of bytes, decompressed according to its name (`.gz`, `.zst`, …).

    A large file that decompresses to more than `max_expansion` times its size is an error.
    """
    if is_object(path):
        stream, size = open_object(path), -1
        if path.lower().endswith(_COMPRESSED):
            size = stream.size()
            stream = pa.CompressedInputStream(stream, pa.Codec.detect(path).name)
    else:
        files, name = _file_system(path)
        stream, size = files.open_input_stream(name, compression="detect"), files.get_file_info(name).size or 0
    if not path.lower().endswith(_COMPRESSED):
        return stream
    return _Decompressed(stream, path, size, max_expansion)


class _Decompressed:
    """A stream that counts its bytes, so that a small file cannot fill the memory or run for ever."""

    def __init__(self, stream: Any, path: str, size: int, max_expansion: int) -> None:
        self.stream, self.path, self.size, self.max_expansion = stream, path, size, max_expansion
        self.bytes_read = 0

    def read(self, size: int) -> bytes:
        data: bytes = self.stream.read(size)
        self.bytes_read += len(data)
        if self.bytes_read > max(_EXPANSION_FROM, self.max_expansion * self.size):
            raise SourceError(
                f"{self.path!r} decompresses to more than {self.max_expansion} times its size",
                given=f"{self.bytes_read:,} bytes from {self.size:,}, and more to come",
                allowed=f"max_expansion={self.max_expansion}",
                instead=f"max_expansion={self.max_expansion * 10}, if the file is correct",
            )
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()


def open_file(path: str) -> Any:
    """The file with random access."""
    if is_object(path):
        return open_object(path)
    files, name = _file_system(path)
    return files.open_input_file(name)


def _file_system(path: str) -> tuple[Any, str]:
    local = local_path(path)
    if local is not None:
        return pafs.LocalFileSystem(), str(Path(local).absolute())
    system = pafs.FileSystem.from_uri(path)
    return system[0], str(system[1])


#: Which file is read first: the one that was modified first, or the one whose path is first.
FileOrder: TypeAlias = Literal["time", "name"]
ORDERS = ("time", "name")
#: The state of a file since it was listed.
FileState: TypeAlias = Literal["same", "missing", "changed"]


@dataclass(frozen=True, order=True)
class ListedFile:
    """A file as it was when it was listed; files are ordered by their modification time."""

    #: Modification time in nanoseconds.
    modified: int
    path: str
    size: int

    @classmethod
    def now(cls, path: str) -> ListedFile | None:
        """The file as it is now; None if it does not exist."""
        with source_errors(path):
            if is_object(path):
                current = object_now(path)
                return None if current is None else ListedFile(*current)
            files, name = _file_system(path)
            info = files.get_file_info(name)
        return None if info.type == pafs.FileType.NotFound else _of_info(info, path)

    def state(self, *, timed: bool = True) -> FileState:
        """The state of the file since it was listed; without `timed`, another time alone is no change."""
        now = ListedFile.now(self.path)
        # Only listings of objects may have fractions of a second.
        if now is not None and (
            not timed or (is_object(self.path) and now.modified // 10**9 == self.modified // 10**9)
        ):
            now = replace(now, modified=self.modified)
        return "missing" if now is None else "same" if now == self else "changed"


def _of_info(info: Any, path: str) -> ListedFile:
    return ListedFile(info.mtime_ns or 0, path, info.size or 0)


def changed_or_new(
    files: Iterable[ListedFile], taken: Mapping[str, ListedFile]
) -> tuple[list[ListedFile], list[ListedFile]]:
    """The listed files that differ from the taken ones, and those that were never taken."""
    listed = list(files)
    changed = [file for file in listed if taken.get(file.path, file) != file]
    return changed, [file for file in listed if file.path not in taken]


@contextmanager
def source_errors(path: str) -> Iterator[None]:
    """Turn failures to read into a `SourceError` that names the file."""
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
    """The paths of a `listing`."""
    return [file.path for file in listing(path)]


def listing(path: str, order: FileOrder = "time", after: str = "") -> list[ListedFile]:
    """The data files of a path, a directory with its sub-directories, or a glob, in the order of reading.

    A glob or directory may be empty; a plain path must exist. `after` is for object stores, see `find_objects`.
    """
    local = local_path(path)
    with source_errors(path):
        files = list(_local_files(local) if local is not None else _remote_files(path, after))
    return in_order(files, order)


def in_order(files: Iterable[ListedFile], order: FileOrder) -> list[ListedFile]:
    """Files in the order of reading."""
    if order == "name":
        return sorted(files, key=lambda file: file.path)
    return sorted(files, key=lambda file: (file.modified, file.path, file.size))  # faster than comparing the values


def is_read_from(path: str, place: str) -> bool:
    """Whether files that are written to `place` would be read from `path`, a directory."""
    local, written = local_path(path), local_path(place)
    if local is None or written is None:
        above, below = f"{path.rstrip('/')}/", f"{place.rstrip('/')}/"
        return below.startswith(above) and all(map(_is_data, below.removeprefix(above).split("/")[:-1]))
    if not Path(local).is_dir():
        return False
    folder, inside = Path(local).resolve(), Path(written).resolve()
    return inside.is_relative_to(folder) and all(map(_is_data, inside.relative_to(folder).parts))


def _local_files(path: str) -> Iterator[ListedFile]:
    place = Path(path)
    if place.is_dir():
        yield from _below(path)
    elif place.exists():
        yield _local(place, path)
    elif has_magic(path):
        for entry in _matches(place):
            new = set(entry.parts) - set(place.parts)
            if entry.is_file() and all(map(_is_data, new)) and not behind_link(path, str(entry)):
                yield _local(entry, str(entry))
    else:
        raise FileNotFoundError(path)


def _local(entry: Path | os.DirEntry[str], path: str) -> ListedFile:
    status = entry.stat()
    return ListedFile(status.st_mtime_ns, path, status.st_size)


def _below(folder: str) -> Iterator[ListedFile]:
    """The data files of a directory and its sub-directories; links to directories are not followed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if not _is_data(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path)
            elif entry.is_file():
                with suppress(FileNotFoundError):  # removed before it was listed
                    yield _local(entry, entry.path)


def behind_link(place: str, path: str) -> bool:
    """Whether a file is below a link to a directory inside `place`, a directory or pattern.

    The file itself may be a link. A pattern begins at its first wildcard.
    """
    local = local_path(place)
    if local is None:
        return False
    root = Path(local).absolute()
    if not root.exists():
        root = next((folder for folder in root.parents if not has_magic(str(folder))), root)
    folders = Path(path).absolute().parents
    return any(folder.is_symlink() for folder in folders if folder != root and folder.is_relative_to(root))


def _matches(pattern: Path) -> Iterator[Path]:
    return Path(pattern.anchor or ".").glob(str(pattern.relative_to(pattern.anchor)))


def _remote_files(uri: str, after: str) -> Iterator[ListedFile]:
    if is_object(uri):
        yield from (ListedFile(*file) for file in find_objects(uri, after))
        return
    files, name = _file_system(uri)
    info = files.get_file_info(name)
    if info.type == pafs.FileType.NotFound:
        raise FileNotFoundError(uri)
    if info.type == pafs.FileType.File:
        yield _of_info(info, uri)
        return
    for entry in files.get_file_info(pafs.FileSelector(name, recursive=True)):
        path = entry.path[len(name) :].strip("/")
        if entry.type == pafs.FileType.File and all(map(_is_data, path.split("/"))):
            yield _of_info(entry, f"{uri.rstrip('/')}/{path}")


def _is_data(name: str) -> bool:
    return not name.startswith(("_", "."))
