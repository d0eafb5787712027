"""The stack machine that runs the programs of `patterns/program.py`, compiled once for all patterns.

A value is two words: an integer, or the bits of a float; and 1 if it is NULL. So functions take an array of values
twice, as integers and as floats (`..._f`, the same memory); each operation reads one of them. Results that cannot be
computed are NULL; NaN equals itself and is greater than any number.

Compiled code here allocates nothing and counts no references (`_nrt=False`): callers pass all arrays that it writes to.
Counting the references to twenty arrays for each move of each run took ten times as long as the search itself.
"""

# ruff: noqa: C901 - a machine is a list of branches, one for each operation

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from headrace.expr.arrow.dates import FIRST_DAY, LAST_TICK
from headrace.patterns import program as op

__all__ = ["DEPTH", "Floats", "Int", "Ints", "called_from_python", "holds", "less", "native", "run"]

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
#: A number or truth value of the machine; Python and NumPy have different types for it.
Int: TypeAlias = Any
_Function = TypeVar("_Function", bound=Callable[..., Any])
_PLAIN: dict[str, Any] = {"error_model": "numpy", "nogil": True, "_nrt": False}


def native(function: _Function) -> _Function:
    """Compile code of the machine inline into its callers; floats are computed as written."""
    return _compile(function, forceinline=True)


def native_function(function: _Function) -> _Function:
    """Like `native`, but as a function that is called: large code is compiled once, not for each caller."""
    return _compile(function)


def _compile(function: _Function, **options: Any) -> _Function:
    inner: Any = njit(**_PLAIN, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options)  # type: ignore[call-overload]
    return inner(function)  # type: ignore[no-any-return]


def called_from_python(function: _Function) -> _Function:
    """Like `native`, for functions that Python calls; the code is cached on disk until one of its sources changes."""
    # Numba checks only the function's own file, so a hash of the other sources is part of the function's name.
    sources = "".join(map(inspect.getsource, (sys.modules[__name__], op)))
    function.__qualname__ += f"_{hashlib.sha256(sources.encode()).hexdigest()[:8]}"
    try:
        outer: Any = njit(**_PLAIN, cache=True)
        return outer(function)  # type: ignore[no-any-return]
    except RuntimeError:  # there is no folder for the cache
        outer = njit(**_PLAIN)
        return outer(function)  # type: ignore[no-any-return]


#: No program needs more values at once than this.
DEPTH = 256
_LEAST = np.iinfo(np.int64).min

COLUMN, SLOT, SLOT_SUM = op.COLUMN, op.SLOT, op.SLOT_SUM
NULL, SELECT, LAST_ALONE, LAST_CHOSEN = op.NULL, op.SELECT, op.FITS, op.LEAST_F
ADD_I, SUB_I, MUL_I, MOD_I, ABS_I = op.ADD_I, op.SUB_I, op.MUL_I, op.MOD_I, op.ABS_I
ADD_F, SUB_F, MUL_F, DIV_F, MOD_F, NEG_F, ABS_F = op.ADD_F, op.SUB_F, op.MUL_F, op.DIV_F, op.MOD_F, op.NEG_F, op.ABS_F
EQ_I, LT_I, EQ_F, LT_F, AND, OR, NOT = op.EQ_I, op.LT_I, op.EQ_F, op.LT_F, op.AND, op.OR, op.NOT
IS_NULL = op.IS_NULL
GREATEST_I, LEAST_I, GREATEST_F, LEAST_F = op.GREATEST_I, op.LEAST_I, op.GREATEST_F, op.LEAST_F
TO_FLOAT, TO_SINGLE, TO_WHOLE = op.TO_FLOAT, op.TO_SINGLE, op.TO_WHOLE


@native
def holds(
    code: Ints, begin: Int, end: Int, columns: Ints, i: Int, slots: Ints, side: Int, r: Int, stack: Ints,
    stack_f: Floats,
) -> Int:  # fmt: skip
    """Whether a condition is true for run r and tuple i; a condition without program is true."""
    if begin == end:
        return True
    run(code, begin, end, columns, i, slots, side, r, stack, stack_f)
    return stack[1] == 0 and stack[0] != 0


@native_function
def run(
    code: Ints, begin: Int, end: Int, columns: Ints, i: Int, slots: Ints, side: Int, r: Int, stack: Ints,
    stack_f: Floats,
) -> None:  # fmt: skip
    """Run a program; its value is at the bottom of the stack."""
    top = np.int64(0)  # a plain 0 has another type, and would compile everything twice
    for at in range(begin, end, 2):
        operation, operand = code[at], code[at + 1]
        if operation <= NULL:
            if operation == COLUMN:
                stack[top], stack[top + 1] = columns[i, 2 * operand], columns[i, 2 * operand + 1]
            elif operation == SLOT:
                stack[top], stack[top + 1] = slots[side, r, 2 * operand], slots[side, r, 2 * operand + 1]
            elif operation == SLOT_SUM:  # of 128 bits, in two slots
                low, high = slots[side, r, 2 * operand], slots[side, r, 2 * operand + 2]
                stack[top], stack[top + 1] = low, slots[side, r, 2 * operand + 1]
                if high != (-1 if low < 0 else 0):
                    stack[top + 1] = 1
            else:
                stack[top], stack[top + 1] = operand, operation == NULL
            top += 2
        elif operation == SELECT:
            top -= 4
            chosen = top if stack[top - 1] == 0 and stack[top - 2] != 0 else top + 2
            stack[top - 2], stack[top - 1] = stack[chosen], stack[chosen + 1]
        elif operation <= LAST_ALONE:
            _unary(operation, operand, stack, stack_f, top - 2)
        elif operation <= LAST_CHOSEN:
            top -= 2
            _null_aware(operation, stack, stack_f, top - 2, top)
        else:
            top -= 2
            stack[top - 1] |= stack[top + 1]
            if stack[top - 1] == 0:
                _binary(operation, operand, stack, stack_f, top - 2, top)


