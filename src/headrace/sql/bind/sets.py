"""Set operations instant by instant, and relations that are written out: `VALUES`, and the row of no FROM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace.api.ranking import ranked_node
from headrace.api.stream import Stream
from headrace.expr import Expr, col
from headrace.expr.evaluate import evaluate
from headrace.expr.nodes import Literal
from headrace.expr.signatures import common
from headrace.plan.instants import has_points
from headrace.plan.nodes import Join, Node, Select, Top
from headrace.plan.times import only
from headrace.plan.windows import Snapshot
from headrace.schema import Field, Schema, Type
from headrace.sql import syntax as s
from headrace.sql.bind.context import Context
from headrace.sql.bind.expressions import Expressions
from headrace.sql.bind.grouping import once
from headrace.sql.bind.relations import same_columns
from headrace.sql.bind.scope import NOTHING, Scope
from headrace.sql.bind.stored import held_forever
from headrace.time import INFINITY

__all__ = ["combined", "one_row", "values", "without_duplicates"]

#: The number of a copy of a row, in EXCEPT ALL and INTERSECT ALL.
_COPY = "_sql_copy"
_ONE = pa.table([pa.nulls(1, pa.bool_())], names=[NOTHING])  # not of a list: that loads pandas


def combined(context: Context, part: s.SetOperation, left: Stream, right: Stream) -> Stream:
    """The union, the difference or the intersection of the rows at every instant."""
    left, right = _aligned(context, part, left, right)
    if part.kind == "union":
        both = left.union(right)
        return both if part.all else without_duplicates(both)
    rows, others = (_numbered(left), _numbered(right)) if part.all else (without_duplicates(left).node, right.node)
    found = _without(rows, others)
    if part.kind == "intersect":
        found = _without(rows, found)
    return Stream(only(found, left.schema.names))


def _numbered(stream: Stream) -> Node:
    """Rows with a number that tells equal ones apart: at every instant, the copies of a row are 1, 2, 3, …"""
    node, columns = stream.node, tuple((name, col(name)) for name in stream.schema.names)
    if has_points(node):
        return Top(node, columns, Snapshot(), INFINITY, (columns[0][1],), places=((_COPY, "row_number"),))
    return ranked_node(node, columns, [columns[0][1]], False, {_COPY: "row_number"})


def _without(rows: Node, others: Node) -> Node:
    """The rows that are not among the others at that instant; nulls are equal."""
    same = tuple((name, name) for name in rows.schema.names)
    return Join(rows, others, same, kind="anti", groups=len(same))


def without_duplicates(stream: Stream) -> Stream:
    """Each payload at most once at every instant. Points stay separate; longer lifetimes become one event."""
    return once(stream) if has_points(stream.node) else stream.distinct()


def _aligned(context: Context, part: s.SetOperation, left: Stream, right: Stream) -> tuple[Stream, Stream]:
    """Both streams with the same columns: they match by position, and types widen."""
    left_columns, right_columns = left.schema.fields, right.schema.fields
    if len(left_columns) != len(right_columns):
        raise context.error(
            part.right,
            f"streams in {_article(part)} must have the same number of columns",
            given=f"{len(left_columns)} and {len(right_columns)}: {left.schema} | {right.schema}",
        )
    kinds = []
    for number, (a, b) in enumerate(zip(left_columns, right_columns, strict=True)):
        with context.at(_column_of(part.right, number)):
            kinds.append(common(f"{a.name} and {b.name}", [a.type, b.type]) or a.type)
    sides = []
    for stream, fields in ((left, left_columns), (right, right_columns)):
        outputs = [
            (a.name, col(b.name) if b.type is kind else col(b.name).cast(kind))
            for a, b, kind in zip(left_columns, fields, kinds, strict=True)
        ]
        same = same_columns(outputs, [(f.name, col(f.name)) for f in fields])
        sides.append(stream if same else Stream(Select(stream.node, tuple(outputs))))
    return sides[0], sides[1]


def _column_of(part: s.Body, number: int) -> s.Part:
    """Where a column of a query was written; the whole query, if it has * in its list."""
    if isinstance(part, s.SetOperation):
        return _column_of(part.left, number)
    written: tuple[s.Part, ...] = part.rows[0].values if isinstance(part, s.Values) else part.entries
    stars = any(isinstance(entry, s.Entry) and isinstance(entry.value, s.Star) for entry in written)
    # Columns of the rows around a sub-query stand behind those that are written.
    return written[number] if not stars and number < len(written) else part


def _article(part: s.SetOperation) -> str:
    return f"{'a' if part.kind == 'union' else 'an'} {part.kind.upper()}"


def one_row() -> Stream:
    """The rows of a SELECT without FROM: one, which holds at every instant."""
    return held_forever(_ONE, Schema.of(_ONE.schema))


def _is_null(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.value is None


def values(context: Context, part: s.Values, own: Mapping[str, Any]) -> Stream:
    """Rows that hold at every instant, with the columns `column1`, `column2`, …"""
    expressions = Expressions(context, Scope(context, ()), Schema(()), own)
    rows = [[expressions.bind(value) for value in row.values] for row in part.rows]
    fields, columns = [], []
    for number, exprs in enumerate(zip(*rows, strict=True)):
        with context.at(part.rows[0].values[number]):
            known = [expr.type(Schema(())) for expr in exprs if not _is_null(expr)]
            kind = (common(f"column {number + 1}", known) if known else None) or Type.STRING
        found = [evaluate(expr.cast(kind), _ONE)[0] for expr in exprs]
        fields.append(Field(f"column{number + 1}", kind))
        columns.append(pa.array([one.as_py() for one in found], kind.arrow))
    schema = Schema(tuple(fields))
    return held_forever(pa.table(columns, names=schema.names), schema)
