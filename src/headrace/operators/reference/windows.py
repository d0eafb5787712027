"""Grid windows by walking along them (rule 5.1)."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.plan.windows import Grid

__all__ = ["WindowSpan", "open_window_start", "windows_over"]

WindowSpan = tuple[int, int]


def windows_over(grid: Grid, le: int, re: int) -> Iterator[WindowSpan]:
    """Every window that overlaps `[le, re)`."""
    start = grid.origin + (le - grid.origin) // grid.hop * grid.hop
    while start + grid.size > le:  # walk back until a window ends before the event starts
        start -= grid.hop
    while start < re:
        if start + grid.size > le and start < re and le < re:
            yield start, start + grid.size
        start += grid.hop


def open_window_start(grid: Grid, time: int) -> int:
    """The start of the first window that ends after `time` (rule 6.4, first row)."""
    start = grid.origin + (time - grid.origin) // grid.hop * grid.hop
    while start + grid.size > time:
        start -= grid.hop
    while start + grid.size <= time:
        start += grid.hop
    return start
