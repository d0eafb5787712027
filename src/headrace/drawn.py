"""Drawn tables and plain records, read into physical tables.

    kind    | le | re | re_new | symbol | price
    insert  | 1  | ∞  |        | A      | 10
    retract | 1  | ∞  | 5      | A      | 10
    cti     | 6  |    |        |        |

`kind` may be left out (all inserts), so may `re_new`; an insert without `re` is a point. Times are ticks, datetimes,
`inf` or `∞`. Payload types are inferred (LONG, DOUBLE, BOOLEAN, DATETIME, else STRING) unless a schema is given. With
a schema, a list is written as `[1, 2]`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import EventError, HeadraceError, SchemaError, UnknownColumn
from headrace.expr.spans import SPANS, read_interval, read_time
from headrace.schema import RESERVED, Field, Schema, Type
from headrace.time import CHRONON, INFINITY, ticks

__all__ = ["MISSING", "read_drawn", "read_plain", "read_plain_drawn", "read_records"]

_CONTROL = ("kind", "le", "re", "re_new")


#: The end of an event that a row does not give: null is the end of an endless event, where times are dates.
MISSING = object()


def read_drawn(text: str, schema: Schema | None) -> tuple[pa.Table, bool]:
    """A physical table from a drawn one, and whether its times are dates."""
    columns = _drawn_columns(text)
    for name in ("re", "re_new"):
        columns |= {name: [MISSING if cell is None else cell for cell in columns[name]]} if name in columns else {}
    typed = schema or Schema(tuple(Field(n, _guess(v)) for n, v in columns.items() if n not in RESERVED))
    return read_records(_typed_cells(columns, typed), typed)


def read_plain_drawn(text: str, schema: Schema | None) -> pa.Table:
    """A table of any columns from a drawn one."""
    columns = _drawn_columns(text)
    typed = schema or Schema(tuple(Field(name, _guess(cells)) for name, cells in columns.items()))
    return read_plain(_typed_cells(columns, typed), typed)


def read_plain(columns: Mapping[str, Any], schema: Schema | None) -> pa.Table:
    """A table from columns by name; a schema picks columns. If there are no columns, there are no rows."""
    columns = {name: _without_dates(values) for name, values in columns.items()}
    fields = schema or _infer(columns)
    for name in fields.names if columns else ():
        if name not in columns:
            raise UnknownColumn.of(name, columns, "these rows")
    return pa.table({field.name: _payload_column(columns.get(field.name, []), field) for field in fields})


def _drawn_columns(text: str) -> dict[str, list[Any]]:
    """The cells of a drawn table; an empty cell is null."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not set(line) <= set("|-+ ")]
    if not lines:
        raise EventError("the drawn table is empty", instead="give at least the line with the column names")
    # Only the header decides about a frame: a row that begins with a bar may have an empty first column.
    framed = lines[0].startswith("|")
    header, *body = [_cells(line, framed=framed) for line in lines]
    for number, row in enumerate(body, 1):
        if len(row) > len(header):
            raise EventError(f"row {number} has {len(row)} cells, the header has {len(header)}", given=" | ".join(row))
        row += [""] * (len(header) - len(row))
    return {name: [row[i] or None for row in body] for i, name in enumerate(header)}


def _typed_cells(columns: dict[str, list[Any]], typed: Schema) -> dict[str, list[Any]]:
    """Columns with the cells of the schema's columns as values."""
    fields = [field for field in typed if field.name in columns]
    return columns | {f.name: [_cell(v, f, i) for i, v in enumerate(columns[f.name], 1)] for f in fields}


def _cells(line: str, *, framed: bool) -> list[str]:
    inside = line.removeprefix("|").removesuffix("|") if framed else line
    return [cell.strip() for cell in inside.split("|")]


