"""Files that a cell damages: of the input, or of a checkpoint in a directory or on an object store."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from headrace.store.objects import ObjectStorage

__all__ = ["SavedFile", "StoredFile"]


@dataclass(frozen=True)
class SavedFile:
    """A content, and the times of a file on disk."""

    data: bytes
    times: tuple[int, int] | None = None


@dataclass(frozen=True)
class StoredFile:
    """A file below a place: a directory, or the URL of a prefix."""

    place: str
    key: str

    @classmethod
    def of(cls, path: Path) -> StoredFile:
        return cls(str(path.parent), path.name)

    @classmethod
    def below(cls, place: str, folder: str) -> list[StoredFile]:
        """The files below a folder, by name."""
        if "://" in place:
            return [cls(place, key) for key in sorted(ObjectStorage(place).sizes(folder))]
        found = (path for path in Path(place, folder).rglob("*") if path.is_file())
        return [cls(place, str(path.relative_to(place))) for path in sorted(found)]

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def _on_objects(self) -> bool:
        return "://" in self.place

    @property
    def path(self) -> Path:
        return Path(self.place, self.key)

    def exists(self) -> bool:
        if self._on_objects:
            return self.key in ObjectStorage(self.place).sizes(self.key.rpartition("/")[0])
        return self.path.exists()

    def read(self) -> bytes:
        if self._on_objects:
            return ObjectStorage(self.place).read(self.key).to_pybytes()
        return self.path.read_bytes()

    def write(self, data: bytes) -> None:
        """Replace the content."""
        if not self._on_objects:
            self.path.write_bytes(data)
            return
        storage = ObjectStorage(self.place)
        storage.remove(self.key)
        storage.create(self.key, data)

    def remove(self) -> None:
        if self._on_objects:
            ObjectStorage(self.place).remove(self.key)
        else:
            self.path.unlink()

    def save(self) -> SavedFile:
        """What `restore` brings back."""
        if self._on_objects:
            return SavedFile(self.read())
        about = self.path.stat()
        return SavedFile(self.read(), (about.st_atime_ns, about.st_mtime_ns))

    def restore(self, saved: SavedFile) -> None:
        self.write(saved.data)
        if saved.times is not None:
            os.utime(self.path, ns=saved.times)
