"""Listing a source of files again and again: on an object store, only the names that may be new.

A store lists names in their order, a thousand with each request. Names of new files mostly follow those that are there,
because they contain a date or a number; then it is enough to list from one of the last names on. Nothing is taken for
granted: a *whole* listing follows after some *partial* ones, and finds the new files that they could not see.

- How many partial listings come between two whole ones is learnt. A whole listing that finds new files, all of them
  where a partial one would have found them, doubles the number; one that finds another new file sets it to 0. So a
  source whose names do not grow is listed whole each time, or nearly, as a directory is.
- There are at most as many of them as a whole listing takes requests. So the requests per listing are at most two on
  average, however many files there are, and a source of up to a thousand files is always listed whole.
- There is a whole listing every ten minutes, and whenever the caller needs all files (`whole=True`).

A partial listing starts `_AGAIN` names before the last one, since files that are written at the same time come in any
order; or with the folder of that name, if new files were found in it: names in a folder for a day may be random.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from headrace.io.files import FileOrder, ListedFile, listing
from headrace.io.object_files import is_object

__all__ = ["Listed", "NewNames"]

#: The number of names that a store lists with one request.
_PAGE = 1000
#: How many of the last known names a partial listing lists again: they are in the first page with the new ones.
_AGAIN = 200
#: A whole listing follows another after so many seconds at the latest.
_WHOLE_SECONDS = 600.0


@dataclass(frozen=True)
class Listed:
    """Files in the order of reading: all of them, or those whose paths are greater than `after`."""

    files: Sequence[ListedFile]
    after: str = ""

    def covers(self, path: str) -> bool:
        """Whether a file of this path is in it, if it exists."""
        return path > self.after


class NewNames:
    """Lists the files of one source, as little as is enough."""

    def __init__(self, path: str, order: FileOrder, clock: Callable[[], float] = time.monotonic) -> None:
        self.path, self.order, self._clock = path, order, clock
        #: The name after which a partial listing starts; empty where listings are whole.
        self._start = ""
        self._by_folder = False
        #: How many partial listings may come between two whole ones; how many at most; how many there were.
        self._trust = 0
        self._most = 0
        self._partial = 0
        self._whole_at = 0.0
        #: Whether partial listings have found new files since the last whole one.
        self._found = False

    def files(self, *, whole: bool = False) -> Listed:
        """The files that exist, or at least all those that follow one of the last names."""
        due = self._partial >= min(self._trust, self._most) or self._clock() - self._whole_at >= _WHOLE_SECONDS
        after = "" if whole or due else self._start
        found = Listed(listing(self.path, self.order, after), after)
        if after:
            self._partial += 1
        else:
            self._whole_at = self._clock()
            self._most = ceil(len(found.files) / _PAGE) if len(found.files) > _PAGE and is_object(self.path) else 0
        return found

    def learn(self, found: Listed, new: Iterable[str]) -> None:
        """Take note of a listing, and of the files in it that no earlier one had."""
        names = list(new)
        if found.after:
            self._found = self._found or bool(names)
        elif self._start:
            self._judge([name for name in names if name <= self._start], found=self._found or bool(names))
            self._partial, self._found = 0, False
        self._start = self._next_start(found) if self._most else ""

    def _judge(self, unseen: Sequence[str], *, found: bool) -> None:
        """Learn from the new files that partial listings could not see, and from whether there were new files."""
        if unseen and not self._by_folder and min(unseen) > _folder(self._start):
            self._by_folder = True
        self._trust = 0 if unseen else min(2 * self._trust + 1, self._most) if found else self._trust

    def _next_start(self, found: Listed) -> str:
        names = sorted(file.path for file in found.files)
        if found.after:
            names.insert(0, found.after)
        place = max(len(names) - _AGAIN, 0)
        if self._by_folder:  # the last name before the folder: some stores do not list after what is no name
            place = max(bisect_left(names, _folder(names[place])) - 1, 0)
        return names[place]


def _folder(path: str) -> str:
    return path[: path.rfind("/") + 1]