def read_records(columns: Mapping[str, Any], schema: Schema | None) -> tuple[pa.Table, bool]:
    """A physical table from columns by name, and whether its times are dates.

    Where times are dates, an end that is null is endless (rule 1.1), unless it is `MISSING`.
    """
    if "le" not in columns:
        raise EventError(
            "events need a column 'le'", given=list(columns), allowed="kind, le, re, re_new and the payload"
        )
    columns = {name: _without_dates(values) for name, values in columns.items()}
    size = len(columns["le"])
    kinds = [None if k is None else str(k).strip().lower() for k in _listed(columns.get("kind", ["insert"] * size))]
    given = {name: _listed_times(columns.get(name, [MISSING] * size)) for name in _CONTROL[1:]}
    dates = any(map(_is_date, chain(*given.values())))
    endless = {"le": None, "re": INFINITY if dates else None, "re_new": INFINITY if dates else None}
    times = {n: [_time(v, n, i, endless[n]) for i, v in enumerate(values, 1)] for n, values in given.items()}
    times["re_new"] = [None if k == "insert" else t for k, t in zip(kinds, times["re_new"], strict=True)]
    if dates:  # the promise at the end of a stream
        times["le"] = [INFINITY if k == "cti" and t is None else t for k, t in zip(kinds, times["le"], strict=True)]
    payload = schema or _infer({n: v for n, v in columns.items() if n not in RESERVED})
    if not len(payload):
        raise EventError(
            "events need at least one payload column",
            given=list(columns),
            allowed=f"columns beside {', '.join(RESERVED)}",
            instead="hr.events([{'le': 1, 're': 4, 'payload': 'P1'}])",
        )
    for name in columns:
        if name not in payload and name not in RESERVED:
            raise UnknownColumn.of(name, payload.names, "the schema of these events")
    arrays = {"kind": pa.array(kinds, pa.string()), **{n: pa.array(v, pa.int64()) for n, v in times.items()}}
    for field in payload:
        arrays[field.name] = _payload_column(columns.get(field.name, [None] * size), field)
    table = pa.table(arrays)
    point = pc.and_(pc.equal(table["kind"], "insert"), pc.is_null(table["re"]))
    return table.set_column(2, "re", pc.if_else(point, pc.add(table["le"], CHRONON), table["re"])), dates


def _listed_times(values: Any) -> list[Any]:
    """Times as Python values; timestamps as `_Date`s, because they may be out of the range of Python's dates."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)) and pa.types.is_temporal(values.type):
        values = pc.cast(pc.cast(values, pa.timestamp("us"), safe=False), pa.int64())
        return [None if value is None else _Date(value) for value in values.to_pylist()]
    return _listed(values)


class _Date(int):
    """The ticks of a timestamp."""


def _is_date(value: Any) -> bool:
    """Whether a time is given as a date, and not as a number of ticks."""
    if isinstance(value, str):
        unsigned = value.strip().lstrip("+-").lower()
        return not (unsigned.isdigit() or unsigned in ("inf", "infinity", "∞"))
    return isinstance(value, (date, _Date))


def _listed(values: Any) -> list[Any]:
    return values.to_pylist() if isinstance(values, (pa.Array, pa.ChunkedArray)) else list(values)


def _without_dates(values: Any) -> Any:
    """Dates among times as the instants at which they begin."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    listed = list(values)
    return [_instant(value) for value in listed] if any(isinstance(value, datetime) for value in listed) else listed


def _instant(value: Any) -> Any:
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return value


def _time(value: Any, name: str, row: int, endless: int | None) -> int | None:
    if value is None or value is MISSING:
        return endless if value is None else None
    if isinstance(value, float):
        if math.isnan(value):
            return endless
        value = str(value) if math.isinf(value) else int(value) if value.is_integer() else value
    try:
        return ticks(_instant(value))
    except ValueError as error:
        raise EventError(f"row {row}: {name} is not a time", given=value, allowed="ticks, a datetime, 'inf'") from error


def _payload_column(values: Any, field: Field) -> Any:
    try:
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            return pc.cast(values, field.type.arrow)
        _refuse_others(values, field)
        if field.type is Type.DATETIME:
            values = [_instant(value) for value in values]
        return pa.array(values, field.type.arrow, from_pandas=not field.type.element.is_floating)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise SchemaError(
            f"column {field.name!r} does not hold {field.type.value}: {error}", given=str(values)[:200]
        ) from error


