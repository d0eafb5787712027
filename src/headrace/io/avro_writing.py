"""Writing Avro: each row as a datum of a record, a column at a time.

The schema is that of the format, or one that fits the columns: every field a union of null and the column's type, and
DATETIME as microseconds. Columns are found by name. A field without a column is null, if it can be; a column without a
field is an error, and so is a null in a field that has none.

With a registry, the schema is registered under the format's subject, and its number goes before each datum.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.columnar import Lists
from headrace.errors import SchemaError
from headrace.expr.arrow.decimals import unscaled
from headrace.io import avro_machine as machine
from headrace.io.avro_program import PRIMITIVES, parsed_schema
from headrace.io.registry import schema_id
from headrace.schema import Schema, Type
from headrace.types import DIGITS

__all__ = ["avro_schema", "encode_avro"]

_OWN_TYPES: dict[Type, Any] = {
    Type.BYTE: "int", Type.SHORT: "int", Type.INT: "int", Type.LONG: "long", Type.FLOAT: "float",
    Type.DOUBLE: "double", Type.BOOLEAN: "boolean", Type.CHAR: "string", Type.STRING: "string",
    Type.DATETIME: {"type": "long", "logicalType": "timestamp-micros"},
    Type.DATE: {"type": "int", "logicalType": "date"},
    Type.TIME: {"type": "long", "logicalType": "time-micros"},
    Type.INTERVAL: "long",
}  # fmt: skip
_ARROW = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "string": pa.string(),
}  # fmt: skip
_UTC = pa.timestamp("us", "UTC")
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_MOST_PER_PART = 11  # bytes: the number of a branch, and a number or a length


def avro_schema(columns: pa.Schema, name: str = "row") -> str:
    """A schema in JSON that fits the columns."""
    fields = [{"name": f.name, "type": ["null", _own_type(f.type)], "default": None} for f in Schema.of(columns)]
    return json.dumps({"type": "record", "name": name, "fields": fields})


def _own_type(kind: Type) -> Any:
    if kind.is_array:
        return {"type": "array", "items": ["null", _own_type(kind.element)]}
    if kind.is_decimal:
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if kind.is_struct:
        raise SchemaError(
            "Avro is written without structs", given=kind.value, allowed="columns of one value, and lists of them",
            instead="select the fields as columns, or write JSON",
        )  # fmt: skip
    return _OWN_TYPES[kind]


def encode_avro(rows: pa.RecordBatch, schema: str, registry: str = "", subject: str = "") -> pa.Array:
    """A datum for each row, with the number of its schema before it if there is a registry."""
    text = schema or avro_schema(rows.schema)
    prefix = b""
    if registry:
        if not subject:
            raise SchemaError("a schema is registered under a subject", given=registry, instead="subject='topic-value'")
        prefix = b"\x00" + schema_id(registry, subject, text).to_bytes(4, "big")
    parsed = parsed_schema(text)
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise SchemaError("rows are written as an Avro record", given=text, instead='{"type": "record", …}')
    columns = _Columns(rows.num_rows)
    _check_names(rows, parsed)
    for part in parsed["fields"]:
        columns.add(part, rows[part["name"]] if part["name"] in rows.schema.names else None)
    return columns.written(prefix)


def _check_names(rows: pa.RecordBatch, schema: Any) -> None:
    names = [part["name"] for part in schema["fields"]]
    lost = [name for name in rows.schema.names if name not in names]
    if lost:
        raise SchemaError(
            f"the Avro schema has no field for {', '.join(map(repr, lost))}",
            given=", ".join(lost),
            allowed=", ".join(names),
        )


@dataclass
class _Columns:
    """The columns in the form that the machine writes them in."""

    rows: int
    code: list[list[int]] = field(default_factory=list)
    numbers: list[NDArray[np.int64]] = field(default_factory=list)
    sizes: list[NDArray[np.int64]] = field(default_factory=list)
    valid: list[NDArray[np.bool_]] = field(default_factory=list)
    data: list[NDArray[np.uint8]] = field(default_factory=list)
    used: int = 0

    def add(self, part: Any, column: pa.Array | None) -> None:
        """Add a field of the schema, with the column that has its values."""
        kind, null, value = _branches(part["type"], part["name"])
        if column is None:
            if null < 0:
                raise SchemaError(f"the rows have no column for the Avro field {part['name']!r}", given=part["name"])
            column = pa.nulls(self.rows)
        if null < 0 and column.null_count:
            raise SchemaError(
                f"column {part['name']!r} has nulls, and its Avro field has none",
                given=str(part["type"]),
                instead=str(["null", part["type"]]),
            )
        if isinstance(kind, dict) and kind.get("type") == "array":
            self._add_list(kind, column, part["name"], (null, value))
        else:
            self._add_plain(kind, column, part["name"], (null, value))

    def _add_list(self, kind: Any, column: pa.Array, name: str, branches: tuple[int, int]) -> None:
        if pa.types.is_null(column.type):
            column = column.cast(pa.list_(pa.null()))
        if not pa.types.is_list(column.type):
            raise SchemaError(f"column {name!r} is not a list", given=str(column.type), allowed=str(kind))
        lists = Lists.of(column)
        self._put(machine.LOOP, branches, np.zeros(self.rows, np.int64), np.diff(lists.offsets), ~lists.missing)
        item, null, value = _branches(kind["items"], name)
        if null < 0 and lists.elements.null_count:
            raise SchemaError(f"lists of column {name!r} have nulls, and their Avro items none", given=str(kind))
        self._add_plain(item, lists.elements, name, (null, value))

    def _add_plain(self, kind: Any, column: pa.Array, name: str, branches: tuple[int, int]) -> None:
        base = kind if isinstance(kind, str) else kind.get("type")
        valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
        if base == "enum":
            numbers = _symbols(column, kind, name)
            return self._put(machine.ENUM, branches, numbers, np.zeros(len(numbers), np.int64), valid)
        if base not in PRIMITIVES:
            raise SchemaError(
                f"the Avro type of {name!r} cannot be written", given=str(kind), allowed=", ".join(_ARROW)
            )
        plain = _as_stored(column, kind, base, name)
        if base in ("bytes", "string"):
            offsets = np.frombuffer(plain.buffers()[1], np.int32)[plain.offset : plain.offset + len(plain) + 1]
            places = offsets.astype(np.int64)
            data = np.frombuffer(plain.buffers()[2] or b"", np.uint8)[places[0] : places[-1]]
            starts = places[:-1] - places[0] + self.used
            self.data.append(data)
            self.used += len(data)
            return self._put(machine.BYTES, branches, starts, np.diff(places), valid)
        return self._put(PRIMITIVES[base], branches, _bits(plain), np.zeros(len(plain), np.int64), valid)

    def _put(
        self,
        op: int,
        branches: tuple[int, int],
        numbers: NDArray[np.int64],
        sizes: NDArray[np.int64],
        valid: NDArray[np.bool_],
    ) -> None:
        self.code.append([op, len(self.numbers), *branches])
        self.numbers.append(numbers)
        self.sizes.append(sizes)
        self.valid.append(valid)

    def written(self, prefix: bytes) -> pa.Array:
        """All datums."""
        most = self.rows * (len(prefix) + len(self.code)) + self.used
        most += _MOST_PER_PART * sum(len(numbers) for numbers in self.numbers)
        out, ends = np.empty(most, np.uint8), np.zeros(self.rows, np.int64)
        data = np.concatenate(self.data) if self.data else np.zeros(0, np.uint8)
        width = max([self.rows, *(len(numbers) for numbers in self.numbers)])
        machine.write(
            self.rows,
            np.array(self.code, np.int64).reshape(-1, 4),
            _padded(self.numbers, width, np.int64),
            _padded(self.sizes, width, np.int64),
            _padded(self.valid, width, np.uint8),
            data,
            np.frombuffer(prefix, np.uint8),
            out,
            ends,
        )
        offsets = np.r_[0, ends].astype(np.int32)
        filled = out[: offsets[-1]].copy()
        return pa.Array.from_buffers(pa.binary(), self.rows, [None, pa.py_buffer(offsets), pa.py_buffer(filled)])


def _branches(kind: Any, name: str) -> tuple[Any, int, int]:
    """The type of a field's values, and the numbers of the branches for null and for values; -1 without a union."""
    if not isinstance(kind, list):
        return (kind["type"], -1, -1) if isinstance(kind, dict) and isinstance(kind["type"], dict) else (kind, -1, -1)
    values = [branch for branch in kind if branch != "null"]
    if len(values) != 1 or len(kind) > 2:
        raise SchemaError(f"the union of {name!r} has several types", given=str(kind), allowed='["null", one type]')
    return values[0], kind.index("null") if "null" in kind else -1, kind.index(values[0])


