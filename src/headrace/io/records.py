"""Records: a text file as blocks, a block as records, and the decoding that both text formats share.

A block is some megabytes of complete records. Arrow tries to read it. If that fails, the block is divided into pieces,
and Arrow tries each piece, down to a few records around the broken one, which Python reads one by one. So a good file
never needs a Python loop, and a broken row slows down only its neighbourhood.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import SourceError
from headrace.io.decoded import DecodedBlock, Raw, Refusal, concat, finish, numbered, refused_table
from headrace.meter import note_bytes
from headrace.schema import Field

__all__ = [
    "BLOCK_BYTES", "BOM", "LARGEST_LEAF", "MAX_LINE", "Bounds", "BrokenRecord", "Decoder", "FastRead", "Records",
    "SplitRecords", "blocks", "count_lines", "decode",
]  # fmt: skip

BLOCK_BYTES = 8 << 20
#: The longest line in bytes, by default.
MAX_LINE = 64 << 20
_LONGEST = 8  # blocks: a quote that stays open for longer is a mistake
_FAN_OUT = 16
_LEAF = 512  # a try of the fast path costs as much as some hundred records of the slow one
LARGEST_LEAF = 1 << 16
_FEW = 64
_COUNTED = 1 << 17
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34
#: The byte order mark of UTF-8.
BOM = b"\xef\xbb\xbf"
_OTHER_BOMS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")  # UTF-16 and UTF-32


@dataclass(frozen=True)
class BrokenRecord:
    """A record that cannot be read, and why."""

    reason: str
    raw: str


@dataclass(frozen=True)
class SplitRecords:
    """Several records that looked like one: the first, which is one line, and the rest."""

    first: bytes
    rest: bytes


@dataclass(frozen=True)
class FastRead:
    """The result of the fast path: the good rows, and the broken ones by their number in the piece."""

    table: pa.Table
    broken: Mapping[int, BrokenRecord] = field(default_factory=dict)


class Decoder(Protocol):
    """The part of decoding that depends on the text format."""

    fields: Sequence[Field]

    def fast(self, records: Records) -> FastRead:
        """Decode all records at once; raise `pa.ArrowException` if that fails."""

    def slow(self, record: bytes) -> list[Any] | BrokenRecord | SplitRecords:
        """Decode one record."""

    def slow_schema(self) -> pa.Schema:
        """The Arrow types of the values of `slow`."""


@dataclass(frozen=True)
class Bounds:
    """The starts and ends of records, without line ends and empty lines; whether a record spans several lines."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    multiline: bool = False

    @classmethod
    def of(cls, data: bytes, *, quoted: bool) -> Bounds:
        """The bounds of the records of `data`; with `quoted`, a line end inside double quotes does not end a record."""
        array = np.frombuffer(data, dtype=np.uint8)
        ends, lines = _line_ends(array, data), 0
        if quoted and b'"' in data:
            lines = len(ends)
            ends = ends[np.searchsorted(np.flatnonzero(array == _QUOTE), ends) % 2 == 0]
        multiline = lines > len(ends)
        if len(ends) == 0 or ends[-1] != len(data) - 1:
            ends = np.append(ends, len(data))
        starts = np.concatenate([[0], ends[:-1] + 1])
        if b"\r\n" in data:
            ends = ends - ((ends > starts) & (array[np.maximum(ends, 1) - 1] == _RETURN))
        filled = ends > starts
        return cls(starts[filled], ends[filled], multiline)


