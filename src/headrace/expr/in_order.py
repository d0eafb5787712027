"""Lists and texts in an order of one's own: `collect("x", order_by="y")`, `concat("x", ", ", order_by="y")`.

The aggregate beneath is `collect`, which keeps all values and is corrected when one is taken back. Each of its values
is a text with the value and its keys; a function over the list reads them again and sorts. The fields of the text are
separated by one character, which is masked inside of texts. NULL is a field of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.columnar import Lists, canonical_floats, factorize
from headrace.errors import ExpressionError
from headrace.expr.aggregates import AggregateCall, aggregate_of, filtered
from headrace.expr.evaluate import evaluate
from headrace.expr.functions import call
from headrace.expr.nodes import Bound, Case, Column, Expr, Literal, Value, as_expr
from headrace.expr.python import Udf, UdfCall
from headrace.schema import Schema, Type

__all__ = ["SortedValues", "collect", "concat", "in_order_of", "order_of", "resolved_orders"]

OrderBy = str | Expr | Sequence[str | Expr]

_FIELD, _MASK = "\x01", "\x02"
_MASKED_FIELD, _MASKED_MASK, _NULL = "\x02a", "\x02b", "\x02n"
_DISTINCT, _DESCENDING = "DISTINCT ", " DESC"


@dataclass(frozen=True, eq=False, repr=False)
class _Packed(Expr):
    """A value with its keys as one text; NULL if the value is."""

    fields: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.fields

    def with_children(self, children: Sequence[Expr]) -> Expr:
        return _Packed(tuple(children))

    def bind(self, schema: Schema) -> Bound:
        first, *more = [_written(field, field.type(schema)) for field in self.fields]
        whole = call("concat", first, *(part for one in more for part in (Literal(_FIELD), one))) if more else first
        return Case(((self.fields[0].is_not_null(), whole),), Literal(None)).bind(schema)

    def __str__(self) -> str:
        return " with ".join(map(str, self.fields))


def _written(field: Expr, kind: Type) -> Expr:
    if kind.is_floating:  # whose text differs from engine to engine
        text: Expr = UdfCall(_bits(), (field.cast(Type.DOUBLE),))
    else:
        text = field if kind is Type.STRING else field.cast(Type.STRING)
    if kind.is_text:
        text = call(
            "replace",
            call("replace", text, Literal(_MASK), Literal(_MASKED_MASK)),
            Literal(_FIELD),
            Literal(_MASKED_FIELD),
        )
    return call("coalesce", text, Literal(_NULL))


@dataclass(frozen=True, eq=False, repr=False)
class SortedValues(Expr):
    """The values of an aggregate in an order; `separator` joins texts, and None leaves a list.

    The types are needed to read the values again, so it is `resolved` where the columns are known.
    """

    argument: Expr
    order: tuple[tuple[Expr, bool], ...]
    separator: str | None = None
    distinct: bool = False
    where: Expr | None = None

    @property
    def children(self) -> tuple[Expr, ...]:
        condition = () if self.where is None else (self.where,)
        return (AggregateCall("collect", self.argument), *(key for key, _ in self.order), *condition)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        if all(new is old or new.same(old) for new, old in zip(children, self.children, strict=True)):
            return self
        raise ExpressionError(
            "an aggregate in an order of its own stands in aggregate(...)",
            given=str(self),
            allowed="group_by(...).aggregate(...), with a window or without",
        )

    def bind(self, schema: Schema) -> Bound:
        return self.resolved(schema).bind(schema)

    def resolved(self, schema: Schema) -> Expr:
        """The aggregate, and the function that sorts its values."""
        return in_order_of(schema, self.argument, self.order, self.separator, distinct=self.distinct, where=self.where)

    def __str__(self) -> str:
        order = ", ".join(f"{key}{_DESCENDING if down else ''}" for key, down in self.order)
        shown = f"{_DISTINCT if self.distinct else ''}{self.argument}, {self.separator!r} ORDER BY {order}"
        return f"in_order({shown})" if self.where is None else f"in_order({shown} WHERE {self.where})"


def resolved_orders(expr: Expr, schema: Schema) -> Expr:
    """An expression whose aggregates in an order are those of columns of these types."""
    if isinstance(expr, SortedValues):
        return expr.resolved(schema)
    found = [resolved_orders(child, schema) for child in expr.children]
    same = all(new is old for new, old in zip(found, expr.children, strict=True))
    return expr if same else expr.with_children(found)


def order_of(expr: Expr) -> SortedValues | None:
    """What an expression sorts, if it is the result of `in_order_of`."""
    if not isinstance(expr, UdfCall) or not isinstance(expr.udf, _Own) or not isinstance(expr.args[0], AggregateCall):
        return None
    packed, where = expr.args[0].argument, None
    if isinstance(packed, Case):
        [(where, packed)] = packed.branches
    form, *separator = [arg.value for arg in expr.args[1:] if isinstance(arg, Literal)]
    if not isinstance(packed, _Packed):
        return None
    kinds = str(form).split("|")
    ways = [kind.endswith(_DESCENDING) for kind in kinds[1:]]
    order = tuple(zip(packed.fields[1:], ways, strict=True))
    text = str(separator[0]) if separator else None
    return SortedValues(packed.fields[0], order, text, kinds[0].startswith(_DISTINCT), where)


def in_order_of(
    schema: Schema,
    argument: Expr,
    order: Sequence[tuple[Expr, bool]],
    separator: str | None = None,
    *,
    distinct: bool = False,
    where: Expr | None = None,
) -> Expr:
    """The values of an argument in an order, as a list or as one text."""
    kind = argument.type(schema)
    if kind.is_array or (separator is not None and not kind.is_text):
        raise ExpressionError(
            "texts are joined, and lists have single values",
            given=f"{argument} {kind.value}",
            allowed="a column of type STRING" if separator is not None else "single values",
            instead=f"CAST({argument} AS STRING)",
        )
    if distinct and any(str(key) != str(argument) for key, _ in order):
        raise ExpressionError(
            "equal values are one, so they are in the order of the values themselves",
            given=", ".join(str(key) for key, _ in order),
            allowed=str(argument),
        )
    fields = (argument, *(key for key, _ in order))
    packed = filtered(AggregateCall("collect", _Packed(fields)), where)
    kinds = [f"{key.type(schema).value}{_DESCENDING if down else ''}" for key, down in order]
    form = Literal("|".join([f"{_DISTINCT if distinct else ''}{kind.value}", *kinds]))
    if separator is None:
        return UdfCall(_lists(kind), (packed, form))
    return UdfCall(_texts(), (packed, form, Literal(separator)))


# --- the public functions -------------------------------------------------------------------------------------------


def collect(
    argument: Value,
    *,
    order_by: OrderBy | None = None,
    descending: bool | Sequence[bool] = False,
    distinct: bool = False,
    where: Expr | None = None,
) -> Expr:
    """The list of all values that are not NULL, by the start of their events and then by value.

    `order_by` is another order: columns or expressions, each `descending` or not; nulls are last, and equal keys are
    followed by the value. `distinct` keeps equal values once, by value. Without a value the list is empty.
    """
    if order_by is None and not distinct:
        return aggregate_of("collect", argument, where)
    return SortedValues(_column(argument), _keys(order_by, descending), None, distinct, where)


def concat(
    argument: Value,
    separator: str = ",",
    *,
    order_by: OrderBy | None = None,
    descending: bool | Sequence[bool] = False,
    distinct: bool = False,
    where: Expr | None = None,
) -> Expr:
    """The texts joined by `separator`, by the start of their events and then by value; see `collect` for orders."""
    if order_by is None and not distinct:
        return aggregate_of("concat", argument, where, separator)
    checked = AggregateCall("concat", _column(argument), (separator,))
    return SortedValues(_column(argument), _keys(order_by, descending), str(checked.parameters[0]), distinct, where)


def _column(value: Value) -> Expr:
    return Column(value) if isinstance(value, str) else as_expr(value)


def _keys(order_by: OrderBy | None, descending: bool | Sequence[bool]) -> tuple[tuple[Expr, bool], ...]:
    given = [] if order_by is None else [order_by] if isinstance(order_by, (str, Expr)) else list(order_by)
    ways = [descending] * len(given) if isinstance(descending, bool) else list(descending)
    if len(ways) != len(given):
        raise ExpressionError(
            "descending is one for all keys of order_by, or one for each",
            given=descending,
            allowed=f"True, False, or a list of {len(given)}",
        )
    return tuple((_column(key), down) for key, down in zip(given, ways, strict=True))


# --- the functions over lists ----------------------------------------------------------------------------------------


class _Own(Udf):
    """A function of the engine: what it computes is part of the version, not of a user's code."""

    def __post_init__(self) -> None:
        written = f"{self.name} {self.returns.value}".encode()
        object.__setattr__(self, "mark", hashlib.sha256(written).hexdigest()[:8])