def _as_stored(column: pa.Array, kind: Any, base: str, name: str) -> pa.Array:
    """A column in the Arrow type of its Avro type."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    logical = str(kind.get("logicalType") or "") if isinstance(kind, dict) else ""
    fault = ""
    try:
        if pa.types.is_timestamp(column.type):
            column = _stored_times(column, logical)
        elif pa.types.is_date32(column.type):
            column = column.cast(pa.int32()) if logical == "date" else _stored_times(column.cast(_UTC), logical)
        elif pa.types.is_time(column.type) or pa.types.is_duration(column.type):
            unit = pa.time32("ms") if logical == "time-millis" else column.type
            column = column.cast(unit, safe=False).cast(pa.int32() if logical == "time-millis" else pa.int64())
        elif pa.types.is_decimal(column.type) and logical == "decimal":
            column = _stored_decimals(column, int(kind.get("precision", DIGITS)), int(kind.get("scale", 0)))
        if _family(column.type) in (_family(_ARROW[base]), "null"):
            return column.cast(_ARROW[base])
    except pa.ArrowInvalid as error:
        fault = f": {error}"
    raise SchemaError(f"column {name!r} does not fit its Avro type{fault}", given=str(column.type), allowed=str(kind))


def _stored_decimals(column: pa.Array, precision: int, scale: int) -> pa.Array:
    """Decimals as whole numbers of 16 bytes, the highest first."""
    exact = column.cast(pa.decimal128(min(precision, DIGITS), scale))
    words = np.ascontiguousarray(unscaled(exact)[:, ::-1]).astype(">i8")
    data, size = pa.py_buffer(words.tobytes()), len(exact)
    fixed = pa.Array.from_buffers(pa.binary(16), size, [pc.is_valid(exact).buffers()[1], data])
    return fixed.cast(pa.binary())


def _stored_times(times: pa.Array, logical: str) -> pa.Array:
    """Times as numbers of the unit of a logical type; without one, as ticks."""
    if logical == "date":
        return times.cast(pa.date32(), safe=False).cast(pa.int32())
    unit = _UNITS.get(logical.rpartition("timestamp-")[2], "us")
    floored = pc.floor_temporal(times, unit="millisecond") if unit == "ms" else times
    return floored.cast(pa.timestamp(unit, times.type.tz)).cast(pa.int64())


def _family(arrow: pa.DataType) -> str:
    """What a type holds: only types of the same family become each other."""
    if pa.types.is_integer(arrow) or pa.types.is_floating(arrow):
        return "number"
    return "text" if pa.types.is_string(arrow) or pa.types.is_binary(arrow) else str(arrow)


def _symbols(column: pa.Array, kind: Any, name: str) -> NDArray[np.int64]:
    texts = column.cast(pa.string())
    places = pc.index_in(texts, pa.array(kind["symbols"], pa.string()))
    if places.null_count > texts.null_count:
        allowed = ", ".join(kind["symbols"])
        raise SchemaError(f"column {name!r} has a text that is no symbol of its enum", given=name, allowed=allowed)
    return np.asarray(pc.fill_null(places, 0).to_numpy(zero_copy_only=False), np.int64)


def _bits(values: pa.Array) -> NDArray[np.int64]:
    filled = pc.fill_null(values, False if pa.types.is_boolean(values.type) else 0).to_numpy(zero_copy_only=False)
    if filled.dtype == np.float64:
        return np.asarray(filled.view(np.int64))
    return np.asarray(filled.view(np.uint32) if filled.dtype == np.float32 else filled).astype(np.int64)


def _padded(columns: list[Any], width: int, dtype: Any) -> NDArray[Any]:
    table = np.zeros((max(len(columns), 1), width), dtype)
    for i, column in enumerate(columns):
        table[i, : len(column)] = column
    return table
