"""The members of JSON values, found by a compiled scan of their bytes: which names each value has, and where.

A value that is not an object, or is broken, has no shape: the decoder refuses it with a reason. Names that are written
with escapes are rare, and left to Python.
"""

# ruff: noqa: C901, PLR0912, PLR0915, PLR1714, SIM109 - a scanner is a list of branches, one for each form

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.compiled import BYTES, INTS, NEW_BYTES, NEW_INTS, compiled, inlined

__all__ = ["ESCAPED", "PAYLOAD", "WHOLE", "ByteSpans", "Form", "Shapes", "objects_of", "shapes_of"]

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
#: Where an object has the columns: itself, under its payload, or in the row that a change describes.
Form = Literal["", "nested", "debezium"]

PAYLOAD = "payload"
_OP, _AFTER = "op", "after"
#: What is known of a value: nothing, all its members, or that some names have escapes.
UNKNOWN, WHOLE, ESCAPED = range(3)

_TAB, _NEWLINE, _RETURN, _BLANK, _QUOTE, _BACKSLASH = 9, 10, 13, 32, 34, 92
_COLON, _COMMA, _OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = 58, 44, 123, 125, 91, 93


@inlined
def _after_blank(data: Bytes, at: int, end: int) -> int:
    while at < end and (data[at] == _BLANK or data[at] == _TAB or data[at] == _NEWLINE or data[at] == _RETURN):
        at += 1
    return at


@inlined
def _after_text(data: Bytes, at: int, end: int) -> int:
    """The place after the quote that ends a text whose first character is at a place; -1 if none does."""
    while at < end:
        if data[at] == _QUOTE:
            return at + 1
        at += 2 if data[at] == _BACKSLASH else 1
    return -1


@inlined
def _after_value(data: Bytes, at: int, end: int) -> int:
    """The place after a value, -1 if it does not end. What a value is made of is left to the decoder."""
    depth = 0
    while at < end:
        byte = data[at]
        if byte == _QUOTE:
            at += 1
            while at < end and data[at] != _QUOTE:
                at += 2 if data[at] == _BACKSLASH else 1
            if at >= end:
                return -1
            at += 1
            if depth == 0:
                return at
        elif byte == _OPEN or byte == _OPEN_LIST:
            depth += 1
            at += 1
        elif byte == _CLOSE or byte == _CLOSE_LIST:
            if depth == 0:
                return at
            depth -= 1
            at += 1
            if depth == 0:
                return at
        elif depth == 0 and (byte == _COMMA or byte == _BLANK or byte == _TAB or byte == _NEWLINE or byte == _RETURN):
            return at
        else:
            at += 1
    return -1


@compiled(BYTES, INTS, INTS, BYTES, INTS, NEW_BYTES, NEW_INTS, NEW_INTS, NEW_INTS, NEW_BYTES)
def _scan(
    data: Bytes, starts: Ints, ends: Ints, names: Bytes, bounds: Ints, seen: Bytes, value_starts: Ints,
    value_ends: Ints, others: Ints, known: Bytes,
) -> None:  # fmt: skip
    """The members of objects. `seen`, `value_starts` and `value_ends` have a place for each object and name."""
    count = len(bounds) - 1
    for row in range(len(starts)):
        at, end, state, other = starts[row], ends[row], UNKNOWN, 0
        if at >= 0:
            at = _after_blank(data, at, end)
            if at < end and data[at] == _OPEN:
                at, state = _after_blank(data, at + 1, end), WHOLE
        if state == WHOLE and at < end and data[at] == _CLOSE:
            at = end
        elif state == WHOLE:
            while True:
                if at >= end or data[at] != _QUOTE:
                    state = UNKNOWN
                    break
                name = at + 1
                at = _after_text(data, name, end)
                if at < 0:
                    state = UNKNOWN
                    break
                slot, length = -1, at - 1 - name
                for i in range(name, at - 1):
                    if data[i] == _BACKSLASH:
                        state = ESCAPED
                for one in range(count):
                    same = bounds[one + 1] - bounds[one] == length
                    for i in range(length if same else 0):
                        if data[name + i] != names[bounds[one] + i]:
                            same = False
                            break
                    if same:
                        slot = one
                        break
                at = _after_blank(data, at, end)
                if at >= end or data[at] != _COLON:
                    state = UNKNOWN
                    break
                first = _after_blank(data, at + 1, end)
                at = _after_value(data, first, end)
                if at < 0:
                    state = UNKNOWN
                    break
                if slot >= 0:
                    place = row * count + slot
                    seen[place], value_starts[place], value_ends[place] = 1, first, at
                else:
                    other += 1
                at = _after_blank(data, at, end)
                if at < end and data[at] == _COMMA:
                    at = _after_blank(data, at + 1, end)
                elif at < end and data[at] == _CLOSE:
                    break
                else:
                    state = UNKNOWN
                    break
        known[row], others[row] = state, other


