"""Conversion: from a column as it was read to a column of its declared type.

The fast path is one Arrow cast of the column. Only if that fails, a slow path finds the values that do not fit: they
become null, and the caller refuses their rows. The slow path accepts all that the fast path accepts, so whether a value
is read never depends on its neighbours.

Times have several forms. A DATETIME is ISO text with or without a zone (UTC when it has none), a count of ticks, or any
Arrow timestamp or date, of the years 1 to 9999. The lifetime columns `le`, `re`, `re_new`, when LONG, take the same
and also `inf`, `∞` and `-inf`. Fractions of a tick are cut off.

Lists are converted by their elements, all of a column at once; a list fits if all its elements fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.columnar import Lists, struct_of, struct_parts
from headrace.errors import SchemaError, TimeError
from headrace.io.converted import ConvertedColumn, Mask
from headrace.io.decimals import to_decimals
from headrace.io.spans import SPANS, can_be_span, to_spans
from headrace.schema import Field, Type
from headrace.time import INFINITY, NEG_INFINITY, ticks

__all__ = ["TICK_COLUMNS", "ConvertedColumn", "check_convertible", "convert", "is_tick", "not_utf8", "reason"]

TICK_COLUMNS = ("le", "re", "re_new")

_LONG = pa.int64()
_NAIVE = pa.timestamp("us")
_ZONED = pa.timestamp("us", tz="UTC")
_INTEGER = r"^-?[0-9]+$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[ T][0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)?"
_LIKELY_TIMES = (
    (_INTEGER, _LONG),
    (_DATE + _CLOCK + r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$", _ZONED),
    (_DATE + "(" + _CLOCK + ")?$", _NAIVE),
)
_FLOAT = r"^-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?$"
_BOOLEAN = r"^(?i:true|false|0|1)$"
#: The usual form of a text, and every form that Arrow may accept; other texts are not tried.
_FORMS = {
    Type.BOOLEAN: (_BOOLEAN, _BOOLEAN),
    Type.FLOAT: (_FLOAT, r"^(?i:[-+.0-9e]+|-?(inf|infinity|nan.*))$"),
    Type.DOUBLE: (_FLOAT, r"^(?i:[-+.0-9e]+|-?(inf|infinity|nan.*))$"),
}
_INTEGERS = (_INTEGER, r"^-?0[xX][0-9a-fA-F]+$")
_MOST = "9223372036854775807"
_YEARS = (-62_135_596_800_000_000, 253_402_300_800_000_000)
_DAY = 86_400_000_000
_FAN_OUT = 16
_PROBE = 64
_SHOWN = 80


def is_tick(field: Field) -> bool:
    """Whether this is a lifetime column held as ticks."""
    return field.name in TICK_COLUMNS and field.type is Type.LONG


def convert(values: pa.ChunkedArray | pa.Array, field: Field) -> ConvertedColumn:
    """`values` as the field's type."""
    if field.type.is_array:
        return _from_lists(values, field)
    if field.type.is_struct:
        return _from_structs(values, field)
    if field.type is Type.DATE:
        return _dates(_plain(values), field)
    if field.type.is_decimal:
        return to_decimals(_plain(values), field.type)
    if field.type in SPANS:
        return to_spans(_plain(values), field.type)
    converted = _converted(_plain(values), field)
    return _within_years(converted) if field.type is Type.DATETIME else converted


