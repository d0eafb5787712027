"""Storage: the six calls of a file system that the store needs, on keys such as `commits/000000000007`.

Safety rests on `create`: it creates a file with all of its content, or finds that the key is taken; no reader ever sees
a part of a file, and of two callers one succeeds. `LocalStorage` is a directory, `objects.py` has remote stores.
"""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from headrace.errors import StoreError
from headrace.failpoints import reach
from headrace.pieces import Data, Pieces, flush_to_disk

__all__ = ["DRAFTS", "LocalStorage", "Storage"]

#: The folder of files that are being written.
DRAFTS = ".drafts"
#: The number of attempts to write a draft that is removed, or whose folder does not exist yet.
_ATTEMPTS = 4


class Storage(ABC):
    """Immutable files under keys with `/` between their parts."""

    @abstractmethod
    def create(self, key: str, data: Data, *, lasting: bool = True) -> bool:
        """Create a file if it is absent; False if another call has created it.

        Where answers get lost, a storage recognizes its own file by the content (`remote.py`): so callers whose files
        must be distinguished write unique contents. A file that is not `lasting` may be missing or empty after a loss
        of power.
        """

    @abstractmethod
    def read(self, key: str) -> pa.Buffer:
        """The content of a file; `FileNotFoundError` if it does not exist."""

    def mapped(self, key: str) -> pa.Buffer | None:  # noqa: ARG002 - this one cannot
        """The content of a file, mapped into memory; None if that is impossible."""
        return None

    @abstractmethod
    def length(self, key: str) -> int:
        """The length of a file in bytes; `FileNotFoundError` if it does not exist."""

    @abstractmethod
    def keys(self, folder: str, after: str = "") -> list[str]:
        """The keys directly below a folder that are greater than `after`, in order."""

    @abstractmethod
    def sizes(self, folder: str = "") -> dict[str, int]:
        """The keys of all files below a folder, at any depth, in order, with their lengths."""

    @abstractmethod
    def remove(self, key: str) -> None:
        """Remove a file, if it exists."""

    def remove_drafts(self) -> None:
        """Remove files that interrupted calls have left; other callers may run meanwhile."""
        return

    @property
    @abstractmethod
    def place(self) -> str:
        """Its path or URL, to show to users."""


class LocalStorage(Storage):
    """A directory of this machine, or of a file system that all workers mount.

    A file is written as a draft and then linked to its name: the link fails if the name is taken. With `durable`,
    content and names of lasting files are flushed to disk before `create` returns.
    """

    def __init__(self, path: str | Path, *, durable: bool = True) -> None:
        self.path = Path(path).absolute()
        self.durable = durable
        self._place = str(self.path)

    @property
    def place(self) -> str:
        return self._place

    def create(self, key: str, data: Data, *, lasting: bool = True) -> bool:
        target, flushed = f"{self.place}/{key}", self.durable and lasting
        with _store_errors(f"cannot write {target!r}"):
            reach("create", key)
            for _ in range(_ATTEMPTS):
                try:
                    created = self._link(target, data, flushed=flushed)
                except FileNotFoundError:  # the first file of its folder; or a new driver has removed the draft
                    self._make_folder(Path(target).parent)
                    self._make_folder(self.path / DRAFTS)
                    continue
                if flushed:  # also if it existed: its creator may have died before the name was on disk
                    flush_to_disk(os.path.dirname(target))  # noqa: PTH120 - several times per batch, and much faster
                reach("created", key)
                return created
            raise OSError("its draft disappears again and again")

    def _link(self, target: str, data: Data, *, flushed: bool) -> bool:
        draft = f"{self.place}/{DRAFTS}/{uuid.uuid4().hex}"
        try:
            _write(draft, data, flushed=flushed)
            os.link(draft, target)
        except FileExistsError:
            return False
        finally:
            with suppress(OSError):
                os.unlink(draft)  # noqa: PTH108 - for the same reason
        return True

    def link(self, key: str, file: Path) -> None:
        """Give a file of another storage on this file system a name here, unless the name is taken."""
        target = self.path / key
        with _store_errors(f"cannot link {str(target)!r}"), suppress(FileExistsError):
            self._make_folder(target.parent)
            os.link(file, target)
            if self.durable:
                flush_to_disk(str(target.parent))

    def _make_folder(self, folder: Path) -> None:
        """Create a folder and its parents; their names are on disk before anything in them counts."""
        if not folder.is_dir():
            self._make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            if self.durable:
                flush_to_disk(str(folder.parent))

    def read(self, key: str) -> pa.Buffer:
        """The file, mapped into memory: its pages are read when they are used, and shared between processes."""
        path = f"{self.place}/{key}"
        with _store_errors(f"cannot read {path!r}"):
            reach("read", key)
            if os.stat(path).st_size == 0:  # noqa: PTH116 - for the same reason; an empty file cannot be mapped
                return pa.py_buffer(b"")
            with pa.memory_map(path) as file:
                return file.read_buffer()

    def mapped(self, key: str) -> pa.Buffer | None:
        return self.read(key)

    def length(self, key: str) -> int:
        with _store_errors(f"cannot read {str(self.path / key)!r}"):
            return (self.path / key).stat().st_size

    def keys(self, folder: str, after: str = "") -> list[str]:
        with _store_errors(f"cannot list {str(self.path / folder)!r}"):
            reach("keys", folder)
            try:
                with os.scandir(f"{self.place}/{folder}") as entries:
                    found = [f"{folder}/{e.name}" for e in entries if not e.name.startswith(".") and e.is_file()]
            except FileNotFoundError:
                return []
        return sorted(key for key in found if key > after)

    def sizes(self, folder: str = "") -> dict[str, int]:
        found = {}
        for path, _, names in os.walk(self.path / folder):  # it skips folders that a running query removes
            for name in names:
                with suppress(FileNotFoundError):  # a running query has removed the file
                    file = Path(path, name)
                    found[str(file.relative_to(self.path))] = file.stat().st_size
        return dict(sorted(found.items()))

    def remove(self, key: str) -> None:
        with _store_errors(f"cannot remove {key!r}"), suppress(FileNotFoundError):
            reach("remove", key)
            (self.path / key).unlink()
            reach("removed", key)

    def remove_drafts(self) -> None:
        """Remove all drafts: running calls write theirs again."""
        for key in self.keys(DRAFTS):
            self.remove(key)


def _write(path: str, data: Data, *, flushed: bool) -> None:
    with open(path, "xb") as file:  # noqa: PTH123 - for the same reason
        file.writelines(map(memoryview, data if isinstance(data, Pieces) else [data]))
        if flushed:
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def _store_errors(what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(
            f"{what}: {error.strerror or error}",
            instead="a directory that this user may write, with space left, on a file system with hard links",
        ) from error
