"""Blocks of state and rows: each task writes its blocks to one file, and a commit names them.

A task reports its blocks as `WrittenBlocks`: small ones inside the report, the others as the name, length and checksum
of the file that holds them. The driver puts all reports of a batch, and the living blocks of earlier batches, into the
next commit (`Ledger`).
"""

from __future__ import annotations

import uuid
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.errors import StoreError
from headrace.pieces import Data, joined, length
from headrace.store.bundle import Bundle, pack_bundle
from headrace.store.log import DATA, Commit
from headrace.store.storage import Storage

__all__ = ["BlockReader", "Ledger", "WrittenBlocks", "open_file", "write_blocks"]

#: A task's blocks of up to so many bytes travel in its report: a file would cost more.
INLINE = 65_536
#: If the blocks inside a commit exceed this, the driver moves them to a file.
MOST_INLINE = 1_048_576

Blocks = Mapping[str, Data]


@dataclass(frozen=True, eq=False)
class WrittenBlocks:
    """The places of the blocks of one task."""

    inline: Mapping[str, bytes | pa.Buffer] = field(default_factory=dict)
    file: str = ""
    length: int = 0
    checksum: int = 0
    names: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        inline = {name: b64encode(data).decode() for name, data in self.inline.items()}
        return {"inline": inline, "file": [self.file, self.length, self.checksum, self.names]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WrittenBlocks:
        file, length, checksum, names = data["file"]
        inline = {name: b64decode(text) for name, text in data["inline"].items()}
        return cls(inline, file, length, checksum, tuple(names))


def write_blocks(storage: Storage, batch: int, epoch: int, blocks: Blocks, inline: int = INLINE) -> WrittenBlocks:
    """Write the blocks of a task; the names of files contain the batch and the epoch."""
    if sum(map(length, blocks.values())) <= inline:
        return WrittenBlocks({name: joined(data) for name, data in blocks.items()})
    packed = pack_bundle(blocks)
    key = f"{DATA}/{batch:012d}-{epoch:08d}-{uuid.uuid4().hex}"
    if not storage.create(key, packed.data):
        raise StoreError("the name of a new file of the store is taken", given=key)
    return WrittenBlocks({}, key, packed.length, packed.checksum, tuple(blocks))


@dataclass
class Ledger:
    """The places of all living blocks."""

    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    blocks: dict[str, str] = field(default_factory=dict)
    inline: dict[str, bytes | pa.Buffer] = field(default_factory=dict)

    @classmethod
    def of(cls, commit: Commit | None) -> Ledger:
        if commit is None:
            return cls()
        return cls({**commit.files}, {**commit.blocks}, {**commit.inline})

    def add(self, written: WrittenBlocks) -> None:
        for name in [*written.inline, *written.names]:  # a name may be used again: its old place does not count
            self.inline.pop(name, None)
            self.blocks.pop(name, None)
        self.inline.update(written.inline)
        if written.file:
            self.files[written.file] = (written.length, written.checksum)
            self.blocks.update(dict.fromkeys(written.names, written.file))

    def keep(self, names: Iterable[str]) -> None:
        """Forget all other blocks, and files without living blocks."""
        living = set(names)
        self.inline = {name: data for name, data in self.inline.items() if name in living}
        self.blocks = {name: file for name, file in self.blocks.items() if name in living}
        named = set(self.blocks.values())
        self.files = {file: about for file, about in self.files.items() if file in named}

    def unload(self, storage: Storage, batch: int, epoch: int) -> None:
        """Move the blocks inside the commit to a file, if they are too large."""
        if sum(map(length, self.inline.values())) > MOST_INLINE:
            self.add(write_blocks(storage, batch, epoch, self.inline, inline=0))
            self.inline = {}


class BlockReader:
    """Reads the blocks that a commit names."""

    def __init__(self, storage: Storage, commit: Commit) -> None:
        self._storage, self._commit = storage, commit
        self._bundles: dict[str, Bundle] = {}
        #: The number of bytes that were not on this machine's disk.
        self.fetched = 0

    def block(self, name: str) -> pa.Buffer:
        """A block, checked; those in files are mapped into memory."""
        if name in self._commit.inline:
            return pa.py_buffer(self._commit.inline[name])
        if name not in self._commit.blocks:
            raise StoreError(f"commit {self._commit.batch} names no block {name!r}", given=self._storage.place)
        return self._bundle(self._commit.blocks[name]).block(name)

    def open(self, names: Iterable[str]) -> None:
        """Open the files of these blocks: a missing file, or another length or directory, is an error now."""
        for file in dict.fromkeys(self._commit.blocks[name] for name in names if name in self._commit.blocks):
            self._bundle(file)

    def _bundle(self, file: str) -> Bundle:
        if file not in self._bundles:
            length, checksum = self._commit.files[file]
            self._bundles[file] = open_file(self._storage, file, length, checksum, self._counted)
        return self._bundles[file]

    def _counted(self, size: int) -> None:
        self.fetched += size


def open_file(
    storage: Storage, file: str, length: int, checksum: int, fetched: Callable[[int], None] = lambda _: None
) -> Bundle:
    """Open a file that a commit names, and check its length and checksum; `fetched` gets the number of bytes read."""
    # Reading after the end of a mapped file kills the process, so its length is checked before mapping.
    actual = _length(storage, file)
    if actual != length:
        raise StoreError(
            f"the file {file!r} of the checkpoint is damaged: it has {actual:,} bytes, not {length:,}",
            given=f"{storage.place}/{file}",
            instead="a copy of the checkpoint, or a new checkpoint, which reads all input again",
        )
    data = storage.mapped(file)
    if data is None:
        data = storage.read(file)
        fetched(length)
    return Bundle.open(file, data, length, checksum)


def _length(storage: Storage, file: str) -> int:
    try:
        return storage.length(file)
    except FileNotFoundError as error:
        raise StoreError(
            f"the file {file!r} of the checkpoint is missing",
            given=f"{storage.place}/{file}",
            instead="a copy of the checkpoint, or a new checkpoint, which reads all input again",
        ) from error
