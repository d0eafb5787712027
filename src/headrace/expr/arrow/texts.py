"""Text, counted in characters (code points), compared byte by byte as UTF-8."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.expr.arrow.columns import Datum, Kernel, from_numpy, null_where, to_numpy, valid
from headrace.expr.patterns import like_regex, re2_regex

__all__ = ["TEXTS"]


def concat(*texts: Datum) -> Datum:
    return pc.binary_join_element_wise(*texts, pa.scalar(""), null_handling="emit_null")


def substring(text: Datum, start: Datum, length: Datum) -> Datum:
    first = start.as_py() - 1
    return pc.utf8_slice_codeunits(text, first, first + length.as_py())


def replace(text: Datum, search: Datum, replacement: Datum) -> Datum:
    return pc.replace_substring(text, search.as_py(), replacement.as_py())


def position(text: Datum, part: Datum) -> Datum:
    """The position of the first occurrence, counted from 1; 0 if there is none."""
    pieces = pc.split_pattern(text, part.as_py(), max_splits=1)
    place = pc.add(pc.utf8_length(pc.list_element(pieces, 0)), pa.scalar(1, pa.int32()))
    return pc.if_else(pc.greater(pc.list_value_length(pieces), 1), place, pa.scalar(0, pa.int32()))


def split_part(text: Datum, separator: Datum, part: Datum) -> Datum:
    """The part with this number between separators, counted from 1; empty if there are fewer."""
    number = part.as_py()
    parts = pc.split_pattern(text, separator.as_py(), max_splits=number)
    found = pc.list_element(pc.list_slice(parts, number - 1, number, return_fixed_size_list=True), 0)
    return null_where(pc.is_null(text), pc.coalesce(found, pa.scalar("")))


def code(text: Datum) -> Datum:
    """The number of the first character in Unicode; NULL where there is none."""
    first = pc.utf8_slice_codeunits(text, 0, 1)
    numbers = to_numpy(first).astype("U1").view(np.uint32).astype(np.int32)
    return null_where(pc.equal(first, ""), from_numpy(numbers, valid(first), pa.int32()))


def right(text: Datum, length: Datum) -> Datum:
    count = length.as_py()
    return pc.utf8_slice_codeunits(text, -count) if count else pc.utf8_slice_codeunits(text, 0, 0)


def _padded(kernel: Kernel) -> Kernel:
    """Padded to a width; longer texts are cut at their end."""

    def padded(text: Datum, width: Datum, fill: Datum) -> Datum:
        return pc.utf8_slice_codeunits(kernel(text, width.as_py(), fill.as_py()), 0, width.as_py())

    return padded


def like(text: Datum, pattern: Datum) -> Datum:
    return pc.match_substring_regex(text, like_regex(pattern.as_py()))


def rlike(text: Datum, pattern: Datum) -> Datum:
    return pc.match_substring_regex(text, re2_regex(pattern.as_py()))


TEXTS: dict[str, Kernel] = {
    "upper": pc.utf8_upper,
    "lower": pc.utf8_lower,
    "trim": lambda text: pc.utf8_trim(text, " "),
    "ltrim": lambda text: pc.utf8_ltrim(text, " "),
    "rtrim": lambda text: pc.utf8_rtrim(text, " "),
    "length": pc.utf8_length,
    "concat": concat,
    "substring": substring,
    "replace": replace,
    "position": position,
    "split_part": split_part,
    "reverse": pc.utf8_reverse,
    "code": code,
    "repeat": lambda text, times: pc.binary_repeat(text, times.as_py()),
    "left": lambda text, length: pc.utf8_slice_codeunits(text, 0, length.as_py()),
    "right": right,
    "lpad": _padded(pc.utf8_lpad),
    "rpad": _padded(pc.utf8_rpad),
    "starts_with": lambda text, part: pc.starts_with(text, part.as_py()),
    "ends_with": lambda text, part: pc.ends_with(text, part.as_py()),
    "contains": lambda text, part: pc.match_substring(text, part.as_py()),
    "like": like,
    "rlike": rlike,
}
