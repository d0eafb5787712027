"""Joins of two streams of instants whose condition says how far apart they may be.

`a.ts BETWEEN b.ts - INTERVAL '5' MINUTE AND b.ts` bounds the difference of the times of two streams from both sides. So
each row waits for the other stream as long as the bounds allow: it lasts that long, pairs are what overlaps, and a pair
is an instant at the later of its two times. The condition itself still decides; the lifetimes only bound the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace.errors import HeadraceError
from headrace.sql import syntax as s
from headrace.sql.bind.conditions import conjuncts, has_subquery
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import Expressions
from headrace.sql.bind.relations import Item
from headrace.sql.bind.times import starts
from headrace.sql.bind.values import duration_of

__all__ = ["lasting_to_meet"]

#: The greatest bound, in ticks; FOREVER is none.
_FARTHEST = 2**60
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True)
class _Side:
    item: Item
    expressions: Expressions


@dataclass(frozen=True)
class _Moment:
    """The time of a row of a side (0 or 1), and some ticks."""

    side: int
    later: int


def lasting_to_meet(
    context: Context, on: s.Expression | None, left: tuple[Item, Expressions], right: tuple[Item, Expressions]
) -> tuple[Item, Item] | None:
    """Both sides with the lifetimes in which they can meet; None if the condition does not bound them."""
    sides = _Side(*left), _Side(*right)
    least, most = list[int](), list[int]()  # of the time of the left row minus that of the right row
    for one in conjuncts(on):
        for operator, low, high in _comparisons(one):
            ours, theirs = _moment(context, low, sides), _moment(context, high, sides)
            if ours is None or theirs is None or {ours.side, theirs.side} != {0, 1}:
                continue
            bound = theirs.later - ours.later
            if ours.side == 1:
                operator, bound = _MIRRORED[operator], -bound
            if operator in (">", ">=", "="):
                least.append(bound + (operator == ">"))
            if operator in ("<", "<=", "="):
                most.append(bound - (operator == "<"))
    if not least or not most or any(abs(bound) > _FARTHEST for bound in (*least, *most)):
        return None
    return _lasting(left[0], right[0], max(least), max(*least, min(most)))


def _lasting(left: Item, right: Item, least: int, most: int) -> tuple[Item, Item]:
    """Rows that overlap where `least <= left - right <= most`. The side that comes first waits."""
    if least > 0:
        return left, replace(right, stream=right.stream.shift(least).set_duration(most - least + 1))
    if most < 0:
        return replace(left, stream=left.stream.shift(-most).set_duration(most - least + 1)), right
    return (
        replace(left, stream=left.stream.set_duration(1 - least)),
        replace(right, stream=right.stream.set_duration(1 + most)),
    )


def _comparisons(part: s.Expression) -> Iterator[tuple[str, s.Expression, s.Expression]]:
    if has_subquery(part):
        return
    if isinstance(part, s.Between) and not part.negated:
        yield ">=", part.value, part.low
        yield "<=", part.value, part.high
    elif isinstance(part, s.Binary) and part.operator in _MIRRORED:
        yield part.operator, part.left, part.right


def _moment(context: Context, part: s.Expression, sides: tuple[_Side, _Side]) -> _Moment | None:
    """`a.ts`, `a.ts + INTERVAL '5' SECOND`, `b.ts - 5`: the time of a row and ticks; None for anything else."""
    if isinstance(part, s.Binary) and part.operator in ("+", "-"):
        amount, at = part.right, part.left
        if isinstance(at, (s.Duration, s.Number)) and part.operator == "+":
            amount, at = at, amount
        found = _moment(context, at, sides)
        ticks = _ticks(context, amount)
        if found is None or ticks is None:
            return None
        return replace(found, later=found.later + (ticks if part.operator == "+" else -ticks))
    if not isinstance(part, s.Column):
        return None
    known = [number for number, side in enumerate(sides) if side.expressions.scope.knows(part)]
    if len(known) != 1:
        return None
    side = sides[known[0]]
    return _Moment(known[0], 0) if starts(side.item, side.expressions.bind(part)) else None


def _ticks(context: Context, part: s.Expression) -> int | None:
    amount = part.value if isinstance(part, s.Unary) and part.operator in "+-" else part
    whole = isinstance(amount, s.Number) and isinstance(amount.value, int)
    if not isinstance(part, (s.Duration, s.Number, s.Unary)) or not (whole or isinstance(amount, s.Duration)):
        return None
    try:
        return duration_of(context, part)
    except HeadraceError:  # of months, whose length depends on the date
        return None
