"""JSON lines: one object per line, read in one pass (`one_pass.py`), or by Arrow with the schema's types.

A missing key is null, other keys are ignored, blank lines are not rows. A line is refused when it is not UTF-8, not a
JSON object, or holds a value of the wrong JSON type or out of range. Texts are not numbers; only `"NaN"`, `"Infinity"`
and `"-Infinity"` are floats, because JSON has no other form for them. Times may be text or ticks. The elements of a
list follow the same rules.

With `nested`, the payload columns are the members of the object under `"payload"`, as `encode.physical_to_jsonl`
writes them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pajson

from headrace.io.conversion import is_tick, reason
from headrace.io.decoded import DecodedBlock, refuse_all, reports_drift
from headrace.io.json_drift import FileDrift
from headrace.io.one_pass import JsonPass
from headrace.io.records import (
    BLOCK_BYTES,
    MAX_LINE,
    Bounds,
    BrokenRecord,
    FastRead,
    Records,
    SplitRecords,
    blocks,
    decode,
)
from headrace.schema import RESERVED, Field, Type
from headrace.time import INFINITY

__all__ = ["JsonDecoder", "json_records", "member_type", "member_value", "read_json"]

_PAYLOAD = "payload"
_PARALLEL_BYTES = 1 << 20
_PEEKED = 20
_ENDLESS = ("inf", "∞")
_ENDLESS_END = re.compile(rb'"(le|re|re_new)"[ \t]*:[ \t]*"(?:inf|\xe2\x88\x9e)"')
_ENDLESS_TICKS = rb'"\1":%d' % INFINITY
_FLOAT_NAMES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
# Arrow reads `{…} {…}` on one line as two rows and `Inf` as a number; Python and the standard do not. A text may
# contain either: then the line only takes the slow path.
_SECOND_VALUE = re.compile(rb"\}[ \t]*[^,\]\} \t\r\n]")
_SHORT_INFINITY = re.compile(rb"Inf(?!inity)")
_OPEN, _CLOSE = ord("{"), ord("}")


def read_json(
    stream: Any,
    fields: Sequence[Field],
    nested: bool = False,
    *,
    judged: Container[str] = (),
    size: int = BLOCK_BYTES,
    max_line: int = MAX_LINE,
    drift: FileDrift | None = None,
    decoder: Callable[[Mapping[str, str]], JsonDecoder] | None = None,
) -> Iterator[DecodedBlock]:
    """The decoded blocks of a file of JSON lines, in which `drift` judges the members of rows.

    `decoder` makes a decoder of other objects, in which some members have other names than the columns.
    The values of the columns in `judged` are only checked, and may be null in the blocks.
    """
    row, line, drift = 0, 1, drift or FileDrift([field.name for field in fields], {})
    make = decoder or (lambda names: JsonDecoder(fields, nested, names, judged))
    names = drift.rename
    own = make(names)
    for data in blocks(stream, quoted=False, size=size, max_line=max_line):
        records = json_records(data, line)
        counts = drift.look(records)
        if counts:
            yield reports_drift(counts)
        if drift.rename != names:
            names = drift.rename
            own = make(names)
        if drift.verdict.refused:
            texts = [records.text(i) for i in range(len(records))]
            lines = records.lines(len(texts)) if texts else np.zeros(0, np.int64)
            yield refuse_all(drift.verdict.refused, row, texts, lines)
            row, line = row + len(texts), line + records.line_count
            continue
        decoded, row = decode(records, own, row)
        line += records.line_count
        yield decoded


def json_records(data: bytes, line: int = 1) -> Records:
    """The lines of a block, without blank ones; the block begins on `line` of its file."""
    return _FilledLines(data, quoted=False, line=line)


class _FilledLines(Records):
    """Lines that are not blank."""

    @cached_property
    def bounds(self) -> Bounds:
        bounds = super().bounds
        array = np.frombuffer(self.data, dtype=np.uint8)
        odd = np.flatnonzero(array[bounds.starts] != _OPEN).tolist()
        blank = [i for i in odd if not self.data[bounds.starts[i] : bounds.ends[i]].strip()]
        if not blank:
            return bounds
        return Bounds(np.delete(bounds.starts, blank), np.delete(bounds.ends, blank), bounds.multiline)


def _first_bytes(records: Records) -> Any:
    return np.frombuffer(records.data, dtype=np.uint8)[records.bounds.starts]


def _last_bytes(records: Records) -> Any:
    return np.frombuffer(records.data, dtype=np.uint8)[records.bounds.ends - 1]


class JsonDecoder:
    """Decodes objects and reads their members `fields`; the reasons of refusals name an object's `unit`."""

    #: Whether the fields are members of the object itself.
    _flat_objects = True

    def __init__(
        self,
        fields: Sequence[Field],
        nested: bool = False,
        rename: Mapping[str, str] | None = None,
        judged: Container[str] = (),
        *,
        unit: str = "line",
    ) -> None:
        self._unit = unit
        self.fields = fields
        stored = {new: old for old, new in (rename or {}).items()}
        self._members = [stored.get(field.name, field.name) for field in fields]
        self._nested = [nested and field.name not in RESERVED for field in fields]
        self._any_nested = any(self._nested)
        self._one_pass = JsonPass(fields, self._members, judged, flat=self._flat_objects and not nested)

    def fast(self, records: Records) -> FastRead:
        if not (len(records) if records.has_bounds else len(records.span)):
            return FastRead(self.slow_schema().empty_table())
        records.check_utf8()
        table = self._one_pass.read(records)
        return self._by_arrow(records) if table is None else FastRead(table)

    def _by_arrow(self, records: Records) -> FastRead:
        """The rows as Arrow reads them."""
        if not len(records):
            return FastRead(self.slow_schema().empty_table())
        data = bytes(records.span)
        # Arrow's reader crashes on the line `null`: it only gets lines that look like objects.
        if (
            (_first_bytes(records) != _OPEN).any()
            or (_last_bytes(records) != _CLOSE).any()
            or not _is_plain(data, len(records))
        ):
            raise pa.ArrowInvalid("not all lines are plain objects")
        if any(map(is_tick, self.fields)) and (b'"inf"' in data or b'"\xe2\x88\x9e"' in data):
            data = _ENDLESS_END.sub(_ENDLESS_TICKS, data)
        table = self._flat(_read(data, self._requested(records)))
        if len(table) != len(records):
            raise pa.ArrowInvalid("not one object per line")
        return FastRead(table)

    def _requested(self, records: Records) -> pa.Schema:
        """The Arrow types to request; that of a time depends on the first lines."""
        times = self._peek(records)
        named = zip(self._members, self.fields, strict=True)
        types = [(name, times.get(name) or member_type(field)) for name, field in named]
        top = [member for member, nested in zip(types, self._nested, strict=True) if not nested]
        below = [member for member, nested in zip(types, self._nested, strict=True) if nested]
        return pa.schema([*top, (_PAYLOAD, pa.struct(below))] if below else top)

    def _peek(self, records: Records) -> dict[str, pa.DataType]:
        wanted = {name for name, field in zip(self._members, self.fields, strict=True) if _is_time(field)}
        found: dict[str, pa.DataType] = {}
        for index in range(min(_PEEKED, len(records))):
            if not wanted:
                break
            try:
                row = json.loads(records[index])
            except (ValueError, RecursionError):
                break
            row = self._members_of(row)
            found |= {name: _time_type(row[name]) for name in wanted if row.get(name) is not None}
            wanted -= found.keys()
        return found

    def _members_of(self, row: dict[str, Any]) -> dict[str, Any]:
        """The members of an object, and those of its payload."""
        payload = row.get(_PAYLOAD) if self._any_nested else None
        return {**row, **payload} if isinstance(payload, dict) else row

    def _flat(self, table: pa.Table) -> pa.Table:
        members: dict[str, Any] = {}
        if self._any_nested:
            payload = pa.chunked_array(table[_PAYLOAD].chunks, table.schema.field(_PAYLOAD).type)
            members = dict(zip([f.name for f in payload.type], payload.flatten(), strict=True))
        places = zip(self._members, self._nested, strict=True)
        columns = [members[name] if nested else table[name] for name, nested in places]
        return pa.table(columns, names=[field.name for field in self.fields])

    def slow_schema(self) -> pa.Schema:
        return pa.schema(
            [(field.name, pa.string() if _is_time(field) else member_type(field)) for field in self.fields]
        )

    def slow(self, record: bytes) -> list[Any] | BrokenRecord | SplitRecords:
        raw = record.decode("utf-8", errors="replace")
        try:
            row = self.parsed(record)
        except UnicodeDecodeError:
            return BrokenRecord(f"the {self._unit} is not UTF-8 text", raw)
        except (ValueError, RecursionError) as error:
            return BrokenRecord(f"the {self._unit} is not JSON: {error}", raw)
        return self._values(row, raw)

    def parsed(self, record: bytes) -> Any:
        """A record as Python reads it."""
        return _PARSER.decode(record.decode("utf-8"))

    def _values(self, row: object, raw: str) -> list[Any] | BrokenRecord:
        if not isinstance(row, dict):
            return BrokenRecord(f"the {self._unit} is not a JSON object", raw)
        payload = row.get(_PAYLOAD) if self._any_nested else None
        if not isinstance(payload, (dict, type(None))):
            return BrokenRecord("the payload is not a JSON object", raw)
        values = [
            member_value(((payload or {}) if nested else row).get(name), field)
            for name, field, nested in zip(self._members, self.fields, self._nested, strict=True)
        ]
        wrong = [value.reason for value in values if isinstance(value, BrokenRecord)]
        return BrokenRecord("; ".join(wrong), raw) if wrong else values


