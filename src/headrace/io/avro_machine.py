"""The machine that reads and writes Avro datums, compiled once for all schemas.

A schema becomes a program (`avro.py`): one instruction of four numbers for each part of a datum. `read` runs it on
every datum and writes the wanted parts into columns. A datum must end where its value ends, and a fault marks only its
own row: nothing is ever read beyond it.

A part of a datum has a *slot*. A slot is a row of `out` (numbers, the bits of floats, or where bytes start), one of
`size` (the lengths of bytes, the numbers of elements of lists) and one of `valid`. The elements of lists have slots
too, in the same arrays; they are appended, and `filled` has their number.
"""

# ruff: noqa: C901, PLR0912, PLR0915 - a machine is a list of branches, one for each operation

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = [
    "BOOLEAN", "BYTES", "CALL", "DEPTH", "DOUBLE", "END", "ENUM", "FIXED", "FLOAT", "INT", "JUMP", "LONG",
    "LOOP", "NEXT", "NULL", "PRESENT", "RETURN", "UNION", "gather", "read", "write",
]  # fmt: skip

Ints = NDArray[np.int64]
_Function = TypeVar("_Function", bound=Callable[..., Any])

#: Instructions (operation, slot, x, y). A slot of -1 skips the part.
END = 0
NULL = 1
BOOLEAN = 2
INT = 3
LONG = 4
FLOAT = 5
DOUBLE = 6
BYTES = 7  # also text
FIXED = 8  # x: the size
ENUM = 9  # x: the number of symbols
UNION = 10  # x: where the table of branches is, y: the number of branches
JUMP = 11  # x: the next instruction
LOOP = 12  # the begin of a list or map; x: the instruction after it, y: 1 if elements may have no bytes
NEXT = 13  # the end of an element; x: the first instruction of an element
CALL = 14  # x: the first instruction of a type that contains itself
RETURN = 15
PRESENT = 16  # marks that a part exists; it has no bytes
#: How deep lists and types that contain themselves may be nested.
DEPTH = 256
_MOST_EMPTY = 1 << 10


def _native(function: _Function) -> _Function:
    try:
        outer: Any = njit(cache=True, error_model="numpy", nogil=True)
        return outer(function)  # type: ignore[no-any-return]
    except RuntimeError:  # there is no folder for the cache
        outer = njit(error_model="numpy", nogil=True)
        return outer(function)  # type: ignore[no-any-return]


@_native
def read(
    data: NDArray[np.uint8],
    starts: Ints,
    ends: Ints,
    program: NDArray[np.int64],
    branches: Ints,
    out: NDArray[np.int64],
    size: NDArray[np.int64],
    valid: NDArray[np.uint8],
    element: Ints,
    filled: Ints,
    bad: NDArray[np.uint8],
) -> None:
    """Run the program on all datums; `element[slot]` is the list that a slot's elements belong to, or -1."""
    stack = np.zeros((DEPTH, 3), np.int64)
    before = filled.copy()
    for row in range(len(starts)):
        at, end, pc, depth, fault = starts[row], ends[row], 0, 0, 0
        before[:] = filled
        while True:
            op, slot = program[pc, 0], program[pc, 1]
            if op == END:
                fault = 0 if at == end else 1
                break
            if op == NULL:
                if slot >= 0 and element[slot] >= 0:
                    valid[slot, filled[slot]] = 0
                    filled[slot] += 1
                pc += 1
                continue
            if op == PRESENT:
                valid[slot, row] = 1
                pc += 1
                continue
            if op == JUMP:
                pc = program[pc, 2]
                continue
            if op == RETURN:
                depth -= 1
                pc = stack[depth, 0]
                continue
            if op == CALL:
                if depth == DEPTH:
                    fault = 3
                    break
                stack[depth, 0] = pc + 1
                depth += 1
                pc = program[pc, 2]
                continue
            value, start, length = np.int64(0), at, np.int64(0)
            if op == NEXT:
                stack[depth - 1, 1] -= 1
                if stack[depth - 1, 1] > 0:
                    pc = program[pc, 2]
                    continue
                op = LOOP
                slot = stack[depth - 1, 2]
            elif op == LOOP:
                if depth == DEPTH:
                    fault = 3
                    break
                stack[depth, 0] = pc
                stack[depth, 2] = slot
                depth += 1
                if slot >= 0:
                    valid[slot, row] = 1
            if op in (DOUBLE, FLOAT, FIXED, BOOLEAN):
                length = 8 if op == DOUBLE else 4 if op == FLOAT else 1 if op == BOOLEAN else program[pc, 2]
                if length > end - at:
                    fault = 1
                    break
                if op == BOOLEAN:
                    value = np.int64(data[at])
                    if value > 1:
                        fault = 2
                        break
                elif op == FIXED:
                    value = at
                else:
                    bits = np.uint64(0)
                    for i in range(length):
                        bits |= np.uint64(data[at + i]) << np.uint64(8 * i)
                    value = np.int64(bits)
                at += length
            else:
                # Everything else begins with a number of variable length.
                bits, shift, more = np.uint64(0), 0, True
                while more:
                    if at == end or shift > 63:
                        fault = 1 if at == end else 2
                        break
                    byte = np.uint64(data[at])
                    if shift == 63 and byte > np.uint64(1):
                        fault = 2
                        break
                    bits |= (byte & np.uint64(127)) << np.uint64(shift)
                    more = byte > np.uint64(127)
                    shift += 7
                    at += 1
                if fault:
                    break
                value = np.int64(bits >> np.uint64(1)) ^ -np.int64(bits & np.uint64(1))
                if op == BYTES:
                    if value < 0 or value > end - at:
                        fault = 2 if value < 0 else 1
                        break
                    start, length = at, value
                    at += length
                    value = start
                elif op == INT:
                    if value < -2147483648 or value > 2147483647:
                        fault = 2
                        break
                elif op == ENUM:
                    if value < 0 or value >= program[pc, 2]:
                        fault = 2
                        break
                elif op == UNION:
                    if value < 0 or value >= program[pc, 3]:
                        fault = 2
                        break
                    pc = branches[program[pc, 2] + value]
                    continue
                elif op == LOOP:
                    head = stack[depth - 1, 0]
                    if value < 0:  # the size of the block in bytes follows
                        value = -value
                        more = True
                        while more:
                            if at == end:
                                fault = 1
                                break
                            more = data[at] > 127
                            at += 1
                        if fault:
                            break
                    if value == 0:
                        depth -= 1
                        pc = program[head, 2]
                        continue
                    if value < 0 or value > (_MOST_EMPTY if program[head, 3] else end - at):
                        fault = 1
                        break
                    if slot >= 0:
                        size[slot, row] += value
                    stack[depth - 1, 1] = value
                    pc = head + 1
                    continue
            if slot >= 0:
                place = row if element[slot] < 0 else filled[slot]
                out[slot, place] = value
                size[slot, place] = length
                valid[slot, place] = 1
                if element[slot] >= 0:
                    filled[slot] += 1
            pc += 1
        if fault:
            bad[row] = fault
            filled[:] = before
            for slot in range(len(element)):
                if element[slot] < 0:
                    valid[slot, row] = 0
                    size[slot, row] = 0


