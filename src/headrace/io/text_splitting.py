"""Where the values of text are: the first half of the machine that reads rows of text, compiled once for all schemas.

The machine works on some thousand rows at a time. `split_csv` and `split_json` find where the values of these rows
start and end: `starts` and `ends` have a row for each *slot*, a column to read. An end of -1 is a null. A start below
zero is the complement of a place: the text has escapes. Then `text_values.py` checks and converts the values, slot by
slot.

The machine reads plain rows only: one row a line, each value in its usual form. It never refuses a row. It returns
`FAILED` at the first that it does not know, and the block is read in another way, which knows all forms and all
reasons. So everything that it reads must be what the other ways read, too.

The data ends with a line end, at which every scan stops.
"""

# ruff: noqa: C901, PLR0912, PLR0915, PLR1714, SIM109 - a machine is a list of branches, one for each form

from __future__ import annotations

import numpy as np
from numba import types

from headrace.compiled import BYTES, INT, INTS, NEW_INTS, compiled, inlined
from headrace.io.text_values import FAILED, Bytes, Ints, Places

__all__ = ["NUMBER", "TEXT", "TIME", "TRUTH", "split_csv", "split_json"]

#: What the values of a slot may be in JSON: numbers, texts, texts or whole numbers, true or false.
NUMBER, TEXT, TIME, TRUTH = range(4)

_NEWLINE, _RETURN, _TAB, _BLANK, _QUOTE, _BACKSLASH = 10, 13, 9, 32, 34, 92
_PLUS, _MINUS, _POINT, _ZERO, _NINE, _COLON, _COMMA = 43, 45, 46, 48, 57, 58, 44
_OPEN, _CLOSE = 123, 125
_MOST_MEMBERS = 256
_LONGEST_NUMBER = 400
#: Places of values, a row for each slot.
_PLACES = types.Array(types.int32, 2, "C")
#: Bytes that stand for themselves in a text.
_PLAIN = (np.arange(256) >= _BLANK) & (np.arange(256) != _QUOTE) & (np.arange(256) != _BACKSLASH)


@inlined
def _is_escape(byte: int) -> bool:
    """Whether a byte behind a backslash stands for one character; `u` is not one of them."""
    return byte == _QUOTE or byte == _BACKSLASH or byte == 47 or byte in (98, 102, 110, 114, 116)  # / b f n r t


@inlined
def _after_word(data: Bytes, at: int) -> int:
    """The place after `true`, `false` or `null`; -1 if it is none of them."""
    byte = data[at]
    if byte == 116 and data[at + 1] == 114 and data[at + 2] == 117 and data[at + 3] == 101:
        return at + 4
    if byte == 110 and data[at + 1] == 117 and data[at + 2] == 108 and data[at + 3] == 108:
        return at + 4
    if byte == 102 and data[at + 1] == 97 and data[at + 2] == 108 and data[at + 3] == 115 and data[at + 4] == 101:
        return at + 5
    return FAILED


@compiled(BYTES, INT, INT, INT, INTS, BYTES, _PLACES, _PLACES, NEW_INTS)
def split_csv(
    data: Bytes, at: int, end: int, rows: int, slots: Ints, stops: Bytes, starts: Places, ends: Places, found: Ints
) -> int:
    """Split up to so many rows. `slots` has the slot of each column of the file, -1 for those that are not read.

    `stops` is 1 for bytes that end a plain field or are odd in it, and 2 for the delimiter; `found` gets the number of
    rows.
    """
    row, last = 0, len(slots) - 1
    while at < end and row < rows:
        if data[at] == _NEWLINE or data[at] == _RETURN:
            return FAILED
        for column in range(len(slots)):
            slot = slots[column]
            first = at
            if data[at] == _QUOTE:
                doubled = False
                while True:
                    at += 1
                    byte = data[at]
                    if byte == _NEWLINE or byte == _RETURN:
                        return FAILED
                    if byte == _QUOTE:
                        if data[at + 1] != _QUOTE:
                            break
                        doubled = True
                        at += 1
                if slot >= 0:
                    starts[slot, row] = ~(first + 1) if doubled else first + 1
                    ends[slot, row] = at
                at += 1
            else:
                while stops[data[at]] == 0:
                    at += 1
                if slot >= 0:
                    starts[slot, row] = first
                    ends[slot, row] = at if at > first else -1
            if column < last:
                if stops[data[at]] != 2:
                    return FAILED
                at += 1
        if data[at] == _RETURN:
            at += 1
        if data[at] != _NEWLINE:
            return FAILED
        at += 1
        row += 1
    found[0] = row
    return at


