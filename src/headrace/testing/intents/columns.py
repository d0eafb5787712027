"""Kinds of queries that compute columns, filter aggregates and rank by directions, and joins made of other joins."""

from __future__ import annotations

from headrace.testing.intents.kind import PLAIN, written

__all__ = ["COLUMNS"]

_CHANGED = {
    "replaced": ".with_columns(i=hr.col('i') + 1, x=-hr.col('x'))",
    "swapped": ".with_columns(i=hr.col('x').cast('LONG'), x=hr.col('i').cast('DOUBLE'))",
    "renamed": ".rename({{'i': 'n', 'x': 'i'}}).rename({{'i': 'x', 'n': 'i'}})",
    "dropped": ".with_columns(more='x').drop('x').select('*', x='more').drop('more')",
    "divided": ".with_columns(i=hr.col('i') // -2, x=hr.col('x') // 0.5)",
    "by_itself": ".with_columns(i=7 // hr.col('i'), x=hr.col('i') // hr.col('x'))",
    "extremes": ".with_columns(i=hr.least('i', 1), x=hr.greatest('x', 'i', 0.5))",
    "chosen": ".with_columns(i=hr.when(hr.col('x') > 0).then('i').when(hr.col('i') > 1).then(0))",
    "dates": (
        ".with_columns(t=hr.col('i').cast('DATETIME'))"
        ".with_columns(i=(hr.col('t') + (hr.col('t') - '1970-01-01') * 2) - hr.col('t') - '1 min')"
        ".where(hr.col('t') - '2 min' < '1970-01-02').where(hr.col('t') < hr.col('t') + '1 s').drop('t')"
    ),
}
_EXPLODED = {
    "replaced": ".with_columns(i=hr.array('i', 3)).explode('i')",
    "placed": ".with_columns(y=hr.array('x', 0.5)).explode('y', position='n').select('k', i='n', x='y')",
    "outer": ".with_columns(y=hr.when(hr.col('i') > 0).then('x')).select('k', i='i', y=hr.array('y', 'x'))"
    ".explode('y', into='x', outer=True).select('k', 'i', 'x')",
    "collected": ".group_by('k').window(hr.tumbling(4)).aggregate(i=hr.collect('i'), x=hr.max('x')).explode('i')",
}
_KEYS = {
    "text": "on='k'",
    "computed": "on=hr.col('i') % 2",
    "pair": "on=[(hr.col('i') + 1, hr.col('i'))]",
    "beside": "on=['k', hr.col('i') > 0]",
}
_OUTER = {how: how for how in ("right", "full")}
_WHERE = {"all": "", "near": ", where=hr.col('x') < hr.col('x_right')"}
_TAKEN = ".select(k='k', i='i', x=hr.col('x_right').coalesce(hr.col('x')))"
_FILTERS = {"number": "hr.col('i') > 0", "text": "hr.col('k') == 'a'", "null": "hr.col('x').is_null()"}
_FILTERED = {
    "counts": "k=hr.max('k', where={where}), i=hr.count(where={where}), x=hr.sum('x', where={where})",
    "ends": "k=hr.first('k', where={where}), i=hr.last('i', where={where}), x=hr.avg('x') - hr.avg('x', where={where})",
    "ranks": "k=hr.percentile_disc('k', 0.5), i=hr.percentile_disc('i', 0.3, where={where}), x=hr.median('x')",
    "values": "k=hr.concat('k', '-', where={where}), i=hr.distinct_count('x', where={where}), x=hr.var('i')",
}

_DIRECTIONS = {"down_up": "[True, False]", "up_down": "[False, True]", "one": "True"}
_WINDOWS = {"tumbling": "hr.tumbling(4)", "hopping": "hr.hopping(6, every=2)", "snapshot": "hr.snapshot()"}
_GROUPS = {"text": ".group_by(by='k')", "number": ".group_by(by='i')", "none": ""}

COLUMNS = (
    written("columns", 1, "{a}{change}", change=_CHANGED),
    written("explode", 1, "{a}{lists}", lists=_EXPLODED),
    written("outer_join", 2, f"{{a}}.{{how}}_join({{b}}, {{on}}{{where}}){_TAKEN}", on=_KEYS, where=_WHERE, how=_OUTER),
    written("semi_join", 2, "{a}.semi_join({b}, {on}{where})", on=_KEYS, where=_WHERE),
    written(
        "filtered_aggregate",
        1,
        f"{{a}}{{groups}}.window({{window}}).aggregate({{outputs}}){PLAIN}",
        outputs={
            f"{what}_{where}": _FILTERED[what].format(where=_FILTERS[where]) for what in _FILTERED for where in _FILTERS
        },
        groups=_GROUPS,
        window=_WINDOWS,
    ),
    written(
        "directed_top",
        1,
        "{a}{groups}.window({window}).top(2, by={by}, descending={order})" + PLAIN,
        by={"text": "['k', 'i']", "float": "['x', 'k']"},
        order=_DIRECTIONS,
        groups=_GROUPS,
        window=_WINDOWS,
    ),
)
