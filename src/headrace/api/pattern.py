"""`match`, as people call it: what they gave becomes a node of the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import PlanError
from headrace.expr import Column, Expr, as_expr
from headrace.patterns import Pattern
from headrace.patterns.pattern import pattern as shape_of
from headrace.plan.base import Node
from headrace.plan.pattern import Match, Rows
from headrace.plan.reentrant import reentrant
from headrace.schema import Schema

__all__ = ["matched"]


def matched(
    node: Node,
    keys: tuple[tuple[str, Expr], ...],
    pattern: Pattern | str,
    rows: Rows,
    measures: Mapping[str, Any],
    transitions: Node | None = None,
) -> Node:
    """The matches of a pattern, or of the text of one; a measure that is a text names a column.

    Where transitions are a stream, what follows what is theirs to say, and the definitions are the pattern's.
    """
    given: Any = _said(pattern, node.schema) if isinstance(pattern, str) else pattern
    if not isinstance(given, Pattern):
        raise PlanError(
            "match looks for a pattern",
            given=given,
            allowed="a pattern",
            instead="match(hr.pattern('A B+'), n=count())",
        )
    named = tuple((name, Column(v) if isinstance(v, str) else as_expr(v)) for name, v in measures.items())
    if transitions is not None:
        return reentrant(Match(node, keys, given.defining(), named, rows=rows), transitions)
    found = Match(node, keys, given, named, rows=rows)
    if any(ref.function == "state" for ref in found.references.refs.values()):
        raise PlanError(
            "the states of a pattern have names only where its transitions are a stream",
            given="state()",
            allowed="classifier(), the variable of the last event",
            instead="match(pattern, transitions=hr.events(pattern.transitions()), ...)",
        )
    return found


def _said(text: str, schema: Schema) -> Pattern:
    """The pattern of a text: a shape alone, or with clauses that speak of the stream's columns."""
    # Here, because SQL is made of what is here, and a shape needs none of it.
    from headrace.sql.bind.pattern_text import has_clauses, pattern_of

    return pattern_of(text, schema) if has_clauses(text) else shape_of(text)