@compiled(BYTES, INT, INT, INT, BYTES, INTS, INTS, _PLACES, _PLACES, NEW_INTS)
def split_json(
    data: Bytes,
    at: int,
    end: int,
    rows: int,
    names: Bytes,
    bounds: Ints,
    kinds: Ints,
    starts: Places,
    ends: Places,
    found: Ints,
) -> int:
    """Split up to so many rows. `names` has the names of the slots, one after another, and `bounds` their bounds."""
    row, count = 0, len(kinds)
    seen = np.full(count, -1)
    order = np.full(_MOST_MEMBERS, -1)  # the slots of the members of the row before
    while at < end and row < rows:
        while data[at] == _BLANK or data[at] == _TAB:
            at += 1
        if data[at] != _OPEN:
            return FAILED
        at += 1
        while data[at] == _BLANK or data[at] == _TAB:
            at += 1
        member, known = 0, 0
        while data[at] != _CLOSE:
            # The name.
            if data[at] != _QUOTE or member == _MOST_MEMBERS:
                return FAILED
            at += 1
            slot = order[member]
            if slot >= 0:
                name, same = at, True
                for i in range(bounds[slot], bounds[slot + 1]):
                    if data[name] != names[i]:
                        same = False
                        break
                    name += 1
                if same and data[name] == _QUOTE:
                    at = name
                else:
                    slot = -1
            if slot < 0:
                name = at
                while data[at] != _QUOTE:
                    if data[at] < 32 or data[at] == _BACKSLASH:
                        return FAILED
                    at += 1
                for other in range(count):
                    length = bounds[other + 1] - bounds[other]
                    same = length == at - name
                    for i in range(length if same else 0):
                        if data[name + i] != names[bounds[other] + i]:
                            same = False
                            break
                    if same:
                        slot = other
                order[member] = slot
            member += 1
            kind = -1
            if slot >= 0:
                kind = kinds[slot]
                if seen[slot] == row:
                    return FAILED
                seen[slot] = row
                known += 1
            at += 1
            while data[at] == _BLANK or data[at] == _TAB:
                at += 1
            if data[at] != _COLON:
                return FAILED
            at += 1
            while data[at] == _BLANK or data[at] == _TAB:
                at += 1
            # The value.
            first, byte = at, data[at]
            if byte == _QUOTE:
                if kind == NUMBER or kind == TRUTH:
                    return FAILED
                escaped = False
                at += 1
                while True:
                    while _PLAIN[data[at]]:
                        at += 1
                    if data[at] == _QUOTE:
                        break
                    if data[at] != _BACKSLASH:
                        return FAILED
                    escaped = True
                    at += 1
                    if data[at] < 32 or (kind != TEXT and not _is_escape(data[at])):
                        return FAILED
                    at += 1
                if escaped and kind == TIME:
                    return FAILED
                if slot >= 0:
                    starts[slot, row] = ~(first + 1) if escaped else first + 1
                    ends[slot, row] = at
                at += 1
            elif byte == _MINUS or _ZERO <= byte <= _NINE:
                if kind == TEXT or kind == TRUTH:
                    return FAILED
                if byte == _MINUS:
                    at += 1
                digits = at
                while _ZERO <= data[at] <= _NINE:
                    at += 1
                if at == digits or (data[digits] == _ZERO and at > digits + 1):
                    return FAILED
                if data[at] == _POINT:
                    at += 1
                    digits = at
                    while _ZERO <= data[at] <= _NINE:
                        at += 1
                    if at == digits:
                        return FAILED
                if data[at] | 32 == 101:  # e or E
                    at += 1
                    if data[at] == _PLUS or data[at] == _MINUS:
                        at += 1
                    digits = at
                    while _ZERO <= data[at] <= _NINE:
                        at += 1
                    if at == digits:
                        return FAILED
                if at > first + _LONGEST_NUMBER:
                    return FAILED
                if slot >= 0:
                    starts[slot, row] = first
                    ends[slot, row] = at
            else:
                at = _after_word(data, at)
                if at < 0 or (kind >= 0 and kind != TRUTH and byte != 110):
                    return FAILED
                if slot >= 0:
                    starts[slot, row] = first
                    ends[slot, row] = -1 if byte == 110 else at
            while data[at] == _BLANK or data[at] == _TAB:
                at += 1
            if data[at] == _COMMA:
                at += 1
                while data[at] == _BLANK or data[at] == _TAB:
                    at += 1
                if data[at] == _CLOSE:
                    return FAILED
            elif data[at] != _CLOSE:
                return FAILED
        at += 1
        while data[at] == _BLANK or data[at] == _TAB:
            at += 1
        if data[at] == _RETURN:
            at += 1
        if data[at] != _NEWLINE:
            return FAILED
        at += 1
        if known < count:
            for slot in range(count):
                if seen[slot] != row:
                    ends[slot, row] = -1
        row += 1
    found[0] = row
    return at
