"""Values: binary columns in which each value is one row, as the messages of a topic are.

A value is read as a file of one row would be, and never depends on its neighbours: it gives exactly one row, or it is
refused. Values are still decoded together. They are joined with line ends to one text, whose records have known
bounds, and the decoders of files read it. Two things could move the bounds, and the decoders take care of both. A JSON
value may contain line ends (between its tokens only): they become tabs, which JSON reads as blanks in the same places
and forbids in the same places. A CSV value may contain line ends in quotes, or a quote that is never closed: if Arrow
does not find exactly one row for each value, the values are divided and read again.

| format | a value is |
|---|---|
| json | an object; with the envelope of Debezium, a change (`envelope.py`) |
| csv | a row without a header; the columns are found by position |
| avro | a datum, or with a registry a datum behind the number of its schema (`avro.py`) |
| text | the only column, as UTF-8 text that is converted to the column's type |
| bytes | the only column: UTF-8 text as it is if the column is STRING or CHAR, any bytes if it is ARRAY<BYTE> |

A null value is no row and is not refused. There is no type for bytes, so ARRAY<BYTE> holds them, as signed numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, Protocol, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.columnar import Lists
from headrace.errors import SchemaError
from headrace.io.avro import AvroValues
from headrace.io.avro_writing import encode_avro
from headrace.io.conversion import convert, not_utf8, reason
from headrace.io.csv import CsvDecoder
from headrace.io.decoded import DecodedBlock, as_python, concat, refused_table
from headrace.io.encode import csv_lines, json_objects, plain_texts
from headrace.io.envelope import DebeziumDecoder
from headrace.io.json import JsonDecoder
from headrace.io.records import Bounds, BrokenRecord, Decoder, FastRead, Records, SplitRecords, decode
from headrace.io.value_drift import JsonDrift, ValueDrift
from headrace.schema import Field, Schema, Type

__all__ = ["ValueDecoder", "ValueFormat", "encode_values"]

FormatName = Literal["json", "csv", "avro", "bytes", "text"]
Envelope = Literal["", "debezium"]

_PIECE_BYTES = 8 << 20
_CHUNK = 1 << 17
_MOST_BYTES = (1 << 31) - 1
_TAB, _NEWLINE, _RETURN, _BLANK = 9, 10, 13, 32
_TRIMMED = 64
#: A member that no object has: read where no column is wanted, so that broken values are refused all the same.
_NOTHING = Field("\x00", Type.STRING)


@dataclass(frozen=True)
class ValueFormat:
    """The format of values.

    `delimiter` is for CSV. Avro needs the writer's schema as JSON text (`avro_schema`) or the URL of a schema registry
    (`registry`); the schema of written values is registered under `subject`. `envelope` is for JSON and Avro: the
    columns are those of the row that a change describes. `nested` is for JSON: the payload of physical events is the
    object under `"payload"`, as sinks write it.
    """

    name: FormatName
    delimiter: str = ","
    avro_schema: str = ""
    registry: str = field(default="", repr=False)
    envelope: Envelope = ""
    subject: str = ""
    nested: bool = False

    def __post_init__(self) -> None:
        for option, allowed in (("name", get_args(FormatName)), ("envelope", get_args(Envelope))):
            if getattr(self, option) not in allowed:
                known = ", ".join(repr(word) for word in allowed)
                raise SchemaError(f"unknown {option} of a value format", given=getattr(self, option), allowed=known)
        if len(self.delimiter.encode()) != 1 or self.delimiter in '"\r\n':
            raise SchemaError(
                "a delimiter is one plain character", given=self.delimiter, allowed="such as ',', ';', '|' or a tab"
            )
        if self.nested and (self.name != "json" or self.envelope):
            raise SchemaError("only JSON values have a nested payload", given=str(self), allowed="json, no envelope")
        if self.envelope and self.name not in ("json", "avro"):
            raise SchemaError(f"{self.name} values have no envelope", given=self.envelope, allowed="json, avro")
        if (self.name == "avro") != bool(self.avro_schema or self.registry):
            raise SchemaError(
                "Avro values need a schema" if self.name == "avro" else f"{self.name} values have no Avro schema",
                given=f"ValueFormat({self.name!r})",
                instead="ValueFormat('avro', avro_schema='{…}') or ValueFormat('avro', registry='http://host:8081')",
            )

    def __str__(self) -> str:
        options = [] if self.delimiter == "," else [f"delimiter={self.delimiter!r}"]
        if self.avro_schema:
            options.append("schema " + hashlib.sha256(self.avro_schema.encode()).hexdigest()[:8])
        options += [f"registry {self.subject}".rstrip()] if self.registry else []
        options += [self.envelope] if self.envelope else []
        options += ["nested"] if self.nested else []
        return self.name + (f"({', '.join(options)})" if options else "")


class PieceDecoder(Protocol):
    """Decodes binary values without nulls; rows are numbered by the values' places."""

    def __call__(self, values: pa.Array) -> DecodedBlock: ...


