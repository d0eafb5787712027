"""Arrival and position as columns, and plans whose rows get another time (rules 1.5 and 8.1).

Windows over the order of arrival need it as data. `stamped` adds the two columns to the sources of a plan, and passes
them up through operators that pass on row by row. `timed_by` gives the rows of a plan another time: lifetime, progress
and lateness, which are decided where rows are read, are decided again for the new time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Protocol

from headrace.deep import Deep, each, run
from headrace.errors import ExpressionError, PlanError
from headrace.expr import Expr, col
from headrace.expr.nodes import Column
from headrace.plan.base import Node
from headrace.plan.policies import Advance, Arrival, Explicit, Interval, Physical, Point, ProgressPolicy
from headrace.plan.source import Admit, Source
from headrace.plan.span import EachAlone, PointAtStart, Select, Union, Where
from headrace.plan.table import TableJoin
from headrace.schema import ARRIVAL, POSITION, STAMPS, Type

__all__ = ["ARRIVAL", "POSITION", "is_stamped", "stamped", "starts_at", "timed_by"]


class _Origin(Protocol):
    """The methods of an origin that are used here."""

    def stamped(self, source: Source) -> Source: ...

    def plain_rows(self, source: Source) -> Source: ...

    def starts_at(self, at: Expr) -> bool: ...


def is_stamped(node: Node) -> bool:
    """Whether a plan's rows have their arrival and position."""
    return all(name in node.schema for name in STAMPS.names)


# --- stamps ----------------------------------------------------------------------------------------------------------


def stamped(node: Node) -> Node:
    """The same plan, with `__arrival` and `__position` as its last columns.

    The plan stays as it is if its rows are not the rows of its sources (after windows and joins, for instance), or if a
    source has no stamps.
    """
    try:
        return run(_stamped(node))
    except PlanError:
        return node


def _stamped(node: Node) -> Deep[Node]:
    if isinstance(node, Source):
        return _origin(node).stamped(node)
    if isinstance(node, Admit):
        return replace(node, input=(yield _stamped(node.input)), by=())
    if isinstance(node, Select):
        return node if is_stamped(node) else Select((yield _stamped(node.input)), (*node.outputs, *_STAMP_COLUMNS))
    if isinstance(node, Union):
        return Union(tuple((yield from each(map(_stamped, node.parts)))))
    if isinstance(node, TableJoin):
        own = tuple((name, col(name)) for name in node.schema.names if name not in STAMPS)
        return Select(node.with_inputs((yield _stamped(node.input))), (*own, *_STAMP_COLUMNS))
    if isinstance(node, EachAlone):
        return node.with_inputs((yield _stamped(node.input)))
    raise PlanError(f"{type(node).__name__} does not pass rows on one by one", given=node.describe())


_STAMP_COLUMNS = tuple((name, col(name)) for name in STAMPS.names)


def _origin(source: Source) -> _Origin:
    return source.origin  # type: ignore[return-value]  # a plan declares origins as objects; all have these methods


# --- the time of rows ------------------------------------------------------------------------------------------------


def starts_at(node: Node, at: Expr) -> bool:
    """Whether the rows of a plan are known to start at this time, an expression over its columns."""
    waiting = [(node, at)]
    while waiting:
        node, at = waiting.pop()
        if isinstance(node, Union):
            waiting += [(part, at) for part in node.parts]
        elif isinstance(node, Select):
            waiting.append((node.input, _below(node, at)))
        elif _keeps_start(node, at):
            waiting.append((node.inputs[0], at))
        elif not _begins_at(node, at):
            return False
    return True


def _keeps_start(node: Node, at: Expr) -> bool:
    """Whether its rows start at this time if the rows of its input do."""
    if isinstance(node, TableJoin):
        return _below_table(node, at)
    return isinstance(node, EachAlone) and node.keeps_start


