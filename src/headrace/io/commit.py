"""Commit: a batch of output appears as a whole and once, or not at all.

Several workers write a batch, and any of them may die, be retried, or go on writing after the driver has given it up.
So workers do not write where readers look: they *stage* files under `_staging/<batch>/`. When all files are there, the
driver *commits*: it prepares a folder that holds them under stable names and renames it to `batch-<id>`. From this
rename on, the batch exists.

A crash before the rename leaves only files under `_staging`, which the next commit removes. A crash after it leaves the
committed batch; committing that batch again changes nothing. The prepared folder holds links to the staged files, so
that an interrupted commit can be repeated.

**Merged batches.** Folders of many small batches may be merged into one, `batch-<first>-<last>`. It is prepared and
renamed in the same way, and from that rename on it stands for all folders of these batches, whether they are still
there or not: `committed` and `files` go by that rule, so they have each row once at any moment. Then the folders are
removed; after a crash before that, the next merge removes them.

**Removed batches.** Old batches may be removed on purpose (`expire`). First a file `_removed/<batch>` says that all
batches up to this one are removed, how many they were and the sum of their numbers; from then on they do not exist,
whether their folders are still there or not. So a start can tell what was removed from what is lost, and several
processes may remove batches at once: what a file says of the batches up to a number is always the same.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headrace.errors import SinkError
from headrace.io.files import local_path
from headrace.io.keep import Keep
from headrace.io.removed import REMOVED, RemovedBatches, StoredBatch
from headrace.pieces import flush_to_disk as _sync

__all__ = ["BatchDirectory", "BatchFolder", "is_merged"]

T = TypeVar("T")
_STAGING = "_staging"
_OWNER = "_owner"
_BATCH = re.compile(r"batch-(\d{8,})(?:-(\d{8,}))?")
_NUMBERS = "_batches"
_ATTEMPT = re.compile(r"(\d+)(\.\w+)?")
_ADVICE = "name a directory that every worker can reach and this user may write"


@dataclass(frozen=True)
class BatchFolder:
    """The folder of a batch, or of several that were merged."""

    first: int
    last: int
    path: Path

    @property
    def merged(self) -> bool:
        return self.path.name.count("-") > 1

    @property
    def batches(self) -> list[int]:
        """The batches that have files in it."""
        return json.loads((self.path / _NUMBERS).read_text()) if self.merged else [self.first]

    def files(self) -> list[Path]:
        """Its files, in order; those with CTIs after those with rows."""
        found = [file for file in self.path.rglob("*") if file.is_file() and not file.name.startswith("_")]
        return sorted(found, key=lambda file: (file.name.startswith("progress"), file))

    def holds(self, other: BatchFolder) -> bool:
        """Whether it stands for another folder."""
        return self.merged and self != other and self.first <= other.first and other.last <= self.last


def is_merged(path: str) -> bool:
    """Whether a file is in a folder of merged batches."""
    found = [_BATCH.fullmatch(part.name) for part in Path(path).parents]
    return any(match is not None and match[2] is not None for match in found)


class BatchDirectory:
    """A directory with one folder per batch, each written once and atomically."""

    def __init__(self, path: str) -> None:
        local = local_path(path)
        if local is None:
            raise SinkError(
                "output batches need a file system with an atomic rename",
                given=path,
                instead="a local path or file: URI",
            )
        self.path = Path(local).absolute()
        self.place = str(self.path.resolve())
        self._staging = self.path / _STAGING

    def check_writable(self) -> None:
        """Create the directory if it is missing, and raise `SinkError` unless it is writable."""
        with self._errors("write to"), suppress(FileNotFoundError):  # another process may remove it
            self._attempt(0).rmdir()

    @property
    def taken(self) -> bool:
        """Whether it is the output of a query."""
        return (self.path / _OWNER).exists() or bool(self.committed())

    def belongs_to(self, owner: str) -> bool:
        """Whether it is the output of this query."""
        mark = self.path / _OWNER
        with self._errors("read"):
            return mark.exists() and mark.read_text() == owner

    def claim(self, owner: str, *, begun: bool) -> None:
        """Make it the output of one query; refuse the output of another query, or one that lacks this query's batches.

        `begun` says whether the query has run with it before.
        Only numbers identify batches, so batches of two queries in one directory would hide each other.
        """
        if self.belongs_to(owner):
            return
        if self.taken:
            raise SinkError(
                f"{str(self.path)!r} holds the output of another query, or of this one from another checkpoint",
                given=str(self.path),
                instead="another directory, the checkpoint that belongs to this one, or delete the directory",
            )
        if begun:
            raise SinkError(
                f"{str(self.path)!r} is new, but the query has begun already: its earlier output would be missing",
                given=str(self.path),
                instead="the directory it wrote to before, or a new checkpoint",
            )
        with self._errors("write to"):
            folder = self._attempt(0)
            _write(folder / _OWNER, owner.encode())
            (folder / _OWNER).replace(self.path / _OWNER)
            _sync(self.path)
            with suppress(FileNotFoundError):  # another process may have removed it
                folder.rmdir()

    def release(self, owner: str) -> None:
        """Undo the claim of a query that has published nothing."""
        if self.belongs_to(owner) and not self.committed() and not self.removed().batches:
            with self._errors("write to"):
                (self.path / _OWNER).unlink(missing_ok=True)

    def stage(self, batch_id: int, name: str, data: bytes, folder: str = "") -> str:
        """Write a file that may become part of a batch, in this folder of it, and return its path; for workers."""
        place = self._staging / str(batch_id) / folder
        staged = place / f"{uuid.uuid4().hex}-{Path(name).name}"
        try:
            place.mkdir(parents=True, exist_ok=True)
            _write(staged, data)
        except OSError as error:
            raise SinkError(f"cannot write {str(staged)!r}: {error.strerror}", given=name, instead=_ADVICE) from error
        return str(staged)

    def commit(self, batch_id: int, staged: Sequence[str], extra: Mapping[str, bytes] | None = None) -> bool:
        """Publish the staged files, in this order, and the extra ones as the batch; for the driver.

        Return False if the batch exists. Remove what failed attempts at this batch or earlier ones have left.
        """
        fresh = not self._folder(batch_id).exists() and batch_id > self.removed().upto
        if fresh:
            try:
                fresh = self._publish(self._prepare(batch_id, staged, extra or {}), self._folder(batch_id))
            except (SinkError, OSError) as error:
                fresh = False
                if batch_id not in self.committed():  # else another process has published it, or it was merged
                    if isinstance(error, SinkError):
                        raise
                    raise SinkError(
                        f"cannot commit batch {batch_id} to {str(self.path)!r}: {error}",
                        given=batch_id,
                        instead=_ADVICE,
                    ) from error
        self._sweep(batch_id)
        return fresh

    def committed(self) -> list[int]:
        """The batches that exist, in order; none if there is no such directory."""
        with self._errors("read"):
            folders, upto = self._folders_after()
            return sorted(batch for folder in folders for batch in folder.batches if batch > upto)

    def folders(self) -> list[BatchFolder]:
        """The folders with the batches that exist, in order, without those that another one stands for."""
        return self._folders_after()[0]

    def _folders_after(self) -> tuple[list[BatchFolder], int]:
        """The folders with the batches that exist, and the number up to which batches were removed."""
        with self._errors("read"):
            found, upto = _stable(lambda: (self._all_folders(), self._removed_upto()))
        found = [folder for folder in found if folder.last > upto]
        return [folder for folder in found if not any(other.holds(folder) for other in found if other.merged)], upto

    def _all_folders(self) -> list[BatchFolder]:
        matches = [(_BATCH.fullmatch(entry.name), entry) for entry in _entries(self.path)]
        found = [BatchFolder(int(m[1]), int(m[2] or m[1]), entry) for m, entry in matches if m]
        return sorted(found, key=lambda folder: (folder.first, folder.last))

    def merge(self, folders: Sequence[BatchFolder], files: Mapping[str, bytes]) -> bool:
        """Put a folder with these files in the place of others that follow each other; False if it exists."""
        first, last = folders[0].first, folders[-1].last
        target = self.path / f"batch-{first:08d}-{last:08d}"
        with self._errors("write to"):
            prepared = self._attempt(last)
            batches = [batch for folder in folders for batch in folder.batches]
            for name, data in {**files, _NUMBERS: json.dumps(batches).encode()}.items():
                (prepared / name).parent.mkdir(parents=True, exist_ok=True)
                _write(prepared / name, data)
            _sync_all(prepared)
            merged = self._publish(prepared, target)
            self.remove_replaced()
        return merged

    def remove_replaced(self) -> None:
        """Remove the folders that a merged one stands for."""
        found = self._all_folders()
        for folder in found:
            if any(other.holds(folder) for other in found if other.merged):
                self._remove_folder(folder)

    # --- removing old batches ----------------------------------------------------------------------------------------

    def removed(self) -> RemovedBatches:
        """What was removed on purpose so far."""
        while (upto := self._removed_upto()) >= 0:
            with suppress(FileNotFoundError):  # else a later file has replaced it
                return RemovedBatches.from_json(json.loads((self.path / REMOVED / f"{upto:08d}").read_bytes()))
        return RemovedBatches()

    def _removed_upto(self) -> int:
        return max((int(entry.name) for entry in _entries(self.path / REMOVED) if entry.name.isdecimal()), default=-1)

    def expire(self, keep: Keep, now: float, *, newest: int, dry: bool = False) -> RemovedBatches:
        """Remove old batches, except the last one up to `newest`; return what was removed now.

        `newest` is the last batch that the checkpoint knows. What is newer stays, and does not count: it may be of
        another run, from before an older checkpoint was restored. With `dry`, only say what would be removed.
        """
        with self._errors("remove old batches of"):
            before, stored = self._stored(newest)
            gone = stored[: keep.removable([(batch.written, batch.bytes) for batch in stored], now)]
            after = before.after(gone)
            if not dry:
                if gone:
                    self._announce(after)
                self._remove_announced()
        return after.since(before)

    def _stored(self, newest: int) -> tuple[RemovedBatches, list[StoredBatch]]:
        """What was removed so far, and what is stored after that, up to the batch `newest`."""
        while True:
            before, (folders, upto) = self.removed(), self._folders_after()
            with suppress(FileNotFoundError):  # else folders were merged or removed meanwhile
                stored = [_stored(folder, upto) for folder in folders if folder.last <= newest]
                if before.upto == upto:
                    return before, stored

    def _announce(self, removed: RemovedBatches) -> None:
        place = self.path / REMOVED
        place.mkdir(exist_ok=True)
        draft = place / f".{uuid.uuid4().hex}"
        _write(draft, json.dumps(removed.to_json()).encode())
        draft.replace(place / f"{removed.upto:08d}")
        _sync(place)
        _sync(self.path)

    def _remove_announced(self) -> None:
        """Remove the folders of batches that do not exist any more, and what earlier files say of them."""
        upto = self._removed_upto()
        for folder in self._all_folders():
            if folder.last <= upto:
                self._remove_folder(folder)
        for entry in _entries(self.path / REMOVED):
            if entry.name.isdecimal() and int(entry.name) < upto:
                entry.unlink(missing_ok=True)

    def _remove_folder(self, folder: BatchFolder) -> None:
        gone = self._staging / f"{folder.last}.{uuid.uuid4().hex}"
        self._staging.mkdir(exist_ok=True)
        with suppress(FileNotFoundError):  # another process may remove it
            folder.path.rename(gone)  # out of sight at once
            shutil.rmtree(gone, ignore_errors=True)

    # --- files -------------------------------------------------------------------------------------------------------

    def files(self, batch_id: int | None = None) -> list[str]:
        """The files of a batch, or of all of them, in order."""
        if batch_id is not None:
            return [str(file) for file in BatchFolder(batch_id, batch_id, self._folder(batch_id)).files()]
        while True:
            folders, found = self.folders(), list[str]()
            with suppress(FileNotFoundError):
                found = [str(file) for folder in folders for file in folder.files()]
            if set(folders) <= set(self.folders()):  # else some were merged meanwhile, and their files may be gone
                return found

    def _folder(self, batch_id: int) -> Path:
        return self.path / f"batch-{batch_id:08d}"

    def _attempt(self, batch_id: int) -> Path:
        """A new folder, which the commit of this batch or of a later one removes."""
        folder = self._staging / f"{batch_id}.{uuid.uuid4().hex}"
        folder.mkdir(parents=True)
        return folder

    @contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        """Turn failures of the file system into a `SinkError` that names the directory."""
        try:
            yield
        except SinkError:
            raise
        except OSError as error:
            raise SinkError(
                f"cannot {action} {str(self.path)!r}: {error.strerror}", given=str(self.path), instead=_ADVICE
            ) from error

    def _prepare(self, batch_id: int, staged: Sequence[str], extra: Mapping[str, bytes]) -> Path:
        folder = self._attempt(batch_id)
        for part, name in enumerate(staged):
            self._check_staged(Path(name))
            place = folder / Path(*Path(name).relative_to(self._staging).parts[1:-1])
            place.mkdir(parents=True, exist_ok=True)
            _link(Path(name), place / f"part-{part:05d}{_suffix(name)}")
        for name, data in extra.items():
            _write(folder / Path(name).name, data)
        _sync_all(folder)
        return folder

    def _check_staged(self, file: Path) -> None:
        if not file.is_relative_to(self._staging) or not file.exists():
            raise SinkError(
                f"{str(file)!r} is not a staged file", given=str(file), allowed="paths that stage() returned"
            )

    def _publish(self, prepared: Path, folder: Path) -> bool:
        """The atomic step; False if another attempt was faster."""
        try:
            prepared.rename(folder)
        except OSError:
            if folder.exists():
                return False
            raise
        _sync(self.path)
        return True

    def _sweep(self, batch_id: int) -> None:
        with self._errors("read"):
            for entry in _entries(self._staging):
                match = _ATTEMPT.fullmatch(entry.name)
                if match and int(match[1]) <= batch_id:
                    shutil.rmtree(entry, ignore_errors=True)


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.exists() else []


def _stored(folder: BatchFolder, upto: int) -> StoredBatch:
    """What a folder holds of the batches after `upto`; `FileNotFoundError` if it is removed meanwhile."""
    batches = [batch for batch in folder.batches if batch > upto]
    written, about = folder.path.stat().st_mtime, [file.stat() for file in folder.files()]
    return StoredBatch(folder.last, tuple(batches), written, len(about), sum(one.st_size for one in about))


def _stable(listed: Callable[[], T]) -> T:
    """A listing that a second one confirms: one alone may miss a folder that is replaced meanwhile."""
    found = listed()
    while (again := listed()) != found:
        found = again
    return found


def _suffix(name: str) -> str:
    """All endings of the name that `stage` got: `.jsonl.gz`."""
    return "".join(Path(Path(name).name.partition("-")[2]).suffixes)


def _link(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, target)
        _sync(target)


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_all(folder: Path) -> None:
    """Flush the entries of a folder and of all folders in it."""
    for place in (folder, *(entry for entry in folder.rglob("*") if entry.is_dir())):
        _sync(place)
