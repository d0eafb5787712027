"""Cells: where the events of a window are found, without a look at the other events of its group.

An event is in the windows `first .. last` of a grid. It is kept in one cell of one *level*: level L divides the numbers
of windows into cells of 2^L, and an event of up to 2^L windows (and more than half as many) is kept in the cell of its
first one. So window w finds its events in two cells of each level: its own, `w >> L`, and the one before. There are few
levels: most events are in about as many windows. Events without an end have a level of their own.
"""

from __future__ import annotations

import numpy as np

from headrace.columnar import Int64s
from headrace.plan.windows import ENDLESS

__all__ = ["ENDLESS_LEVEL", "cells_meeting", "cells_of"]

#: The level of events without an end; numbers of windows are smaller than its cells.
ENDLESS_LEVEL = 62


def cells_of(first: Int64s, last: Int64s) -> tuple[Int64s, Int64s]:
    """The level and the cell of events."""
    beyond = np.minimum(last, ENDLESS // 2) - first
    # The exponent of a whole number is the number of its bits, and exact below 2^53.
    level = np.frexp(np.minimum(beyond, 2**52).astype(np.float64))[1].astype(np.int64)
    level = np.where((last >= ENDLESS // 2) | (beyond > 2**52), ENDLESS_LEVEL, level)
    return level, first >> level


def cells_meeting(window: Int64s, highest: int) -> tuple[Int64s, Int64s, Int64s]:
    """The cells that may have events of windows, up to a level: positions of windows, levels, cells."""
    levels = np.array([*range(highest + 1), ENDLESS_LEVEL])
    row = np.repeat(np.arange(len(window)), 2 * len(levels))
    level = np.tile(np.repeat(levels, 2), len(window))
    before = np.tile([0, 1], len(levels) * len(window))
    return row, level, (window[row] >> level) - before
