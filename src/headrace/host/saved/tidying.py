"""Removing files that are no longer needed.

A running query tidies up by itself; for it, only the pins of dead readers and old batches of outputs are removed. For a
stopped query, the same files are removed that its driver would remove after its next commit: old commits, and files up
to the last batch that no kept commit names. This is safe for the same reason: the commit of that batch exists, there
can be no other, and later commits name only those of these files that it names. Files of attempts at the next batch
stay until it is committed: a driver elsewhere may still be about to commit it. What a backfill has left that failed or
was refused goes, too: another one begins anew.

Old batches of outputs are removed as the last start of the query has said (`host/driving/keeping.py`): diverted rows
after 30 days, or as `retention=` says, other outputs if their sink has a `keep=`. Batches that the last commit does not
know stay, and do not count. `older_than` is an age for diverted
rows and recorded batches instead. Removed batches are announced before (`io/commit.py`), so a query may run meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from headrace.errors import CheckpointError
from headrace.host.driving.changed import DIVERTED
from headrace.host.driving.checkpoint import SCRATCH, Checkpoint
from headrace.host.saved.folder import SavedCheckpoint
from headrace.io.keep import Keep
from headrace.io.object_batches import batches_at
from headrace.store.cleanup import Cleaner, remove_dead_pins
from headrace.store.counted import CountedStorage
from headrace.store.log import COMMITS, DATA, PLANS, Commit, Log, number_of
from headrace.store.storage import DRAFTS
from headrace.time import DurationLike, duration

__all__ = ["TidyReport", "tidy_up"]

#: What the files of a folder of the store are, for users.
_KINDS = {COMMITS: "commits", PLANS: "plans", DATA: "files of state", DRAFTS: "unfinished files"}
_DIVERTED, _OUTPUT, _UPGRADES = "diverted rows", "old batches of outputs", "unfinished upgrades"


class TidyReport(dict[str, Any]):
    """The removed files, and those that were left and why, as JSON values; as text, a table for users."""

    def __str__(self) -> str:
        removed = "would remove" if self["dry"] else "removed"
        lines = [f"{removed} {self['files']:,} files with {self['bytes']:,} bytes, and {len(self['pins'])} pins"]
        width = max(map(len, self["removed"]), default=0)
        for kind, about in self["removed"].items():
            lines.append(f"  {kind:<{width}} {about['files']:>9,} files {about['bytes']:>15,} bytes")
        if self["running"]:
            lines.append("a query runs on this checkpoint, or may run: it removes its files by itself")
        if self["unfinished"]:
            lines.append(f"left {self['unfinished']:,} files of a batch that is not committed yet: it will remove them")
        lines += [f"left {path}: it is the output of another query" for path in self["outputs_left"]]
        lines += [f"left {key}: its reader may still be there, on another machine" for key in self["pins_left"]]
        return "\n".join(lines)


def tidy_up(folder: SavedCheckpoint, older_than: DurationLike | None = None, *, dry: bool = False) -> TidyReport:
    """Remove the pins of dead readers, old batches of outputs, and if no query runs, what no kept commit names."""
    age = _age(older_than)
    owner = folder.about().get("owner")
    storage = CountedStorage(folder.storage, dry=dry)
    pins, left = remove_dead_pins(storage)
    found: dict[str, dict[str, int]] = {}
    others: list[str] = []
    with folder.held() as free:
        last = folder.log.last()
        if free and last is not None:
            _clean_up(folder, storage, last, age, dry=dry)
            for key, size in storage.removed.items():
                if key.partition("/")[0] in _KINDS:
                    _count(found, _KINDS[key.partition("/")[0]], 1, size)
        if free:
            _remove_upgrades(folder, found, dry=dry)
        if last is not None:
            for kind, path, keep in _kept(folder, last, age):
                place = batches_at(path)
                if place.belongs_to(str(owner)):
                    gone = place.expire(keep, time.time(), newest=last.batch, dry=dry)
                    _count(found, kind, gone.files, gone.bytes)
                elif place.taken:
                    others.append(path)
        after = storage.sizes(DATA)
    unfinished = [key for key in after if free and last is not None and number_of(key) > last.batch]
    total = {name: sum(about[name] for about in found.values()) for name in ("files", "bytes")}
    about = {"pins": pins, "pins_left": left, "outputs_left": others, "removed": found, "dry": dry}
    return TidyReport(total, **about, running=not free, unfinished=len(unfinished))


def _age(older_than: DurationLike | None) -> float | None:
    if older_than is None:
        return None
    seconds = duration(older_than) / 1_000_000
    if seconds < 0:
        raise CheckpointError("an age is not negative", given=older_than, instead="'30 days'")
    return seconds


def _clean_up(folder: SavedCheckpoint, storage: CountedStorage, last: Commit, age: float | None, *, dry: bool) -> None:
    """Remove what no kept commit names; recorded batches of this age, too."""
    log = Log(storage)
    log.claim()
    if not dry:
        folder.log.epoch = log.epoch  # which is released with the checkpoint
    cleaner = Cleaner(log)
    cleaner.resume(last)
    if age is not None and cleaner.seconds is not None:  # it counts from the last commit
        cleaner.seconds = min(cleaner.seconds, max(0.0, age - (time.time() - last.record["time"])))
    cleaner.clean_up(last)


def _remove_upgrades(folder: SavedCheckpoint, found: dict[str, dict[str, int]], *, dry: bool) -> None:
    """Remove the checkpoints of backfills that failed or were refused."""
    for size in folder.root.sizes(SCRATCH).values():
        _count(found, _UPGRADES, 1, size)
    if not dry:
        Checkpoint(folder.place).remove_scratch()


def _kept(folder: SavedCheckpoint, last: Commit, age: float | None) -> Iterator[tuple[str, str, Keep]]:
    """The outputs of which not everything is kept: what they are, their places, and what is kept.

    Directories of diverted rows are in the checkpoint, which may have been moved.
    """
    for output in last.record["outputs"]:
        kind, path = _OUTPUT, str(output.get("path", ""))
        keep = Keep.from_json(output["keep"]) if output.get("keep") else None
        inside, _, name = path.rpartition("/")
        if inside.endswith(f"/{DIVERTED}"):
            kind, path = _DIVERTED, f"{folder.place}/{DIVERTED}/{name}"
            keep = keep if age is None else Keep(seconds=age)
        if keep is not None:
            yield kind, path, keep


def _count(found: dict[str, dict[str, int]], kind: str, files: int, size: int) -> None:
    if files:
        about = found.setdefault(kind, {"files": 0, "bytes": 0})
        about["files"] += files
        about["bytes"] += size
