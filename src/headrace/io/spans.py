"""TIME and INTERVAL as they are read and written: texts, Arrow's own types, and ticks for an INTERVAL."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.expr import col
from headrace.expr.evaluate import evaluate
from headrace.io.converted import ConvertedColumn, Mask
from headrace.schema import Schema, Type

__all__ = ["SPANS", "can_be_span", "span_texts", "to_spans"]

#: The types, and how messages name their values.
SPANS = {
    Type.TIME: "a time of day (TIME: text such as '12:30:00')",
    Type.INTERVAL: "a length of time (INTERVAL: text such as '36:00:00', or ticks)",
}


def can_be_span(arrow: pa.DataType, kind: Type) -> bool:
    """Whether values of an Arrow type can be read as a TIME or an INTERVAL."""
    if pa.types.is_string(arrow) or pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow):
        return True
    if kind is Type.TIME:
        return bool(pa.types.is_time(arrow))
    return bool(pa.types.is_duration(arrow) or pa.types.is_integer(arrow))


def to_spans(values: pa.ChunkedArray | pa.Array, kind: Type) -> ConvertedColumn:
    """Texts, times and durations of any unit, and ticks of intervals; fractions of a tick are cut off."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_null(array.type) or array.type == kind.arrow:
        return ConvertedColumn(array.cast(kind.arrow))
    if pa.types.is_string(array.type):
        return _from_texts(array, kind)
    if can_be_span(array.type, kind):
        return ConvertedColumn(
            array.cast(pa.int64() if pa.types.is_integer(array.type) else kind.arrow, safe=False).cast(kind.arrow)
        )
    return ConvertedColumn(pa.nulls(len(array), kind.arrow), _mask(pc.is_valid(array)))


def _from_texts(texts: pa.Array, kind: Type) -> ConvertedColumn:
    tidy = pc.utf8_trim_whitespace(texts)
    found = _evaluated("CAST", tidy, kind)
    if kind is Type.INTERVAL:
        found = pc.coalesce(found, _evaluated("LONG", tidy, kind))
    bad = _mask(pc.and_(pc.is_null(found), pc.is_valid(texts)))
    return ConvertedColumn(found, bad if bad.any() else None)


def _evaluated(how: str, texts: pa.Array, kind: Type) -> pa.Array:
    value = col("x") if how == "CAST" else col("x").cast(Type.LONG)
    return evaluate(value.cast(kind), pa.table({"x": texts}))


def span_texts(values: pa.Array) -> pa.Array:
    """Times of day and intervals as texts."""
    ticks = values.cast(pa.time64("us") if pa.types.is_time(values.type) else pa.duration("us"))
    return evaluate(col("x").cast(Type.STRING), pa.table({"x": ticks}), Schema.of(pa.schema([("x", ticks.type)])))


def _mask(values: pa.Array) -> Mask:
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), dtype=np.bool_)