@cache
def _bits() -> Udf:
    return _Own(bits_of, "bits_of", (Type.DOUBLE,), Type.STRING, vectorised=True)


@cache
def _lists(kind: Type) -> Udf:
    return _Own(list_in_order, "list_in_order", (Type.STRING.array, Type.STRING), kind.array, vectorised=True)


@cache
def _texts() -> Udf:
    takes = (Type.STRING.array, Type.STRING, Type.STRING)
    return _Own(text_in_order, "text_in_order", takes, Type.STRING, vectorised=True)


def bits_of(numbers: pa.Array) -> pa.Array:
    """Floating numbers as texts of their bits; equal numbers have equal ones."""
    plain = canonical_floats(pa.table({"n": numbers})).column("n").combine_chunks()
    return pc.cast(pa.array(np.asarray(plain, np.float64).view(np.int64)), pa.string())


def text_in_order(lists: pa.Array, form: pa.Array, separator: pa.Array) -> pa.Array:
    """The packed texts of each list, sorted and joined; NULL without any."""
    joined = pc.binary_join(list_in_order(lists, form), separator[0])
    return pc.if_else(pc.equal(pc.list_value_length(lists), 0), pa.scalar(None, pa.string()), joined)


def list_in_order(lists: pa.Array, form: pa.Array) -> pa.Array:
    """The packed values of each list, sorted: by their keys, then by value. Nulls are last."""
    kinds = str(form[0].as_py()).split("|")
    distinct = kinds[0].startswith(_DISTINCT)
    types = [Type.parse(kind.removeprefix(_DISTINCT).removesuffix(_DESCENDING)) for kind in kinds]
    lengths = np.asarray(pc.list_value_length(lists))
    rows = {"group": pa.array(np.repeat(np.arange(len(lists)), lengths))}
    rows |= {f"{n}": one for n, one in enumerate(_fields(lists.flatten(), types))}
    keys: list[tuple[str, str]] = [("group", "ascending")]
    for n, (kind, type_) in enumerate([*zip(kinds[1:], types[1:], strict=True), ("", types[0])], 1):
        name, way = f"{n % len(types)}", "descending" if kind.endswith(_DESCENDING) else "ascending"
        if type_.is_floating:  # NaN is greater than any number
            rows[f"{name} NaN"] = pc.is_nan(rows[name])
            keys.append((f"{name} NaN", way))
        keys.append((name, way))
    table = pa.table(rows)
    table = table.take(pc.sort_indices(table, keys))
    if distinct:
        _, first = factorize(table.select(["group", "0"]))
        table = table.take(pa.array(np.sort(first)))
    groups = np.asarray(table.column("group"))
    offsets = np.searchsorted(groups, np.arange(len(lists) + 1))
    return Lists(offsets, table.column("0").combine_chunks(), np.zeros(len(lists), bool)).array()


def _fields(packed: pa.Array, types: Sequence[Type]) -> list[pa.Array]:
    """The value and the keys of packed texts."""
    parts = pc.split_pattern(packed, _FIELD).flatten()
    found = []
    for number, kind in enumerate(types):
        texts = parts.take(pa.array(np.arange(number, len(parts), len(types))))
        texts = pc.if_else(pc.equal(texts, _NULL), pa.scalar(None, pa.string()), texts)
        if kind.is_text:
            plain = pc.replace_substring(texts, _MASKED_FIELD, _FIELD)
            texts = pc.replace_substring(plain, _MASKED_MASK, _MASK)
        found.append(_floats(texts, kind) if kind.is_floating else _read(texts, kind))
    return found


def _floats(bits: pa.Array, kind: Type) -> pa.Array:
    whole = pc.cast(bits, pa.int64())
    numbers = np.asarray(pc.fill_null(whole, 0)).view(np.float64)
    return pa.array(numbers, mask=np.asarray(pc.is_null(whole))).cast(kind.arrow)


def _read(texts: pa.Array, kind: Type) -> pa.Array:
    return evaluate(Column("text").cast(kind), pa.table({"text": texts}))
