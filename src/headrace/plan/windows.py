"""Windows that divide the time axis (rule 5): here the grid, `[o + kH, o + kH + S)` for every integer k.

Tumbling windows are the grid with H = S, hopping ones overlap (H < S), jumping ones leave gaps (H > S). An event
belongs to every window it overlaps: those numbered `first(LE) .. last(RE)`.

An event that never ends has no last window. Its last number is `ENDLESS + k`, where window k is the last one that
starts at or before the event does: at the end of time, when all else has ended, its windows stop there (rule 5.3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.errors import PlanError
from headrace.time import INFINITY, NEG_INFINITY, format_duration

__all__ = ["ENDLESS", "Grid", "Window"]

Int64s = NDArray[np.int64]
ENDLESS = 2**62
_LIMIT = 2**60


@dataclass(frozen=True)
class Grid:
    """Hopping windows of a size, one every hop, counted from an origin."""

    size: int
    hop: int
    origin: int = 0

    def __post_init__(self) -> None:
        for name, value in (("size", self.size), ("hop", self.hop)):
            if not 0 < value < _LIMIT:
                raise PlanError(
                    f"a window's {name} must be positive and finite",
                    given=value,
                    instead="hopping('60 s', every='10 s')",
                )
        if abs(self.origin) >= _LIMIT:
            raise PlanError("a window's origin must be finite", given=self.origin)

    def first(self, le: Int64s) -> Int64s:
        """The number of the first window that ends after each LE."""
        return (_bounded(le) - (self.origin + self.size)) // self.hop + 1

    def last(self, le: Int64s, re: Int64s) -> Int64s:
        """The number of the last window that starts before each RE."""
        finite = (_bounded(re) - 1 - self.origin) // self.hop
        endless = re == INFINITY
        if not endless.any():
            return finite
        return np.where(endless, ENDLESS + (_bounded(le) - self.origin) // self.hop, finite)

    def start(self, k: Int64s) -> Int64s:
        """Where windows start."""
        return self.origin + k * self.hop

    def end(self, k: Int64s) -> Int64s:
        """Where windows end; windows without a last number end never."""
        ends = np.where(k >= ENDLESS // 2, 0, k) * self.hop + (self.origin + self.size)
        return np.where(k >= ENDLESS // 2, np.int64(INFINITY), ends)

    def closed(self, time: int) -> int:
        """The number of the last window that ends at or before `time`."""
        return (max(-_LIMIT, min(_LIMIT, time)) - self.origin - self.size) // self.hop

    def start_of(self, k: int) -> int:
        """Where one window starts."""
        return self.origin + k * self.hop

    def cti(self, time: int) -> int:
        """The output CTI for an input CTI (rule 6.4): where the first window still open starts."""
        if time in (INFINITY, NEG_INFINITY):
            return time
        return self.start_of(self.closed(time) + 1)

    def __str__(self) -> str:
        origin = f", origin={self.origin}" if self.origin else ""
        if self.size == self.hop:
            return f"tumbling({format_duration(self.size)}{origin})"
        return f"hopping({format_duration(self.size)}, every={format_duration(self.hop)}{origin})"


def _bounded(times: Int64s) -> Int64s:
    # Larger times would overflow the arithmetic; 36 000 years on either side of 1970 are enough.
    return np.clip(times, 1 - _LIMIT, _LIMIT - 1)


Window = Grid