def _converted(values: pa.ChunkedArray | pa.Array, field: Field) -> ConvertedColumn:
    if pa.types.is_null(values.type):
        return ConvertedColumn(pa.nulls(len(values), field.type.arrow))
    if _is_text(values.type):
        return _from_text(values, field)
    if field.type is Type.DATETIME or (is_tick(field) and not pa.types.is_integer(values.type)):
        return _from_time(values, field)
    if values.type == field.type.arrow:
        return ConvertedColumn(values)
    if field.type is Type.FLOAT:
        return _narrowed(_cast(values, pa.float64()))
    if field.type.is_integer and (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        return _in_range(values, field.type.arrow)
    converted = _cast(values, field.type.arrow)
    if field.type is not Type.CHAR:
        return converted
    short = _from_text(converted.values, field)
    return ConvertedColumn(short.values, _or_bad(converted.bad, short.bad))


def _from_lists(values: pa.ChunkedArray | pa.Array, field: Field) -> ConvertedColumn:
    if pa.types.is_null(values.type):
        return ConvertedColumn(pa.nulls(len(values), field.type.arrow))
    lists = Lists.of(values)
    inner = convert(lists.elements, Field("", field.type.element))
    lists_of_type = lists.with_elements(_one_array(inner.values))
    if inner.bad is None:
        return ConvertedColumn(lists_of_type)
    faults = np.r_[0, np.cumsum(inner.bad)]
    bad = faults[lists.offsets[1:]] > faults[lists.offsets[:-1]]
    return ConvertedColumn(_without(lists_of_type, bad), bad)


def _from_structs(values: pa.ChunkedArray | pa.Array, field: Field) -> ConvertedColumn:
    """Structs by their fields, found by name; one that a file lacks is null."""
    if pa.types.is_null(values.type):
        return ConvertedColumn(pa.nulls(len(values), field.type.arrow))
    given = {values.type.field(i).name: part for i, part in enumerate(struct_parts(values))}
    missing = pa.nulls(len(values))
    parts = [convert(given.get(name, missing), Field(name, kind)) for name, kind in field.type.fields]
    bad = None
    for part in parts:
        bad = _or_bad(bad, part.bad)
    structs = struct_of(field.type.arrow, [_one_array(part.values) for part in parts], values)
    return ConvertedColumn(structs if bad is None else _without(structs, bad), bad)


def _dates(values: pa.ChunkedArray | pa.Array, field: Field) -> ConvertedColumn:
    """Dates, times at midnight, and texts of them; a number is none."""
    if pa.types.is_integer(values.type):
        return ConvertedColumn(pa.nulls(len(values), pa.date32()), _mask(pc.is_valid(values)))
    times = convert(values, Field(field.name, Type.DATETIME))
    ticks_of_day = _one_array(times.values.cast(_LONG))
    wrong = _mask(pc.not_equal(pc.multiply(_floor_divide(ticks_of_day, _DAY), _DAY), ticks_of_day))
    if _is_text(values.type):
        wrong |= _mask(pc.match_substring_regex(values, r"^\s*[+-]?[0-9]*\s*$"))
    bad = _or_bad(times.bad, wrong if wrong.any() else None)
    return ConvertedColumn(
        _one_array(times.values if bad is None else _without(times.values, bad)).cast(pa.date32()), bad
    )


def reason(value: object, field: Field) -> str:
    """Why `value` cannot be in `field`."""
    text = repr(value)
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
    return f"column {field.name!r}: {shown} {_fault(value, field)}"


def _fault(value: object, field: Field) -> str:
    if field.type is Type.CHAR:
        return "is longer than one character (CHAR)"
    if field.type.is_integer and _is_whole(value):
        bits = field.type.arrow.bit_width
        return f"is out of range for {field.type.value} ({-(2 ** (bits - 1))} to {2 ** (bits - 1) - 1})"
    if field.type.is_floating and _is_finite(value):
        return f"is out of range for {field.type.value}"
    if field.type is Type.DATE:
        return "is not a date of the years 1 to 9999 (DATE: text such as '2024-05-01')"
    if field.type in SPANS:
        return f"is not {SPANS[field.type]}"
    if field.type.is_decimal:
        return f"is not a number that {field.type.value} has all digits of"
    if field.type is Type.DATETIME or is_tick(field):
        years = " of the years 1 to 9999" if field.type is Type.DATETIME else ""
        return f"is not a time{years} ({field.type.value}: ISO text such as '2024-05-01T12:00:00Z', or ticks)"
    return f"is not of type {field.type.value}"


def _is_whole(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and value.strip().lstrip("+-").isdecimal())


def _is_finite(value: object) -> bool:
    try:
        return bool(float(str(value)) == float(str(value)))  # not a NaN; "1e400" is a number, only too large
    except ValueError:
        return False


# Which Arrow types may become which column type at all.


def check_convertible(source: pa.Schema, fields: list[Field], path: str) -> None:
    """Refuse a file whose column could never be read as its declared type."""
    for field in fields:
        arrow = source.field(field.name).type
        if not _convertible(arrow.value_type if pa.types.is_dictionary(arrow) else arrow, field):
            raise SchemaError(
                f"column {field.name!r} is {arrow} in {path!r}, which cannot be read as {field.type.value}",
                given=f"{field}",
                allowed=_possible(arrow),
                instead=f"declare {field.name} as {_possible(arrow)}",
            )


def _possible(arrow: pa.DataType) -> str:
    try:
        return Type.from_arrow(arrow).value
    except SchemaError:
        return "nothing: leave the column out of the schema"


def _convertible(arrow: pa.DataType, field: Field) -> bool:
    types = pa.types
    if types.is_nested(arrow) or field.type.is_nested:
        return bool(types.is_null(arrow)) or _convertible_parts(arrow, field)
    number = types.is_integer(arrow) or types.is_floating(arrow) or types.is_decimal(arrow)
    if types.is_null(arrow):
        return True
    if field.type.is_text:
        return _is_text(arrow) or types.is_binary(arrow) or types.is_large_binary(arrow)
    if field.type is Type.BOOLEAN:
        return bool(types.is_boolean(arrow))
    time = types.is_timestamp(arrow) or types.is_date(arrow) or _is_text(arrow)
    if field.type is Type.DATE:
        return bool(time)
    if field.type in SPANS:
        return can_be_span(arrow, field.type)
    if field.type.is_decimal:
        return bool(number or _is_text(arrow))
    if field.type is Type.DATETIME:
        return bool(time or types.is_integer(arrow))
    return bool(number or (is_tick(field) and time))


def _convertible_parts(arrow: pa.DataType, field: Field) -> bool:
    """Whether lists can be lists, and structs structs."""
    types, kind = pa.types, field.type
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        return kind.is_array and _convertible(arrow.value_type, Field(field.name, kind.element))
    if not types.is_struct(arrow) or not kind.is_struct:
        return False
    given = {arrow.field(i).name: arrow.field(i).type for i in range(arrow.num_fields)}
    return all(name not in given or _convertible(given[name], Field(name, part)) for name, part in kind.fields)


def _is_text(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_string(arrow) or pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow))


