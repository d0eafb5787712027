"""Writing: tables as JSON lines or CSV, a column at a time.

Each column becomes a column of JSON texts, and the texts of a row are joined; no row is ever a Python object. Only
texts that need escaping take the slow path. Values that JSON lacks are texts: `"NaN"`, `"Infinity"`, `"-Infinity"` for
floats and `"inf"` for a lifetime of plain numbers without an end. Times are ISO texts in UTC, lists are arrays.

A physical event (rule 1.3) is `{"kind": …, "le": …, "re": …, "re_new": …, "payload": {…}}`, with null for parts that
its kind does not have; the payload of a CTI is empty.

In CSV, null is an empty field and empty text is `""`; a text is quoted only if it needs to be.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.columnar import Lists, struct_parts
from headrace.errors import BadRow, SchemaError
from headrace.expr.arrow.decimals import to_texts
from headrace.io.decoded import DecodedBlock
from headrace.io.formats import Format, read_file
from headrace.io.json import read_json
from headrace.io.spans import span_texts
from headrace.schema import RESERVED, Field, Schema, Type
from headrace.time import INFINITY

__all__ = [
    "PHYSICAL", "csv_lines", "iso_texts", "json_objects", "jsonl_to_physical", "physical_to_jsonl", "plain_texts",
    "rows_to_jsonl",
]  # fmt: skip

PHYSICAL = (
    Field("kind", Type.STRING),
    Field("le", Type.LONG),
    Field("re", Type.LONG),
    Field("re_new", Type.LONG),
)
_CHUNK = 1 << 17
#: The greatest integer up to which 64-bit floats hold all, and the digits of decimals that they hold.
_EXACT, _DIGITS = 1 << 53, 15
_TO_ESCAPE = r'["\\\x00-\x1f]'
_DAY = 86_400_000_000
_YEARS = (-62_135_596_800_000_000, 253_402_300_800_000_000)  # 0001-01-01 to 9999-12-31: years of four digits
_ISO = np.frombuffer(b"0000-00-00T00:00:00.000000Z", dtype=np.uint8)
_CLOCK = ((11, 36_000_000_000, 10), (12, 3_600_000_000, 10), (14, 600_000_000, 6), (15, 60_000_000, 10),
          (17, 10_000_000, 6), (18, 1_000_000, 10), *((20 + i, 10 ** (5 - i), 10) for i in range(6)))  # fmt: skip


def rows_to_jsonl(table: pa.Table) -> bytes:
    """Each row as one flat object a line."""
    return _encoded(table, json_objects)


def physical_to_jsonl(table: pa.Table) -> bytes:
    """Physical events (columns `kind, le, re, re_new`, then the payload) as one object a line."""
    return _encoded(table, _event)


def jsonl_to_physical(source: bytes | str | Sequence[str], schema: Schema) -> pa.Table:
    """Read events that `physical_to_jsonl` wrote, from bytes or from files; `schema` is the payload's."""
    fields = [*PHYSICAL, *schema.payload]
    if isinstance(source, bytes):
        return _all_rows(read_json(io.BytesIO(source), fields, nested=True), fields, "the given bytes")
    paths = [source] if isinstance(source, str) else source
    columns = Schema(tuple(fields))
    tables = [_all_rows(read_file(path, Format("json", nested=True), columns), fields, path) for path in paths]
    return pa.concat_tables(tables) if tables else columns.arrow.empty_table()


def _all_rows(blocks: Iterable[DecodedBlock], fields: Sequence[Field], origin: str) -> pa.Table:
    tables = [Schema(tuple(fields)).arrow.empty_table()]
    for block in blocks:
        if block.refused.num_rows:
            first = block.refused.slice(0, 1).to_pylist()[0]
            raise BadRow(f"line {first['row'] + 1} of {origin} is not an event: {first['reason']}", given=first["raw"])
        tables.append(block.table)
    return pa.concat_tables(tables)


def _encoded(table: pa.Table, line: Callable[[pa.RecordBatch], Any]) -> bytes:
    batches = table.combine_chunks().to_batches(max_chunksize=_CHUNK)
    return b"".join(_bytes(line(batch)) for batch in batches if batch.num_rows)


