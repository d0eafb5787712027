"""Structs: made of values, and their fields."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headrace.expr.arrow.columns import Datum, Kernel, repeated
from headrace.expr.signatures import struct_names

__all__ = ["STRUCTS"]


def struct(*values: Datum) -> Datum:
    """A struct of the values of each row; the last argument has the names."""
    rows = next(len(value) for value in values if not isinstance(value, pa.Scalar))
    parts = [repeated(value, rows) if isinstance(value, pa.Scalar) else value for value in values[:-1]]
    return pa.StructArray.from_arrays(parts, names=struct_names(values[-1].as_py()))


def field(structs: Datum, name: Datum) -> Datum:
    return pc.struct_field(structs, name.as_py())


STRUCTS: dict[str, Kernel] = {"struct": struct, "field": field}
