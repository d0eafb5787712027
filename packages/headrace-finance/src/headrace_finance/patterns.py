"""Chart patterns: operators that look at the turning points of a price and tell where a known shape is.

They see the ticks of a window, so a pattern is found in every window that holds it whole: in tumbling windows at most
once, in hopping ones as often as windows overlap. An output lasts from the pattern's first turning point to its last.
"""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

import headrace as hr
from headrace.errors import ModuleError
from headrace_finance.averages import known

__all__ = ["HeadAndShoulders", "WPattern", "turning_points"]

Point = tuple[int, float]


def turning_points(events: list[Any], window: Any) -> list[Point]:
    """Times and prices at which the price turns, high and low by turns; equal prices in a row are one.

    Ticks that began before the window are left to the window they began in; of several at one time the highest counts.
    """
    ticks = dict(sorted((e.le, e.price) for e in events if window.le <= e.le and known(e.price)))
    path = [next(same) for _, same in groupby(ticks.items(), key=lambda tick: tick[1])]
    return [b for (a, b), (_, c) in pairwise(pairwise(path)) if (b[1] > a[1]) == (b[1] > c[1])]


def close(a: float, b: float, tolerance: float) -> bool:
    """Whether two prices are the same, up to a fraction of the larger."""
    return abs(a - b) <= tolerance * max(abs(a), abs(b))


def checked_tolerance(tolerance: float) -> float:
    """A fraction of a price."""
    if not 0 <= tolerance < 1:
        raise ModuleError("a tolerance is a fraction", given=tolerance, allowed="from 0 to 1", instead="tolerance=0.05")
    return tolerance


class HeadAndShoulders(hr.Operator):
    """Three highs, the middle one above the others: after it, prices that rose are said to fall.

    The shoulders must be equal, and so must the lows between them, up to `tolerance`, a fraction of the price; the head
    must stand out above both shoulders by more than that.
    """

    input = "price DOUBLE"
    output = "left DOUBLE, head DOUBLE, right DOUBLE, neckline DOUBLE"
    time_sensitive = True
    within_window = True

    def __init__(self, tolerance: float = 0.05) -> None:
        self.tolerance = checked_tolerance(tolerance)

    def compute(self, events: list[Any], window: Any) -> list[Any]:
        found, turns = [], turning_points(events, window)
        for (start, left), (_, low), (_, head), (_, dip), (end, right) in zip(
            *(turns[i:] for i in range(5)), strict=False
        ):
            even = close(left, right, self.tolerance) and close(low, dip, self.tolerance)
            stands_out = head > max(left, right) and not close(head, max(left, right), self.tolerance)
            if left > low and even and stands_out:
                found.append(self.event(start, end + 1, left=left, head=head, right=right, neckline=min(low, dip)))
        return found


class WPattern(hr.Operator):
    """Two equal lows with a high between them: after it, prices that fell are said to rise.

    The lows must be equal up to `tolerance`, a fraction of the price, and the high at least `rise`, a fraction too,
    above the higher of them.
    """

    input = "price DOUBLE"
    output = "first DOUBLE, middle DOUBLE, second DOUBLE"
    time_sensitive = True
    within_window = True

    def __init__(self, tolerance: float = 0.03, rise: float = 0.05) -> None:
        self.tolerance, self.rise = checked_tolerance(tolerance), rise

    def compute(self, events: list[Any], window: Any) -> list[Any]:
        found, turns = [], turning_points(events, window)
        for (start, first), (_, middle), (end, second) in zip(turns, turns[1:], turns[2:], strict=False):
            low = max(first, second)
            if middle > first and close(first, second, self.tolerance) and middle - low >= self.rise * abs(low):
                found.append(self.event(start, end + 1, first=first, middle=middle, second=second))
        return found
