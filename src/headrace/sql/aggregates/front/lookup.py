"""Rows that a condition finds by their key: which columns it says the values of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.expr import Column, Literal
from headrace.expr.nodes import Bound, Call, Case, Cast
from headrace.sql.aggregates.front import definition as d

__all__ = ["calls", "chain", "said"]


def said(places: Mapping[str, d.ColumnOrigin], sources: Sequence[d.TableScan], where: Bound | None) -> dict[int, Bound]:
    """The columns of the first source whose values a condition says, by their places.

    The others are those whose rows are not known yet.
    """
    found: dict[int, Bound] = {}
    if where is None:
        return found
    for part in chain(where, "and") if calls(where, "and") else [where]:
        for mine, other in (part.args, part.args[::-1]) if calls(part, "eq") else ():
            place = places.get(mine.node.column) if isinstance(mine.node, Column) else None
            if place is not None and place.source is sources[0] and _apart(places, other, sources):
                found[place.index] = other
    return found


def _apart(places: Mapping[str, d.ColumnOrigin], bound: Bound, sources: Sequence[d.TableScan]) -> bool:
    """Whether a value is the same for all rows of some sources, and quickly seen to be."""
    if isinstance(bound.node, Column):
        return places[bound.node.column].source not in sources
    if not isinstance(bound.node, (Literal, Call, Case, Cast)):
        return False
    return all(_apart(places, child, sources) for child in bound.args)


def calls(bound: Bound, function: str) -> bool:
    """Whether it is a call of a function."""
    return isinstance(bound.node, Call) and bound.node.function == function


def chain(bound: Bound, function: str) -> list[Bound]:
    """`a AND b AND c` as one."""
    return [one for arg in bound.args for one in (chain(arg, function) if calls(arg, function) else [arg])]
