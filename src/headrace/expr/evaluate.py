"""Evaluation: an expression over the columns of an Arrow table, all rows at once.

The tree is bound to the table's schema, then computed from the leaves up. A part without columns is computed once, as a
scalar, and expanded to all rows only if it is the entire answer.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ExpressionError
from headrace.expr.arrow import KERNELS, case, cast
from headrace.expr.arrow.columns import Datum, repeated
from headrace.expr.nodes import Bound, Call, Case, Cast, Column, Expr, Literal
from headrace.expr.python import UdfCall, run
from headrace.schema import Schema, Type

__all__ = ["evaluate", "predicate_mask"]


def evaluate(expr: Expr, table: pa.Table, schema: Schema | None = None) -> pa.Array:
    """The value of `expr` in every row. Default for `schema`: the table's own."""
    bound = expr.bind(schema or Schema.of(table.schema))
    value = _compute(bound, table)
    if isinstance(value, pa.Scalar):
        return repeated(value, table.num_rows)
    return value if value.type == bound.type.arrow else value.cast(bound.type.arrow)


def predicate_mask(expr: Expr, table: pa.Table, schema: Schema | None = None) -> pa.Array:
    """Where `expr` is true; NULL counts as false."""
    found = expr.bind(schema or Schema.of(table.schema)).type
    if found != Type.BOOLEAN:
        raise ExpressionError(
            f"{expr} is {found.value}, not a condition", given=found.value, allowed="BOOLEAN", instead=f"{expr} > 0"
        )
    return pc.fill_null(evaluate(expr, table, schema), False)


def _compute(bound: Bound, table: pa.Table) -> Datum:
    node = bound.node
    if isinstance(node, Column):
        return _column(table, node.column, bound.type)
    if isinstance(node, Literal):
        return pa.scalar(node.value, type=bound.type.arrow)
    args = [_compute(arg, table) for arg in bound.args]
    if isinstance(node, UdfCall):
        return run(node.udf, args, table.num_rows)
    if all(isinstance(arg, pa.Scalar) for arg in args):
        return _apply(bound, [pa.repeat(args[0], 1), *args[1:]])[0]
    return _apply(bound, args)


def _apply(bound: Bound, args: list[Datum]) -> Datum:
    node = bound.node
    if isinstance(node, Call):
        return KERNELS[node.function](*args)
    if isinstance(node, Case):
        return case(*args)
    if isinstance(node, Cast):
        return cast(args[0], bound.args[0].type, bound.type)
    raise ExpressionError(
        f"{node} has no value in a single row",
        given=type(node).__name__,
        allowed="expressions over columns and literals",
        instead="use aggregates inside .aggregate(...)",
    )


def _column(table: pa.Table, name: str, type: Type) -> pa.Array:
    column = table.column(name)
    whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return whole if whole.type == type.arrow else whole.cast(type.arrow)
