"""Avro values: datums of a record, read in columns.

The writer's schema becomes a program of the machine in `avro_machine.py`. The program follows a datum through all its
parts and keeps those that a column wants; the columns are found by name, and one that the writer does not have is null.
Every datum is read within its own bounds, so a broken one is refused alone.

Logical types count where the column can hold them: timestamps and dates as DATETIME, decimals as numbers, enums as
text, bytes as UTF-8 text or as ARRAY<BYTE>. A LONG column has the number as it is stored. A union of null and one type
is that type with nulls; a union of several types can be read if all are numbers or all are texts. Lists of plain types
are ARRAY columns; records, maps and other lists cannot be columns.

With a registry, a value begins with a zero and the number of its writer's schema in four bytes, as Confluent's
serializers write it. A batch may have values of several schemas. Values of a schema that the registry does not know, or
that cannot be read into the columns, are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import SchemaError
from headrace.io import avro_machine as machine
from headrace.io.avro_program import AvroProgram, AvroSlot, Path, parsed_schema, record_fields
from headrace.io.conversion import check_convertible, is_tick, not_utf8
from headrace.io.decoded import DecodedBlock, Refusal, concat, finish, refused_table
from headrace.io.drift import DriftVerdict
from headrace.io.envelope import OP, TIMES, TS, change_ticks, check_change_columns, chosen, without_image
from headrace.io.registry import schema_by_id
from headrace.io.value_drift import ValueDrift
from headrace.schema import Field, Schema, Type

__all__ = ["AvroValues", "SchemaReader"]

_FAULTS = {1: "the Avro datum does not end where its schema says", 2: "the Avro datum has a value that its schema does "
           "not allow", 3: "the Avro datum is nested too deeply", 4: "a text of the Avro datum is not UTF-8",
           5: "the value is not a change of Debezium: it has no 'op'",
           6: "the change has no row 'before' or 'after', which its op needs"}  # fmt: skip
_NOT_ALLOWED, _NOT_TEXT, _NO_OP, _NO_IMAGE = 2, 4, 5, 6
_MOST_MILLIS = (2**63 - 1) // 1000
_SIDES = ("after", "before")
#: What may be written as a number: Avro's logical types are optional.
_AS_NUMBERS = (Type.DATETIME, Type.TIME, Type.INTERVAL)
_NONE = np.zeros(0, np.int64)
#: The ticks of a unit of times of day.
_CLOCKS = {"time-millis": 1000, "time-micros": 1, "io.debezium.time.Time": 1000, "io.debezium.time.MicroTime": 1}
_TIMES = {
    "timestamp-millis": ("ms", "UTC"), "timestamp-micros": ("us", "UTC"), "timestamp-nanos": ("ns", "UTC"),
    "local-timestamp-millis": ("ms", None), "local-timestamp-micros": ("us", None),
    "local-timestamp-nanos": ("ns", None), "io.debezium.time.Timestamp": ("ms", None),
    "io.debezium.time.MicroTimestamp": ("us", None), "io.debezium.time.NanoTimestamp": ("ns", None),
    "org.apache.kafka.connect.data.Timestamp": ("ms", None),
}  # fmt: skip
_DATES = ("date", "io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_PREFIX = 5


@dataclass(frozen=True)
class _DatumParts:
    """The kept parts of some datums; `bad` has a fault for each datum, 0 if there is none."""

    slots: Sequence[AvroSlot]
    data: NDArray[np.uint8]
    out: NDArray[np.int64]
    size: NDArray[np.int64]
    valid: NDArray[np.uint8]
    filled: NDArray[np.int64]
    bad: NDArray[np.uint8]

    def column(self, slot: int, wanted: Field) -> pa.Array:
        """A slot as a column of the Arrow type nearest to the wanted one; texts that are not UTF-8 are faults."""
        rows = len(self.bad)
        if self.slots[slot].op != machine.LOOP:
            column, wrong = self._plain(slot, rows, wanted)
            self.bad[wrong] = _NOT_TEXT
            return column
        inner = next(i for i, other in enumerate(self.slots) if other.of == slot)
        elements, wrong = self._plain(inner, int(self.filled[inner]), Field(wanted.name, wanted.type.element))
        offsets = np.r_[0, np.cumsum(self.size[slot, :rows])]
        self.bad[np.searchsorted(offsets, wrong, side="right") - 1] = _NOT_TEXT
        mask = pa.array(self.valid[slot, :rows] == 0)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements, mask=mask)

    def present(self, slot: int) -> NDArray[np.bool_]:
        """Where a part exists."""
        return self.valid[slot, : len(self.bad)] > 0

    def _plain(self, slot: int, count: int, wanted: Field) -> tuple[pa.Array, NDArray[np.int64]]:
        """The values of a slot, and where they are faults."""
        op, missing = self.slots[slot].op, self.valid[slot, :count] == 0
        if op in (machine.BYTES, machine.FIXED):
            return self._bytes(slot, count, wanted)
        return _numbers(self.out[slot, :count], missing, self.slots[slot], wanted), _NONE

    def _bytes(self, slot: int, count: int, wanted: Field) -> tuple[pa.Array, NDArray[np.int64]]:
        missing, kind = self.valid[slot, :count] == 0, self.slots[slot].type
        lengths = np.where(missing, 0, self.size[slot, :count])
        starts = np.where(missing, 0, self.out[slot, :count])
        if _logical(kind) == "decimal" and not (lengths > 16).any():
            return _decimals(self.data, starts, starts + lengths, missing, kind), _NONE
        offsets = np.r_[0, np.cumsum(lengths)].astype(np.int32)
        data = np.empty(int(offsets[-1]), np.uint8)
        machine.gather(self.data, starts, starts + lengths, data)
        if wanted.type is Type.BYTE.array:
            elements = pa.array(data.view(np.int8))
            return pa.ListArray.from_arrays(pa.array(offsets), elements, mask=pa.array(missing)), _NONE
        valid = pa.array(~missing).buffers()[1] if missing.any() else None
        found = pa.Array.from_buffers(pa.binary(), count, [valid, pa.py_buffer(offsets), pa.py_buffer(data)])
        bad = not_utf8(found)
        if bad is None:
            return found.cast(pa.string()), _NONE
        return pc.if_else(pa.array(~bad), found, pa.scalar(None, found.type)).cast(pa.string()), np.flatnonzero(bad)


def _numbers(values: NDArray[np.int64], missing: NDArray[np.bool_], slot: AvroSlot, wanted: Field) -> pa.Array:
    if slot.op == machine.ENUM:
        return pa.array(slot.type["symbols"], pa.string()).take(pa.array(values, pa.int64(), mask=missing))
    if slot.op == machine.DOUBLE:
        return pa.array(values.view(np.float64), mask=missing)
    if slot.op == machine.FLOAT:
        return pa.array(values.astype(np.uint32).view(np.float32), mask=missing)
    if slot.op == machine.BOOLEAN:
        return pa.array(values.astype(np.bool_), mask=missing)
    whole = pa.array(values, pa.int64(), mask=missing)
    if wanted.type is Type.TIME:
        size = _CLOCKS.get(_logical(slot.type), 0)
        return pc.multiply(whole, size).cast(Type.TIME.arrow) if size else whole
    if wanted.type not in (Type.DATETIME, Type.DATE) and not is_tick(wanted):
        return whole
    if slot.op == machine.INT and _logical(slot.type) in _DATES:
        return whole.cast(pa.int32()).cast(pa.date32())
    unit = _TIMES.get(_logical(slot.type)) if slot.op == machine.LONG else None
    return whole.cast(pa.timestamp(*unit)) if unit else whole


def _logical(kind: Any) -> str:
    return str(kind.get("logicalType") or kind.get("connect.name") or "") if isinstance(kind, dict) else ""


def _decimals(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    missing: NDArray[np.bool_],
    kind: Any,
) -> pa.Array:
    """Big-endian numbers of up to 16 bytes, with a scale."""
    bytes_ = np.zeros((len(starts), 16), np.uint8)
    last = max(len(data) - 1, 0)
    filled = ends > starts
    negative = filled & (data[np.minimum(starts, last)] > 127) if len(data) else filled
    for i in range(16):
        place = ends - 1 - i
        inside = place >= starts
        bytes_[:, i] = np.where(inside, data[np.clip(place, 0, last)] if len(data) else 0, np.where(negative, 255, 0))
    valid = pa.array(~missing).buffers()[1] if missing.any() else None
    type = pa.decimal128(38, int(kind.get("scale", 0)))
    return pa.Array.from_buffers(type, len(starts), [valid, pa.py_buffer(bytes_)])


class SchemaReader:
    """Reads datums of one writer's schema as columns."""

    def __init__(self, schema: Any, fields: Sequence[Field], envelope: str = "") -> None:
        self._schema, self._fields = schema, fields
        self._envelope = envelope
        if envelope:
            check_change_columns(fields)
        self._names = [field.name for field in fields if not envelope or field.name not in (OP, TS)]
        self._program = AvroProgram(*self._places(schema, fields))
        self._program.compile(schema)
        self._code = np.array(self._program.code, np.int64)
        self._branches = np.array(self._program.branches or [0], np.int64)
        self._element = np.array([slot.of for slot in self._program.slots], np.int64)
        self._check()

    def _places(self, schema: Any, fields: Sequence[Field]) -> tuple[frozenset[Path], frozenset[Path]]:
        """The places of wanted values, and of records of which only the presence is wanted."""
        if self._envelope:
            images = [(side, name) for side in _SIDES for name in self._names]
            times = list(TIMES) if any(field.name == TS for field in fields) else []
            return frozenset([("op",), *times, *images]), frozenset((side,) for side in _SIDES)
        kind = schema.get("type") if isinstance(schema, dict) else schema
        self._single = not isinstance(kind, list) and kind != "record"
        if self._single and len(fields) != 1:
            raise SchemaError(
                "the Avro schema is not a record, so it is one column",
                given=", ".join(map(str, fields)),
                allowed=str(kind),
            )
        return frozenset([()] if self._single else [(name,) for name in self._names]), frozenset()

    def _slots(self, path: Path) -> list[int]:
        return [i for i, slot in enumerate(self._program.slots) if slot.path == path and slot.of < 0]

    def _check(self) -> None:
        """Refuse a schema that cannot be read into the columns, by reading no datums."""
        for path, kind in self._program.unreadable.items():
            name = ".".join(path)
            raise SchemaError(f"{name!r} is {kind} in the Avro schema, which cannot be a column", given=name)
        none = np.zeros(0, np.int64)
        table, _ = self.table(np.zeros(0, np.uint8), none, none)
        check_convertible(table.schema, list(self._fields), "the Avro schema")

    def found(self) -> dict[str, pa.DataType | None] | None:
        """The columns that the writer has, with the types of those that are read; None if it is no record."""
        if not self._envelope and self._single:
            return None
        none = np.zeros(0, np.int64)
        table, _ = self.table(np.zeros(0, np.uint8), none, none)
        return {name: self._type_of(name, table.schema) for name in record_fields(self._schema, self._envelope)}

    def _type_of(self, name: str, stored: pa.Schema) -> pa.DataType | None:
        """The type of a column as the writer has it, or as it is declared where Avro has no type of its own for it."""
        field = next((field for field in self._fields if field.name == name), None)
        if field is None:
            return None
        places = [(side, name) for side in _SIDES] if self._envelope else [(name,)]
        ops = {self._program.slots[slot].op for place in places for slot in self._slots(place)}
        kind = stored.field(name).type
        if not pa.types.is_integer(kind):
            return field.type.arrow if field.type.is_decimal and pa.types.is_decimal(kind) else kind
        small = ops == {machine.INT}
        if field.type in _AS_NUMBERS or (small and field.type in (Type.BYTE, Type.SHORT)):
            return field.type.arrow
        return pa.int32() if small else pa.int64()

    def table(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[pa.Table, dict[int, str]]:
        """The columns of datums as they are stored, and why some datums cannot be read."""
        parts = self._run(data, starts, ends)
        columns = (
            self._changes(parts) if self._envelope else [self._column(parts, f, self._path(f)) for f in self._fields]
        )
        table = pa.table(columns, names=[field.name for field in self._fields])
        faults = np.flatnonzero(parts.bad)
        return table, {int(row): _FAULTS[int(parts.bad[row])] for row in faults}

    def _path(self, field: Field) -> Path:
        return () if self._single else (field.name,)

    def _run(self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> _DatumParts:
        slots = self._program.slots
        # Each element has a byte at least. Memory that is not written is never taken from the system.
        width = len(starts) if (self._element < 0).all() else max(len(starts), int((ends - starts).sum())) + 1
        out, size = np.zeros((2, len(slots), width), np.int64)
        valid = np.zeros((len(slots), width), np.uint8)
        filled, bad = np.zeros(len(slots), np.int64), np.zeros(len(starts), np.uint8)
        machine.read(data, starts, ends, self._code, self._branches, out, size, valid, self._element, filled, bad)
        return _DatumParts(slots, data, out, size, valid, filled, bad)

    def _column(self, parts: _DatumParts, field: Field, path: Path) -> pa.Array:
        """A column, from all branches of its union; null if the writer does not have it."""
        found = [parts.column(slot, field) for slot in self._slots(path)]
        if len(found) < 2:
            return found[0] if found else pa.nulls(len(parts.bad))
        types = [column.type for column in found]
        if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in types):
            common = pa.int64() if all(pa.types.is_integer(kind) for kind in types) else pa.float64()
            return pc.coalesce(*(column.cast(common, safe=False) for column in found))
        if len(set(types)) > 1:
            raise SchemaError(
                f"{path[-1]!r} has values of different types in the Avro schema", given=", ".join(map(str, types))
            )
        return pc.coalesce(*found)

    def _changes(self, parts: _DatumParts) -> list[pa.Array]:
        """The columns of changes."""
        op = self._column(parts, Field("op", Type.STRING), ("op",))
        _check_kind("op", op.type, "text", pa.types.is_string(op.type))
        op = op.cast(pa.string())
        parts.bad[pc.is_null(op).to_numpy(zero_copy_only=False) & (parts.bad == 0)] = _NO_OP
        after, before = (self._present(parts, side) for side in _SIDES)
        parts.bad[without_image(op, after, before) & (parts.bad == 0)] = _NO_IMAGE
        columns = []
        for column in self._fields:
            if column.name == OP:
                columns.append(op)
            elif column.name == TS:
                columns.append(self._times(parts))
            else:
                images = [self._column(parts, column, (side, column.name)) for side in _SIDES]
                columns.append(chosen(op, *_of_one_type(column.name, images)))
        return columns

    def _times(self, parts: _DatumParts) -> pa.Array:
        """The times of changes; one that is too large is a fault, if there is no better one."""
        times, settled = {}, np.zeros(len(parts.bad), np.bool_)
        for place, unit in TIMES.items():
            values = self._column(parts, Field(TS, Type.LONG), place)
            _check_kind(".".join(place), values.type, "a number", pa.types.is_integer(values.type))
            numbers = pc.fill_null(values.cast(pa.int64()), 0).to_numpy()
            large = ((numbers > _MOST_MILLIS) | (numbers < -_MOST_MILLIS)) & (unit < 0)
            parts.bad[large & ~settled & (parts.bad == 0)] = _NOT_ALLOWED
            missing = large | pc.is_null(values).to_numpy(zero_copy_only=False)
            times[place] = pa.array(numbers, pa.int64(), mask=missing)
            settled |= ~missing
        return change_ticks(times)

    def _present(self, parts: _DatumParts, side: str) -> NDArray[np.bool_]:
        marks = [parts.present(slot) for slot in self._slots((side,))]
        return np.logical_or.reduce(marks) if marks else np.zeros(len(parts.bad), np.bool_)


def _check_kind(name: str, arrow: pa.DataType, allowed: str, fits: bool) -> None:
    if not fits and not pa.types.is_null(arrow):
        raise SchemaError(
            f"{name!r} of a change cannot be {arrow} in the Avro schema", given=str(arrow), allowed=allowed
        )


def _of_one_type(name: str, images: list[pa.Array]) -> list[pa.Array]:
    types = {image.type for image in images if not pa.types.is_null(image.type)}
    if len(types) > 1:
        given = ", ".join(map(str, types))
        raise SchemaError(
            f"{name!r} cannot be of different types in 'before' and 'after' of the Avro schema", given=given
        )
    return [image.cast(kind) for image in images for kind in types] or images


class AvroValues:
    """Decodes Avro values of one schema, or of those of a registry. With `drift` each schema is judged once."""

    def __init__(
        self, schema: str, registry: str, fields: Sequence[Field], envelope: str = "", drift: ValueDrift | None = None
    ) -> None:
        self._fields = fields
        self._registry = registry
        self._envelope = envelope
        self._drift = drift
        self._readers: dict[int, SchemaReader | str] = {}
        self._verdicts: dict[int, DriftVerdict] = {}
        self._reader = None if registry else SchemaReader(parsed_schema(schema), fields, envelope)

    def __call__(self, values: pa.Array) -> DecodedBlock:
        offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
        bounds = offsets.astype(np.int64)
        data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
        if self._reader is not None:
            return self._block(self._reader, data, bounds[:-1], bounds[1:], np.arange(len(values)), -1)
        return self._by_number(data, bounds[:-1], bounds[1:])

    def _by_number(self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> DecodedBlock:
        numbered = ends - starts >= _PREFIX
        numbered[numbered] = data[starts[numbered]] == 0
        at = starts[numbered]
        ids = np.full(len(starts), -1, np.int64)
        ids[numbered] = sum(data[at + i].astype(np.int64) << (8 * (4 - i)) for i in range(1, _PREFIX))
        blocks = []
        for number in np.unique(ids).tolist():
            places = np.flatnonzero(ids == number)
            reader = self._reader_of(number)
            if isinstance(reader, str):
                blocks.append(_refused(self._fields, places, reader))
            else:
                blocks.append(self._block(reader, data, starts[places] + _PREFIX, ends[places], places, number))
        return _in_order(blocks)

    def _reader_of(self, number: int) -> SchemaReader | str:
        """The reader of a schema, or why its values cannot be read."""
        if number < 0:
            return "the value does not begin with the number of a schema: a zero byte and four more"
        if number not in self._readers:
            try:
                schema = schema_by_id(self._registry, number)
                if schema is None:
                    return f"the registry has no schema {number}"
                self._readers[number] = SchemaReader(parsed_schema(schema), self._fields, self._envelope)
            except SchemaError as error:
                self._readers[number] = f"schema {number}: {error.message}"
        return self._readers[number]

    def _block(
        self,
        reader: SchemaReader,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        places: NDArray[np.int64],
        number: int,
    ) -> DecodedBlock:
        verdict = self._verdict(reader, number)
        counts = {name: count * len(places) for name, count in verdict.counts.items()}
        if verdict.refused:
            return replace(_refused(self._fields, places, verdict.refused), drift=counts)
        table, faults = reader.table(data, starts, ends)
        kept = places
        if faults:
            good = np.ones(len(places), np.bool_)
            good[list(faults)] = False
            table, kept = table.filter(pa.array(good)), places[good]
        block = replace(finish(table, kept, self._fields, lambda rows: [""] * len(rows)), drift=counts)
        if not faults:
            return block
        refusals: list[Refusal] = [(int(places[row]), fault, "") for row, fault in faults.items()]
        refused = pa.concat_tables([block.refused, refused_table(refusals)]).sort_by("row")
        return replace(block, refused=refused)

    def _verdict(self, reader: SchemaReader, number: int) -> DriftVerdict:
        """The verdict on the values of a schema."""
        if self._drift is None:
            return DriftVerdict()
        if number not in self._verdicts:
            where = "the Avro schema" if number < 0 else f"schema {number} of the registry"
            self._verdicts[number] = self._drift.verdict(where, reader.found())
        return self._verdicts[number]


def _refused(fields: Sequence[Field], places: NDArray[np.int64], fault: str) -> DecodedBlock:
    table = Schema(tuple(fields)).arrow.empty_table()
    return DecodedBlock(table, refused_table((int(place), fault, "") for place in places), np.zeros(0, np.int64))


def _in_order(blocks: list[DecodedBlock]) -> DecodedBlock:
    """Blocks of several schemas as one, in the order of the values."""
    whole = concat(blocks)
    if len(blocks) == 1:
        return whole
    order = np.argsort(whole.rows, kind="stable")
    return replace(
        whole, table=whole.table.take(pa.array(order)), rows=whole.rows[order], refused=whole.refused.sort_by("row")
    )
