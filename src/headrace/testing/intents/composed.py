"""Queries of several kinds that must agree on something which chance would rarely try.

The intent `any` composes kinds by itself, so these are not among those that it draws.
"""

from __future__ import annotations

from headrace.testing.intents.kind import PLAIN, written

__all__ = ["COMPOSED"]

_WINDOWS = {"tumbling": "hr.tumbling(12)", "hopping": "hr.hopping(6, every=2)", "snapshot": "hr.snapshot()"}
#: The same two columns in either order: rows are together by both, but not in the same place.
_ORDERS = {"text_first": "'k', 'i'", "number_first": "'i', 'k'"}
_GROUPS = ".window({window}).aggregate(x=hr.sum('x'))"

#: Infinities of both signs beside the stream's own floats; one that is taken back must leave no trace in a sum.
_INFINITE = (
    ".select('k', 'i', x=hr.case().when(hr.col('i') > {above}, float('inf'))"
    ".when(hr.col('i') < 1, float('-inf')).otherwise(hr.col('x')))"
)

COMPOSED = (
    written(
        "join_of_groups",
        2,
        f"{{a}}.group_by({{left}}){_GROUPS}.{{method}}({{other}}.group_by({{right}}){_GROUPS}, on=({{on}})){PLAIN}",
        # The groups of a stream meet those of itself; those of two streams seldom do.
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
)