def _is_plain(data: bytes, lines: int) -> bool:
    """Whether Arrow and Python see the same values in lines that all end with a brace."""
    # If every brace ends its line or precedes another brace, nothing follows an object; counting is far cheaper.
    if data.count(b"}") != lines + data.count(b"}}") and _SECOND_VALUE.search(data):
        return False
    return b"Inf" not in data or not _SHORT_INFINITY.search(data)


class _Written(float):
    """A float that knows its text: a DECIMAL has all its digits."""

    text: str


def _literal(text: str) -> float | _Huge:
    value = float(text)
    if math.isinf(value):
        return _Huge(text)
    if len(text) <= _EXACT_LENGTH:
        return value
    written = _Written(value)
    written.text = text
    return written


def _whole_number(text: str) -> int:
    return _NegativeZero() if text == "-0" else int(text)


#: A number of so many characters is the shortest text of its float.
_EXACT_LENGTH = 15
_DIGITS = Context(prec=160)
_PARSER = json.JSONDecoder(parse_float=_literal, parse_int=_whole_number)


class _NegativeZero(int):
    """The number `-0`, whose sign a float keeps."""

    def __float__(self) -> float:
        return -0.0


@dataclass(frozen=True)
class _Huge:
    """A number too large for any float; it fits no column."""

    text: str

    def __repr__(self) -> str:
        return self.text


