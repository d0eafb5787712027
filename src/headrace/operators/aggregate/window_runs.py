"""Expansion of runs of windows: one row for each window of each run."""

from __future__ import annotations

import numpy as np

from headrace.columnar import Int64s
from headrace.errors import EventError

__all__ = ["expand_runs"]

_MOST_WINDOWS = 50_000_000


def expand_runs(first: Int64s, last: Int64s, window: object) -> tuple[Int64s, Int64s]:
    """`(rows, numbers)`: the run of each window, and the window's number; a run may be empty."""
    count = np.maximum(last - first + 1, 0)
    total = int(count.sum())
    if total > _MOST_WINDOWS or count.max(initial=0) > _MOST_WINDOWS:  # the sum may have overflowed
        raise EventError(
            f"one batch would give answers for {total:,} windows",
            given=f"events that last through that many windows of {window}",
            instead="a larger window, or shorter lifetimes: set_duration(...)",
        )
    rows = np.repeat(np.arange(len(first)), count)
    offset = np.arange(total) - np.repeat(np.cumsum(count) - count, count)
    return rows, first[rows] + offset