class Records:
    """The records of some bytes, which begin on `line` of a file. Their bounds are computed when needed."""

    def __init__(self, data: bytes, *, quoted: bool, bounds: Bounds | None = None, line: int = 1) -> None:
        self.data = data
        self.quoted = quoted
        self.line = line
        if bounds is not None:
            self.bounds = bounds

    @cached_property
    def bounds(self) -> Bounds:
        """The starts and ends of the records."""
        return Bounds.of(self.data, quoted=self.quoted)

    @property
    def has_bounds(self) -> bool:
        """Whether the bounds of the records are known."""
        return "bounds" in self.__dict__

    @cached_property
    def line_count(self) -> int:
        """The number of line ends in the bytes."""
        return count_lines(self.data)

    @cached_property
    def span(self) -> memoryview:
        """The bytes from the first record to the last, without a copy."""
        if not self.has_bounds:
            end = len(self.data)
            while end and self.data[end - 1] in (_NEWLINE, _RETURN):
                end -= 1
            return memoryview(self.data)[:end]
        return memoryview(self.data)[int(self.bounds.starts[0]) : int(self.bounds.ends[-1])]

    def __len__(self) -> int:
        return len(self.bounds.starts)

    def __getitem__(self, index: int) -> bytes:
        return self.data[self.bounds.starts[index] : self.bounds.ends[index]]

    def text(self, index: int) -> str:
        """A record as text, also if it is not UTF-8."""
        return self[index].decode("utf-8", errors="replace")

    def part(self, which: slice | NDArray[np.bool_]) -> Records:
        """A part of the records."""
        bounds = Bounds(self.bounds.starts[which], self.bounds.ends[which], self.bounds.multiline)
        part = Records(self.data, quoted=self.quoted, bounds=bounds, line=self.line)
        part.line_ends = self.line_ends
        return part

    @cached_property
    def line_ends(self) -> NDArray[np.int64]:
        """The positions of line ends."""
        return _line_ends(np.frombuffer(self.data, dtype=np.uint8), self.data)

    def lines(self, rows: int) -> NDArray[np.int64]:
        """The line of the file on which each of the `rows` begins; -1 where quotes make that uncertain."""
        if not self.has_bounds and self.line_count - count_lines(self.data[len(self.span) :]) + 1 == rows:
            return np.arange(self.line, self.line + rows, dtype=np.int64)
        bounds = self._bounds_of(rows)
        return (
            np.full(rows, -1, np.int64)
            if bounds is None
            else self.line + np.searchsorted(self.line_ends, bounds.starts)
        )

    def texts(self, rows: int) -> Callable[[int], str] | None:
        """The texts of the `rows`, by their numbers; None if quotes make them uncertain."""
        bounds = self._bounds_of(rows)
        return None if bounds is None else Records(self.data, quoted=self.quoted, bounds=bounds).text

    def _bounds_of(self, rows: int) -> Bounds | None:
        """The bounds of so many rows: of the records, or of the lines that are not empty; None if neither fits."""
        if len(self) == rows:
            return self.bounds
        first, last = int(self.bounds.starts[0]), int(self.bounds.ends[-1])
        lines = Bounds.of(self.data[first:last], quoted=False)
        return Bounds(lines.starts + first, lines.ends + first) if len(lines.starts) == rows else None

    def check_utf8(self) -> None:
        """Raise `pa.ArrowInvalid` unless all is UTF-8."""
        span = pa.py_buffer(self.span)
        offsets = pa.py_buffer(np.array([0, span.size], dtype=np.int64))
        pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, span]).cast(pa.large_string())


def _line_ends(array: NDArray[np.uint8], data: bytes) -> NDArray[np.int64]:
    ends = np.flatnonzero(array == _NEWLINE)
    if b"\r" not in data:
        return ends
    returns = np.flatnonzero(array == _RETURN)
    alone = returns[(returns + 1 >= len(array)) | (array[np.minimum(returns + 1, len(array) - 1)] != _NEWLINE)]
    return np.sort(np.concatenate([ends, alone])) if len(alone) else ends


def count_lines(data: bytes) -> int:
    """The number of line ends in some bytes."""
    array = np.frombuffer(data, dtype=np.uint8)
    # In parts that stay in the processor's cache; `bytes.count` is slow where there is much to count.
    parts = (array[start : start + _COUNTED] for start in range(0, len(array), _COUNTED))
    ends = sum(int(np.count_nonzero(part == _NEWLINE)) for part in parts)
    return ends if b"\r" not in data else ends + data.count(b"\r") - data.count(b"\r\n")


def blocks(stream: Any, *, quoted: bool, size: int = BLOCK_BYTES, max_line: int = MAX_LINE) -> Iterator[bytes]:
    """The stream as blocks of about `size` bytes that end at the end of a record, without a byte order mark."""
    left, read = b"", _without_mark(_read(stream, size))
    while read:
        last = read.rfind(b"\n")
        if last >= 0 and len(left) + len(read) <= max_line and not (quoted and (b'"' in read or b'"' in left)):
            yield b"".join([left, memoryview(read)[: last + 1]])  # the usual case, with one copy
            left, read = read[last + 1 :], _read(stream, size)
            continue
        data = left + read
        _check_lines(data, max_line)
        cut = _record_end(data, quoted, give_up=len(data) >= _LONGEST * size)
        if cut:
            yield data[:cut]
        left, read = data[cut:], _read(stream, size)
    if left:
        yield left


def _read(stream: Any, size: int) -> bytes:
    data: bytes = stream.read(size)
    note_bytes(len(data))
    return data


def _without_mark(start: bytes) -> bytes:
    if start.startswith(_OTHER_BOMS):
        raise SourceError(
            "the text is not UTF-8: its byte order mark says UTF-16 or UTF-32",
            given=repr(start[:4]),
            allowed="UTF-8, with or without a byte order mark",
            instead="iconv -f UTF-16 -t UTF-8 old.csv > new.csv",
        )
    return start.removeprefix(BOM)


def _check_lines(data: bytes, max_line: int) -> None:
    if len(data) <= max_line:
        return
    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == _NEWLINE)
    longest = int(np.diff(np.r_[-1, ends, len(data)]).max()) - 1
    if longest > max_line:
        raise SourceError(
            "a line is too long",
            given=f"{longest:,} bytes without a line end",
            allowed=f"max_line={max_line:,} bytes",
            instead=f"max_line={2 * longest}, if the line is correct; or check that the file is text",
        )


