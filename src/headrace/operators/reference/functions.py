"""Aggregate functions over a bag of events, exactly: `(le, value)` pairs, and the parameters, to one value.

Nulls are ignored; without a value the answer is null, a count zero and a list empty. NaN is greater than any number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

__all__ = ["FUNCTIONS"]

Item = tuple[int, Any]


def _values(items: Sequence[Item]) -> list[Any]:
    return [value for _, value in items if value is not None]


def _order(value: Any) -> tuple[bool, Any]:
    return (True, 0) if isinstance(value, float) and math.isnan(value) else (False, value)


def _rounded(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _float_sum(values: list[Any]) -> float:
    odd = [v for v in values if isinstance(v, float) and not math.isfinite(v)]
    if odd:
        return odd[0] if len({str(v) for v in odd}) == 1 else math.nan
    return _rounded(sum((Fraction(v) for v in values), Fraction(0)))


def _count(items: Sequence[Item]) -> int:
    return len(_values(items))


def _sum(items: Sequence[Item]) -> Any:
    values = _values(items)
    if not values:
        return None
    if any(isinstance(v, float) for v in values):
        return _float_sum(values)
    if isinstance(values[0], Decimal):
        return _decimal_sum(values)
    total = sum(values)
    return total if -(2**63) <= total < 2**63 else None


def _decimal_sum(values: list[Decimal]) -> Decimal | None:
    scale = -int(values[0].as_tuple().exponent)
    total = int(sum((Fraction(value) for value in values), Fraction(0)) * 10**scale)
    return Decimal(total).scaleb(-scale, Context(prec=60)) if abs(total) < 10**38 else None


def _avg(items: Sequence[Item]) -> float | None:
    values = _values(items)
    return _float_sum(values) / len(values) if values else None


def _var(items: Sequence[Item]) -> float | None:
    values = _values(items)
    if len(values) < 2:
        return None
    if any(isinstance(v, float) and not math.isfinite(v) for v in values):
        return math.nan
    exact = [Fraction(v) for v in values]
    mean = sum(exact, Fraction(0)) / len(exact)
    return _rounded(sum(((v - mean) ** 2 for v in exact), Fraction(0)) / (len(exact) - 1))


def _stddev(items: Sequence[Item]) -> float | None:
    variance = _var(items)
    return None if variance is None else math.sqrt(variance)


def _min(items: Sequence[Item]) -> Any:
    return min(_values(items), key=_order, default=None)


def _max(items: Sequence[Item]) -> Any:
    return max(_values(items), key=_order, default=None)


def _in_time(items: Sequence[Item]) -> list[Any]:
    known = [item for item in items if item[1] is not None]
    return [value for _, value in sorted(known, key=lambda item: (item[0], _order(item[1])))]


def _first(items: Sequence[Item]) -> Any:
    return next(iter(_in_time(items)), None)


def _last(items: Sequence[Item]) -> Any:
    return next(reversed(_in_time(items)), None)


def _quantile(items: Sequence[Item], q: float) -> float | None:
    values = [float(value) for value in sorted(_values(items), key=_order)]
    if not values:
        return None
    place = q * (len(values) - 1)
    below = math.floor(place)
    part = place - below
    low, high = values[below], values[min(below + 1, len(values) - 1)]
    if part == 0 or low == high:
        return low
    value = low * (1 - part) + high * part
    return value if math.isnan(value) else min(max(value, low), high)


def _percentile_disc(items: Sequence[Item], q: float) -> Any:
    values = sorted(_values(items), key=_order)
    return values[max(math.ceil(q * len(values)), 1) - 1] if values else None


def _median(items: Sequence[Item]) -> float | None:
    return _quantile(items, 0.5)


def _geometric_mean(items: Sequence[Item]) -> float | None:
    values = [float(value) for value in _values(items)]
    if not values or any(value <= 0 for value in values):
        return None
    mean = _float_sum([math.log(value) for value in values]) / len(values)
    return float(np.exp(np.array([mean]))[0])  # rounded as in the engine; the C library may differ


def _distinct(items: Sequence[Item]) -> list[Any]:
    """The different values in order."""
    ordered = sorted(_values(items), key=_order)
    return [value for i, value in enumerate(ordered) if i == 0 or _order(value) != _order(ordered[i - 1])]


def _distinct_count(items: Sequence[Item]) -> int:
    return len(_distinct(items))


def _approx_distinct(items: Sequence[Item]) -> int:
    """Exact, as a sketch is for the few values of twins."""
    return len(_distinct(items))


def _top_frequent(items: Sequence[Item], k: int) -> list[Any]:
    counts = Counter(_order(value) for value in _values(items))
    return sorted(_distinct(items), key=lambda value: (-counts[_order(value)], _order(value)))[:k]


def _concat(items: Sequence[Item], separator: str) -> str | None:
    return separator.join(_in_time(items)) if _values(items) else None


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "count": _count,
    "sum": _sum,
    "avg": _avg,
    "var": _var,
    "stddev": _stddev,
    "min": _min,
    "max": _max,
    "first": _first,
    "last": _last,
    "median": _median,
    "quantile": _quantile,
    "percentile_disc": _percentile_disc,
    "geometric_mean": _geometric_mean,
    "collect": _in_time,
    "distinct_count": _distinct_count,
    "approx_distinct": _approx_distinct,
    "top_frequent": _top_frequent,
    "concat": _concat,
}
