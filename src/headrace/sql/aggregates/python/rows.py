"""Functions that the code of aggregates calls: for tables, and for aggregates over them.

Rows are tuples. A table is a list of them, or a dictionary by key. NaN is one value, also in keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from fractions import Fraction
from typing import Any

from headrace.errors import ModuleFailed

__all__ = ["AGGREGATES", "ROWS"]

Value = Any
Row = tuple[Value, ...]
_NAN = "NaN"

# ---- rows


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
    """The single value of a sub-select, NULL if it has none."""
    if len(rows) > 1:
        raise ModuleFailed(f"a sub-select gave {len(rows)} rows where one value is wanted")
    return rows[0] if rows else None


def key(*values: Value) -> tuple[Value, ...]:
    """The values of a key, as a hashable tuple."""
    for value in values:
        if value != value:  # noqa: PLR0124 - NaN
            return tuple(_NAN if one != one else one for one in values)  # noqa: PLR0124 - as above
    return values


def keyed(rows: Iterable[Row], places: Sequence[int]) -> dict[tuple[Value, ...], Row]:
    """Rows by their keys; of equal keys the last row stays, at the place of the first."""
    return {key(*[row[place] for place in places]): row for row in rows}


def room(rows: Sized, table: str, limit: int) -> None:
    """Check that a table has not grown too large."""
    if len(rows) > limit:
        raise ModuleFailed(
            f"{table} has grown to more than {limit:,} rows",
            given=f"{len(rows):,} rows",
            allowed=f"{limit:,} rows",
            instead=f"DELETE FROM {table} …, or TABLE {table}(…) LIMIT {limit * 10}",
        )


def first(rows: Sequence[Row], place: int) -> Value:
    """A column of the oldest tuple of a window; NULL if there is none."""
    return rows[0][place] if rows else None


def leave(rows: list[Row], oldest: Row) -> None:
    """Remove the tuple that has left the window, unless it is deleted already."""
    if rows and rows[0] is oldest:
        del rows[0]


def put(rows: dict[tuple[Value, ...], Row], more: Iterable[Row], places: Sequence[int]) -> None:
    """Insert rows into a table with a key; a row with an existing key replaces the old one."""
    rows.update(keyed(more, places))


def found(rows: Mapping[tuple[Value, ...], Row], *values: Value) -> list[Row]:
    """The row whose key has these values, if there is one; nothing equals NULL."""
    row = None if None in values else rows.get(key(*values))
    return [] if row is None else [row]


def indexed(rows: Iterable[Row], places: Sequence[int]) -> dict[tuple[Value, ...], list[Row]]:
    """Rows by some of their columns."""
    index: dict[tuple[Value, ...], list[Row]] = {}
    for row in rows:
        index.setdefault(key(*(row[place] for place in places)), []).append(row)
    return index


def among_rows(index: Mapping[tuple[Value, ...], list[Row]], *values: Value) -> Sequence[Row]:
    """The rows that have these values; nothing equals NULL."""
    return () if None in values else index.get(key(*values), ())


def groups(pairs: Iterable[tuple[tuple[Value, ...], Row]]) -> list[list[Row]]:
    """Rows that agree in their keys, in the order of the first of each."""
    found: dict[tuple[Value, ...], list[Row]] = {}
    for values, row in pairs:
        found.setdefault(key(*values), []).append(row)
    return list(found.values())


def distinct(rows: Iterable[Value]) -> list[Value]:
    """Each row, or bare value, once: the first of those that are equal."""
    found: dict[tuple[Value, ...], Value] = {}
    for row in rows:
        found.setdefault(key(*row) if isinstance(row, tuple) else key(row), row)
    return list(found.values())


def without(rows: dict[tuple[Value, ...], Row], gone: Iterable[Row], places: Sequence[int]) -> None:
    """Remove rows."""
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
    except OverflowError:  # in between, though perhaps not in the result
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
    """The least; NaN is greater than all numbers."""
    known = _known(values)
    numbers = [value for value in known if value == value]  # noqa: PLR0124 - NaN
    return min(numbers) if numbers else next(iter(known), None)


def _max(values: Iterable[Value]) -> Value:
    known = _known(values)
    odd = [value for value in known if value != value]  # noqa: PLR0124 - NaN
    return odd[0] if odd else max(known, default=None)


def _var(values: Iterable[Value]) -> float | None:
    known = _known(values)
    if len(known) < 2:
        return None
    if not all(map(math.isfinite, known)):
        return math.nan
    exact = list(map(Fraction, known))
    mean = sum(exact) / len(exact)
    spread = sum((value - mean) ** 2 for value in exact) / (len(exact) - 1)
    try:
        return float(spread)
    except OverflowError:
        return math.inf


def _stddev(values: Iterable[Value]) -> float | None:
    found = _var(values)
    return None if found is None else math.sqrt(found)


def _quantile(values: Iterable[Value], part: float) -> float | None:
    """The quantile, interpolated between two values if needed."""
    known = [float(value) for value in sorted(_known(values), key=_order)]
    if not known:
        return None
    place = part * (len(known) - 1)
    below = math.floor(place)
    low, high, way = known[below], known[min(below + 1, len(known) - 1)], place - below
    if way == 0 or low == high:
        return low
    between = low * (1 - way) + high * way
    return between if math.isnan(between) else min(max(between, low), high)


def _percentile_disc(values: Iterable[Value], part: float) -> Value:
    known = sorted(_known(values), key=_order)
    return known[max(math.ceil(part * len(known)), 1) - 1] if known else None


def _distinct_count(values: Iterable[Value]) -> int:
    return len(set(map(key, _known(values))))


def _first(values: Iterable[Value]) -> Value:
    return next(iter(_known(values)), None)


def _last(values: Iterable[Value]) -> Value:
    return next(reversed(_known(values)), None)


def _concat(texts: Iterable[Value], separator: str) -> str | None:
    known = _known(texts)
    return separator.join(known) if known else None


#: Built-in aggregates over local tables: the function for whole numbers, and for other types.
AGGREGATES = {
    "count": ("count_of", "count_of"),
    "sum": ("sum_of_whole", "sum_of"),
    "avg": ("avg_of_whole", "avg_of"),
    "min": ("min_of", "min_of"),
    "max": ("max_of", "max_of"),
    "var": ("var_of", "var_of"),
    "stddev": ("stddev_of", "stddev_of"),
    "median": ("median_of", "median_of"),
    "quantile": ("quantile_of", "quantile_of"),
    "percentile_disc": ("percentile_disc_of", "percentile_disc_of"),
    "distinct_count": ("distinct_count_of", "distinct_count_of"),
    "first": ("first_of", "first_of"),
    "last": ("last_of", "last_of"),
    "concat": ("concat_of", "concat_of"),
}


#: All functions, by their names in the code.
ROWS: dict[str, Callable[..., Value]] = {
    "ordered": ordered,
    "only": only,
    "key": key,
    "keyed": keyed,
    "room": room,
    "first": first,
    "leave": leave,
    "put": put,
    "found": found,
    "indexed": indexed,
    "among_rows": among_rows,
    "groups": groups,
    "distinct": distinct,
    "without": without,
    "count_of": _count,
    "sum_of_whole": _sum_whole,
    "sum_of": _sum,
    "avg_of_whole": _avg_whole,
    "avg_of": _avg,
    "min_of": _min,
    "max_of": _max,
    "var_of": _var,
    "stddev_of": _stddev,
    "median_of": lambda values: _quantile(values, 0.5),
    "quantile_of": _quantile,
    "percentile_disc_of": _percentile_disc,
    "distinct_count_of": _distinct_count,
    "first_of": _first,
    "last_of": _last,
    "concat_of": _concat,
}