def _record_end(data: bytes, quoted: bool, *, give_up: bool) -> int:
    """The position after the last record that is surely complete; 0 if there is none."""
    last = data.rfind(b"\n")
    if last < 0 or not quoted or data.count(b'"', 0, last) % 2 == 0:
        return last + 1
    array = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(array == _NEWLINE)
    complete = np.flatnonzero(np.searchsorted(np.flatnonzero(array == _QUOTE), ends) % 2 == 0)
    if len(complete):
        return int(ends[complete[-1]]) + 1
    return last + 1 if give_up else 0


def decode(records: Records, decoder: Decoder, first_row: int) -> tuple[DecodedBlock, int]:
    """The decoded records of a block and the number of the next row; `first_row` is the number of the first."""
    parts: list[DecodedBlock] = []
    row, waiting, leaf = first_row, [records], _LEAF
    while waiting:
        piece = waiting.pop()
        # Next to broken records, the fast path is not tried on so few records again.
        block = None if leaf > _LEAF and len(piece) <= leaf else _at_once(piece, decoder, row)
        if block is None and len(piece) > leaf:
            step = -(-len(piece) // _FAN_OUT)
            waiting += [piece.part(slice(start, start + step)) for start in range(0, len(piece), step)][::-1]
        elif block is None:
            block, left = _one_by_one(piece, decoder, row)
            waiting += left
            odd = block.refused.num_rows > 0 or len(left) > 0 or len(block.rows) != len(piece)
            leaf = min(LARGEST_LEAF, 2 * leaf) if odd else _LEAF
        if block is not None:
            parts.append(block)
            row += len(block.rows) + block.refused.num_rows
    return concat(parts), row


def _at_once(records: Records, decoder: Decoder, row: int) -> DecodedBlock | None:
    """All records by the fast path; None if it fails."""
    try:
        read = decoder.fast(records)
    except pa.ArrowException:
        return None
    rows = len(read.table) + len(read.broken)
    lines = records.lines(rows) if rows else np.zeros(0, np.int64)
    numbers = np.arange(rows, dtype=np.int64)
    if read.broken:
        numbers = np.delete(numbers, list(read.broken))
    block = finish(read.table, numbers + row, decoder.fields, _raw(records, read, rows, numbers))
    refusals = [(row + number, broken.reason, broken.raw) for number, broken in read.broken.items()]
    return numbered(_with_refusals(block, refusals), lambda numbers: lines[numbers - row])


def _raw(records: Records, read: FastRead, rows: int, numbers: NDArray[np.int64]) -> Raw:
    """The texts of rows; their values, where quotes make the texts uncertain."""

    def raw(places: NDArray[np.int64]) -> list[str]:
        text = records.texts(rows)
        if text is not None:
            return [text(place) for place in numbers[places].tolist()]
        return [str(row) for row in read.table.take(pa.array(places)).to_pylist()]

    return raw


def _with_refusals(block: DecodedBlock, refusals: list[Refusal]) -> DecodedBlock:
    if not refusals:
        return block
    refused = pa.concat_tables([block.refused, refused_table(refusals)]).sort_by("row")
    return replace(block, refused=refused)


def _one_by_one(records: Records, decoder: Decoder, row: int) -> tuple[DecodedBlock, list[Records]]:
    """Records by the slow path, and the records that are left when one of them turns out to be several."""
    good: list[tuple[int, list[Any], str]] = []
    refusals: list[Refusal] = []
    left: list[Records] = []
    index, waiting = 0, deque[tuple[bytes, int]]()
    lines, begins, first = records.lines(len(records)).tolist(), list[int](), row
    while not left and (waiting or index < len(records)):
        if waiting:
            record, line = waiting.popleft()
        else:
            record, line, index = records[index], lines[index], index + 1
        result = decoder.slow(record)
        if isinstance(result, SplitRecords):
            record, rest = result.first, Records(result.rest, quoted=True, line=line + 1)
            result = decoder.slow(record)
            if len(rest) <= _FEW:
                more = zip((rest[i] for i in range(len(rest))), rest.lines(len(rest)).tolist(), strict=True)
                waiting.extendleft(reversed(list(more)))
            else:
                texts, at = [text for text, _ in waiting], waiting[0][1] if waiting else 1
                others = Records(b"\n".join(texts), quoted=True, line=at)
                left = [piece for piece in (records.part(slice(index, None)), others, rest) if len(piece)]
        if isinstance(result, list):
            good.append((row, result, record.decode("utf-8", errors="replace")))
        elif isinstance(result, BrokenRecord):
            refusals.append((row, result.reason, result.raw))
        begins.append(line)
        row += 1
    known = np.array(begins, np.int64)
    return numbered(_gathered(good, refusals, decoder), lambda numbers: known[numbers - first]), left


def _gathered(good: list[tuple[int, list[Any], str]], refusals: list[Refusal], decoder: Decoder) -> DecodedBlock:
    schema = decoder.slow_schema()
    columns = [pa.array([values[i] for _, values, _ in good], schema.field(i).type) for i in range(len(schema))]
    numbers = np.array([number for number, _, _ in good], dtype=np.int64)
    block = finish(
        pa.table(columns, schema=schema), numbers, decoder.fields, lambda rows: [good[i][2] for i in rows.tolist()]
    )
    return _with_refusals(block, refusals)
