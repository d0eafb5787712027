"""Output batches on an object store: `BatchDirectory` where renaming is impossible.

    _owner                       the query whose output this is
    _staging/<batch>-<name>      parts that tasks have written
    batch-<id>/part-<n>.<form>   the parts of a batch
    _batches/<id>                the one object that makes a batch exist: the names of its files
    _removed/<id>                all batches up to this one were removed on purpose

The commit of the query names the staged parts, so every attempt to publish a batch publishes the same parts. The driver
copies them, inside the store, to their final names, and then creates `_batches/<id>` if it is absent. After a crash
before that, the batch does not exist yet, and its files are written again with the same content. `read_events_output`
reads the batches that exist. A reader that only lists files sees the files of the last batch appear one by one, but
never files of a failed attempt: names that start with `_` are not data.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath

from headrace.errors import SinkError, StoreError
from headrace.io.commit import BatchDirectory
from headrace.io.files import local_path
from headrace.io.keep import Keep
from headrace.io.removed import REMOVED, RemovedBatches, StoredBatch
from headrace.store.log import number_of
from headrace.store.objects import ObjectStorage

__all__ = ["Batches", "ObjectBatches", "batches_at"]

_STAGING, _BATCHES, _OWNER = "_staging", "_batches", "_owner"
_OF_BATCH = re.compile(r"batch-(\d{8,})/")


class ObjectBatches:
    """The batches of one output on an object store."""

    def __init__(self, path: str) -> None:
        with _sink_errors():
            self.storage = ObjectStorage(path)
        self.place = self.storage.place

    def check_writable(self) -> None:
        """Raise `SinkError` unless it is writable."""
        with _sink_errors():
            self.storage.check()

    @property
    def taken(self) -> bool:
        """Whether it is the output of a query."""
        return self._owner() is not None or bool(self.committed())

    def belongs_to(self, owner: str) -> bool:
        """Whether it is the output of this query."""
        return self._owner() == owner

    def claim(self, owner: str, *, begun: bool) -> None:
        """Make it the output of one query; refuse the output of another query, or one that lacks this query's batches.

        `begun` says whether the query has written batches.
        Only numbers identify batches, so batches of two queries in one place would hide each other.
        """
        if self.belongs_to(owner):
            return
        if begun and not self.taken:
            raise SinkError(
                f"{self.place!r} is new, but the query has begun already: its earlier output would be missing",
                given=self.place,
                instead="the place it wrote to before, or a new checkpoint",
            )
        with _sink_errors():
            if self.taken or not self.storage.create(_OWNER, owner.encode()):
                raise SinkError(
                    f"{self.place!r} holds the output of another query, or of this one from another checkpoint",
                    given=self.place,
                    instead="another prefix, the checkpoint that belongs to this one, or delete what is there",
                )

    def release(self, owner: str) -> None:
        """Undo the claim of a query that has published nothing."""
        if self.belongs_to(owner) and not self.committed() and not self.removed().batches:
            with _sink_errors():
                self.storage.remove(_OWNER)

    def _owner(self) -> str | None:
        with _sink_errors():
            try:
                return str(self.storage.read(_OWNER).to_pybytes(), "utf-8")
            except FileNotFoundError:
                return None

    def stage(self, batch_id: int, name: str, data: bytes, folder: str = "") -> str:
        """Write an object that may become part of a batch, in this folder of it, and return its key; for workers."""
        inside = f"{folder.encode().hex()}-" if folder else ""
        key = f"{_STAGING}/{batch_id:08d}-{uuid.uuid4().hex}-{inside}{PurePosixPath(name).name}"
        with _sink_errors():
            self.storage.create(key, data)
        return key

    def commit(self, batch_id: int, staged: Sequence[str], extra: Mapping[str, bytes] | None = None) -> bool:
        """Publish the staged objects, in this order, and the extra ones as the batch; for the driver.

        Return False if the batch exists. Remove what failed attempts at this batch or earlier ones have left.
        """
        with _sink_errors():
            fresh = not self._exists(batch_id) and batch_id > self.removed().upto
            fresh = fresh and self._publish(batch_id, staged, extra or {})
            for key in self.storage.keys(_STAGING):
                if number_of(key) <= batch_id:
                    self.storage.remove(key)
        return fresh

    def _publish(self, batch_id: int, staged: Sequence[str], extra: Mapping[str, bytes]) -> bool:
        names = [f"{_folder(batch_id)}/{_inside(key)}part-{part:05d}{_suffix(key)}" for part, key in enumerate(staged)]
        for key, name in zip(staged, names, strict=True):
            try:
                self.storage.copy(key, name)
            except FileNotFoundError as error:
                if self._exists(batch_id):  # another process has published it meanwhile
                    return False
                raise SinkError(
                    f"{key!r} is not a staged object of {self.place!r}", given=key, allowed="keys that stage() returned"
                ) from error
        for name, data in extra.items():
            names.append(f"{_folder(batch_id)}/{name}")
            self.storage.create(names[-1], data)
        content = {"files": names, "token": uuid.uuid4().hex}
        return self.storage.create(f"{_BATCHES}/{batch_id:08d}", json.dumps(content).encode())

    def _exists(self, batch_id: int) -> bool:
        try:
            return bool(self.storage.length(f"{_BATCHES}/{batch_id:08d}"))
        except FileNotFoundError:
            return False

    def committed(self) -> list[int]:
        """The batches that exist, in order."""
        with _sink_errors():
            keys, upto = self.storage.keys(_BATCHES), self._removed_upto()  # in this order: see `expire`
            return [number_of(key) for key in keys if number_of(key) > upto]

    # --- removing old batches ----------------------------------------------------------------------------------------

    def removed(self) -> RemovedBatches:
        """What was removed on purpose so far."""
        with _sink_errors():
            while (upto := self._removed_upto()) >= 0:
                with suppress(FileNotFoundError):  # else a later one has replaced it
                    return RemovedBatches.from_json(json.loads(self.storage.read(f"{REMOVED}/{upto:08d}").to_pybytes()))
        return RemovedBatches()

    def _removed_upto(self) -> int:
        return max(map(number_of, self.storage.keys(REMOVED)), default=-1)

    def expire(self, keep: Keep, now: float, *, newest: int, dry: bool = False) -> RemovedBatches:
        """Remove old batches, except the last one up to `newest`; return what was removed now.

        `newest` is the last batch that the checkpoint knows. What is newer stays, and does not count: it may be of
        another run, from before an older checkpoint was restored. With `dry`, only say what would be removed.
        """
        with _sink_errors():
            before, stored = self._stored(newest)
            gone = stored[: keep.removable([(batch.written, batch.bytes) for batch in stored], now)]
            after = before.after(gone)
            if not dry:
                if gone:
                    self.storage.create(f"{REMOVED}/{after.upto:08d}", json.dumps(after.to_json()).encode())
                self._remove_announced()
        return after.since(before)

    def _stored(self, newest: int) -> tuple[RemovedBatches, list[StoredBatch]]:
        """What was removed so far, and what is stored after that, up to the batch `newest`."""
        listed, before = self.storage.listed(), self.removed()  # in this order, as in `committed`
        sizes: dict[int, list[int]] = {}
        for key, size, _ in listed:
            if match := _OF_BATCH.match(key):
                sizes.setdefault(int(match[1]), []).append(size)
        times = {number_of(key): modified for key, _, modified in listed if key.startswith(f"{_BATCHES}/")}
        return before, [
            StoredBatch(n, (n,), time / 1e9, len(sizes.get(n, ())), sum(sizes.get(n, ())))
            for n, time in sorted(times.items()) if before.upto < n <= newest
        ]  # fmt: skip

    def _remove_announced(self) -> None:
        """Remove the objects of batches that do not exist any more, and what earlier objects say of them."""
        upto = self._removed_upto()
        for key in [*self.storage.keys(_BATCHES), *self.storage.keys(REMOVED)]:
            if key.startswith(_BATCHES) and number_of(key) <= upto:
                for name in self.storage.sizes(_folder(number_of(key))):
                    self.storage.remove(name)
                self.storage.remove(key)
            elif key.startswith(REMOVED) and number_of(key) < upto:
                self.storage.remove(key)

    # --- files -------------------------------------------------------------------------------------------------------

    def files(self, batch_id: int | None = None) -> list[str]:
        """The files of a batch, or of all of them, in order."""
        while True:
            batches = self.committed() if batch_id is None else [batch_id]
            try:
                with _sink_errors():
                    found = [self._names(number) for number in batches]
            except FileNotFoundError:
                if batch_id is not None or batches[0] > self.removed().upto:
                    raise
                continue  # some were removed meanwhile
            return [self.storage.uri(name) for names in found for name in names]

    def _names(self, batch_id: int) -> list[str]:
        return list(json.loads(self.storage.read(f"{_BATCHES}/{batch_id:08d}").to_pybytes())["files"])


Batches = BatchDirectory | ObjectBatches


def batches_at(path: str) -> Batches:
    """The batches of an output: in a directory, or on an object store."""
    return BatchDirectory(path) if local_path(path) is not None else ObjectBatches(path)


def _folder(batch_id: int) -> str:
    return f"batch-{batch_id:08d}"


def _suffix(key: str) -> str:
    """All endings of the name that `stage` got."""
    return "".join(PurePosixPath(key.rpartition("-")[2]).suffixes)


def _inside(key: str) -> str:
    """The folder that `stage` got, for the name of a file in it."""
    parts = key.split("-")
    return f"{bytes.fromhex(parts[2]).decode()}/" if len(parts) > 3 else ""


@contextmanager
def _sink_errors() -> Iterator[None]:
    """Turn failures of the store into errors of the sink."""
    try:
        yield
    except StoreError as error:
        raise SinkError(error.message, given=error.given, allowed=error.allowed, instead=error.instead) from error
