"""Text, counted in characters (code points), compared byte by byte as UTF-8."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headrace.expr.arrow.columns import Datum, Kernel
from headrace.expr.patterns import like_regex, re2_regex

__all__ = ["TEXTS"]


def concat(*texts: Datum) -> Datum:
    return pc.binary_join_element_wise(*texts, pa.scalar(""), null_handling="emit_null")


def substring(text: Datum, start: Datum, length: Datum) -> Datum:
    first = start.as_py() - 1
    return pc.utf8_slice_codeunits(text, first, first + length.as_py())


def replace(text: Datum, search: Datum, replacement: Datum) -> Datum:
    return pc.replace_substring(text, search.as_py(), replacement.as_py())


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
    "starts_with": lambda text, part: pc.starts_with(text, part.as_py()),
    "ends_with": lambda text, part: pc.ends_with(text, part.as_py()),
    "contains": lambda text, part: pc.match_substring(text, part.as_py()),
    "like": like,
    "rlike": rlike,
}
