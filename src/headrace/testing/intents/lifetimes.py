"""Kinds of queries that compute with the times of events (rules 4.10 and 4.11)."""

from __future__ import annotations

from headrace.testing.intents.kind import written

__all__ = ["LIFETIMES"]

_ALTERED = {
    "duration": "duration=hr.col('i') + 2",
    "end": "end=hr.start() + hr.col('i')",
    "own_end": "end=hr.end() - 1",
    "later": "start=hr.start() + 2",
    "earlier": "start=hr.start() - 3",
    "from_its_end": "start=hr.end(), duration=3",
    "bounded": "start=hr.start() + hr.col('i') % 4, earliest=4",
    "null": "start=hr.when(hr.col('i') > 0).then(hr.start()), duration=hr.col('i')",
}
LIFETIMES = (
    written(
        "event_times",
        1,
        "{a}{used}",
        used={
            "selected": ".select('k', 'x', i=hr.start()).select('k', i=hr.end() - hr.col('i'), x=hr.col('x'))",
            "filtered": ".where(hr.start() % 3 != 0)",
            "filtered_by_end": ".where(hr.end() - hr.start() > 2)",
            "shifted": ".shift(2).where(hr.start() > 4)",
            "keyed": (
                ".group_by('k', at=hr.start()).window(hr.tumbling(4)).aggregate(x=hr.max('x'))"
                ".select('k', i=hr.col('at'), x=hr.col('x'))"
            ),
            "aggregated": ".group_by('k').window(hr.tumbling(5)).aggregate(i=hr.max(hr.end()), x=hr.avg(hr.start()))",
            "windows": (
                ".group_by('k').window(hr.session(4)).aggregate(i=hr.window_end() - hr.window_start(), x=hr.max('x'))"
            ),
            "snapshots": ".group_by('k').window(hr.snapshot()).aggregate(i=hr.window_end(), x=hr.max('x'))",
            "joined": (
                ".join({a}.shift(2).extend(1), 'k', where=hr.start() < hr.start(of='right'))"
                ".select('k', 'i', x=hr.col('x_right'))"
            ),
        },
    ),
    written("alter_lifetime", 1, "{a}.alter_lifetime({times})", times=_ALTERED),
    written("chop", 1, "{a}.cap_duration(15).chop({every})", every={"1": "1", "4": "4", "moved": "5, -3"}),
)