def _plain(values: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """The values without dictionary encoding, text as Arrow's plain string."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if _is_text(values.type) and not pa.types.is_string(values.type):
        values = values.cast(pa.string())
    return values


# Casts, fast and slow.


def _cast(values: pa.ChunkedArray | pa.Array, arrow: pa.DataType) -> ConvertedColumn:
    """Cast all values; if that fails, find the bad ones by splitting, so that a few bad values cost a few casts."""
    try:
        return ConvertedColumn(values.cast(arrow))
    except pa.ArrowInvalid:
        array = _one_array(values)
    bad = np.zeros(len(array), dtype=np.bool_)
    parts = _cast_parts(array, 0, arrow, bad)
    return ConvertedColumn(pa.concat_arrays(parts), bad)


def _cast_parts(values: pa.Array, offset: int, arrow: pa.DataType, bad: Mask) -> list[pa.Array]:
    try:
        return [values.cast(arrow)]
    except pa.ArrowInvalid:
        if len(values) == 1:
            bad[offset] = True
            return [pa.nulls(1, arrow)]
    step = -(-len(values) // _FAN_OUT)
    parts: list[pa.Array] = []
    for start in range(0, len(values), step):
        parts += _cast_parts(values.slice(start, step), offset + start, arrow, bad)
    return parts


def _one_array(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    merged = values.combine_chunks()
    return merged if isinstance(merged, pa.Array) else pa.concat_arrays(merged.chunks)


def _mask(values: pa.ChunkedArray | pa.Array) -> Mask:
    """A boolean Arrow column as a NumPy mask, null as False."""
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _or_bad(first: Mask | None, second: Mask | None) -> Mask | None:
    if first is None or second is None:
        return first if second is None else second
    return first | second


def _without(values: pa.ChunkedArray | pa.Array, bad: Mask) -> pa.ChunkedArray | pa.Array:
    return pc.if_else(pa.array(~bad), values, pa.scalar(None, values.type))


# Text.


def not_utf8(values: pa.Array) -> Mask | None:
    """The values that are not UTF-8 text, found by halving; None if there are none."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        bad = np.zeros(len(values), np.bool_)
    else:
        return None
    waiting = [(0, len(values))]
    while waiting:
        start, end = waiting.pop()
        try:
            values.slice(start, end - start).cast(pa.string())
        except pa.ArrowInvalid:
            middle = (start + end) // 2
            if end - start == 1:
                bad[start] = True
            else:
                waiting += [(start, middle), (middle, end)]
    return bad


def _from_text(values: pa.ChunkedArray | pa.Array, field: Field) -> ConvertedColumn:
    if field.type is Type.CHAR:
        long = _mask(pc.greater(pc.utf8_length(values), 1))
        return ConvertedColumn(_without(values, long), long) if long.any() else ConvertedColumn(values)
    if field.type is Type.STRING:
        return ConvertedColumn(values)
    if field.type is Type.DATETIME or is_tick(field):
        return _text_times(values, field)
    if field.type.is_floating:
        return _text_floats(values, field)
    return _parsed(values, field.type, field.type.arrow)


def _parsed(values: pa.ChunkedArray | pa.Array, kind: Type, arrow: pa.DataType) -> ConvertedColumn:
    try:
        return ConvertedColumn(values.cast(arrow))
    except pa.ArrowInvalid:
        texts = _trimmed(_one_array(values))
    usual, possible = _FORMS.get(kind, _INTEGERS)
    return _split(texts, ((usual, arrow),), arrow, lambda rest: _tried(rest, possible, arrow))


def _tried(texts: pa.Array, pattern: str, arrow: pa.DataType) -> ConvertedColumn:
    """Cast the texts that have a possible form; all others are bad."""
    impossible = ~_mask(pc.match_substring_regex(texts, pattern))
    converted = _cast(_without(texts, impossible), arrow)
    return ConvertedColumn(converted.values, _or_bad(converted.bad, impossible))


def _whole_numbers(texts: pa.Array, arrow: pa.DataType) -> ConvertedColumn:
    """Decimal digits as integers; those that are too large are found before the cast."""
    digits = pc.replace_substring_regex(texts, r"^-?0*", "")
    length = pc.utf8_length(digits)
    negative = pc.starts_with(texts, "-")
    limit = pc.if_else(negative, _MOST[:-1] + "8", _MOST)
    fits = pc.or_(pc.less(length, len(_MOST)), pc.and_(pc.equal(length, len(_MOST)), pc.less_equal(digits, limit)))
    overflow = ~_mask(fits)
    narrow = _in_range(_without(texts, overflow).cast(_LONG), arrow)
    return ConvertedColumn(narrow.values, _or_bad(narrow.bad, overflow))


def _in_range(values: pa.ChunkedArray | pa.Array, arrow: pa.DataType) -> ConvertedColumn:
    """Integers, or whole floats, as integers of another width."""
    low, high = (-(2 ** (arrow.bit_width - 1)), 2 ** (arrow.bit_width - 1) - 1)
    if pa.types.is_floating(values.type):
        values = values.cast(pa.float64())
        fits = pc.and_(pc.equal(values, pc.trunc(values)), pc.and_(pc.greater_equal(values, float(low)),
                                                                   pc.less(values, float(high + 1))))  # fmt: skip
    else:
        bounds = np.iinfo(values.type.to_pandas_dtype())
        low, high = max(low, int(bounds.min)), min(high, int(bounds.max))
        least, most = pa.scalar(low, values.type), pa.scalar(high, values.type)
        fits = pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most))
    overflow = _mask(pc.invert(fits))
    inside = values if not overflow.any() else _without(values, overflow)
    return ConvertedColumn(inside.cast(arrow, safe=False), overflow if overflow.any() else None)


