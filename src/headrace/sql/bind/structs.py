"""Structs in SQL: `ROW(1, 'x')`, `{'a': 1}`, `s.a`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.expr import Expr
from headrace.expr.functions import struct
from headrace.sql import syntax as s
from headrace.sql.printer import to_sql

if TYPE_CHECKING:
    from headrace.sql.bind.expressions import Expressions

__all__ = ["field_of", "made_struct"]


def made_struct(expressions: Expressions, part: s.Call, name: str) -> Expr:
    """`ROW(1, 'x')`, whose fields are `f1` and `f2`, or `{'a': 1, 'b': 'x'}`."""
    named = {one.name.text: one.value for one in part.named}
    values = {f"f{place}": value for place, value in enumerate(part.arguments, 1)} if name == "row" else named
    if not values or (bool(part.arguments) and bool(part.named)) or len(named) < len(part.named):
        raise expressions.context.error(
            part,
            "a struct has fields, each with a name of its own",
            given=to_sql(part),
            allowed="ROW(1, 'x'), {'a': 1, 'b': 'x'}",
            instead="{'a': 1, 'b': 'x'}",
        )
    return struct(**{field: expressions.bind(value) for field, value in values.items()})


def field_of(expressions: Expressions, value: Expr, name: s.Name) -> Expr:
    """A field by its name, as it is written or else in any case."""
    fields = [field for field, _ in value.type(expressions.schema).fields]
    same = [field for field in fields if field.lower() == name.text.lower()]
    wanted = same[0] if name.text not in fields and len(same) == 1 else name.text
    with expressions.context.at(name):
        found = value.field(wanted)
        found.type(expressions.schema)
    return found
