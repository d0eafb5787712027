"""Which plans are computed in the server's process: those that are known beforehand to stay small.

A bound on the rows and bytes that each operator gives follows from the sizes of the logs. A plan is small if its
operators are all of those below, if its expressions give no values larger than those they read, and if no bound is
beyond the limits. It need not be sharp: what is not known to be small is computed elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.expr import Expr
from headrace.expr.aggregates import AggregateCall
from headrace.expr.nodes import Alias, Call, Case, Cast, Column, Literal
from headrace.io.live_table import LiveTableRead
from headrace.io.origins import AdapterRead, Events
from headrace.plan import nodes as p
from headrace.plan.windows import Snapshot
from headrace.schema import Schema
from headrace.server.log import EventLog
from headrace.server.published import ClientRows, DiskLog

__all__ = ["MOST_BYTES", "MOST_ROWS", "is_small"]

MOST_ROWS = 100_000
MOST_BYTES = 16 << 20
#: Bytes of a value that is no text and no list, with its part of the Arrow column.
_VALUE = 17
#: Functions whose answer is not larger than their arguments, or has a few bytes.
_STEADY = frozenset(
    """
    add subtract multiply modulo divide floor_divide bit_and bit_or bit_xor shift_left shift_right bit_not negate abs
    eq ne lt le gt ge isin and or not is_null is_not_null coalesce greatest least sqrt exp ln log10 sign sin cos tan
    asin acos atan radians degrees power floor ceil round upper lower trim ltrim rtrim length code substring position
    split_part left right starts_with ends_with contains like json_exists is_json rlike year month day hour minute
    second day_of_week day_of_year field cardinality element_at array_contains epoch time_diff shift_time shift_date
    shift_months days_between date_trunc
    """.split()  # noqa: SIM905 - a word for each
)
_STEADY_AGGREGATES = frozenset({"avg", "count", "max", "min", "sum"})


class Size(NamedTuple):
    """The most rows that an operator gives, and their bytes."""

    rows: int
    bytes: int


def is_small(root: p.Node) -> bool:
    """Whether a plan is known to need little memory and time."""
    sizes: dict[str, Size] = {}
    for node in p.walk(root):
        bound = _BOUNDS.get(type(node))
        if bound is None or not all(map(_is_steady, _expressions(node))):
            return False
        size = bound(node, [sizes[child.fingerprint] for child in node.inputs])
        if size is None or size.rows > MOST_ROWS or size.bytes > MOST_BYTES:
            return False
        sizes[node.fingerprint] = size
    return True


def _expressions(node: p.Node) -> Iterator[Expr]:
    """The expressions of a node itself."""
    waiting: list[Any] = [getattr(node, field.name) for field in fields(node)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Expr):
            yield value
        elif isinstance(value, tuple | list):
            waiting += value


def _is_steady(expr: Expr) -> bool:
    if isinstance(expr, Call):
        known = expr.function in _STEADY
    elif isinstance(expr, AggregateCall):
        known = expr.function in _STEADY_AGGREGATES
    else:
        known = isinstance(expr, Alias | Case | Cast | Column | Literal)
    return known and all(map(_is_steady, expr.children))


def _source(node: p.Source, _: Sequence[Size]) -> Size | None:
    origin = node.origin
    if isinstance(origin, Events):
        return Size(origin.table.num_rows, origin.table.nbytes)
    adapter = origin.adapter if isinstance(origin, AdapterRead) else None
    if isinstance(adapter, LiveTableRead) and isinstance(log := adapter.table.row_log, DiskLog):
        return _logged(log.log)
    if isinstance(adapter, ClientRows) and adapter.log is not None:
        return _logged(adapter.log)
    return None


def _logged(log: EventLog) -> Size:
    """Rows have at least a time each; promises have offsets, and take no room."""
    size = log.size
    return Size(min(log.end - log.first, size // 8), size)


def _same(_: p.Node, inputs: Sequence[Size]) -> Size:
    return inputs[0]


def _coalesce(_: p.Coalesce, inputs: Sequence[Size]) -> Size:
    return Size(2 * inputs[0].rows, 2 * inputs[0].bytes)


def _union(_: p.Union, inputs: Sequence[Size]) -> Size:
    return Size(sum(size.rows for size in inputs), sum(size.bytes for size in inputs))


def _select(node: p.Select, inputs: Sequence[Size]) -> Size:
    """Each column is in so many outputs as name it; other outputs are short."""
    ((rows, size),) = inputs
    outputs = [expr for _, expr in node.outputs]
    times = max(sum(name in expr.columns() for expr in outputs) for name in ("", *node.input.schema.names))
    return Size(rows, max(1, times) * size + rows * sum(map(_short, outputs)))


def _short(expr: Expr) -> int:
    """The bytes of the values that an expression adds to those it reads."""
    own = len(str(expr.value)) if isinstance(expr, Literal) else 0
    return _VALUE + own + sum(map(_short, expr.children))


def _join(_: p.Join, inputs: Sequence[Size]) -> Size:
    """Pairs, and the parts of rows of the left side without a match: each right row divides each of them once more."""
    left, right = inputs
    rows = left.rows * (right.rows + 1)
    return Size(rows + right.rows, left.bytes * (right.rows + 1) + right.bytes * (left.rows + 1))


def _aggregate(node: p.Aggregate, inputs: Sequence[Size]) -> Size | None:
    """Snapshots lie between neighbouring endpoints, of which each row has two."""
    if not isinstance(node.window, Snapshot):
        return None
    ((rows, size),) = inputs
    windows = 2 * rows + 1
    texts = _texts(Schema(tuple(field for field in node.schema if field.name in dict(node.outputs))))
    return Size(windows, 2 * size + windows * (_VALUE * len(node.outputs) + texts * size))


def _texts(schema: Schema) -> int:
    return sum(not pa.types.is_primitive(field.type.arrow) for field in schema)


_BOUNDS: Mapping[type[p.Node], Callable[[Any, Sequence[Size]], Size | None]] = {
    p.Source: _source,
    p.Admit: _same,
    p.Where: _same,
    p.Select: _select,
    p.SetDuration: _same,
    p.CapDuration: _same,
    p.Final: _same,
    p.Union: _union,
    p.Coalesce: _coalesce,
    p.Join: _join,
    p.Aggregate: _aggregate,
}
