"""A storage that counts what is removed from it; in a dry run nothing is removed or created, and all looks as if."""

from __future__ import annotations

import pyarrow as pa

from headrace.pieces import Data
from headrace.store.storage import DRAFTS, Storage

__all__ = ["CountedStorage"]


class CountedStorage(Storage):
    """Another storage, with the lengths of the files that were removed from it."""

    def __init__(self, inner: Storage, *, dry: bool = False) -> None:
        self._inner, self._dry = inner, dry
        #: The lengths of the removed files, by their keys.
        self.removed: dict[str, int] = {}

    @property
    def place(self) -> str:
        return self._inner.place

    def create(self, key: str, data: Data, *, lasting: bool = True) -> bool:
        return self._dry or self._inner.create(key, data, lasting=lasting)

    def read(self, key: str) -> pa.Buffer:
        return self._inner.read(key)

    def length(self, key: str) -> int:
        return self._inner.length(key)

    def keys(self, folder: str, after: str = "") -> list[str]:
        return [key for key in self._inner.keys(folder, after) if key not in self.removed]

    def sizes(self, folder: str = "") -> dict[str, int]:
        return {key: size for key, size in self._inner.sizes(folder).items() if key not in self.removed}

    def remove(self, key: str) -> None:
        try:
            self.removed[key] = self._inner.length(key)
        except FileNotFoundError:
            return
        if not self._dry:
            self._inner.remove(key)

    def remove_drafts(self) -> None:
        self.removed |= self._inner.sizes(DRAFTS)
        if not self._dry:
            self._inner.remove_drafts()
