"""What the code of aggregates calls: the functions of expressions, one value at a time.

They mean what `headrace.expr` means on columns: NULL is None, what cannot be computed is NULL, nothing raises, whole
numbers have their widths, and NaN equals NaN and is greater than any number. What is quick to say in Python is said
here; everything else goes through the kernels of columns, with columns of one row.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from ctypes import c_float
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.expr.arrow import KERNELS, cast
from headrace.schema import Type

__all__ = [
    "NAMES", "cast_by_kernel", "cast_name", "function_name", "greatest", "instant", "kernel", "least", "single",
]  # fmt: skip

Value = Any
_BITS = {Type.BYTE: 8, Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}
_TICK = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

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
    """The name of a quick cast; None if there is none."""
    number = source.is_numeric or source is Type.BOOLEAN
    if not number or not (target.is_numeric or target is Type.BOOLEAN):
        return None
    if source is Type.LONG and target is Type.FLOAT:
        return "long_to_float"
    return f"to_{target.value.lower()}"


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
    "bit_and": _strict(operator.and_),
    "bit_or": _strict(operator.or_),
    "bit_xor": _strict(operator.xor),
    "shift_right_long": _strict(lambda a, places: a >> places if 0 <= places < _BITS[Type.LONG] else None),
    "concat": _strict(lambda *texts: "".join(texts)),
    "length": _strict(len),
    "instant": instant,
    "kernel": kernel,
    "cast_by_kernel": cast_by_kernel,
}
_CALLED = {"and": "both", "or": "either", "not": "negated", "isin": "among", "time_diff": "time_between"}
_BY_TYPE = ("add", "subtract", "multiply", "negate", "abs", "modulo")
_AS_THEY_ARE = (
    "bit_and", "bit_or", "bit_xor",
    "divide", "sqrt", "eq", "ne", "lt", "le", "gt", "ge", "coalesce", "greatest", "least", "concat", "length",
)  # fmt: skip


def function_name(function: str, kind: Type) -> str | None:
    """The name of the quick form of a function for operands of a type; None if there is none."""
    if function in _BY_TYPE:
        return f"{function}_{kind.value.lower()}"
    if function in ("floor", "ceil"):
        return function if kind.is_floating else None
    if function == "shift_right":
        return "shift_right_long" if kind is Type.LONG else None
    return _CALLED.get(function, function if function in _AS_THEY_ARE else None)
