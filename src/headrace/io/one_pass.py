"""Text in one pass: a block of CSV or JSON lines straight into columns of their final types.

A compiled machine (`text_splitting.py`, `text_values.py`) does it for blocks in which every value has its usual form.
It is far faster than a reader of texts and casts of them, and gives the same rows. Where it meets anything else (a
malformed value, a row of several lines, a rare form of a number), the block is read as before. A large block is divided
first, so that an odd row slows down only its neighbourhood; and if odd rows are frequent, blocks are tried less and
less often.

Columns that nobody uses are still judged: a malformed value in one of them is a malformed row. The machine checks their
values and keeps none of them; these columns are null.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Container, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.io.conversion import is_tick
from headrace.io.records import LARGEST_LEAF, Records, count_lines
from headrace.schema import Field, Type

__all__ = ["CsvPass", "JsonPass"]

#: Bytes from which on the machine is worth a try, and worth loading, which takes longer than reading a small file.
WORTH = 1 << 16
LOADING = 4 << 20
#: Bytes from which on a block is divided when the machine does not know all its rows.
_DIVIDED = 1 << 20
_LONGEST_PAUSE = 64
#: Rows that the machine splits and converts together: their text and the places of their values stay in the cache.
_TOGETHER = 8192
#: Wider rows are left to Arrow: room for so many rows of each column would take more memory than the block.
_MOST_COLUMNS = 100
_MOST_BYTES = 1 << 31
_DELIMITERS = ",;|\t"
_NEWLINE = 10


class _OnePass(ABC):
    """Reads blocks with the machine, if it knows the types of all fields."""

    def __init__(self, fields: Sequence[Field], judged: Container[str], *, known: bool) -> None:
        self._fields, known = fields, known and len(fields) <= _MOST_COLUMNS
        # CHAR is judged later.
        self._kept = [field.name not in judged or field.type is Type.CHAR for field in fields]
        self._known = known and bool(fields) and not any(_is_odd(field) for field in fields)
        self._pause = self._waits = 0

    def read(self, records: Records) -> pa.Table | None:
        """All rows, or None if the machine does not know all of them; `pa.ArrowInvalid` if they should be divided."""
        least = WORTH if "headrace.io.text_splitting" in sys.modules else LOADING
        if not self._known or not least <= len(records.span) < _MOST_BYTES:
            return None
        if self._waits:
            self._waits -= 1
            return None
        table = self._tried(records)
        if table is not None:
            self._pause = 0
            return table
        self._pause = self._waits = min(_LONGEST_PAUSE, 2 * self._pause + 1)
        if len(records.span) > _DIVIDED and len(records) > LARGEST_LEAF:  # fewer would not be divided
            raise pa.ArrowInvalid("not all rows are plain")
        return None

    def _tried(self, records: Records) -> pa.Table | None:
        # Imported here because loading them takes longer than reading a small file.
        from headrace.io import text_splitting, text_values

        data, at, end = _closed(records)
        columns = [
            (_Column if kept else _JudgedColumn)(field, end - at, text_values, json=self._json)
            for field, kept in zip(self._fields, self._kept, strict=True)
        ]
        starts, ends = np.empty((2, len(columns), _TOGETHER), np.int32)
        row, found = 0, np.zeros(1, np.int64)
        while at < end:
            first = at
            at = self._split(text_splitting, data, at, end, _TOGETHER, starts, ends, found)
            rows = int(found[0])
            if at < 0:
                return None
            likely = row + rows + (end - at) * rows // (at - first)
            for column in columns:
                column.reserve(row + rows, likely)
            places = ((starts[slot, :rows], ends[slot, :rows]) for slot in range(len(columns)))
            if not all(column.add(data, *bounds, row) for column, bounds in zip(columns, places, strict=True)):
                return None
            row += rows
        if records.has_bounds:
            if len(records) != row:
                return None
        else:  # each row is a line
            records.line_count = row - 1 + count_lines(records.data[len(records.span) :])
        return pa.table([column.array(row) for column in columns], names=[field.name for field in self._fields])

    _json = False

    @abstractmethod
    def _split(
        self,
        machine: ModuleType,
        data: NDArray[np.uint8],
        at: int,
        end: int,
        rows: int,
        starts: NDArray[np.int32],
        ends: NDArray[np.int32],
        found: NDArray[np.int64],
    ) -> int:
        """Find the values of up to so many rows; the place after them, or -1."""


class CsvPass(_OnePass):
    """Rows of `width` fields; those at `positions` are read, and the values of those in `judged` not kept."""

    def __init__(
        self,
        fields: Sequence[Field],
        positions: Sequence[int],
        width: int,
        delimiter: str,
        judged: Container[str] = (),
    ) -> None:
        super().__init__(fields, judged, known=delimiter in _DELIMITERS)
        self._slots = np.full(width, -1, np.int64)
        self._slots[list(positions)] = np.arange(len(fields))
        self._stops = np.zeros(256, np.uint8)
        self._stops[list(b'\r\n"')] = 1
        self._stops[ord(delimiter)] = 2

    def _split(self, machine: ModuleType, data: Any, at: int, end: int, rows: int, *places: Any) -> int:
        return int(machine.split_csv(data, at, end, rows, self._slots, self._stops, *places))


class JsonPass(_OnePass):
    """Flat objects, one a line; their `members` are the fields, and the values of those in `judged` are not kept."""

    _json = True

    def __init__(
        self, fields: Sequence[Field], members: Sequence[str], judged: Container[str] = (), *, flat: bool
    ) -> None:
        plain = all(name.isprintable() and '"' not in name and "\\" not in name for name in members)
        super().__init__(fields, judged, known=flat and plain)
        names = [name.encode() for name in members] if plain else []
        self._names = np.frombuffer(b"".join(names) or b" ", np.uint8)
        self._kinds = np.array([_json_kind(field) for field in fields], np.int64)
        self._bounds = np.cumsum([0, *map(len, names)], dtype=np.int64)

    def _split(self, machine: ModuleType, data: Any, at: int, end: int, rows: int, *places: Any) -> int:
        return int(machine.split_json(data, at, end, rows, self._names, self._bounds, self._kinds, *places))


def _is_odd(field: Field) -> bool:
    """Whether the machine does not know the values of a field."""
    known = field.type not in (Type.DATE, Type.TIME, Type.INTERVAL) and not field.type.is_nested
    return not known or field.type.is_decimal or is_tick(field)


def _json_kind(field: Field) -> int:
    """What the values of a member may be: one of the kinds of `text_splitting.py`."""
    kinds = {Type.STRING: 1, Type.CHAR: 1, Type.DATETIME: 2, Type.BOOLEAN: 3}
    return kinds.get(field.type, 0)


def _closed(records: Records) -> tuple[NDArray[np.uint8], int, int]:
    """The bytes of the records with a line end behind the last, and where the records start and end."""
    span = records.span
    start = int(records.bounds.starts[0]) if records.has_bounds else 0
    end = start + len(span)
    if end < len(records.data) and records.data[end] == _NEWLINE:
        return np.frombuffer(records.data, np.uint8), start, end + 1
    return np.frombuffer(bytes(span) + b"\n", np.uint8), 0, len(span) + 1


class _Column:
    """The values of a field, as the machine adds them."""

    def __init__(self, field: Field, size: int, machine: ModuleType, *, json: bool) -> None:
        self._kind, self._machine, self._json = field.type, machine, json
        self._nulls, self._hard = 0, np.zeros(1, np.int64)
        self._valid, self._offsets = np.ones(0, np.uint8), np.zeros(1, np.int32)
        # The texts of a block fit into its size; pages that nobody writes to take no memory.
        self._values: NDArray[Any] = np.empty(size if self._kind.is_text else 0, self._stored())

    def reserve(self, rows: int, likely: int) -> None:
        """Make room for so many rows; if there is none yet, for as many as are likely."""
        more = max(rows, likely) + _TOGETHER - len(self._valid)
        if rows <= len(self._valid):
            return
        self._valid = np.r_[self._valid, np.ones(more, np.uint8)]
        if self._kind.is_text:
            self._offsets = np.r_[self._offsets, np.zeros(more, np.int32)]
        else:
            self._values = np.r_[self._values, np.empty(more, self._values.dtype)]

    def _stored(self) -> type:
        if self._kind is Type.BOOLEAN or self._kind.is_text:
            return np.uint8
        return np.float64 if self._kind.is_floating else np.int64

    def add(self, data: NDArray[np.uint8], starts: NDArray[np.int32], ends: NDArray[np.int32], row: int) -> bool:
        """Convert the values of the next rows, from `row` on; False if the machine does not know one of them."""
        after = row + len(starts)
        valid = self._valid[row:after]
        if self._kind.is_text:
            offsets = self._offsets[row : after + 1]
            nulls = self._machine.texts(data, starts, ends, self._values, offsets, valid, self._json)
        else:
            nulls = self._convert(data, starts, ends, self._values[row:after], valid)
        self._nulls += max(nulls, 0)
        return bool(nulls >= 0)

    def _convert(self, data: Any, starts: Any, ends: Any, out: NDArray[Any], valid: NDArray[np.uint8]) -> int:
        machine, kind = self._machine, self._kind
        if kind is Type.DATETIME:
            return int(machine.times(data, starts, ends, out, valid))
        if kind is Type.BOOLEAN:
            return int(machine.truths(data, starts, ends, out, valid))
        if kind.is_integer:
            limit = min(1 << (kind.arrow.bit_width - 1), np.iinfo(np.int64).max)
            return int(machine.integers(data, starts, ends, limit, out, valid))
        largest = float(np.finfo(np.float32 if kind is Type.FLOAT else np.float64).max)
        before = int(self._hard[0])
        nulls = int(machine.doubles(data, starts, ends, largest, out, valid, self._hard))
        if self._hard[0] > before and nulls >= 0:
            hard = np.flatnonzero(valid == 2)
            numbers = self._carefully(data, starts[hard], ends[hard])
            if not (np.abs(numbers) <= largest).all():
                return int(machine.FAILED)
            out[hard] = numbers
            valid[hard] = 1
        return nulls

    def _carefully(self, data: Any, starts: NDArray[np.int32], ends: NDArray[np.int32]) -> NDArray[np.float64]:
        """The numbers at some places, by Arrow."""
        text, offsets = np.empty(int((ends - starts).sum()), np.uint8), np.zeros(len(starts) + 1, np.int32)
        self._machine.texts(data, starts, ends, text, offsets, np.ones(len(starts), np.uint8), False)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
        numbers: NDArray[np.float64] = (
            pa.Array.from_buffers(pa.string(), len(starts), buffers).cast(pa.float64()).to_numpy()
        )
        return numbers

    def array(self, rows: int) -> pa.Array:
        """The column."""
        valid = pa.py_buffer(np.packbits(self._valid[:rows], bitorder="little")) if self._nulls else None
        values = self._values[:rows]
        if self._kind.is_text:
            text = self._values[: int(self._offsets[rows])].copy()
            offsets = pa.py_buffer(self._offsets[: rows + 1])
            return pa.Array.from_buffers(pa.string(), rows, [valid, offsets, pa.py_buffer(text)])
        if self._kind is Type.BOOLEAN:
            values = np.packbits(values, bitorder="little")
        elif self._kind.is_integer:
            values = values.astype(self._kind.arrow.to_pandas_dtype(), copy=False)
        arrow = pa.float64() if self._kind.is_floating else self._kind.arrow
        return pa.Array.from_buffers(arrow, rows, [valid, pa.py_buffer(values)])


class _JudgedColumn(_Column):
    """The values of a field that are checked and not kept."""

    def __init__(self, field: Field, size: int, machine: ModuleType, *, json: bool) -> None:  # noqa: ARG002
        super().__init__(field, 0, machine, json=json)

    def reserve(self, rows: int, likely: int) -> None:  # noqa: ARG002
        super().reserve(_TOGETHER, 0)

    def add(self, data: NDArray[np.uint8], starts: NDArray[np.int32], ends: NDArray[np.int32], row: int) -> bool:  # noqa: ARG002
        if not self._kind.is_text:
            return super().add(data, starts, ends, 0)
        escaped = np.flatnonzero((starts < 0) & (ends >= 0)) if self._json else ()
        if not len(escaped):
            return True  # a text without escapes is a text
        self._values = np.empty(int((ends[escaped] - ~starts[escaped]).sum()), np.uint8)
        return super().add(data, starts[escaped], ends[escaped], 0)

    def array(self, rows: int) -> pa.Array:
        return pa.nulls(rows, pa.float64() if self._kind.is_floating else self._kind.arrow)
