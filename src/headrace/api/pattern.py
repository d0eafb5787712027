"""`match`: builds the node of a pattern."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import PlanError
from headrace.expr import Column, Expr, as_expr
from headrace.patterns import Pattern
from headrace.patterns.pattern import pattern as shape_of
from headrace.plan.absence import unless_followed
from headrace.plan.base import Node
from headrace.plan.pattern import Match, Rows
from headrace.plan.reentrant import reentrant
from headrace.schema import Schema

__all__ = ["match_node"]


def match_node(
    node: Node,
    keys: tuple[tuple[str, Expr], ...],
    pattern: Pattern | str,
    rows: Rows,
    measures: Mapping[str, Any],
    transitions: Node | None = None,
) -> Node:
    """The matches of a pattern, or of a pattern's text; a measure that is a text names a column.

    With a stream of transitions, the stream says which variable may follow which, and the pattern defines variables.
    """
    shape: Any = _pattern_of(pattern, node.schema) if isinstance(pattern, str) else pattern
    if not isinstance(shape, Pattern):
        raise PlanError(
            "match looks for a pattern",
            given=shape,
            allowed="a pattern",
            instead="match(hr.pattern('A B+'), n=count())",
        )
    named = tuple((name, Column(v) if isinstance(v, str) else as_expr(v)) for name, v in measures.items())
    if transitions is not None:
        shape.refuse_absence("with a stream of transitions, a pattern has no absence")
        return reentrant(Match(node, keys, shape.defining(), named, rows=rows), transitions)
    if shape.absent is not None:
        shape.check()
    match = Match(node, keys, shape.present, named, rows=rows)
    if any(ref.function == "state" for ref in match.references.refs.values()):
        raise PlanError(
            "the states of a pattern have names only where its transitions are a stream",
            given="state()",
            allowed="classifier(), the variable of the last event",
            instead="match(pattern, transitions=hr.events(pattern.transitions()), ...)",
        )
    return match if shape.absent is None else unless_followed(match, shape)


def _pattern_of(text: str, schema: Schema) -> Pattern:
    """The pattern of a text: a shape alone, or a shape with clauses that use the stream's columns."""
    # Imported here because SQL imports this package, and a shape needs no SQL.
    from headrace.sql.bind.pattern_text import has_clauses, pattern_of

    return pattern_of(text, schema) if has_clauses(text) else shape_of(text)
