"""What became of each event of an answer, batch by batch: a *track* is an event with its corrections.

A retraction changes the end of an event. A change of values is a deletion and an insert in the same batch: the two are
one track if they start together and have equal values in the columns that divide the picture, or else in their first
columns, where a query has its keys.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.changes import Changes
from headrace.progress import Progress
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["Track", "Version", "tracks_of"]

Batches = Sequence[tuple[Changes, Progress]]


@dataclass(frozen=True)
class Version:
    """An event as one batch has left it."""

    le: int
    re: int
    payload: dict[str, Any]

    @property
    def identity(self) -> tuple[int, int, str]:
        return self.le, self.re, repr(list(self.payload.values()))  # lists have no hash


@dataclass
class Track:
    """The versions of an event, the latest last; a withdrawn event has no valid one."""

    versions: list[Version]
    withdrawn: bool = False

    @property
    def last(self) -> Version:
        return self.versions[-1]

    @property
    def corrected(self) -> bool:
        return len(self.versions) > 1

    @property
    def end(self) -> int:
        """The latest end of its versions."""
        return max(version.re for version in self.versions)


def tracks_of(
    batches: Batches, *, by: Sequence[str] = (), start: int = NEG_INFINITY, end: int = INFINITY, most: int
) -> tuple[list[Track], int]:
    """The tracks of events that are alive in `[start, end)`, in the order of their starts; and how many are left out.

    Only the changes with the earliest starts are looked at, about `most` of them, or all with the same start.
    """
    batches = [(_alive(changes, start, end), progress) for changes, progress in batches]
    limit = _limit(batches, most)
    left_out = 0
    open_: dict[tuple[int, int, str], list[Track]] = defaultdict(list)
    tracks: list[Track] = []
    for changes, _ in batches:
        near = changes.le <= limit
        left_out += int(changes.weight[~near].sum())
        _add_batch(changes.filter(near), by, tracks, open_)
    tracks.sort(key=lambda track: (track.last.le, track.last.re))
    return tracks, left_out


def _alive(changes: Changes, start: int, end: int) -> Changes:
    """The changes of events that start before `end`, and do not end before `start`."""
    return changes.filter((changes.le < end) & (changes.re > start))


def _limit(batches: Batches, most: int) -> int:
    """The latest start to look at."""
    starts = np.concatenate([np.empty(0, np.int64), *(changes.le for changes, _ in batches)])
    return INFINITY if len(starts) <= most else int(np.partition(starts, most - 1)[most - 1])


def _add_batch(
    changes: Changes, by: Sequence[str], tracks: list[Track], open_: dict[tuple[int, int, str], list[Track]]
) -> None:
    pairing, payloads = changes.pair(), changes.payload.to_pylist()

    def version(row: int) -> Version:
        return Version(int(changes.le[row]), int(changes.re[row]), payloads[row])

    moves = [(version(a), version(b)) for a, b in zip(pairing.retract_from, pairing.retract_to, strict=True)]
    gone, new = [version(row) for row in pairing.deletes], [version(row) for row in pairing.inserts]
    for old, fresh in [*moves, *_pairs(gone, new, by)]:
        waiting = open_[old.identity]
        track = waiting.pop() if waiting else None
        if track is None:  # its insert lies outside of the picture
            track = Track([old])
            tracks.append(track)
        track.versions.append(fresh)
        open_[fresh.identity].append(track)
    for old in gone:
        for track in open_[old.identity][-1:]:
            open_[old.identity].pop()
            track.withdrawn = True
    for fresh in new:
        tracks.append(Track([fresh]))
        open_[fresh.identity].append(tracks[-1])


def _pairs(gone: list[Version], new: list[Version], by: Sequence[str]) -> list[tuple[Version, Version]]:
    """Deletions with the inserts that replace them; both lists lose what is paired."""
    starting: dict[int, list[Version]] = defaultdict(list)
    for fresh in new:
        starting[fresh.le].append(fresh)
    deleted = Counter(old.le for old in gone)
    alone = {le for le, fresh in starting.items() if len(fresh) == deleted[le] == 1}
    pairs = []
    for old in list(gone):
        best = max(starting[old.le], key=lambda fresh: _likeness(old, fresh, by), default=None)
        if best is not None and _belong(old, best, by, alone=old.le in alone):
            for versions, version in ((starting[old.le], best), (new, best), (gone, old)):
                del versions[next(i for i, other in enumerate(versions) if other is version)]
            pairs.append((old, best))
    return pairs


def _belong(old: Version, new: Version, by: Sequence[str], *, alone: bool) -> bool:
    same_group, common, _ = _likeness(old, new, by)
    return same_group if by else alone or common > 0


def _likeness(old: Version, new: Version, by: Sequence[str]) -> tuple[bool, int, bool]:
    """Whether the columns in `by` are equal, how many leading columns are equal, and whether the ends are."""
    changed = [old.payload[name] != value for name, value in new.payload.items()]
    same_group = all(old.payload[name] == new.payload[name] for name in by)
    return same_group, changed.index(True) if any(changed) else len(changed), old.re == new.re