def _read(data: bytes, schema: pa.Schema) -> pa.Table:
    options = pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    longest = max(_PARALLEL_BYTES, 2 * (data.find(b"\n") + 1))
    reading = pajson.ReadOptions(use_threads=len(data) > longest, block_size=longest)  # one block needs no threads
    try:
        return pajson.read_json(pa.BufferReader(data), reading, options)
    except pa.ArrowInvalid as error:
        if "straddl" not in str(error):  # otherwise only a line longer than Arrow's block
            raise
        return pajson.read_json(pa.BufferReader(data), pajson.ReadOptions(block_size=len(data)), options)


def _is_time(field: Field) -> bool:
    return field.type is Type.DATETIME or is_tick(field)


def _time_type(value: object) -> pa.DataType:
    return pa.string() if isinstance(value, str) and value not in _ENDLESS else pa.int64()


def member_type(field: Field) -> pa.DataType:
    """The Arrow type to read a member with; times are texts."""
    if field.type.is_array:
        return pa.list_(member_type(_element(field)))
    if field.type.is_struct:
        return pa.struct([(name, member_type(Field(name, kind))) for name, kind in field.type.fields])
    if field.type in (Type.DATETIME, Type.DATE, Type.TIME, Type.INTERVAL):
        return pa.string()
    return pa.float64() if field.type is Type.FLOAT else field.type.arrow


def _element(field: Field) -> Field:
    return Field("", field.type.element)


def member_value(value: Any, field: Field) -> Any:
    """The value of one member in the type of the slow path, or why it does not fit."""
    if value is None:
        return None
    fitting = _fitting(value, field)
    return BrokenRecord(reason(value, field), "") if fitting is None else fitting


def _fitting(value: Any, field: Field) -> Any:
    if field.type.is_array:
        return _fitting_list(value, _element(field))
    if field.type.is_struct:
        return _fitting_struct(value, field)
    if field.type is Type.BOOLEAN or isinstance(value, bool):
        return value if field.type is Type.BOOLEAN and isinstance(value, bool) else None
    if field.type is Type.DATE or field.type is Type.TIME:
        return _text(value)
    if field.type.is_decimal:
        return _decimal(value, field)
    if _is_time(field) or field.type is Type.INTERVAL:
        return str(value) if isinstance(value, int) else _text(value)
    if field.type.is_text:
        return _text(value)
    return _float(value) if field.type.is_floating else _integer(value, field)


def _decimal(value: object, field: Field) -> Decimal | None:
    """A number or the text of one, if the type has all its digits."""
    text = value.text if isinstance(value, _Written) else _text(value) if isinstance(value, str) else repr(value)
    try:
        number = Decimal((text or "").strip())
        same = number.quantize(Decimal(1).scaleb(-field.type.scale), context=_DIGITS)
    except InvalidOperation:
        return None
    fits = same == number and abs(same) < Decimal(10) ** (field.type.precision - field.type.scale)
    return same if fits else None


def _fitting_list(value: Any, element: Field) -> list[Any] | None:
    if not isinstance(value, list):
        return None
    values = [None if item is None else _fitting(item, element) for item in value]
    return None if any(a is None and b is not None for a, b in zip(values, value, strict=True)) else values


def _fitting_struct(value: Any, field: Field) -> dict[str, Any] | None:
    """The members that the struct has; those that are missing are null."""
    if not isinstance(value, dict):
        return None
    given = {name: (value.get(name), Field(name, kind)) for name, kind in field.type.fields}
    found = {name: None if one is None else _fitting(one, part) for name, (one, part) in given.items()}
    return None if any(found[name] is None and given[name][0] is not None for name in found) else found


def _text(value: object) -> str | None:
    """Text that can be encoded as UTF-8 (JSON can escape half a surrogate pair)."""
    try:
        return value if isinstance(value, str) and value.encode() is not None else None
    except UnicodeEncodeError:
        return None


def _integer(value: object, field: Field) -> int | None:
    limit = 1 << (field.type.arrow.bit_width - 1)
    return value if isinstance(value, int) and -limit <= value < limit else None


def _float(value: object) -> float | None:
    if isinstance(value, str):
        return _FLOAT_NAMES.get(value)
    if not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
