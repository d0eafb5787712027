"""Compositions of kinds that random composition would rarely try.

The intent `any` composes kinds by itself and does not draw these.
"""

from __future__ import annotations

from headrace.testing.intents.kind import PLAIN, written

__all__ = ["COMPOSED"]

_WINDOWS = {"tumbling": "hr.tumbling(12)", "hopping": "hr.hopping(6, every=2)", "snapshot": "hr.snapshot()"}
#: The same two columns in either order: both partition rows alike, but into different buckets.
_ORDERS = {"text_first": "'k', 'i'", "number_first": "'i', 'k'"}
_GROUPS = ".window({window}).aggregate(x=hr.sum('x'))"

#: Infinities of both signs beside the stream's own floats; a retracted one must leave no trace in a sum.
_INFINITE = (
    ".select('k', 'i', x=hr.when(hr.col('i') > {above}).then(float('inf'))"
    ".when(hr.col('i') < 1).then(float('-inf')).otherwise('x'))"
)

COMPOSED = (
    written(
        "join_of_groups",
        2,
        f"{{a}}.group_by({{left}}){_GROUPS}.{{method}}({{other}}.group_by({{right}}){_GROUPS}, on=({{on}})){PLAIN}",
        # Groups of a stream match its own groups; groups of two streams rarely match.
        other={"another": "{b}", "both": "{b}.union({a})"},
        left=_ORDERS,
        right=_ORDERS,
        on=_ORDERS,
        window=_WINDOWS,
        method={"join": "join", "anti_join": "anti_join", "clip": "clip"},
    ),
    written(
        "sum_of_infinities",
        1,
        f"{{a}}{_INFINITE}{{keys}}.window({{window}})"
        f".aggregate(k=hr.max('k'), i=hr.count('x'), x=hr.{{function}}('x')){PLAIN}",
        above={"often": "0", "seldom": "2"},
        keys={"none": "", "computed": ".group_by(up=hr.col('i') > 3)"},
        window=_WINDOWS,
        function={"sum": "sum", "avg": "avg", "var": "var", "stddev": "stddev"},
    ),
    written(
        "cut_session",
        1,
        f"{{a}}{{keys}}.window(hr.session({{gap}}, longest={{longest}})).{{answers}}{PLAIN}",
        keys={"none": "", "computed": ".group_by(up=hr.col('i') > 3)"},
        gap={"short": "2", "long": "9"},
        longest={"short": "3", "long": "12"},
        answers={
            "aggregate": "aggregate(k=hr.max('k'), i=hr.count(), x=hr.sum('x'))",
            "with_columns": "with_columns(i=hr.count(), x=hr.sum('x'))",
        },
    ),
)
