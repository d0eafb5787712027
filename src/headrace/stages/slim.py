"""Tables on their way between processes, without the columns that follow from others.

Many columns of 64 bits need not travel: the weight of new events is 1, the end of an instant is one tick after its
start, and its start is often a column of the payload. What travels is copied half a dozen times between two Python
processes with a JVM between them, so `slim` leaves out a column that is an earlier one plus a constant, or a constant
alone, and `full` puts it back. Nulls and chunks make a column travel as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.columnar import to_numpy

__all__ = ["full", "slim"]

#: Of a column: its place, name and type, the place of the earlier column it follows from or None, and what is added.
Left = list[Any]
#: To look costs more than it saves in tables with fewer rows.
_FEWEST_ROWS = 1000
_WHOLE = pa.int64()
_TYPES = {str(kind): kind for kind in (_WHOLE, pa.timestamp("us"), pa.timestamp("us", "UTC"))}


def slim(table: pa.Table) -> tuple[pa.Table, list[Left]]:
    """A table without columns that follow from others, and what they follow from; one column at least stays."""
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
    """The table that `slim` was given."""
    for place, name, kind, of, by in left:  # in the order of their places, so those they follow from are there
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
    """What all values are greater by than those before, or than zero; None if they differ by several amounts."""
    first = int(values[0]) - (0 if before is None else int(before[0]))
    if not -(2**63) <= first < 2**63:
        return None
    step = np.int64(first)
    for some in (slice(0, 100), slice(None)):  # most columns show at once that they are something else
        with np.errstate(over="ignore"):  # what wraps round here wraps back in `full`
            expected = step if before is None else before[some] + step
        if not (values[some] == expected).all():
            return None
    return first