class ValueDecoder:
    """Decodes values and reads the columns `fields` of them.

    The columns of a CSV value are `names`, by default those of `fields`.
    """

    def __init__(
        self,
        format: ValueFormat,
        fields: Sequence[Field],
        *,
        names: Sequence[str] = (),
        drift: ValueDrift | None = None,
    ) -> None:
        self.format = format
        self.fields = tuple(fields)
        self._decode = _piece_decoder(format, self.fields or (_NOTHING,), names, drift)
        form: Any = "nested" if format.nested else format.envelope
        self._judge = JsonDrift(drift, form) if drift is not None and format.name == "json" else None

    def decode(
        self, values: pa.Array | pa.ChunkedArray, offsets: NDArray[np.int64], place: str = "value"
    ) -> DecodedBlock:
        """One row for each value that is not null and can be read; others are refused, with reason and text.

        `offsets` has the number of each value; the numbers of rows, their lines and those of refused values are these.
        `place` and its number name a value in an error.
        """
        numbers = np.asarray(offsets, dtype=np.int64)
        if len(numbers) != len(values):
            raise ValueError(f"{len(values)} values have {len(numbers)} offsets")
        blocks, start = [], 0
        for piece in _pieces(values):
            valid = None if not piece.null_count else pc.is_valid(piece).to_numpy(zero_copy_only=False)
            kept = numbers[start : start + len(piece)]
            start += len(piece)
            kept, full = (kept, piece) if valid is None else (kept[valid], piece.drop_null())
            if len(full):
                block = self._decode(full)
                if self._judge is not None:
                    block = self._judge(full, block, partial(_place, place, kept))
                blocks.append(self._numbered(block, full, kept))
        return concat(blocks) if blocks else _no_rows(self.fields)

    def _numbered(self, block: DecodedBlock, values: pa.Array, numbers: NDArray[np.int64]) -> DecodedBlock:
        """A block with offsets for places, the texts of refused values and only the wanted columns."""
        rows = numbers[block.rows]
        table = block.table.select([column.name for column in self.fields])
        if not block.refused.num_rows:
            return replace(block, table=table, rows=rows, lines=rows)
        places = block.refused["row"].to_numpy()
        texts = pa.array([_shown(value, self.format) for value in values.take(pa.array(places)).to_pylist()])
        broken = pa.array(numbers[places])
        refused = pa.table([broken, block.refused["reason"], texts, broken], schema=block.refused.schema)
        return replace(block, table=table, rows=rows, lines=rows, refused=refused)


def _place(place: str, numbers: NDArray[np.int64], row: int) -> str:
    return f"{place} {numbers[row]}"


def _no_rows(fields: Sequence[Field]) -> DecodedBlock:
    none = np.zeros(0, np.int64)
    return DecodedBlock(Schema(tuple(fields)).arrow.empty_table(), refused_table(), none, none)


def _shown(value: bytes, format: ValueFormat) -> str:
    return "0x" + value.hex() if format.name == "avro" else value.decode("utf-8", errors="replace")


