"""`match`, as people call it: what they gave becomes a node of the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import PlanError
from headrace.expr import Column, Expr, as_expr
from headrace.patterns import Pattern
from headrace.patterns.pattern import pattern as pattern_of
from headrace.plan.base import Node
from headrace.plan.pattern import Match, Rows

__all__ = ["matched"]


def matched(
    node: Node, keys: tuple[tuple[str, Expr], ...], pattern: Pattern | str, rows: Rows, measures: Mapping[str, Any]
) -> Match:
    """The matches of a pattern, or of the text of one; a measure that is a text names a column."""
    given: Any = pattern_of(pattern) if isinstance(pattern, str) else pattern
    if not isinstance(given, Pattern):
        raise PlanError(
            "match looks for a pattern",
            given=given,
            allowed="a pattern",
            instead="match(hr.pattern('A B+'), n=count())",
        )
    named = tuple((name, Column(v) if isinstance(v, str) else as_expr(v)) for name, v in measures.items())
    return Match(node, keys, given, named, rows=rows)
