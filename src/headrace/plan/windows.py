"""Windows that divide the time axis (rule 5).

A *grid* is a row of windows that do not depend on events. `Hopping` is `[o + kH, o + kH + S)` for every integer k:
tumbling windows have H = S, hopping ones overlap (H < S), jumping ones leave gaps (H > S). `Calendar` (`calendar.py`)
is the same in days or months of a time zone. An event belongs to every window it overlaps: those numbered
`first(LE) .. last(RE)`. The windows of the other kinds depend on the events of a group: *snapshot*, *count* and
*session*; `operators/per_window/divide.py` finds them.

An event without an end has no last window. Its last number is `ENDLESS + k`, where window k is the last one that starts
at or before the event's start: at the end of time, if no other event goes further, its windows stop there (rule 5.3).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headrace.columnar import Int64s
from headrace.compiled import INT, INTS, NEW_INTS, compiled
from headrace.errors import PlanError
from headrace.time import INFINITY, NEG_INFINITY, format_duration

__all__ = [
    "ENDLESS",
    "LIMIT",
    "PLAIN_POLICY",
    "Clipping",
    "Count",
    "Grid",
    "Hopping",
    "Session",
    "Snapshot",
    "Timestamping",
    "WindowKind",
    "WindowPolicy",
    "even_runs",
]

ENDLESS = 2**62
#: Times are cut to 36 000 years before and after 1970: larger ones would overflow.
LIMIT = 2**60
_DIFFERENT = 2**63 - 1
_BY_TIME = "windows that end by time alone: tumbling(...)"


Clipping = Literal["none", "left", "right", "full"]
Timestamping = Literal["align", "unchanged", "clip", "time_bound"]


@dataclass(frozen=True)
class WindowKind(ABC):
    """A division of the time axis of a group."""

    @property
    @abstractmethod
    def delay(self) -> str:
        """The distance of the first open window's start from the CTI, as text for users."""

    @property
    @abstractmethod
    def quiet(self) -> tuple[str, str] | None:
        """How a group can hold back the output CTI of all, and a remedy, as text for users; None if no group can."""


@dataclass(frozen=True)
class Grid(WindowKind):
    """Windows that do not depend on events: numbered in the order of their starts, which is that of their ends."""

    @property
    @abstractmethod
    def overlap(self) -> int:
        """How many windows an instant may be in."""

    @abstractmethod
    def runs(self, le: Int64s, re: Int64s) -> tuple[Int64s, Int64s | int]:
        """The number of the first window that ends after each LE, and how many later is the last that starts before RE.

        The second is one number if it is the same for all.
        """

    @abstractmethod
    def start(self, k: Int64s) -> Int64s:
        """The starts of windows."""

    @abstractmethod
    def end(self, k: Int64s) -> Int64s:
        """The ends of windows; infinite for the windows of events without an end."""

    @abstractmethod
    def closed(self, time: int) -> int:
        """The number of the last window that ends at or before `time`."""

    @abstractmethod
    def begun(self, time: int) -> int:
        """The number of the last window that starts at or before `time`."""

    def first(self, le: Int64s) -> Int64s:
        """The number of the first window that ends after each LE."""
        return self.runs(le, le)[0]

    def last(self, le: Int64s, re: Int64s) -> Int64s:
        """The number of the last window that starts before each RE."""
        first, later = self.runs(le, re)
        return first + later

    def start_of(self, k: int) -> int:
        """The start of one window."""
        return int(self.start(np.array([k], np.int64))[0])

    def end_of(self, k: int) -> int:
        """The end of one window."""
        return int(self.end(np.array([k], np.int64))[0])

    def cti(self, time: int) -> int:
        """The output CTI for an input CTI (rule 6.4): the start of the first open window."""
        if time in (INFINITY, NEG_INFINITY):
            return time
        return self.start_of(self.closed(time) + 1)

    @property
    def quiet(self) -> None:
        return None