def _trimmed(texts: pa.Array) -> pa.Array:
    """Texts without surrounding blanks and without a plus sign."""
    return pc.replace_substring_regex(pc.utf8_trim_whitespace(texts), r"^\+([0-9.])", r"\1")


def _split(
    texts: pa.Array,
    likely: tuple[tuple[str, pa.DataType], ...],
    arrow: pa.DataType,
    others: Callable[[pa.Array], ConvertedColumn],
) -> ConvertedColumn:
    """Cast the texts of each likely form together, and every other distinct text by itself."""
    rest = _mask(pc.is_valid(texts))
    result, bad = pa.nulls(len(texts), arrow), np.zeros(len(texts), dtype=np.bool_)
    for pattern, form in likely:
        matching = rest & _mask(pc.match_substring_regex(texts, pattern))
        chosen = texts.filter(pa.array(matching))
        part = _whole_numbers(chosen, form) if pattern == _INTEGER else _cast(chosen, form)
        result, bad = _put(result, bad, matching, ConvertedColumn(_as(part.values, arrow), part.bad))
        rest &= ~matching
    distinct = texts.filter(pa.array(rest)).dictionary_encode()
    part = others(distinct.dictionary)
    faults = None if part.bad is None else part.bad[distinct.indices.to_numpy()]
    result, bad = _put(result, bad, rest, ConvertedColumn(part.values.take(distinct.indices), faults))
    return ConvertedColumn(result, bad if bad.any() else None)