def _refuse_others(values: Any, field: Field) -> None:
    """Refuse fractions and booleans, which Arrow would convert to 1."""
    if field.type.is_integer:
        for value in values:
            part = isinstance(value, float) and math.isfinite(value) and not value.is_integer()
            if part or isinstance(value, bool):
                raise SchemaError(f"column {field.name!r} does not hold {field.type.value}", given=value)


def _infer(columns: Mapping[str, Any]) -> Schema:
    fields = []
    for name, values in columns.items():
        try:
            arrow = values.type if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values).type
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise SchemaError(f"column {name!r} mixes types: {error}", instead="give a schema") from error
        fields.append(pa.field(name, arrow))
    return Schema.of(pa.schema(fields))


def _datetime(text: str) -> datetime:
    value = datetime.fromisoformat(text)
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _is_long(text: str) -> bool:
    return re.fullmatch(r"[+-]?\d{1,19}", text) is not None and -(2**63) <= int(text) < 2**63


def _like(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).fullmatch


# type, reader of its cells, test for its cells if there is no schema, text of the allowed cells if there is one
_READERS: tuple[tuple[Type, Callable[[str], Any], Callable[[str], object], str], ...] = (
    (Type.LONG, int, _is_long, "a whole number"),
    (Type.DOUBLE, float, _like(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+|inf|nan|NaN)"), "a number"),
    (Type.BOOLEAN, _boolean, _like(r"(?i:true|false)"), "true, false"),
    (
        Type.DATETIME,
        _datetime,
        _like(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?"),
        "ISO text such as 2024-05-01T12:00:00Z",
    ),
)


def _guess(cells: Sequence[str | None]) -> Type:
    texts = [cell for cell in cells if cell is not None]
    for kind, _, looks, _ in _READERS:
        if texts and all(looks(text) for text in texts):
            return kind
    return Type.STRING


def _exact_cell(text: str, field: Field, row: int) -> Decimal | date:
    try:
        return Decimal(text) if field.type.is_decimal else date.fromisoformat(text)
    except (ValueError, InvalidOperation) as error:
        allowed = "a number" if field.type.is_decimal else "a date such as 2024-05-01"
        raise EventError(f"row {row}: {field.name} is not {field.type.value}", given=text, allowed=allowed) from error


def _span_cell(text: str, field: Field, row: int) -> Any:
    try:
        return read_time(text) if field.type is Type.TIME else read_interval(text)
    except HeadraceError as error:
        allowed = "12:30:00" if field.type is Type.TIME else "36:00:00, or 10 min"
        raise EventError(f"row {row}: {field.name} is not {field.type.value}", given=text, allowed=allowed) from error


def _cell(text: str | None, field: Field, row: int) -> Any:
    if text is not None and field.type.is_struct:
        return _struct_cell(text, field, row)
    if text is not None and field.type.is_array:
        return _list_cell(text, field, row)
    if text is None or field.type.is_text:
        return text[1:-1] if text and len(text) > 1 and text[0] == text[-1] == '"' else text
    if field.type in SPANS:
        return _span_cell(text, field, row)
    if field.type.is_decimal or field.type is Type.DATE:
        return _exact_cell(text, field, row)
    kind = Type.LONG if field.type.is_integer else Type.DOUBLE if field.type.is_floating else field.type
    read, allowed = next((read, allowed) for other, read, _, allowed in _READERS if other is kind)
    try:
        return read(text)
    except ValueError as error:
        raise EventError(f"row {row}: {field.name} is not {field.type.value}", given=text, allowed=allowed) from error


def _struct_cell(text: str, field: Field, row: int) -> Any:
    """A struct as JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise EventError(f"row {row}: {field.name} is not {field.type.value}", given=text, allowed='{"a": 1}')
    return value


def _list_cell(text: str, field: Field, row: int) -> list[Any]:
    if not (text.startswith("[") and text.endswith("]")):
        raise EventError(f"row {row}: {field.name} is not {field.type.value}", given=text, allowed="[1, 2]")
    inside, element = text[1:-1].strip(), Field(field.name, field.type.element)
    return [_cell(part.strip() or None, element, row) for part in inside.split(",")] if inside else []
