"""Numbers and texts as DECIMAL: a value fits if the type has all its digits. Nothing is rounded."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.expr.arrow.columns import null_where
from headrace.expr.arrow.decimals import fitted
from headrace.io.converted import ConvertedColumn
from headrace.schema import Type

__all__ = ["to_decimals"]

#: Room for 38 digits on either side of the point.
_WIDE = pa.decimal256(76, 38)
_NUMBER = r"^[+-]?(?:[0-9]{1,38}(?:\.[0-9]{0,38})?|\.[0-9]{1,38})$"
_EXPONENT = r"^[+-]?[0-9](?:\.[0-9]{0,20})?[eE](?:\+?0?[0-9]|\+?[12][0-9]|\+?3[0-6]|-0?[0-9]|-1[0-7])$"


def to_decimals(values: pa.ChunkedArray | pa.Array, kind: Type) -> ConvertedColumn:
    """Values as decimals."""
    if values.type == kind.arrow:
        return ConvertedColumn(values)
    if pa.types.is_null(values.type):
        return ConvertedColumn(pa.nulls(len(values), kind.arrow))
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    array = array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)
    exact = _exact(array)
    narrow = fitted(exact, kind.arrow)
    same = pc.fill_null(pc.equal(pc.cast(narrow, exact.type), exact), False)
    bad = np.asarray(pc.and_not(pc.is_valid(array), same))
    return ConvertedColumn(null_where(pa.array(bad), narrow), bad) if bad.any() else ConvertedColumn(narrow)


def _exact(values: pa.Array) -> pa.Array:
    """The values with all their digits, null where they have too many or are no numbers."""
    kind = values.type
    if pa.types.is_decimal(kind):
        room = kind.precision - kind.scale <= 38 and kind.scale <= 38
        return pc.cast(values, _WIDE) if room else _of_texts(pc.cast(values, pa.string()))
    if pa.types.is_integer(kind):
        return pc.cast(pc.cast(values, pa.decimal128(20, 0)), _WIDE)
    if pa.types.is_floating(kind):
        return _of_texts(pc.cast(values, pa.string()))
    return _of_texts(pc.utf8_trim_whitespace(values))


def _of_texts(texts: pa.Array) -> pa.Array:
    plain = pc.or_(pc.match_substring_regex(texts, _NUMBER), pc.match_substring_regex(texts, _EXPONENT))
    bare = pc.utf8_rtrim(pc.utf8_ltrim(null_where(pc.invert(plain), texts), "+"), ".")
    return pc.cast(bare, _WIDE)
