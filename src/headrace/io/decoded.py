"""A decoded block: the rows that could be read, and the rows that could not.

A broken row never stops a file and never disappears. It is *refused*: a second table holds its number in the file, its
line, the reason and its text, so that the input's policy can raise, drop, count or divert it. The good rows have their
numbers too, so that the order of all rows can be restored.

A row's *line* is where a person finds it: the line of a text file on which it begins, or its number in a Parquet file,
from 1. It is null where it is unknown: in rows that a reader has filtered before they were numbered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.io.conversion import convert, reason
from headrace.io.files import FileState
from headrace.literals import sql_text
from headrace.schema import Field, Schema

__all__ = [
    "REFUSED", "DecodedBlock", "Raw", "Refusal", "added", "as_json", "as_python", "concat", "decoded", "finish",
    "numbered", "refuse_all", "refused_table", "reports_drift", "unnumbered", "with_nulls",
]  # fmt: skip

REFUSED = pa.schema([("row", pa.int64()), ("reason", pa.string()), ("raw", pa.string()), ("line", pa.int64())])

Refusal = tuple[int, str, str]
#: The texts of rows, by their place in a table.
Raw = Callable[[NDArray[np.int64]], list[str]]


@dataclass(frozen=True)
class DecodedBlock:
    """A block of a file's rows.

    `table` has the requested columns in the schema's Arrow types, in file order; `rows` numbers its rows in the file,
    from 0; `lines` has the lines on which they begin, if known; `refused` has the columns `row`, `reason`, `raw` and
    `line`. `file` is the state of the file since it was listed; only the last block, which is empty, reports a file
    that is missing or changed.

    Adapters (`adapter.py`) number rows by their offsets. `arrived` has the times at which rows reached their place, in
    ticks, if it keeps them; `lost` is the number of offsets before the block that are no longer stored.
    """

    table: pa.Table
    refused: pa.Table
    rows: NDArray[np.int64]
    lines: NDArray[np.int64] | None = None
    file: FileState = "same"
    arrived: NDArray[np.int64] | None = None
    lost: int = 0
    #: The rows with all their columns, where they are in memory and `table` has only some of them.
    whole: pa.Table | None = None
    #: How columns differ from the declared ones, by counter (`drift.py`): of a file, in a block without rows, or of
    #: the messages of the block.
    drift: Mapping[str, int] = field(default_factory=dict)

    @property
    def begins(self) -> bool:
        """Whether it has the first row of its file."""
        refused = self.refused["row"].slice(0, 1).to_pylist()
        return 0 in refused or (len(self.rows) > 0 and int(self.rows[0]) == 0)

    @property
    def rows_before_refused(self) -> NDArray[np.int64]:
        """How many of the good rows come before each refused row."""
        places: NDArray[np.int64] = np.searchsorted(self.rows, self.refused["row"].to_numpy())
        return places

    def where(self, row_filter: pc.Expression | None, columns: Sequence[str]) -> DecodedBlock:
        """The rows that pass the filter (null does not), with these columns; refused rows stay refused."""
        if row_filter is None:
            same = self.table.column_names == list(columns)
            return self if same else replace(self, table=self.table.select(list(columns)))
        placed = self.table.append_column(_PLACE, pa.array(np.arange(len(self.rows)))).filter(row_filter)
        kept = placed[_PLACE].to_numpy()
        lines = None if self.lines is None else self.lines[kept]
        arrived = None if self.arrived is None else self.arrived[kept]
        return replace(self, table=placed.select(list(columns)), rows=self.rows[kept], lines=lines, arrived=arrived)

    def slice(self, start: int, rows: int) -> DecodedBlock:
        """A slice of the good rows, with the refused rows before each of them; the last one has those at the end."""
        stop = start + rows if start + rows < len(self.rows) else len(self.rows) + 1
        lines = None if self.lines is None else self.lines[start : start + rows]
        before = self.rows_before_refused
        refused = self.refused.filter(pa.array((before >= start) & (before < stop)))
        piece = self.table.slice(start, rows)
        arrived = None if self.arrived is None else self.arrived[start : start + rows]
        sliced = replace(self, table=piece, refused=refused, rows=self.rows[start : start + rows], lines=lines)
        whole = None if self.whole is None else self.whole.slice(start, rows)
        lost, drift = (self.lost, self.drift) if start == 0 else (0, {})
        return replace(sliced, arrived=arrived, lost=lost, whole=whole, drift=drift)


_PLACE = "__place__"


def refused_table(refusals: Iterable[Refusal] = ()) -> pa.Table:
    """Refusals as a table."""
    rows = sorted(refusals)
    return pa.table([*([row[i] for row in rows] for i in range(3)), pa.nulls(len(rows), pa.int64())], schema=REFUSED)


def refuse_all(reason: str, first_row: int, texts: Sequence[str], lines: NDArray[np.int64]) -> DecodedBlock:
    """A block in which every row is refused for one reason; a line of -1 is unknown."""
    rows = np.arange(first_row, first_row + len(texts), dtype=np.int64)
    places = pa.array(lines, pa.int64(), mask=lines < 0)
    refused = pa.table([rows, pa.repeat(pa.scalar(reason), len(texts)), pa.array(texts, pa.string()), places], REFUSED)
    return DecodedBlock(pa.table({}), refused, np.arange(0))


def reports_drift(counts: Mapping[str, int]) -> DecodedBlock:
    """A block without rows that reports how the columns of its file differ from the declared ones."""
    return DecodedBlock(pa.table({}), refused_table(), np.arange(0), drift=counts)


def with_nulls(block: DecodedBlock, absent: Sequence[Field]) -> DecodedBlock:
    """A block with columns that its file does not have."""
    table, rows = block.table, block.table.num_rows
    for column in absent:
        table = table.append_column(column.name, pa.nulls(rows, column.type.arrow))
    return replace(block, table=table)


def numbered(block: DecodedBlock, lines_of: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> DecodedBlock:
    """A block with the lines of its rows, from their numbers; -1 is an unknown line."""
    lines = lines_of(block.rows)
    if not block.refused.num_rows:
        return replace(block, lines=lines)
    broken = lines_of(block.refused["row"].to_numpy())
    column = pa.array(broken, mask=broken < 0)
    return replace(block, refused=block.refused.set_column(3, "line", column), lines=lines)


def unnumbered(block: DecodedBlock) -> DecodedBlock:
    """A block whose rows were filtered before they were numbered."""
    lines = pa.nulls(block.refused.num_rows, pa.int64())
    return replace(block, refused=block.refused.set_column(3, "line", lines), lines=None)


def finish(table: pa.Table, rows: NDArray[np.int64], fields: Sequence[Field], raw: Raw) -> DecodedBlock:
    """Convert every column to its type; the rows in which a value does not fit are refused."""
    converted = [convert(table[field.name], field) for field in fields]
    schema = pa.schema([(field.name, field.type.arrow) for field in fields])
    result = pa.table([column.values for column in converted], schema=schema)
    broken = [(field, column.bad) for field, column in zip(fields, converted, strict=True) if column.bad is not None]
    if not broken:
        return DecodedBlock(result, refused_table(), rows)
    bad = np.logical_or.reduce([mask for _, mask in broken])
    reasons = [_reasons(table[field.name], field, mask).filter(pa.array(bad)) for field, mask in broken]
    joined = pc.binary_join_element_wise(*reasons, "; ", null_handling="skip")
    texts = pa.array(raw(np.flatnonzero(bad)), pa.string())
    refused = pa.table([rows[bad], joined, texts, pa.nulls(len(texts), pa.int64())], schema=REFUSED)
    return DecodedBlock(result.filter(pa.array(~bad)), refused.sort_by("row"), rows[~bad])


def decoded(rows: pa.Table, offsets: NDArray[np.int64], schema: Schema) -> DecodedBlock:
    """A block from rows with any types, and their offsets: rows in which a value does not fit its column are refused.

    For adapters; the columns of `rows` are columns of the schema.
    """
    block = finish(rows, offsets, [schema[name] for name in rows.column_names], as_json(rows))
    return numbered(block, lambda rows: rows)


def _reasons(values: pa.ChunkedArray, field: Field, mask: NDArray[np.bool_]) -> pa.Array:
    """Why each value that `mask` marks does not fit, computed once per distinct value; null for the others."""
    marked = pa.array(mask)
    wrong = pa.chunked_array(values).combine_chunks().filter(marked)
    codes, distinct = np.arange(len(wrong)), wrong
    if not pa.types.is_nested(wrong.type):
        encoded = wrong if pa.types.is_dictionary(wrong.type) else wrong.dictionary_encode()
        codes, distinct = encoded.indices, encoded.dictionary
    texts = pa.array([reason(as_python(value), field) for value in distinct], pa.string())
    return pc.replace_with_mask(pa.nulls(len(mask), pa.string()), marked, texts.take(pa.array(codes)))


def as_json(table: pa.Table) -> Raw:
    """The rows of a table as texts of JSON."""

    def raw(places: NDArray[np.int64]) -> list[str]:
        chosen = table.take(pa.array(places))
        columns = [[as_python(value) for value in chosen[name]] for name in chosen.column_names]
        rows = (dict(zip(chosen.column_names, row, strict=True)) for row in zip(*columns, strict=True))
        return [json.dumps(row, default=sql_text, ensure_ascii=False) for row in rows]

    return raw


def as_python(value: Any) -> Any:
    """An Arrow value as a Python value; as text where Python has none (a time after the year 9999)."""
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return str(value.cast(pa.int64()).as_py()) if pa.types.is_timestamp(value.type) else str(value)


def concat(parts: Sequence[DecodedBlock]) -> DecodedBlock:
    """Several pieces of a file as one block, in order."""
    if len(parts) == 1:
        return parts[0]
    lines = [part.lines for part in parts if part.lines is not None]
    return DecodedBlock(
        pa.concat_tables([part.table for part in parts]),
        pa.concat_tables([part.refused for part in parts]),
        np.concatenate([part.rows for part in parts]),
        np.concatenate(lines) if len(lines) == len(parts) else None,
        drift=added([part.drift for part in parts]),
    )


def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sums of counters."""
    totals: dict[str, int] = {}
    for some in counts:
        for name, count in some.items():
            totals[name] = totals.get(name, 0) + count
    return totals