@dataclass(frozen=True)
class ByteSpans:
    """Parts of bytes; a start of -1 is a part that is not there."""

    data: Bytes
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, values: pa.Array) -> ByteSpans:
        """The values of a binary array without nulls."""
        offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
        bounds = offsets.astype(np.int64)
        return cls(np.frombuffer(values.buffers()[2] or b"", np.uint8), bounds[:-1], bounds[1:])

    def where(self, mask: NDArray[np.bool_], other: ByteSpans) -> ByteSpans:
        """These parts where the mask is true, and the other ones elsewhere."""
        starts, ends = np.where(mask, self.starts, other.starts), np.where(mask, self.ends, other.ends)
        return ByteSpans(self.data, starts, ends)

    @property
    def exist(self) -> NDArray[np.bool_]:
        """Which parts are there."""
        return self.starts >= 0

    def but(self, mask: NDArray[np.bool_]) -> ByteSpans:
        """These parts, but not where the mask is true."""
        return ByteSpans(self.data, np.where(mask, -1, self.starts), self.ends)

    def is_text(self, text: str) -> NDArray[np.bool_]:
        """Which parts are this text in quotes, without escapes."""
        wanted = np.frombuffer(f'"{text}"'.encode(), np.uint8)
        found: NDArray[np.bool_] = self.exist & (self.ends - self.starts == len(wanted))
        for i, byte in enumerate(wanted):
            found[found] = self.data[self.starts[found] + i] == byte
        return found

    def part(self, mask: NDArray[np.bool_]) -> ByteSpans:
        """The parts where the mask is true."""
        return ByteSpans(self.data, self.starts[mask], self.ends[mask])

    def __getitem__(self, row: int) -> bytes:
        return self.data[self.starts[row] : self.ends[row]].tobytes()


@dataclass(frozen=True)
class Shapes:
    """The members of objects: which of the names each one has, how many other members, and what is known of it."""

    names: tuple[str, ...]
    seen: NDArray[np.bool_]
    others: Ints
    known: NDArray[np.uint8]
    _values: tuple[ByteSpans, ...]

    def values(self, name: str) -> ByteSpans:
        """The values of a member."""
        return self._values[self.names.index(name)]


def shapes_of(objects: ByteSpans, names: tuple[str, ...]) -> Shapes:
    """The members of objects, which are parts of bytes."""
    rows, encoded = len(objects.starts), [name.encode(errors="surrogatepass") for name in names]
    bounds = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    seen, known = np.zeros(rows * len(names), np.uint8), np.zeros(rows, np.uint8)
    starts, ends = np.full((2, rows * len(names)), -1, np.int64)
    others = np.zeros(rows, np.int64)
    joined: Any = np.frombuffer(b"".join(encoded) or b" ", np.uint8)
    _scan(objects.data, objects.starts, objects.ends, joined, bounds, seen, starts, ends, others, known)
    first, after = starts.reshape(rows, len(names)), ends.reshape(rows, len(names))
    spans = tuple(ByteSpans(objects.data, first[:, i], after[:, i]) for i in range(len(names)))
    return Shapes(names, seen.reshape(rows, len(names)) > 0, others, known, spans)


def objects_of(values: ByteSpans, form: Form) -> ByteSpans:
    """The objects whose members are the columns; those of a change that deletes a row need not be there."""
    if form == "nested":
        return shapes_of(values, (PAYLOAD,)).values(PAYLOAD)
    if form != "debezium":
        return values
    top = shapes_of(values, (_OP, PAYLOAD))
    change = shapes_of(values.where(top.values(_OP).exist, top.values(PAYLOAD)), (_OP, _AFTER))
    return change.values(_AFTER).but(change.values(_OP).is_text("d"))
