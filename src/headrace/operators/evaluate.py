"""Expressions over changes, with a check that users' functions are deterministic.

A change of weight -1 takes back an earlier event, and is computed anew from the same input. If a user's function
returns another value this time, the change names an event that never existed, and every later answer is wrong. So
expressions with users' functions are computed twice for such rows; a difference stops the query and names the function.
This does not find a function whose values change more slowly; the check that the history adds up finds that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.columnar import Int64s
from headrace.errors import ModuleFailed
from headrace.expr import Expr, evaluate, predicate_mask
from headrace.expr.python import functions_in

__all__ = ["evaluate_changes", "passing_mask"]


def evaluate_changes(expr: Expr, payload: pa.Table, weight: Int64s) -> pa.Array:
    """The value of an expression in every change."""
    values = evaluate(expr, payload)
    _check(expr, payload, weight, values, evaluate)
    return values


def passing_mask(predicate: Expr, payload: pa.Table, weight: Int64s) -> NDArray[np.bool_]:
    """The changes for which a condition is true, not null."""
    mask = predicate_mask(predicate, payload)
    _check(predicate, payload, weight, mask, predicate_mask)
    return np.asarray(mask)


def _check(
    expr: Expr, payload: pa.Table, weight: Int64s, values: pa.Array, compute: Callable[[Expr, pa.Table], pa.Array]
) -> None:
    """Compute the rows that take events back a second time, and compare."""
    taken_back = weight < 0
    functions = functions_in(expr) if taken_back.any() else ()
    if not functions:
        return
    rows = payload.filter(pa.array(taken_back))
    first, again = values.filter(pa.array(taken_back)), compute(expr, rows)
    if first.equals(again):
        return
    for number, (a, b) in enumerate(zip(first.to_pylist(), again.to_pylist(), strict=True)):
        if not _same(a, b):
            used = expr.columns()
            row = {name: value for name, value in rows.slice(number, 1).to_pylist()[0].items() if name in used}
            raise ModuleFailed(
                f"the function {', '.join(f.name for f in functions)} is not deterministic: it gave {a!r}, then {b!r}, "
                f"for {', '.join(f'{name}={value!r}' for name, value in row.items())}",
                given=str(functions[0].signature),
                allowed="functions of their arguments alone, so that a retraction finds what it takes back",
                instead="a column for what it depends on, filled before the rows come in; verify=True finds it sooner",
            )


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b) or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))
