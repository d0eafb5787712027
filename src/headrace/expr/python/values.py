"""Convert the results of a user's function to a column of its declared type, or say why not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import SchemaError
from headrace.expr.python.node import fits
from headrace.schema import Type

__all__ = ["MISFIT", "at_once", "fitting", "from_array"]

#: Stands for a value that is not of the declared type.
MISFIT = object()

_NOTHING = type(None)
_PYTHON: dict[Type, type] = {
    **dict.fromkeys((Type.BYTE, Type.SHORT, Type.INT, Type.LONG), int),
    **dict.fromkeys((Type.FLOAT, Type.DOUBLE), float),
    **dict.fromkeys((Type.CHAR, Type.STRING), str),
    Type.BOOLEAN: bool,
    Type.DATETIME: datetime,
    Type.DATE: date,
    Type.TIME: time,
    Type.INTERVAL: timedelta,
}
_REFUSED = (pa.ArrowException, OverflowError, ValueError, TypeError)


def _python(kind: Type) -> type[Any]:
    return Decimal if kind.is_decimal else _PYTHON[kind]


def at_once(values: Sequence[Any], kind: Type) -> pa.Array | None:
    """A column of the values if all of them clearly fit; None if each must be checked."""
    flat: Sequence[Any] = values
    if kind.is_array:
        if not set(map(type, values)) <= {list, _NOTHING}:
            return None
        flat = [item for value in values if value for item in value]
    if kind.element.is_nested or not set(map(type, flat)) <= {_python(kind.element), _NOTHING}:
        return None
    if kind.element is Type.CHAR and any(len(item) > 1 for item in flat if item):
        return None
    try:
        return pa.array(values, kind.arrow)
    except _REFUSED:
        return None


def fitting(value: Any, kind: Type) -> Any:
    """One value as `kind` holds it, or `MISFIT`; whole numbers widen to floating ones."""
    if value is None or value is MISFIT:
        return value
    if kind.is_array:
        if not isinstance(value, (list, tuple, np.ndarray)):
            return MISFIT
        items = [fitting(item, kind.element) for item in value]
        return MISFIT if any(item is MISFIT for item in items) else items
    if kind.is_struct:
        return _fitting_struct(value, kind)
    if isinstance(value, np.generic):
        value = value.item()
    wanted = _python(kind)
    if (isinstance(value, bool) and wanted is not bool) or (isinstance(value, datetime) and wanted is date):
        return MISFIT
    if isinstance(value, int) and wanted in (float, Decimal):
        value = _as_float(value) if wanted is float else Decimal(value)
    if not isinstance(value, wanted) or (kind is Type.CHAR and len(value) > 1):
        return MISFIT
    try:
        pa.scalar(value, kind.arrow)
    except _REFUSED:
        return MISFIT
    return value


def _fitting_struct(value: Any, kind: Type) -> Any:
    fields = dict(kind.fields)
    if not isinstance(value, dict) or not value.keys() <= fields.keys():
        return MISFIT
    parts = {name: fitting(value.get(name), part) for name, part in fields.items()}
    return MISFIT if any(part is MISFIT for part in parts.values()) else parts


def _as_float(value: int) -> Any:
    try:
        return float(value)
    except OverflowError:
        return MISFIT


def from_array(given: Any, rows: int, kind: Type) -> pa.Array | str:
    """The result of a vectorised function as a column; or the problem with it."""
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if isinstance(given, np.ndarray) and given.ndim == 1:
        return _from_numpy(given, rows, kind)
    if not isinstance(given, pa.Array):
        return f"gave {type(given).__name__}, which is no array of {kind.value}"
    if len(given) != rows:
        return f"gave {len(given)} values for {rows} rows"
    if pa.types.is_dictionary(given.type):
        given = given.cast(given.type.value_type)
    wrong = f"gave {given.type}, which is no {kind.value}"
    try:
        if not pa.types.is_null(given.type) and not fits(Type.from_arrow(given.type), _arrow_type(kind)):
            return wrong
        found = given if given.type == kind.arrow else given.cast(kind.arrow, safe=False)
    except (SchemaError, *_REFUSED):
        return wrong
    if kind.element is Type.CHAR and len(found) and _longest(found) > 1:
        return "gave a text longer than one character, which is no CHAR"
    return found


def _arrow_type(kind: Type) -> Type:
    """The type in Arrow, which has no CHAR."""
    return {Type.CHAR: Type.STRING, Type.CHAR.array: Type.STRING.array}.get(kind, kind)


def _longest(texts: pa.Array) -> int:
    flat = pc.list_flatten(texts) if pa.types.is_list(texts.type) else texts
    return pc.max(pc.utf8_length(flat)).as_py() or 0


def _from_numpy(given: np.ndarray[Any, Any], rows: int, kind: Type) -> pa.Array | str:
    if given.dtype != object and given.dtype.kind != "U":
        return from_array(pa.array(given), rows, kind)
    if len(given) != rows:
        return f"gave {len(given)} values for {rows} rows"
    items = [fitting(value, kind) for value in given.tolist()]
    wrong = next((i for i, item in enumerate(items) if item is MISFIT), None)
    return pa.array(items, kind.arrow) if wrong is None else f"gave {given[wrong]!r}, which is no {kind.value}"