def _pieces(values: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    """The values as plain binary arrays of some megabytes."""
    for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
        plain = chunk if pa.types.is_binary(chunk.type) else _plain(chunk)
        ends = _offsets(plain).astype(np.int64)
        start = 0
        while start < len(plain):
            end = int(np.searchsorted(ends, ends[start] + _PIECE_BYTES, side="right")) - 1
            end = min(max(end, start + 1), len(plain))
            yield plain.slice(start, end - start).cast(pa.binary())
            start = end


def _plain(values: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    large = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
    return values.cast(pa.large_binary() if large else pa.binary())


def _offsets(values: pa.Array) -> NDArray[Any]:
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    return np.frombuffer(values.buffers()[1], dtype=width)[values.offset : values.offset + len(values) + 1]


def _piece_decoder(
    format: ValueFormat, fields: Sequence[Field], names: Sequence[str], drift: ValueDrift | None
) -> PieceDecoder:
    if format.name == "json":
        nested = JsonDecoder(fields, format.nested, unit="value")
        decoder = DebeziumDecoder(fields, unit="value") if format.envelope else nested
        return _RecordsOfValues(decoder, blank=(_BLANK, _TAB, _NEWLINE, _RETURN), json=True)
    if format.name == "csv":
        columns = names or [column.name for column in fields]
        wanted = fields if fields != (_NOTHING,) else [Field(columns[0], Type.STRING)]
        return _RecordsOfValues(_CsvValues(columns, wanted, format.delimiter), blank=(_NEWLINE, _RETURN), json=False)
    if format.name == "avro":
        return AvroValues(format.avro_schema, format.registry, fields, format.envelope, drift)
    return _WholeValues(format.name, fields)


class _ValueRecords(Records):
    """Joined values as records. Their numbers are known, so that nobody counts lines."""

    def part(self, which: slice | NDArray[np.bool_]) -> Records:
        bounds = Bounds(self.bounds.starts[which], self.bounds.ends[which], self.bounds.multiline)
        return _ValueRecords(self.data, quoted=self.quoted, bounds=bounds)

    def lines(self, rows: int) -> NDArray[np.int64]:
        return np.zeros(rows, np.int64)


class _RecordsOfValues:
    """Decodes values of text, joined with line ends, by the decoder of a text file."""

    def __init__(self, decoder: Decoder, *, blank: tuple[int, ...], json: bool) -> None:
        self._decoder = decoder
        self._blank = np.isin(np.arange(256), blank)
        self._json = json

    def __call__(self, values: pa.Array) -> DecodedBlock:
        joined = pc.binary_join_element_wise(values, pa.scalar(b""), pa.scalar(b"\n"))
        offsets = _offsets(joined).astype(np.int64)
        data = memoryview(joined.buffers()[2])[offsets[0] : offsets[-1]].tobytes()
        starts, ends = offsets[:-1] - offsets[0], offsets[1:] - offsets[0] - 1
        if self._json:
            data = _in_one_line(data, ends)
        records = _ValueRecords(data, quoted=not self._json, bounds=self._trimmed(data, starts, ends))
        return decode(records, self._decoder, 0)[0]

    def _trimmed(self, data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Bounds:
        """The bounds without blanks around values, up to a limit; values with more take the slow path."""
        array = np.frombuffer(data, dtype=np.uint8)
        starts, ends = starts.copy(), ends.copy()
        for _ in range(_TRIMMED):
            after = self._blank[array[ends - 1]] & (ends > starts)
            if not after.any():
                break
            ends -= after
        for _ in range(_TRIMMED if self._json else 0):
            before = self._blank[array[starts]] & (ends > starts)
            if not before.any():
                break
            starts += before
        return Bounds(starts, ends)


def _in_one_line(data: bytes, ends: NDArray[np.int64]) -> bytes:
    """JSON values with tabs for the line ends inside them."""
    if data.count(b"\n") == len(ends) and b"\r" not in data:
        return data
    array = np.frombuffer(bytearray(data), dtype=np.uint8)
    array[(array == _NEWLINE) | (array == _RETURN)] = _TAB
    array[ends] = _NEWLINE
    return array.tobytes()


class _CsvValues(CsvDecoder):
    """Rows of CSV with known bounds: a row never includes its neighbours."""

    def fast(self, records: Records) -> FastRead:
        span = bytes(records.span)
        lines = span.count(b"\n") + 1 if b"\r" not in span else -1
        if lines != len(records):
            found = Bounds.of(span, quoted=False).starts + records.bounds.starts[0]
            if not np.array_equal(found, records.bounds.starts):
                raise pa.ArrowInvalid("not all values are one line")
        read = super().fast(records)
        if len(read.table) + len(read.broken) != len(records):
            raise pa.ArrowInvalid("not one row for each value")
        return read

    def slow(self, record: bytes) -> list[Any] | BrokenRecord:
        result = super().slow(record)
        if isinstance(result, SplitRecords):
            return BrokenRecord("a quote of the row is in a wrong place or is not closed", "")
        return result


class _WholeValues:
    """Decodes values that are the only column."""

    def __init__(self, name: str, fields: Sequence[Field]) -> None:
        self._field = fields[0] if len(fields) == 1 else None
        self._name = name
        kinds = (Type.STRING, Type.CHAR, Type.BYTE.array)
        wrong = self._field is None or (self._field.type.is_array if name == "text" else self._field.type not in kinds)
        if wrong:
            raise SchemaError(
                f"{name} values are one column",
                given=", ".join(map(str, fields)),
                allowed="one column of any type but lists" if name == "text" else "one column, STRING or ARRAY<BYTE>",
                instead="value STRING",
            )

    def __call__(self, values: pa.Array) -> DecodedBlock:
        assert self._field is not None
        if self._field.type is Type.BYTE.array:
            return _block(self._field, _byte_lists(values), None, [])
        bad = not_utf8(values)
        texts = (values if bad is None else _without(values, bad)).cast(pa.string())
        converted = convert(texts, self._field)
        wrong = converted.bad if bad is None else bad if converted.bad is None else bad | converted.bad
        reasons = []
        for place in [] if wrong is None else np.flatnonzero(wrong).tolist():
            unreadable = bad is not None and bool(bad[place])
            fault = "the value is not UTF-8 text" if unreadable else reason(as_python(texts[place]), self._field)
            reasons.append((place, fault, ""))
        return _block(self._field, converted.values, wrong, reasons)


def _block(
    field: Field, column: pa.Array, bad: NDArray[np.bool_] | None, refusals: list[tuple[int, str, str]]
) -> DecodedBlock:
    rows = np.arange(len(column), dtype=np.int64)
    kept, rows = (column, rows) if bad is None else (column.filter(pa.array(~bad)), rows[~bad])
    return DecodedBlock(pa.table([kept], schema=Schema((field,)).arrow), refused_table(refusals), rows)


def _byte_lists(values: pa.Array) -> pa.Array:
    offsets = _offsets(values)
    data = values.buffers()[2] or pa.py_buffer(b"")
    size = int(offsets[-1]) if len(offsets) else 0
    elements = pa.Array.from_buffers(pa.int8(), size, [None, data])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements).cast(Type.BYTE.array.arrow)


def _without(values: pa.Array, bad: NDArray[np.bool_]) -> pa.Array:
    return pc.if_else(pa.array(~bad), values, pa.scalar(None, values.type))


def encode_values(rows: pa.Table, format: ValueFormat) -> pa.Array:
    """One binary value for each row: a JSON object, a line of CSV, an Avro datum, or the only column as it is.

    A null in the only column of text or bytes is a null value. The result is a `large_binary` array if it needs to be.
    """
    if format.envelope:
        raise SchemaError("values are written without an envelope", given=format.envelope, instead='envelope=""')
    batches = rows.to_batches(max_chunksize=_CHUNK)
    parts = [_encoded(batch, format) for batch in batches if batch.num_rows] or [pa.array([], pa.binary())]
    if sum(part.nbytes for part in parts) > _MOST_BYTES:
        parts = [part.cast(pa.large_binary()) for part in parts]
    return pa.concat_arrays(parts)


def _encoded(batch: pa.RecordBatch, format: ValueFormat) -> pa.Array:
    if format.name == "json":
        return json_objects(batch).cast(pa.binary())
    if format.name == "csv":
        return csv_lines(batch, format.delimiter).cast(pa.binary())
    if format.name == "avro":
        return encode_avro(batch, format.avro_schema, format.registry, format.subject)
    if batch.num_columns != 1:
        given = ", ".join(batch.schema.names)
        raise SchemaError(f"{format.name} values are one column", given=given, allowed="one column")
    return _whole(batch.column(0))


def _whole(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_list(column.type) and pa.types.is_int8(column.type.value_type):
        lists = Lists.of(column)
        offsets = pa.py_buffer(lists.offsets.astype(np.int32))
        data = pa.py_buffer(lists.elements.to_numpy(zero_copy_only=False).astype(np.int8))
        found = pa.Array.from_buffers(pa.binary(), len(column), [None, offsets, data])
        return _without(found, lists.missing) if lists.missing.any() else found
    if pa.types.is_nested(column.type):
        raise SchemaError("a list is neither text nor bytes", given=str(column.type), allowed="ARRAY<BYTE>")
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column.cast(pa.binary())
    return plain_texts(column).cast(pa.binary())
