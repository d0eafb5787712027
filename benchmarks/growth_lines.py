"""The lines of the growth table: operators as queries over one stream, and what may grow.

The stream has one event at each tick, with a key `k`, a value `v` between 0 and 1, and a number `side`: 0 or 1. Each
measured batch has 1,000 changed events.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import headrace as hr
from headrace import col
from headrace.plan.nodes import EdgeLifetimes, PointAtStart

__all__ = ["DIMENSIONS", "EXPLAINED", "LINES", "Dimension", "Line", "Setting"]


@dataclass(frozen=True)
class Setting:
    """What a query and its stream are like."""

    #: The number of events before the measured batches.
    filled: int = 40_000
    #: How long events last, in ticks: so many are alive at once.
    alive: int = 1
    groups: int = 100
    window: int = 10_000
    #: The distance between windows.
    every: int = 10_000
    #: The distance of the CTI; a tenth of the events are late, by up to so many ticks.
    delay: int = 0
    #: Whether a third of the changes are retractions; with None they cannot occur.
    retracting: bool | None = None

    @property
    def content(self) -> int:
        """The number of events of a group in a window."""
        return max(2, self.window // self.groups)


@dataclass(frozen=True)
class Dimension:
    """What grows: the settings of the small and of the large run, of which the large one depends on the share."""

    what: str
    small: Callable[[Setting], Setting]
    large: Callable[[Setting, float], Setting]


def _growing(what: str, start: int, factor: float, change: Callable[[Setting, int], Setting]) -> Dimension:
    """A size that grows by a factor; a small share of the benchmark has a smaller factor."""
    return Dimension(
        f"{what} {start:,} → {int(start * factor):,}",
        lambda setting: change(setting, start),
        lambda setting, share: change(setting, int(start * max(factor * share, min(factor, 10)))),
    )


DIMENSIONS: Mapping[str, Dimension] = {
    "history": _growing("events so far", 20_000, 20, lambda s, n: replace(s, filled=n)),
    "state": _growing(
        "events alive", 1_000, 100, lambda s, n: replace(s, alive=n, groups=max(n // 10, 1), filled=n + n // 4)
    ),
    "crowd": _growing(
        "events alive in a group", 10, 100, lambda s, n: replace(s, alive=n, groups=1, filled=0)
    ),
    "groups": _growing(
        "groups", 1_000, 100, lambda s, n: replace(s, groups=n, filled=150_000)
    ),
    "window": _growing(
        "events of a window", 1_000, 100,
        lambda s, n: replace(s, window=n, every=max(n // 4, 1), delay=n // 4, groups=10, filled=n + n // 2 + 10_000),
    ),
    "overlap": _growing(
        "windows of an event", 2, 25, lambda s, n: replace(s, window=20_000, every=20_000 // n, groups=10)
    ),
    "lateness": _growing(
        "ticks that events are late", 1_000, 100, lambda s, n: replace(s, delay=n, filled=n + n // 4 + 20_000)
    ),
    "retractions": Dimension(
        "retractions none → a third",
        lambda s: replace(s, retracting=False, delay=20_000),
        lambda s, _: replace(s, retracting=True, delay=20_000),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """An operator: its query, what it may grow with, and the setting where that differs from the default."""

    name: str
    query: Callable[[hr.Stream, Setting], hr.Stream]
    dimensions: tuple[str, ...]
    setting: Mapping[str, Any] = field(default_factory=dict)


def _sides(stream: hr.Stream) -> tuple[hr.Stream, hr.Stream]:
    return stream.where(col("side") == 0), stream.where(col("side") == 1).select("k", w=col("v"))


def _joined(method: str) -> Callable[[hr.Stream, Setting], hr.Stream]:
    def query(stream: hr.Stream, _: Setting) -> hr.Stream:
        left, right = _sides(stream)
        return getattr(left, method)(right, on="k")  # type: ignore[no-any-return]

    return query


def _windows(stream: hr.Stream, at: Setting) -> Any:
    return stream.group_by("k").window(hr.hopping(at.window, every=at.every))


def _aggregated(**outputs: Any) -> Callable[[hr.Stream, Setting], hr.Stream]:
    return lambda stream, at: _windows(stream, at).aggregate(**outputs)  # type: ignore[no-any-return]


def _samples(stream: hr.Stream, _: Setting, **options: Any) -> hr.Stream:
    return hr.Stream(EdgeLifetimes(PointAtStart(stream.node), ("k",), **options))


def _upserts(kept: bool) -> Callable[[hr.Stream, Setting], hr.Stream]:
    return lambda stream, at: _samples(stream, at, latest=True, kept=kept)


def _session(stream: hr.Stream, at: Setting) -> hr.Stream:
    """Sessions with about as many events as a window has: a gap that long is as rare."""
    gap = max(1, int(at.groups * math.log(at.content)))
    return stream.group_by("k").window(hr.session(gap)).aggregate(n=hr.count(), total=hr.sum("v"))


def _w(stream: hr.Stream, at: Setting) -> hr.Stream:
    up = col("v") > 0.5
    guard = hr.count("D") == hr.count("U") - 1
    w = hr.pattern("U D+ U+ D+ U+", define={"U": up, "D": ~up}, where=guard, within=at.window)
    return stream.group_by("k").match(w, n=hr.count())


def _rare(stream: hr.Stream, at: Setting) -> hr.Stream:
    """Runs that last as long as they may: what ends them is rare."""
    ends = col("v") > 0.999
    return stream.group_by("k").match(
        hr.pattern("E N* E", define={"E": ends, "N": ~ends}, within=at.window), n=hr.count()
    )


def _reached(stream: hr.Stream, _: Setting) -> hr.Stream:
    """From some nodes of a binary tree, whose links come and go, the way to its root."""
    links = stream.select(source=col("k"), target=(col("k") / 2).cast("LONG"))
    starts = stream.where(col("v") < 0.01).select(node=col("k"))
    return hr.recurse(starts, lambda found: found.join(links, on={"node": "source"}).select(node=col("target")))


class _Middle(hr.Aggregate):
    """The middle one of the values in order."""

    input = "value DOUBLE"
    output = "DOUBLE"

    def compute(self, values: list[float]) -> float:
        return sorted(values)[len(values) // 2]


class _Total(hr.IncrementalAggregate):
    """The number of values, kept up to date."""

    input = "value DOUBLE"
    output = "LONG"

    def initial(self) -> int:
        return 0

    def add(self, state: int, values: list[float]) -> int:
        return state + len(values)

    def remove(self, state: int, values: list[float]) -> int:
        return state - len(values)

    def compute(self, state: int) -> int:
        return state


_ALL = ("history", "state", "lateness", "retractions")
_WINDOW = ("groups", "window", "overlap", "lateness", "retractions")
_SNAPSHOT = {"alive": 1_000}

LINES = (
    Line("where, select", lambda s, _: s.where(col("v") > 0.5).select("k", w=col("v") * 2), ("history", "retractions")),
    Line("join", _joined("join"), _ALL, _SNAPSHOT),
    Line("left_join", _joined("left_join"), _ALL, _SNAPSHOT),
    Line("anti_join", _joined("anti_join"), _ALL, _SNAPSHOT),
    Line("clip", _joined("clip"), _ALL, _SNAPSHOT),
    Line("coalesce", lambda s, _: s.select("k").coalesce(), _ALL, _SNAPSHOT),
    Line("distinct", lambda s, _: s.distinct("k"), _ALL, _SNAPSHOT),
    Line("edge lifetimes", _samples, ("history", "groups", "lateness", "retractions")),
    Line(
        "keyed changes", lambda s, at: _samples(s, at, closes=col("v") < 0.1, order=("side",)),
        ("history", "groups", "lateness"),
    ),
    Line("upserts to files", _upserts(kept=False), ("history", "groups", "lateness")),
    Line("upserts to a table", _upserts(kept=True), ("history", "groups", "lateness")),
    Line("windows: count, sum", _aggregated(n=hr.count(), total=hr.sum("v")), ("history", *_WINDOW)),
    Line("windows: min, max", _aggregated(low=hr.min("v"), high=hr.max("v")), _WINDOW),
    Line("windows: median", _aggregated(middle=hr.median("v")), _WINDOW),
    Line("windows: distinct_count", _aggregated(n=hr.distinct_count("v")), _WINDOW),
    Line("windows: collect", _aggregated(values=hr.collect("v")), _WINDOW),
    Line("windows: a user's aggregate", _aggregated(middle=_Middle().of("v")), _WINDOW),
    Line("windows: an incremental aggregate", _aggregated(n=_Total().of("v")), _WINDOW),
    Line("windows: contents", lambda s, at: _windows(s, at).contents(), _WINDOW),
    Line("windows: top", lambda s, at: _windows(s, at).top(3, by="v"), _WINDOW),
    Line(
        "windows: final answers", lambda s, at: _windows(s, at).aggregate(n=hr.count()).final(), ("groups", "lateness")
    ),
    Line("top at every instant", lambda s, _: s.group_by("k").top(3, by="v"), (*_ALL, "crowd"), _SNAPSHOT),
    Line(
        "snapshots: count, sum",
        lambda s, _: s.group_by("k").window(hr.snapshot()).aggregate(n=hr.count(), total=hr.sum("v")),
        (*_ALL, "crowd"), _SNAPSHOT,
    ),
    Line(
        "snapshots: min", lambda s, _: s.group_by("k").window(hr.snapshot()).aggregate(low=hr.min("v")),
        (*_ALL, "crowd"), _SNAPSHOT,
    ),
    Line("sessions: count, sum", _session, ("history", "groups", "window", "lateness", "retractions")),
    Line(
        "count_by_start: sum",
        lambda s, _: s.group_by("k").window(hr.count_by_start(5)).aggregate(total=hr.sum("v")),
        ("history", "groups", "lateness", "retractions"),
    ),
    Line(
        "over rows: sum, max",
        lambda s, at: s.group_by("k").over(rows=at.content - 1).aggregate(total=hr.sum("v"), high=hr.max("v")),
        ("history", "groups"),
    ),
    Line(
        "over rows: sum",
        lambda s, at: s.group_by("k").over(rows=at.content - 1).aggregate(total=hr.sum("v")), ("window", "lateness"),
    ),
    Line(
        "over a range: sum", lambda s, at: s.group_by("k").over(range=at.window).aggregate(total=hr.sum("v")),
        ("history", "groups", "window", "lateness"),
    ),
    Line("pattern: W", _w, ("history", "groups", "window", "lateness")),
    Line("pattern: long runs", _rare, ("history", "groups", "window", "lateness")),
    Line("recurse", _reached, ("history", "state", "lateness"), {"alive": 1_000}),
)  # fmt: skip

_KEY = "a change reads all that its key has after the CTI: 10 events, then 1,000; other keys do not matter"
_AGAIN = "a late event has its window computed again, which has 100 times as many events"
_IN_WINDOWS = "an event is in 25 times as many windows"
_OPEN = "as many more events wait for the CTI, and late ones correct ten times as many windows"
_LARGER = "rows are found among 100 times as many, in more segments, and no longer in the processor's caches"
_COMPUTED_AGAIN = (
    "windows: median", "windows: distinct_count", "windows: collect", "windows: a user's aggregate",
    "windows: an incremental aggregate", "windows: contents", "windows: top",
)  # fmt: skip
_BY_KEY = (
    "clip", "coalesce", "distinct", "edge lifetimes", "keyed changes", "upserts to files", "upserts to a table",
    "pattern: W", "pattern: long runs",
)  # fmt: skip
_PAIRS = ("join", "left_join", "anti_join")
_SNAPSHOTS = ("top at every instant", "snapshots: min")
_IN_ORDER = ("count_by_start: sum", "over rows: sum", "over a range: sum")
_TAKEN_BACK = "a retraction looks for its event among those that it may name, and corrects answers"
_MORE_GROUPS = "a batch changes ten times as many groups, and each of them is computed again"
_OTHER_GROUPS = "1,000 changes are in 995 groups, not in 630, and state is found among that of 100 times as many"
_SINCE = "a changed group is computed again from the CTI on"

#: Why a line grows, by operator and dimension.
EXPLAINED: Mapping[tuple[str, str], str] = {
    **{(name, "lateness"): _KEY for name in _BY_KEY},
    **{(name, "state"): _LARGER for name in (*_PAIRS, "clip", "recurse")},
    **{(name, "lateness"): _LARGER for name in (*_PAIRS, "recurse")},
    **{(name, "window"): _AGAIN for name in _COMPUTED_AGAIN},
    **{(name, "overlap"): _IN_WINDOWS for name in (*_COMPUTED_AGAIN, "windows: count, sum", "windows: min, max")},
    **{
        (name, "lateness"): _OPEN
        for name in (*_COMPUTED_AGAIN, "windows: count, sum", "windows: min, max", "windows: final answers")
    },
    **{(name, "retractions"): _TAKEN_BACK for name in ("windows: count, sum", "windows: contents")},
    **{(name, "state"): _MORE_GROUPS for name in _SNAPSHOTS},
    **{(name, "lateness"): _SINCE for name in (*_SNAPSHOTS, *_IN_ORDER, "snapshots: count, sum")},
    **{(name, "crowd"): "a snapshot is computed again with all events that are alive" for name in _SNAPSHOTS},
    **{(name, "groups"): _OTHER_GROUPS for name in ("pattern: W", "pattern: long runs")},
    ("pattern: W", "window"): "the CTI is later as well, and a changed group is searched again from there on",
    ("pattern: long runs", "window"): "a changed group is searched again from the first tuple of an open run on",
}