def _bytes(lines: pa.Array) -> bytes:
    """The texts one after another, as Arrow holds them."""
    joined = pc.binary_join_element_wise(lines, "", "\n")
    offsets = np.frombuffer(joined.buffers()[1], dtype=np.int32)[joined.offset : joined.offset + len(joined) + 1]
    return bytes(memoryview(joined.buffers()[2])[int(offsets[0]) : int(offsets[-1])])


def _event(batch: pa.RecordBatch) -> pa.Array:
    payload = json_objects(batch.drop_columns(batch.schema.names[: len(PHYSICAL)]))
    names = batch.schema.names[: len(PHYSICAL)]
    parts: list[Any] = ['{"kind": ', _text(batch[names[0]]), f', "{names[1]}": ', _json(batch[names[1]])]
    parts += [f', "{names[2]}": ', _end(batch[names[2]]), f', "{names[3]}": ', _end(batch[names[3]])]
    parts += [', "payload": ', pc.if_else(pc.equal(batch["kind"], "cti"), "{}", payload), "}"]
    return pc.binary_join_element_wise(*parts, "")


def _end(ends: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(ends.type):
        return _json(ends)
    return _or_null(pc.if_else(pc.equal(ends, INFINITY), '"inf"', ends.cast(pa.string())))


def json_objects(batch: pa.RecordBatch, *, exact: bool = False) -> pa.Array:
    """Each row as the text of a JSON object.

    `exact`: numbers that readers with 64-bit floats would round are texts: integers beyond 2^53, and columns of
    DECIMAL with more than 15 digits. Ticks of a lifetime that are infinite are `"inf"` then.
    """
    if batch.num_columns == 0:
        return pa.array(["{}"] * batch.num_rows)
    parts: list[Any] = []
    for i, name in enumerate(batch.schema.names):
        parts += ["{" if i == 0 else ", ", json.dumps(name, ensure_ascii=False) + ": "]
        values = batch.column(i)
        texts = _json(values, exact=exact)
        if exact and name in RESERVED and pa.types.is_int64(values.type):
            texts = pc.if_else(pc.fill_null(pc.equal(values, INFINITY), False), '"inf"', texts)
        parts.append(texts)
    return pc.binary_join_element_wise(*parts, "}", "")


def _json(values: pa.Array, *, exact: bool = False) -> pa.Array:
    """A column as JSON texts."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_list(values.type):
        lists = Lists.of(values)
        inside = pc.binary_join(lists.with_elements(_json(lists.elements, exact=exact)), ", ")
        return _or_null(pc.binary_join_element_wise("[", inside, "]", ""))
    if pa.types.is_struct(values.type):
        names = [values.type.field(place).name for place in range(values.type.num_fields)]
        inside = json_objects(pa.RecordBatch.from_arrays(struct_parts(values), names), exact=exact)
        return pc.if_else(pc.is_null(values), "null", inside)
    if pa.types.is_timestamp(values.type):
        return _or_null(pc.binary_join_element_wise('"', iso_texts(values), '"', ""))
    if pa.types.is_time(values.type) or pa.types.is_duration(values.type):
        return _text(span_texts(values))
    if pa.types.is_floating(values.type):
        return _float(values)
    if exact and _is_rounded(values):
        return _exact(values)
    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        return _or_null(values.cast(pa.string()))
    if pa.types.is_decimal(values.type):
        return _or_null(to_texts(values))
    return _text(values.cast(pa.string()))


def _is_rounded(values: pa.Array) -> bool:
    """Whether 64-bit floats do not hold all values of a column."""
    if pa.types.is_decimal(values.type):
        return bool(values.type.precision > _DIGITS)
    if not pa.types.is_integer(values.type) or values.type.bit_width < 64:
        return False
    bounds = pc.min_max(values).as_py()
    return bounds["min"] is not None and (bounds["min"] < -_EXACT or bounds["max"] > _EXACT)


def _exact(values: pa.Array) -> pa.Array:
    if pa.types.is_decimal(values.type):
        return _text(to_texts(values))
    texts = values.cast(pa.string())
    wide = pc.or_(pc.less(values, -_EXACT), pc.greater(values, _EXACT))
    return _or_null(pc.if_else(wide, pc.binary_join_element_wise('"', texts, '"', ""), texts))


def _or_null(texts: pa.Array) -> pa.Array:
    return pc.fill_null(texts, "null")


def _text(values: pa.Array) -> pa.Array:
    quoted = pc.binary_join_element_wise('"', values, '"', "")
    escape = pc.fill_null(pc.match_substring_regex(values, _TO_ESCAPE), False)
    if pc.any(escape).as_py():
        escaped = [json.dumps(text, ensure_ascii=False) for text in values.filter(escape).to_pylist()]
        quoted = pc.replace_with_mask(quoted, escape, pa.array(escaped, pa.string()))
    return _or_null(quoted)


def _float(values: pa.Array) -> pa.Array:
    texts = pc.replace_substring_regex(values.cast(pa.string()), r"^(-?[0-9]+)$", r"\1.0")
    if not pc.all(pc.is_finite(values)).as_py():
        infinite = pc.if_else(pc.less(values, 0), '"-Infinity"', '"Infinity"')
        texts = pc.if_else(pc.is_inf(values), infinite, pc.if_else(pc.is_nan(values), '"NaN"', texts))
    return _or_null(texts)


def csv_lines(batch: pa.RecordBatch, delimiter: str) -> pa.Array:
    """Each row as a line of CSV, without its line end."""
    columns = [_csv_fields(batch.column(i), name, delimiter) for i, name in enumerate(batch.schema.names)]
    return pc.binary_join_element_wise(*columns, delimiter) if columns else pa.array([""] * batch.num_rows)


def _csv_fields(values: pa.Array, name: str, delimiter: str) -> pa.Array:
    if pa.types.is_nested(values.type):
        raise SchemaError(
            f"column {name!r} is a list or a struct, and CSV has none",
            given=str(values.type),
            allowed="a format with lists: json",
        )
    texts = plain_texts(values)
    if pa.types.is_integer(values.type) or pa.types.is_timestamp(values.type):
        return pc.fill_null(texts, "")
    quote = pc.match_substring_regex(texts, '^$|["\r\n' + re.escape(delimiter) + "]")
    if pc.any(quote).as_py():
        doubled = pc.replace_substring(texts, '"', '""')
        texts = pc.if_else(quote, pc.binary_join_element_wise('"', doubled, '"', ""), texts)
    return pc.fill_null(texts, "")


def plain_texts(values: pa.Array) -> pa.Array:
    """Values as texts, as CSV shows them."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_decimal(values.type):
        return to_texts(values)
    if pa.types.is_time(values.type) or pa.types.is_duration(values.type):
        return span_texts(values)
    return iso_texts(values) if pa.types.is_timestamp(values.type) else values.cast(pa.string())


def iso_texts(values: pa.Array) -> pa.Array:
    """Timestamps as ISO texts of equal length, digit by digit (Arrow's own formatting is some ten times slower)."""
    micros = values.cast(pa.timestamp("us", tz=values.type.tz), safe=False).cast(pa.int64())
    ticks = pc.fill_null(micros, 0).to_numpy()
    if len(ticks) and not (_YEARS[0] <= ticks.min() and ticks.max() < _YEARS[1]):
        texts = np.char.add(np.datetime_as_string(ticks.astype("datetime64[us]")), "Z")
        return pc.if_else(pc.is_valid(micros), pa.array(texts, pa.string()), pa.scalar(None, pa.string()))
    days, clock = np.divmod(ticks, _DAY)
    letters = np.repeat(_ISO[None, :], len(ticks), axis=0)
    letters[:, :10] = _dates(days)
    for column, unit, base in _CLOCK:
        letters[:, column] += (clock // unit % base).astype(np.uint8)
    offsets = np.arange(0, letters.size + 1, len(_ISO), dtype=np.int32)
    valid = None if not micros.null_count else pc.is_valid(micros).buffers()[1]
    return pa.Array.from_buffers(pa.string(), len(ticks), [valid, pa.py_buffer(offsets), pa.py_buffer(letters)])


def _dates(days: Any) -> Any:
    distinct, places = np.unique(days, return_inverse=True)
    texts = np.datetime_as_string(distinct.astype("datetime64[D]"), unit="D").astype("S10")
    return np.frombuffer(texts.tobytes(), dtype=np.uint8).reshape(-1, 10)[places]
