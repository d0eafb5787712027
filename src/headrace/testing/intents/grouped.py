"""Kinds of queries that run a query of their own for each group (rule 4)."""

from __future__ import annotations

from headrace.testing.intents.kind import PLAIN, written

__all__ = ["GROUPED"]

_APPLY_KEYS = {"text": "'k'", "float": "'x'", "two": "'k', 'i'", "computed": "up=hr.col('i') > 0"}
_RISING = "where=hr.col('x') < hr.col('x_right')).select('k', 'i', x=hr.col('x_right'))"
_BODIES = {
    "where": "g.where(hr.col('i') > 0).shift(1)",
    "window": "g.window(hr.tumbling(4)).aggregate(k=hr.max('k'), i=hr.count(), x=hr.sum('x'))",
    "snapshot": "g.window(hr.snapshot()).aggregate(k=hr.max('k'), i=hr.count(), x=hr.max('x'))",
    "session": "g.window(hr.session(4)).aggregate(k=hr.last('k'), i=hr.sum('i'), x=hr.avg('x'))",
    "count": "g.window(hr.count_by_start(2)).aggregate(k=hr.first('k'), i=hr.count(), x=hr.median('x'))",
    "module": "g.window(hr.tumbling(5)).aggregate(k=hr.max('k'), i=hr.count(), x=PayloadChecksum().of('i', 'x'))",
    "operate": (
        "g.window(hr.snapshot()).operate(Largest(), 'i', 'x')"
        ".select(k=hr.col('label'), i=hr.col('n'), x=hr.col('value'))"
    ),
    "top": "g.top(1, by=['i', 'x'])",
    "coalesce": "g.coalesce()",
    "final": "g.final()",
    "union": "g.union(g.shift(3))",
    "anti_join": "g.anti_join(g.shift(2), where=hr.col('i') >= hr.col('i_right'))",
    "alone": "g.anti_join(g.where(hr.col('i') > 0).shift(1))",
    "clip": "g.clip(g.point_at_end())",
    "nested": (
        "g.group_by('i').apply(lambda h: h.window(hr.tumbling(4)).aggregate(k=hr.max('k'), x=hr.sum('x')))" + PLAIN
    ),
    "equi_join": "g.join(g.where(hr.col('i') > 0), on='i').select('k', 'i', x=hr.col('x_right'))",
    "join": f"g.join(g, {_RISING}",
    "left_join": f"g.left_join(g.shift(2), on='i', {_RISING}",
}
#: With a stream from outside, which joins with every group.
_MEETING_BODIES = {
    "anti_join": "g.anti_join({b}, on='i')",
    "clip": "g.clip({b}, on='i')",
    "join": "g.join({b}, on='i', " + _RISING,
    "join_from_outside": "{b}.join(g, on='i', " + _RISING,
    "left_join": "g.left_join({b}, on=('k', 'i'), " + _RISING,
    "not_met": "g.anti_join(g.join({b}, on='i').select('k', 'i', 'x'))",
}
_APPLY = "{a}.group_by({keys}).apply(lambda g: {body})" + PLAIN
GROUPED = (
    written("group_apply", 1, _APPLY, {"body": tuple(_BODIES)[:-2]}, keys=_APPLY_KEYS, body=_BODIES),
    written(
        "group_apply_with",
        2,
        _APPLY,
        {"body": ("anti_join", "clip", "left_join", "not_met")},
        keys=_APPLY_KEYS,
        body=_MEETING_BODIES,
    ),
)