@dataclass(frozen=True)
class Hopping(Grid):
    """Windows of a size, one every hop, counted from an origin."""

    size: int
    hop: int
    origin: int = 0

    def __post_init__(self) -> None:
        for name, value in (("size", self.size), ("hop", self.hop)):
            if not 0 < value < LIMIT:
                raise PlanError(
                    f"a window's {name} must be positive and finite",
                    given=value,
                    instead="hopping('60 s', every='10 s')",
                )
        if abs(self.origin) >= LIMIT:
            raise PlanError("a window's origin must be finite", given=self.origin)

    @property
    def overlap(self) -> int:
        return -(-self.size // self.hop)

    def runs(self, le: Int64s, re: Int64s) -> tuple[Int64s, Int64s | int]:
        return even_runs(np.ascontiguousarray(le), np.ascontiguousarray(re), self.size, self.hop, self.origin)

    def start(self, k: Int64s) -> Int64s:
        return self.origin + k * self.hop

    def end(self, k: Int64s) -> Int64s:
        endless = k >= ENDLESS // 2
        if not endless.any():
            return k * self.hop + (self.origin + self.size)
        return np.where(endless, INFINITY, np.where(endless, 0, k) * self.hop + (self.origin + self.size))

    def closed(self, time: int) -> int:
        return min((max(-LIMIT, time) - self.origin - self.size) // self.hop, self.begun(LIMIT))

    def begun(self, time: int) -> int:
        return (max(-LIMIT, min(LIMIT, time)) - self.origin) // self.hop

    @property
    def delay(self) -> str:
        return f"up to {format_duration(self.size)}"

    def __str__(self) -> str:
        origin = f", origin={self.origin}" if self.origin else ""
        if self.size == self.hop:
            return f"tumbling({format_duration(self.size)}{origin})"
        return f"hopping({format_duration(self.size)}, every={format_duration(self.hop)}{origin})"


def even_runs(le: Int64s, re: Int64s, size: int, hop: int, origin: int) -> tuple[Int64s, Int64s | int]:
    """`Grid.runs` for windows of one size and hop."""
    first, later = np.empty(len(le), np.int64), np.empty(0, np.int64)
    same = _runs(le, re, size, hop, origin, first, later)
    if same != _DIFFERENT:
        return first, same
    later = np.empty(len(le), np.int64)
    _runs(le, re, size, hop, origin, first, later)
    return first, later


@compiled(INTS, INTS, INT, INT, INT, NEW_INTS, NEW_INTS)
def _runs(le: Int64s, re: Int64s, size: int, hop: int, origin: int, first: Int64s, later: Int64s) -> int:
    """Fill the first windows, and how many later the last are, or return that if `later` is empty.

    A division takes longer than the rest, and neighbouring events are mostly in the same windows: `low..high` are the
    times for which the last result is right.
    """
    low = high = low_2 = high_2 = start = end = same = 0
    for i in range(len(le)):
        begin = min(max(le[i], 1 - LIMIT), LIMIT - 1)
        time = begin - (origin + size)
        if time < low or time >= high:
            start = time // hop
            low, high = start * hop, start * hop + hop
        if re[i] == INFINITY:
            last = ENDLESS + (begin - origin) // hop
        else:
            time = min(max(re[i], 1 - LIMIT), LIMIT - 1) - 1 - origin
            if time < low_2 or time >= high_2:
                end = time // hop
                low_2, high_2 = end * hop, end * hop + hop
            last = end
        first[i] = start + 1
        if len(later) > 0:
            later[i] = last - first[i]
        elif i == 0:
            same = last - first[i]
        elif last - first[i] != same:
            return _DIFFERENT
    return same


@dataclass(frozen=True)
class Snapshot(WindowKind):
    """A window between each two neighbouring endpoints of the group's events."""

    @property
    def delay(self) -> str:
        return "as long as nothing starts or ends in the slowest group"

    @property
    def quiet(self) -> tuple[str, str]:
        does = "has an event that lasts, while nothing starts or ends in it,"
        return does, "cap_duration(...) before it, which bounds how long events last"

    def __str__(self) -> str:
        return "snapshot"


@dataclass(frozen=True)
class Count(WindowKind):
    """Windows over n successive distinct start times, or end times: `[t_i, t_(i+n-1) + h)` for each i."""

    n: int
    by: Literal["start", "end"] = "start"

    def __post_init__(self) -> None:
        if type(self.n) is not int or not 0 < self.n < LIMIT:
            raise PlanError(
                "a count window counts at least one time",
                given=self.n,
                allowed="a whole number from 1 on",
                instead=f"count_by_{self.by}(3)",
            )

    @property
    def delay(self) -> str:
        return f"until the slowest group has {self.n} {self.by} times"

    @property
    def quiet(self) -> tuple[str, str]:
        return f"goes quiet before it has {self.n} {self.by} times", _BY_TIME

    def __str__(self) -> str:
        return f"count_by_{self.by}({self.n})"


@dataclass(frozen=True)
class Session(WindowKind):
    """Runs of events whose starts are less than a gap apart: `[first LE, last LE + gap)`.

    With `longest`, a run is cut: the first start that is at least `longest` after a session's first begins another, and
    a session ends at `first LE + longest` if not before.
    """

    gap: int
    longest: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.gap < LIMIT:
            raise PlanError("a session's gap must be positive and finite", given=self.gap, instead="session('30 s')")
        if self.longest is not None and not 0 < self.longest < LIMIT:
            raise PlanError(
                "the greatest length of a session must be positive and finite",
                given=self.longest,
                instead="session('30 min', longest='4 h')",
            )

    @property
    def delay(self) -> str:
        if self.longest is not None:
            return f"up to {format_duration(self.longest)}"
        return f"as long as the longest open session, at least {format_duration(self.gap)}"

    @property
    def quiet(self) -> tuple[str, str] | None:
        if self.longest is not None:
            return None
        return "never pauses", f"session(..., longest='4 h'), or {_BY_TIME}"

    def __str__(self) -> str:
        longest = "" if self.longest is None else f", longest={format_duration(self.longest)}"
        return f"session({format_duration(self.gap)}{longest})"


@dataclass(frozen=True)
class WindowPolicy:
    """The policies of a window clause for its modules (rule 6.3), and for their failures.

    `clipping`: how lifetimes are clipped to the window before a time-sensitive module sees them. `timestamping`: the
    lifetimes of its outputs; None is `align` for time-insensitive modules and `unchanged` for others. `on_error`: a
    failure stops the query (`fail`), or only its window is left out, counted and diverted (`skip`). `verify` calls a
    module twice. `time_limit` is in seconds for each call.
    """

    clipping: Clipping = "none"
    timestamping: Timestamping | None = None
    on_error: Literal["fail", "skip"] = "fail"
    verify: bool = False
    time_limit: float | None = None

    def __post_init__(self) -> None:
        for name, allowed in _POLICIES.items():
            if getattr(self, name) not in allowed:
                raise PlanError(
                    f"there is no {name} {getattr(self, name)!r}",
                    given=getattr(self, name),
                    allowed=", ".join(map(str, allowed)),
                    instead=f"{name}={allowed[1]!r}",
                )
        limit: Any = self.time_limit
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit > 0):
            raise PlanError("a time limit must be positive, in seconds", given=limit, instead="time_limit=5.0")
        if not isinstance(self.verify, bool):
            raise PlanError("verify is true or false", given=self.verify, instead="verify=True")

    @property
    def clips_right(self) -> bool:
        return self.clipping in ("right", "full")

    def __str__(self) -> str:
        parts = [f"clipping={self.clipping}"] if self.clipping != "none" else []
        parts += [f"timestamping={self.timestamping}"] if self.timestamping else []
        parts += [f"on_error={self.on_error}"] if self.on_error != "fail" else []
        parts += ["verify"] if self.verify else []
        parts += [f"time_limit={self.time_limit}"] if self.time_limit is not None else []
        return ", ".join(parts)


_POLICIES: dict[str, tuple[str | None, ...]] = {
    "clipping": ("none", "left", "right", "full"),
    "timestamping": (None, "align", "unchanged", "clip", "time_bound"),
    "on_error": ("fail", "skip"),
}

#: The default policy.
PLAIN_POLICY = WindowPolicy()
