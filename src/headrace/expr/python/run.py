"""Run a user's function over columns.

Rows with nulls are skipped first, unless the function accepts them. The function is called for the other rows one by
one, or at once if it is vectorised. After a failure, the failing row or the smallest failing part of the arrays is
either reported or becomes null. So whether a row fails does not depend on its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ModuleFailed
from headrace.expr.arrow.columns import Datum
from headrace.expr.python.limit import OutOfTime, Watch, watched
from headrace.expr.python.node import Udf
from headrace.expr.python.values import MISFIT, at_once, fitting, from_array

__all__ = ["run"]

Function = Callable[..., Any]
_SHOWN = 200


@dataclass(frozen=True)
class _Failure:
    """A failure of a function: the reason, the first row, and the exception."""

    row: int
    what: str
    cause: BaseException | None = None
    instead: str = "mend the function, or on_error='null' to have NULL in such rows"

    @classmethod
    def raised(cls, row: int, error: Exception) -> _Failure:
        return cls(row, f"raised {type(error).__name__}: {error}", error)


def run(udf: Udf, args: Sequence[Datum], rows: int) -> Datum:
    """The value of the function in every row; arguments are arrays, or scalars if they are constant."""
    if rows == 0:
        return pa.array([], udf.returns.arrow)
    if all(isinstance(arg, pa.Scalar) for arg in args):
        return _run(udf, [pa.repeat(arg, 1) for arg in args])[0]
    return _run(udf, [pa.repeat(arg, rows) if isinstance(arg, pa.Scalar) else arg for arg in args])


def _run(udf: Udf, args: list[pa.Array]) -> pa.Array:
    if udf.nulls == "pass" or not any(arg.null_count for arg in args):
        return _checked(udf, args)
    there = np.logical_and.reduce([np.asarray(pc.is_valid(arg)) for arg in args])
    if not there.any():
        return pa.nulls(len(there), udf.returns.arrow)
    found = _checked(udf, [arg.filter(pa.array(there)) for arg in args])
    return found.take(pa.array(np.maximum(np.cumsum(there) - 1, 0), mask=~there))


def _checked(udf: Udf, args: list[pa.Array]) -> pa.Array:
    found = _called(udf, args)
    if udf.verify:
        again = _called(udf, args)
        for row, (a, b) in enumerate(zip(found.to_pylist(), again.to_pylist(), strict=True)):
            if not _same(a, b):
                what = f"is not deterministic: it gave {_shown(a)}, then {_shown(b)}"
                raise _error(udf, args, _Failure(row, what, instead="a function of its arguments alone"))
    return found


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b) or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


def _called(udf: Udf, args: list[pa.Array]) -> pa.Array:
    every = _all_rows if udf.vectorised else _row_by_row
    if udf.time_limit is None:
        return every(udf, args, udf.function)
    watch = Watch()
    try:
        return watched(lambda: every(udf, args, watch.timed(udf.function)), watch, udf.time_limit)
    except OutOfTime:
        row = 0 if udf.vectorised else watch.calls - 1
        what = f"did not return within {udf.time_limit} s"
        raise _error(udf, args, _Failure(row, what, instead="a quicker function, or a longer time_limit")) from None


# --- row by row -------------------------------------------------------------------------------------------------------


def _row_by_row(udf: Udf, args: list[pa.Array], function: Function) -> pa.Array:
    rows = zip(*(arg.to_pylist() for arg in args), strict=True)
    if udf.on_error == "null":
        values = [_or_misfit(function, row) for row in rows]
        found = at_once(values, udf.returns)
        if found is not None:
            return found
        fits = [fitting(value, udf.returns) for value in values]
        return pa.array([None if value is MISFIT else value for value in fits], udf.returns.arrow)
    values, failure = [], None
    try:
        for row in rows:
            values.append(function(*row))
    except Exception as error:  # noqa: BLE001 - a function of a user may raise anything
        failure = _Failure.raised(len(values), error)
    found = at_once(values, udf.returns)
    if found is None:
        fits = [fitting(value, udf.returns) for value in values]
        wrong = next((i for i, value in enumerate(fits) if value is MISFIT), None)
        if wrong is None:
            found = pa.array(fits, udf.returns.arrow)
        else:
            failure = _Failure(wrong, f"gave {_shown(values[wrong])}, which is no {udf.returns.value}")
    if failure is not None:
        raise _error(udf, args, failure) from failure.cause
    return found


def _or_misfit(function: Function, row: tuple[Any, ...]) -> Any:
    try:
        return function(*row)
    except Exception:  # noqa: BLE001 - whatever it is, the row has no value then
        return MISFIT


# --- all rows at once -------------------------------------------------------------------------------------------------


def _all_rows(udf: Udf, args: list[pa.Array], function: Function) -> pa.Array:
    found = _attempt(udf, args, function)
    if not isinstance(found, _Failure):
        return found
    if udf.on_error == "null":
        return _salvaged(udf, args, function)
    first, failure = _smallest(udf, args, function, found)
    raise _error(udf, args, _Failure(first, failure.what)) from failure.cause


def _attempt(udf: Udf, args: list[pa.Array], function: Function) -> pa.Array | _Failure:
    try:
        given = function(*args)
    except Exception as error:  # noqa: BLE001 - a function of a user may raise anything
        return _Failure.raised(0, error)
    found = from_array(given, len(args[0]), udf.returns)
    return _Failure(0, found) if isinstance(found, str) else found


def _salvaged(udf: Udf, args: list[pa.Array], function: Function) -> pa.Array:
    """Retry a failing part by halves; single rows that fail are null."""
    size = len(args[0])
    if size == 1:
        return pa.nulls(1, udf.returns.arrow)
    parts = []
    for start, length in ((0, size // 2), (size // 2, size - size // 2)):
        part = [arg.slice(start, length) for arg in args]
        found = _attempt(udf, part, function)
        parts.append(_salvaged(udf, part, function) if isinstance(found, _Failure) else found)
    return pa.concat_arrays(parts)


def _smallest(udf: Udf, args: list[pa.Array], function: Function, failure: _Failure) -> tuple[int, _Failure]:
    """The start of a smallest failing part: one whose halves do not fail, or a single row."""
    first, size = 0, len(args[0])
    while size > 1:
        for start, length in ((first, size // 2), (first + size // 2, size - size // 2)):
            found = _attempt(udf, [arg.slice(start, length) for arg in args], function)
            if isinstance(found, _Failure):
                first, size, failure = start, length, found
                break
        else:
            break
    return first, failure


# --- what is said of it -----------------------------------------------------------------------------------------------


def _error(udf: Udf, args: list[pa.Array], failure: _Failure) -> ModuleFailed:
    row = {name: arg[failure.row].as_py() for name, arg in zip(udf.parameters, args, strict=False)}
    shown = ", ".join(f"{name}={_shown(value)}" for name, value in row.items())
    return ModuleFailed(
        f"the function {udf.name} {failure.what}, for {shown}",
        given=f"{udf.name}({shown})",
        allowed=udf.signature,
        instead=failure.instead,
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