@native
def _fits(value: Int, bits: Int) -> Int:
    if bits == 64:
        return True
    if bits == 1:
        return FIRST_DAY <= value <= LAST_TICK
    limit = np.int64(1) << np.int64(bits - 1)
    return -limit <= value < limit


@native
def _unary(operation: Int, operand: Int, stack: Ints, stack_f: Floats, a: Int) -> None:
    """Operations on one value."""
    if operation == IS_NULL:
        stack[a], stack[a + 1] = stack[a + 1], 0
    elif stack[a + 1] != 0:
        return
    elif operation == NOT:
        stack[a] = 1 - stack[a]
    elif operation == NEG_F:
        stack_f[a] = -stack_f[a]
    elif operation == ABS_F:
        stack_f[a] = abs(stack_f[a])
    elif operation == ABS_I:
        value = stack[a]
        stack[a] = abs(value)
        stack[a + 1] = value == _LEAST or not _fits(abs(value), operand)
    elif operation == TO_FLOAT:
        value = stack[a]
        stack_f[a] = np.float64(np.float32(value)) if operand else np.float64(value)
    elif operation == TO_SINGLE:
        stack_f[a] = np.float64(np.float32(stack_f[a]))
    elif operation == TO_WHOLE:
        number = np.trunc(stack_f[a])
        limit = 2.0 ** (operand - 1)
        if -limit <= number < limit:
            stack[a] = np.int64(number)
        else:
            stack[a + 1] = 1
    else:
        stack[a + 1] = not _fits(stack[a], operand)


@native
def less(a: Int, b: Int) -> Int:
    """The order of numbers in SQL: NaN is the greatest."""
    return a < b or (np.isnan(b) and not np.isnan(a))


@native
def _null_aware(operation: Int, stack: Ints, stack_f: Floats, a: Int, b: Int) -> None:
    """Operations that accept NULL."""
    if operation in (AND, OR):
        decides = 0 if operation == AND else 1
        if (stack[a + 1] == 0 and stack[a] == decides) or (stack[b + 1] == 0 and stack[b] == decides):
            stack[a], stack[a + 1] = decides, 0
        else:
            stack[a], stack[a + 1] = 1 - decides, stack[a + 1] | stack[b + 1]
        return
    if stack[b + 1] != 0:
        return
    take = stack[a + 1] != 0
    if not take and operation == GREATEST_I:
        take = stack[b] > stack[a]
    elif not take and operation == LEAST_I:
        take = stack[b] < stack[a]
    elif not take and operation == GREATEST_F:
        take = less(stack_f[a], stack_f[b])
    elif not take and operation == LEAST_F:
        take = less(stack_f[b], stack_f[a])
    if take:
        stack[a], stack[a + 1] = stack[b], 0


@native
def _binary(operation: Int, operand: Int, stack: Ints, stack_f: Floats, a: Int, b: Int) -> None:
    """Operations on two values that are not NULL."""
    if operation == EQ_I:
        stack[a] = stack[a] == stack[b]
    elif operation == LT_I:
        stack[a] = stack[a] < stack[b]
    elif operation == EQ_F:
        m, n = stack_f[a], stack_f[b]
        stack[a] = m == n or (np.isnan(m) and np.isnan(n))
    elif operation == LT_F:
        stack[a] = less(stack_f[a], stack_f[b])
    elif operation <= MOD_I:
        _integer(operation, operand, stack, a, b)
    else:
        _floating(operation, operand, stack, stack_f, a, b)


@native
def _integer(operation: Int, bits: Int, stack: Ints, a: Int, b: Int) -> None:
    m, n = stack[a], stack[b]
    value: Int = 0
    fits: Int = True
    if operation == ADD_I:
        value = m + n
        fits = ((m ^ value) & (n ^ value)) >= 0
    elif operation == SUB_I:
        value = m - n
        fits = ((m ^ n) & (m ^ value)) >= 0
    elif operation == MUL_I:
        value = m * n
        if m == -1:
            fits = n != _LEAST
        elif m != 0:
            fits = value // m == n
    elif n == 0:
        fits = False
    elif n != -1:
        value = m % n  # has the sign of the divisor; SQL wants that of the dividend
        if value != 0 and (m < 0) != (n < 0):
            value -= n
    stack[a] = value
    stack[a + 1] = not fits or not _fits(value, bits)


@native
def _floating(operation: Int, single: Int, stack: Ints, stack_f: Floats, a: Int, b: Int) -> None:
    m, n = stack_f[a], stack_f[b]
    if operation == ADD_F:
        value = m + n
    elif operation == SUB_F:
        value = m - n
    elif operation == MUL_F:
        value = m * n
    else:
        if n == 0.0:
            stack[a + 1] = 1
            return
        value = m / n if operation == DIV_F else np.fmod(m, n)
    stack_f[a] = np.float64(np.float32(value)) if single else value
