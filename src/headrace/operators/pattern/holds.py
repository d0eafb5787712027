"""The times at which groups hold back the output CTI, in memory: the least of them is needed after every batch."""

from __future__ import annotations

import numpy as np

from headrace.columnar import Bools, Int64s
from headrace.segments import Hashes
from headrace.time import INFINITY

__all__ = ["Holds", "are_among"]


class Holds:
    """Groups that hold back the output CTI, by the hashes of their keys."""

    def __init__(self) -> None:
        self._hashes, self._times = np.empty(0, np.uint64), np.empty(0, np.int64)

    @property
    def least(self) -> int:
        """The least time; infinite if no group holds back the CTI."""
        return int(self._times.min(initial=INFINITY))

    def exchange(self, touched: Hashes, hashes: Hashes, times: Int64s) -> None:
        """Replace the times of the touched groups, whose hashes are sorted."""
        stay = ~are_among(self._hashes, touched)
        self._hashes = np.concatenate([self._hashes[stay], hashes])
        self._times = np.concatenate([self._times[stay], times])


def are_among(hashes: Hashes, touched: Hashes) -> Bools:
    """Which hashes are among these sorted ones."""
    if not len(touched):
        return np.zeros(len(hashes), bool)
    place = np.minimum(np.searchsorted(touched, hashes), len(touched) - 1)
    return np.asarray(touched[place] == hashes)
