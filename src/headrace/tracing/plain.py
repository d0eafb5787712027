"""What questions return, as plain values for JSON: dictionaries, lists, texts and numbers.

Times are ISO texts, or ticks where times are numbers, with `"inf"` for an event without an end; values of columns are
those of the server's replies (`io/encode.py`): integers that a reader would round, and `NaN`, are texts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headrace.border import LIFETIME, shown_time
from headrace.display.words import counted
from headrace.io.encode import json_objects
from headrace.operators.reference.rows import Row, table_of
from headrace.schema import Schema
from headrace.time import INFINITY, NEG_INFINITY

__all__ = ["plain_events", "plain_table", "plain_time"]

#: The most bytes of a value that are shown.
_MOST_BYTES = 32


def plain_time(time: int, *, dates: bool) -> int | str:
    """One time."""
    return {INFINITY: "inf", NEG_INFINITY: "-inf"}.get(time) or shown_time(time, dates=dates)


def plain_table(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table; an end that is null is `"inf"`, and bytes, such as the state of a module, are a text."""
    for place, field in enumerate(table.schema):
        if pa.types.is_binary(field.type):
            texts = [None if value is None else _bytes_text(value) for value in table.column(place).to_pylist()]
            table = table.set_column(place, field.name, pa.array(texts, pa.string()))
    batches = table.combine_chunks().to_batches()
    rows = [json.loads(text) for batch in batches for text in json_objects(batch, exact=True).to_pylist()]
    for row in rows:
        if "re" in row and row["re"] is None:
            row["re"] = "inf"
    return rows


def _bytes_text(value: bytes) -> str:
    return f"{counted(len(value), 'byte')}: {value[:_MOST_BYTES].hex()}{'…' if len(value) > _MOST_BYTES else ''}"


def plain_events(rows: Sequence[Row], schema: Schema, *, dates: bool) -> list[dict[str, Any]]:
    """Events with their columns under `values`."""
    values = plain_table(table_of(rows, schema).drop_columns(list(LIFETIME)))
    return [
        {"le": plain_time(le, dates=dates), "re": plain_time(re, dates=dates), "values": own}
        for (le, re, _), own in zip(rows, values, strict=True)
    ]
