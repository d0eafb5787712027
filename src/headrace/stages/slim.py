"""Tables for messages between processes, without the columns that follow from others.

Many columns of 64 bits need not travel: the weight of new events is 1, the end of an instant is one tick after its
start, and its start is often a column of the payload. Data is copied half a dozen times between two Python processes
with a JVM between them, so `slim` leaves out a column that is an earlier one plus a constant, or a constant, and `full`
restores it. Columns with nulls or several chunks stay as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.columnar import to_numpy

__all__ = ["full", "slim"]

#: An omitted column: its place, name and type, the place of the column it follows from or None, and the difference.
Left = list[Any]
#: In tables with fewer rows, looking costs more than it saves.
_FEWEST_ROWS = 1000
_WHOLE = pa.int64()
_TYPES = {str(kind): kind for kind in (_WHOLE, pa.timestamp("us"), pa.timestamp("us", "UTC"))}


def slim(table: pa.Table) -> tuple[pa.Table, list[Left]]:
    """A table without the columns that follow from others, and these columns; at least one column stays."""
    if table.num_rows < _FEWEST_ROWS:
        return table, []
    left: list[Left] = []
    kept: dict[int, NDArray[np.int64]] = {}
    for place, field in enumerate(table.schema):
        values = _values(table.column(place))
        if values is None:
            continue
        origins: list[tuple[int | None, NDArray[np.int64] | None]] = list(kept.items())
        if table.num_columns - len(left) > 1:
            origins.append((None, None))
        found = ((of, by) for of, before in origins if (by := _difference(values, before)) is not None)
        of, by = next(found, (None, None))
        if by is None:
            kept[place] = values
        else:
            left.append([place, field.name, str(field.type), of, by])
    gone = {place for place, *_ in left}
    return table.select([i for i in range(table.num_columns) if i not in gone]) if left else table, left


def full(table: pa.Table, left: list[Left]) -> pa.Table:
    """The original table."""
    for place, name, kind, of, by in left:  # in the order of their places: earlier columns are there
        # A column that was one chunk is several if another was, because a stream is cut into the same rows for all.
        values = np.zeros(table.num_rows, np.int64) if of is None else to_numpy(table.column(of)).view(np.int64)
        column = pa.array(values + np.int64(by) if by else values).view(_TYPES[kind])
        table = table.add_column(place, pa.field(name, _TYPES[kind]), column)
    return table


def _values(column: pa.ChunkedArray) -> NDArray[np.int64] | None:
    """A column as 64-bit integers, without copying; None if it is something else."""
    if str(column.type) not in _TYPES or column.num_chunks != 1 or column.null_count:
        return None
    return column.chunk(0).view(_WHOLE).to_numpy()  # type: ignore[no-any-return]


def _difference(values: NDArray[np.int64], before: NDArray[np.int64] | None) -> int | None:
    """The difference of all values from those before, or from zero; None if it is not constant."""
    first = int(values[0]) - (0 if before is None else int(before[0]))
    if not -(2**63) <= first < 2**63:
        return None
    step = np.int64(first)
    for rows in (slice(0, 100), slice(None)):  # most columns differ in their first rows
        with np.errstate(over="ignore"):  # an overflow here is undone in `full`
            expected = step if before is None else before[rows] + step
        if not (values[rows] == expected).all():
            return None
    return first
