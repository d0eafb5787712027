"""Lists: made of values, and their elements, which are counted from 1 as in SQL."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.columnar import Int64s
from headrace.expr.arrow.columns import Datum, Kernel, from_numpy, repeated, to_numpy
from headrace.expr.arrow.logic import LOGIC

__all__ = ["ARRAYS", "elements", "list_lengths"]


def array(*values: Datum) -> Datum:
    """A list of the values of each row."""
    rows = next(len(value) for value in values if not isinstance(value, pa.Scalar))
    columns = [repeated(value, rows) if isinstance(value, pa.Scalar) else value for value in values]
    places = (np.arange(rows)[:, None] + rows * np.arange(len(columns))).ravel()
    flat = pa.concat_arrays(columns).take(pa.array(places))
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(len(columns))
    return pa.ListArray.from_arrays(pa.array(offsets), flat, type=pa.list_(flat.type))


def cardinality(lists: Datum) -> Datum:
    return pc.list_value_length(lists)


def element_at(lists: Datum, place: Datum) -> Datum:
    """The element at a place; NULL where there is none."""
    lists, place = _columns(lists, place)
    wanted, lengths = to_numpy(place), list_lengths(lists)
    there = np.asarray(place.is_valid()) & (wanted >= 1) & (wanted <= lengths)
    at = np.where(there, to_numpy(lists.offsets)[:-1] + wanted - 1, 0)
    return lists.values.take(pa.array(at, mask=~there))


def array_contains(lists: Datum, value: Datum) -> Datum:
    """Whether an element equals the value; NULL if only an element that is NULL might, or the value is NULL."""
    lists, value = _columns(lists, value)
    owners, flat = elements(lists)
    equal = LOGIC["eq"](flat, value.take(pa.array(owners)))
    found, unknown = np.zeros(len(lists), np.bool_), np.zeros(len(lists), np.bool_)
    found[owners[np.asarray(pc.fill_null(equal, False))]] = True
    unknown[owners[np.asarray(equal.is_null())]] = True
    return from_numpy(found, np.asarray(lists.is_valid()) & (found | ~unknown), pa.bool_())


def elements(lists: pa.ListArray) -> tuple[Int64s, pa.Array]:
    """The elements of all lists, and the row of each; a NULL has none."""
    return np.repeat(np.arange(len(lists)), list_lengths(lists)), pc.list_flatten(lists)


def list_lengths(lists: pa.ListArray) -> Int64s:
    """The number of elements of each list; a NULL has none."""
    return to_numpy(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)


def _columns(*data: Datum) -> tuple[Datum, ...]:
    """Scalars as columns of as many rows as the others have."""
    rows = next(len(datum) for datum in data if not isinstance(datum, pa.Scalar))
    return tuple(repeated(datum, rows) if isinstance(datum, pa.Scalar) else datum for datum in data)


ARRAYS: dict[str, Kernel] = {
    "array": array,
    "cardinality": cardinality,
    "element_at": element_at,
    "array_contains": array_contains,
}
