"""What the code of aggregates calls: the functions of expressions, one value at a time.

They mean what `headrace.expr` means on columns: NULL is None, what cannot be computed is NULL, nothing raises, whole
numbers have their widths, and NaN equals NaN and is greater than any number. What is quick to say in Python is said
here; everything else goes through the kernels of columns, with columns of one row.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from ctypes import c_float
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import ModuleFailed
from headrace.expr.arrow import KERNELS, cast
from headrace.schema import Type

__all__ = ["AGGREGATES", "HELPERS", "NAMES", "cast_by_kernel", "cast_name", "function_name", "instant", "kernel"]

Value = Any
Row = tuple[Value, ...]
_BITS = {Type.BYTE: 8, Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}
_TICK = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAN = "NaN"
_MOST_ROWS = 1_000_000

# ---- arithmetic


def _strict(function: Callable[..., Value]) -> Callable[..., Value]:
    """NULL if any argument is."""

    def called(*values: Value) -> Value:
        return None if None in values else function(*values)

    return called


def _whole(function: Callable[..., int], kind: Type) -> Callable[..., Value]:
    """A function of whole numbers; NULL where the result does not fit."""
    limit = 1 << (_BITS[kind] - 1)

    def called(*values: Value) -> Value:
        if None in values:
            return None
        found = function(*values)
        return found if -limit <= found < limit else None

    return called


def single(value: float) -> float:
    """The nearest number of 32 bits."""
    return c_float(value).value


def _floating(function: Callable[..., float], kind: Type) -> Callable[..., Value]:
    if kind is Type.DOUBLE:
        return _strict(function)
    return _strict(lambda *values: single(function(*values)))


def _divide(a: float, b: float) -> float | None:
    return None if b == 0 else a / b


def _rest(a: float, b: float) -> float | None:
    if b == 0:
        return None
    if math.isinf(a) or math.isnan(a) or math.isnan(b):
        return math.nan
    return math.fmod(a, b)


def _whole_rest(a: int, b: int) -> int | None:
    if b == 0:
        return None
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def _sqrt(a: float) -> float | None:
    return None if a < 0 else math.sqrt(a)


def _rounded(function: Callable[[float], int]) -> Callable[[float], float]:
    return lambda a: float(function(a)) if math.isfinite(a) else a


# ---- comparison and logic


def equal(a: Value, b: Value) -> bool | None:
    """Whether two values are equal; NaN equals NaN."""
    if a is None or b is None:
        return None
    return bool(a == b or (a != a and b != b))  # noqa: PLR0124 - only NaN differs from itself


def less(a: Value, b: Value) -> bool | None:
    """Whether a value is less than another; NaN is greater than any number."""
    if a is None or b is None:
        return None
    return bool(a < b or (b != b and a == a))  # noqa: PLR0124 - as above


def negated(a: bool | None) -> bool | None:
    """NOT."""
    return None if a is None else not a


def both(*values: bool | None) -> bool | None:
    """AND of any number of values."""
    if False in values:
        return False
    return None if None in values else True


def either(*values: bool | None) -> bool | None:
    """OR of any number of values."""
    if True in values:
        return True
    return None if None in values else False


def among(value: Value, *members: Value) -> bool | None:
    """Whether a value is one of several."""
    return either(*(equal(value, member) for member in members))


def coalesce(*values: Value) -> Value:
    """The first value that is not NULL."""
    return next((value for value in values if value is not None), None)


def greatest(*values: Value) -> Value:
    """The greatest value that is not NULL."""
    return reduce(lambda a, b: b if a is None or less(a, b) else a, values)


def least(*values: Value) -> Value:
    """The least value that is not NULL."""
    return reduce(lambda a, b: b if a is None or less(b, a) else a, values)


# ---- times


def instant(ticks: int) -> datetime:
    """The DATETIME of a number of ticks."""
    return _EPOCH + ticks * _TICK


def _time_between(later: datetime, earlier: datetime) -> int:
    return (later - earlier) // _TICK


# ---- through the kernels of columns


def kernel(function: str, operands: Sequence[str]) -> Callable[..., Value]:
    """A function of expressions, by its kernel for columns."""
    types = [Type(kind).arrow for kind in operands]

    def called(*values: Value) -> Value:
        first = pa.array([values[0]], types[0])
        rest = [pa.scalar(value, kind) for value, kind in zip(values[1:], types[1:], strict=True)]
        return KERNELS[function](first, *rest)[0].as_py()

    return called


def cast_by_kernel(source: str, target: str) -> Callable[[Value], Value]:
    """A cast of expressions, by its kernel for columns."""
    mine, wanted = Type(source), Type(target)
    return lambda value: cast(pa.array([value], mine.arrow), mine, wanted)[0].as_py()


# ---- casts of numbers


def _to_whole(kind: Type) -> Callable[[Value], Value]:
    limit = 1 << (_BITS[kind] - 1)

    def called(value: Value) -> Value:
        if value is None or value != value or value in (math.inf, -math.inf):  # noqa: PLR0124 - NaN
            return None
        found = int(value)
        return found if -limit <= found < limit else None

    return called


def _long_to_single(value: int) -> float:
    return float(np.int64(value).astype(np.float32))  # by way of a DOUBLE it would be rounded twice


def cast_name(source: Type, target: Type) -> str | None:
    """What a quick cast is called; None if there is none."""
    number = source.is_numeric or source is Type.BOOLEAN
    if not number or not (target.is_numeric or target is Type.BOOLEAN):
        return None
    if source is Type.LONG and target is Type.FLOAT:
        return "long_to_float"
    return f"to_{target.value.lower()}"


# ---- rows of local tables


def _order(value: Value) -> tuple[bool, bool, Value]:
    odd = value != value  # noqa: PLR0124 - NaN
    return value is not None, odd, 0 if value is None or odd else value


def ordered(rows: Iterable[tuple[tuple[Value, ...], Value]], descending: Sequence[bool]) -> list[Value]:
    """Rows by their keys: NULLs first and NaN last, or the other way round where descending."""
    found = list(rows)
    for place in reversed(range(len(descending))):
        found.sort(key=lambda pair: _order(pair[0][place]), reverse=descending[place])
    return [row for _, row in found]


def only(rows: Sequence[Value]) -> Value:
    """The one value of a sub-select, NULL if it has none."""
    if len(rows) > 1:
        raise ModuleFailed(f"a sub-select gave {len(rows)} rows where one value is wanted")
    return rows[0] if rows else None


def key(*values: Value) -> tuple[Value, ...]:
    """The values of a key, so that equal ones are found again."""
    return tuple(_NAN if value != value else value for value in values)  # noqa: PLR0124 - NaN


def keyed(rows: Iterable[Row], places: Sequence[int]) -> dict[tuple[Value, ...], Row]:
    """Rows by their keys; of equal keys the last row stands, at the place of the first."""
    return {key(*(row[place] for place in places)): row for row in rows}


def extend(rows: list[Value], more: Iterable[Value]) -> None:
    """Put rows behind those of a table."""
    rows.extend(more)
    _check_size(rows)


def put(rows: dict[tuple[Value, ...], Row], more: Iterable[Row], places: Sequence[int]) -> None:
    """Put rows into a table with a key; one that is there already is replaced."""
    rows.update(keyed(more, places))
    _check_size(rows)


def _check_size(rows: Sized) -> None:
    if len(rows) > _MOST_ROWS:
        raise ModuleFailed(f"one of its tables has grown to more than {_MOST_ROWS:,} rows")


def found(rows: Mapping[tuple[Value, ...], Row], *values: Value) -> list[Row]:
    """The row whose key has these values, if there is one; nothing equals NULL."""
    row = None if None in values else rows.get(key(*values))
    return [] if row is None else [row]


def without(rows: dict[tuple[Value, ...], Row], gone: Iterable[Row], places: Sequence[int]) -> None:
    """Take rows out."""
    for row in gone:
        del rows[key(*(row[place] for place in places))]


# ---- aggregates over local tables


def _known(values: Iterable[Value]) -> list[Value]:
    return [value for value in values if value is not None]


def _count(values: Iterable[Value]) -> int:
    return len(_known(values))


def _sum_whole(values: Iterable[Value]) -> int | None:
    known = _known(values)
    total = sum(known)
    return total if known and -(2**63) <= total < 2**63 else None


def _total(values: Sequence[float]) -> float:
    """The exact sum, rounded once."""
    odd = {str(value) for value in values if not math.isfinite(value)}
    if odd:
        return float(odd.pop()) if len(odd) == 1 else math.nan
    try:
        return math.fsum(values)
    except OverflowError:  # on the way, though perhaps not in the end
        exact = sum(map(Fraction, values))
        try:
            return float(exact)
        except OverflowError:
            return math.inf if exact > 0 else -math.inf


def _sum(values: Iterable[Value]) -> float | None:
    known = _known(values)
    return _total(known) if known else None


def _avg_whole(values: Iterable[Value]) -> float | None:
    known = _known(values)
    return sum(known) / len(known) if known else None


def _avg(values: Iterable[Value]) -> float | None:
    known = _known(values)
    return _total(known) / len(known) if known else None


def _min(values: Iterable[Value]) -> Value:
    return reduce(least, values, None)


def _max(values: Iterable[Value]) -> Value:
    return reduce(greatest, values, None)


#: Built-in aggregates over local tables, and how they are called: for whole numbers, and for anything else.
AGGREGATES = {
    "count": ("count_of", "count_of"),
    "sum": ("sum_of_whole", "sum_of"),
    "avg": ("avg_of_whole", "avg_of"),
    "min": ("min_of", "min_of"),
    "max": ("max_of", "max_of"),
}


def _typed() -> dict[str, Callable[..., Value]]:
    """Functions that differ by the type they compute in, as `add_int`."""
    found: dict[str, Callable[..., Value]] = {}
    plain: dict[str, Callable[..., Value]] = {
        "add": operator.add,
        "subtract": operator.sub,
        "multiply": operator.mul,
        "negate": operator.neg,
        "abs": abs,
    }
    for kind in (Type.INT, Type.LONG, Type.FLOAT, Type.DOUBLE):
        wrapped = _floating if kind.is_floating else _whole
        for name, function in plain.items():
            found[f"{name}_{kind.value.lower()}"] = wrapped(function, kind)
        rest = _rest if kind.is_floating else _whole_rest
        found[f"modulo_{kind.value.lower()}"] = _strict(rest)
    for kind in (Type.BYTE, Type.SHORT, Type.INT, Type.LONG):
        found[f"to_{kind.value.lower()}"] = _to_whole(kind)
    return found


NAMES: dict[str, Callable[..., Value]] = {
    **_typed(),
    "to_float": _strict(single),
    "to_double": _strict(float),
    "to_boolean": _strict(bool),
    "long_to_float": _strict(_long_to_single),
    "divide": _strict(_divide),
    "sqrt": _strict(_sqrt),
    "floor": _strict(_rounded(math.floor)),
    "ceil": _strict(_rounded(math.ceil)),
    "eq": equal,
    "ne": lambda a, b: negated(equal(a, b)),
    "lt": less,
    "le": lambda a, b: negated(less(b, a)),
    "gt": lambda a, b: less(b, a),
    "ge": lambda a, b: negated(less(a, b)),
    "both": both,
    "either": either,
    "negated": negated,
    "among": among,
    "coalesce": coalesce,
    "greatest": greatest,
    "least": least,
    "time_between": _strict(_time_between),
    "concat": _strict(lambda *texts: "".join(texts)),
    "length": _strict(len),
}
_CALLED = {"and": "both", "or": "either", "not": "negated", "isin": "among", "time_diff": "time_between"}
_BY_TYPE = ("add", "subtract", "multiply", "negate", "abs", "modulo")
_AS_THEY_ARE = (
    "divide", "sqrt", "eq", "ne", "lt", "le", "gt", "ge", "coalesce", "greatest", "least", "concat", "length",
)  # fmt: skip
HELPERS: dict[str, Callable[..., Value]] = {
    "instant": instant,
    "kernel": kernel,
    "cast_by_kernel": cast_by_kernel,
    "ordered": ordered,
    "only": only,
    "key": key,
    "keyed": keyed,
    "extend": extend,
    "put": put,
    "found": found,
    "without": without,
    "count_of": _count,
    "sum_of_whole": _sum_whole,
    "sum_of": _sum,
    "avg_of_whole": _avg_whole,
    "avg_of": _avg,
    "min_of": _min,
    "max_of": _max,
}


def function_name(function: str, kind: Type) -> str | None:
    """What the quick form of a function is called for operands of a type; None if there is none."""
    if function in _BY_TYPE:
        return f"{function}_{kind.value.lower()}"
    if function in ("floor", "ceil"):
        return function if kind.is_floating else None
    return _CALLED.get(function, function if function in _AS_THEY_ARE else None)
