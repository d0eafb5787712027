"""Removing files that are no longer needed.

A running query tidies up by itself; for it, only the pins of dead readers are removed. For a stopped query, the same
files are removed that its driver would remove after its next commit: old commits, and files up to the last batch that
no kept commit names. This is safe for the same reason: the commit of that batch exists, there can be no other, and
later commits name only those of these files that it names. Files of attempts at the next batch stay until it is
committed: a driver elsewhere may still be about to commit it.
"""

from __future__ import annotations

from typing import Any

from headrace.host.saved.folder import SavedCheckpoint
from headrace.store.cleanup import Cleaner, remove_dead_pins
from headrace.store.log import COMMITS, DATA, PLANS, number_of

__all__ = ["TidyReport", "tidy_up"]


class TidyReport(dict[str, Any]):
    """The removed files, and those that were left and why, as JSON values."""

    def __str__(self) -> str:
        lines = [f"removed {self['files']:,} files with {self['bytes']:,} bytes, and {len(self['pins'])} pins"]
        if self["running"]:
            lines.append("a query runs on this checkpoint, or may run: it removes its files by itself")
        if self["unfinished"]:
            lines.append(f"left {self['unfinished']:,} files of a batch that is not committed yet: it will remove them")
        lines += [f"left {key}: its reader may still be there, on another machine" for key in self["pins_left"]]
        return "\n".join(lines)


def tidy_up(folder: SavedCheckpoint) -> TidyReport:
    """Remove the pins of dead readers, and if no query runs, the files that no kept commit names."""
    folder.about()
    pins, left = remove_dead_pins(folder.storage)
    with folder.held() as free:
        before = _sizes(folder)
        last = folder.log.last() if free else None
        if last is not None:
            folder.log.claim()
            Cleaner(folder.log).clean_up(last)
        after = _sizes(folder)
    gone = [size for key, size in before.items() if key not in after] if free else []
    unfinished = [key for key in after if last is not None and key.startswith(DATA) and number_of(key) > last.batch]
    counts = {"files": len(gone), "bytes": sum(gone), "pins": pins, "pins_left": left}
    return TidyReport(counts, running=not free, unfinished=len(unfinished))


def _sizes(folder: SavedCheckpoint) -> dict[str, int]:
    """The files of the store that may be removed, with their lengths."""
    return {key: size for part in (COMMITS, PLANS, DATA) for key, size in folder.storage.sizes(part).items()}