@_native
def gather(data: NDArray[np.uint8], starts: Ints, ends: Ints, out: NDArray[np.uint8]) -> None:
    """Copy the bytes between starts and ends one after another."""
    at = 0
    for i in range(len(starts)):
        for j in range(starts[i], ends[i]):
            out[at] = data[j]
            at += 1


@_native
def write(
    rows: int,
    program: NDArray[np.int64],
    numbers: NDArray[np.int64],
    size: NDArray[np.int64],
    valid: NDArray[np.uint8],
    data: NDArray[np.uint8],
    prefix: NDArray[np.uint8],
    out: NDArray[np.uint8],
    ends: Ints,
) -> None:
    """Write a datum for each row; `numbers`, `size` and `valid` are what `read` fills, with rows one after another.

    An instruction is (operation, slot, number of the union's branch for null, for the value); -1: there is no union.
    The instruction after a LOOP is that of its elements; the position in their slot is where the last list ended.
    """
    at = 0
    used = np.zeros(numbers.shape[0], np.int64)
    for row in range(rows):
        for i in range(len(prefix)):
            out[at] = prefix[i]
            at += 1
        pc, element, left = 0, -1, np.int64(0)
        while pc < len(program):
            op, slot, place = program[pc, 0], program[pc, 1], row
            if element >= 0:
                place = used[slot]
                used[slot] += 1
            full = valid[slot, place] > 0
            value, length = numbers[slot, place], size[slot, place]
            branch = program[pc, 3] if full else program[pc, 2]
            if branch >= 0:
                out[at] = 2 * branch
                at += 1
            if full:
                if op in (DOUBLE, FLOAT):
                    bits = np.uint64(value)
                    for i in range(8 if op == DOUBLE else 4):
                        out[at] = (bits >> np.uint64(8 * i)) & np.uint64(255)
                        at += 1
                elif op == BOOLEAN:
                    out[at] = value
                    at += 1
                else:
                    number = length if op in (BYTES, LOOP) else value
                    if op != FIXED:
                        bits = (np.uint64(number) << np.uint64(1)) ^ np.uint64(number >> 63)
                        while bits > np.uint64(127):
                            out[at] = (bits & np.uint64(127)) | np.uint64(128)
                            bits >>= np.uint64(7)
                            at += 1
                        out[at] = bits
                        at += 1
                    if op in (BYTES, FIXED):
                        for i in range(length):
                            out[at] = data[value + i]
                            at += 1
            if op == LOOP:
                if full and length > 0:
                    element, left = pc + 1, length
                    pc += 1
                else:
                    pc += 2
                continue
            if element >= 0:
                left -= 1
                if left > 0:
                    continue
                element = -1
                out[at] = 0  # the end of the list
                at += 1
            pc += 1
        ends[row] = at