def _put(result: pa.Array, bad: Mask, mask: Mask, part: ConvertedColumn) -> tuple[pa.Array, Mask]:
    if part.bad is not None:
        bad[mask] = part.bad
    return pc.replace_with_mask(result, pa.array(mask), part.values), bad


def _text_floats(values: pa.ChunkedArray | pa.Array, field: Field) -> ConvertedColumn:
    parsed = _parsed(values, field.type, pa.float64())
    infinite = _mask(pc.is_inf(parsed.values))
    if infinite.any():  # Arrow reads "1e400" as infinity
        spelled = _mask(pc.match_substring_regex(values, r"(?i)inf"))
        overflow = infinite & ~spelled
        if overflow.any():
            parsed = ConvertedColumn(_without(parsed.values, overflow), _or_bad(parsed.bad, overflow))
    return _narrowed(parsed) if field.type is Type.FLOAT else parsed


def _narrowed(wide: ConvertedColumn) -> ConvertedColumn:
    """Doubles as floats; a finite one that would become infinite does not fit."""
    narrow = wide.values.cast(pa.float32(), safe=False)
    overflow = _mask(pc.and_not(pc.is_inf(narrow), pc.is_inf(wide.values)))
    if not overflow.any():
        return ConvertedColumn(narrow, wide.bad)
    return ConvertedColumn(_without(narrow, overflow), _or_bad(wide.bad, overflow))


# Times.


def _text_times(values: pa.ChunkedArray | pa.Array, field: Field) -> ConvertedColumn:
    arrow = field.type.arrow
    for form in (_LONG, _ZONED, _NAIVE) if is_tick(field) else (_ZONED, _NAIVE, _LONG):
        try:
            values.slice(0, _PROBE).cast(form)  # a cast that fails everywhere is slow: Arrow words every error
            return ConvertedColumn(_as(values.cast(form), arrow))
        except pa.ArrowInvalid:
            continue
    return _split(_trimmed(_one_array(values)), _LIKELY_TIMES, arrow, lambda rest: _odd_times(rest, field))


def _odd_times(texts: pa.Array, field: Field) -> ConvertedColumn:
    times = [_odd_time(text, field) for text in texts.to_pylist()]
    bad = np.array([time is None for time in times], dtype=np.bool_)
    return ConvertedColumn(_as(pa.array(times, _LONG), field.type.arrow), bad)


def _odd_time(text: str, field: Field) -> int | None:
    try:
        time = ticks(text)
    except TimeError:
        return None
    infinite = time in (INFINITY, NEG_INFINITY)
    return None if infinite and not is_tick(field) else time


def _from_time(values: pa.ChunkedArray | pa.Array, field: Field) -> ConvertedColumn:
    """Timestamps, dates and counts of ticks."""
    if pa.types.is_timestamp(values.type) and values.type.unit == "ns":
        values = _floor_divide(values.cast(_LONG), 1000)
    if pa.types.is_floating(values.type) or pa.types.is_decimal(values.type):
        return _cast(values, field.type.arrow)
    form = _LONG if pa.types.is_integer(values.type) else pa.timestamp("us", tz=getattr(values.type, "tz", None))
    if pa.types.is_date32(values.type):
        values = values.cast(pa.timestamp("s"))
    converted = _cast(values, form)
    return ConvertedColumn(_as(converted.values, field.type.arrow), converted.bad)


def _within_years(converted: ConvertedColumn) -> ConvertedColumn:
    """The times of the years 1 to 9999; neither Python nor Spark can hold others."""
    bounds = pc.min_max(converted.values.cast(_LONG)).as_py()
    if bounds["min"] is None or (bounds["min"] >= _YEARS[0] and bounds["max"] < _YEARS[1]):
        return converted
    micros = converted.values.cast(_LONG)
    beyond = _mask(pc.or_(pc.less(micros, _YEARS[0]), pc.greater_equal(micros, _YEARS[1])))
    return ConvertedColumn(_without(converted.values, beyond), _or_bad(converted.bad, beyond))


def _floor_divide(values: Any, divisor: int) -> Any:
    """Integer division that rounds down, before the epoch too."""
    quotient = pc.divide(values, divisor)
    return pc.subtract(quotient, pc.less(values, pc.multiply(quotient, divisor)).cast(_LONG))


def _as(values: pa.ChunkedArray | pa.Array, arrow: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Ticks, naive or zoned microseconds as one of the others: the same 64 bits."""
    return values if values.type == arrow else values.cast(_LONG).cast(arrow)