def _begins_at(node: Node, at: Expr) -> bool:
    """Whether the rows of a source start at this time."""
    if isinstance(node, Admit):
        return _origin(node.source).starts_at(at)
    if not isinstance(node, Source) or isinstance(node.lifetime, Physical):
        return False
    life = node.lifetime
    return str(life.start if isinstance(life, Interval) else life.at) == str(at)


def _below(node: Select, at: Expr) -> Expr:
    """An expression over the columns of a Select, rewritten over those of its input."""
    outputs = dict(node.outputs)
    return at.transform(lambda e: outputs[e.name] if isinstance(e, Column) else e)


# --- another time ----------------------------------------------------------------------------------------------------


def timed_by(node: Node, at: Expr | Literal["arrival"], progress: ProgressPolicy | None = None) -> Node:
    """The rows of a plan, each a point at the time `at`: an expression over the plan's columns, or its arrival.

    Without `progress` there are no promises, because a promise about one time says nothing about another; rows timed by
    their arrival are in order. Operators that only change lifetimes are removed. A `PlanError` says why a plan cannot
    get another time.
    """
    if isinstance(at, Expr):
        kind = at.type(node.schema)
        if kind is not Type.DATETIME and not kind.is_integer:
            raise PlanError(
                f"{at} cannot be a time",
                given=kind.value,
                allowed="DATETIME, or a whole number of ticks (microseconds)",
            )
    return run(_timed(node, at, progress))


def _timed(node: Node, at: Expr | Literal["arrival"], progress: ProgressPolicy | None) -> Deep[Node]:
    if isinstance(node, Source):
        return _timed_source(node, at, progress)
    if isinstance(node, Admit):
        return (yield from _timed_events(node, at, progress))
    if isinstance(node, Select):
        below = _below(node, at) if isinstance(at, Expr) else at
        return Select((yield _timed(node.input, below, progress)), node.outputs)
    if isinstance(node, Union):
        return Union(tuple((yield from each(_timed(part, at, progress) for part in node.parts))))
    if isinstance(node, EachAlone) and node.keeps_events:
        timed: Node = yield _timed(node.inputs[0], at, progress)
        return timed
    if isinstance(node, Where) or (isinstance(node, TableJoin) and _below_table(node, at)):
        return node.with_inputs((yield _timed(node.inputs[0], at, progress)))
    raise PlanError(
        "only rows as a source gives them can get another time",
        given=node.describe(),
        allowed="streams made of sources by where, select and union",
        instead=f"the time {at} before this operator, where the stream is created",
    )


def _timed_events(node: Admit, at: Expr | Literal["arrival"], progress: ProgressPolicy | None) -> Deep[Node]:
    """Physical events, if they already start at this time; otherwise as rows, if they are never retracted."""
    origin = _origin(node.source)
    if isinstance(at, Expr) and progress is None and origin.starts_at(at):
        return PointAtStart(node)
    return (yield from _timed(origin.plain_rows(node.source), at, progress))


def _below_table(node: TableJoin, at: Expr | Literal["arrival"]) -> bool:
    return not isinstance(at, Expr) or at.columns() <= set(node.input.schema.names)


def _timed_source(source: Source, at: Expr | Literal["arrival"], progress: ProgressPolicy | None) -> Node:
    if not isinstance(at, Expr):
        rows = _origin(source).stamped(source)
        kept = source.schema.names  # the stamps are read only where a query uses them
        return replace(rows, lifetime=Arrival(), policy=progress or Advance(), read_columns=kept)
    if isinstance(source.lifetime, Physical):
        raise PlanError("physical events have their times already", given=source.describe())
    try:
        at.type(source.columns)
    except ExpressionError as error:
        raise PlanError(f"{source.origin} has no column for the time {at}", given=str(source.columns)) from error
    # A promise about one time says nothing about another.
    same = isinstance(source.lifetime, Point) and str(source.lifetime.at) == str(at)
    policy = source.policy if same else Explicit(source.policy.late)
    return replace(source, lifetime=Point(at), policy=progress or policy, dated=None)
