"""The keys of ORDER BY."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.expr import Expr
from headrace.sql import syntax as s

if TYPE_CHECKING:
    from headrace.sql.bind.expressions import Expressions

__all__ = ["sort_keys"]


def sort_keys(expressions: Expressions, order: Iterable[s.OrderKey]) -> tuple[list[Expr], tuple[bool, ...]]:
    """The values to sort by, and whether each descends. Rankings put NULL last: that it is first is a key, too."""
    by, descending = list[Expr](), list[bool]()
    for key in order:
        value = expressions.bind(key.value)
        if key.nulls == "first":
            by.append(value.is_null())
            descending.append(True)
        by.append(value)
        descending.append(key.descending)
    return by, tuple(descending)
