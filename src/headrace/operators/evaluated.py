"""Expressions over changes, where a user's function must say of an event that goes what it said when it came.

A change of weight -1 takes back an event that was given before, and is computed anew from what it was computed from
then. If a user's function says something else this time, the change names an event that was never given, and every
answer behind it is wrong. So such rows are asked twice: what differs stops the query and names the function. A function
that changes its mind more slowly is not found here; the history that does not add up then names it.
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

__all__ = ["evaluated", "passing"]


def evaluated(expr: Expr, payload: pa.Table, weight: Int64s) -> pa.Array:
    """The value of an expression in every change."""
    found = evaluate(expr, payload)
    _check(expr, payload, weight, found, evaluate)
    return found


def passing(predicate: Expr, payload: pa.Table, weight: Int64s) -> NDArray[np.bool_]:
    """The changes for which a condition is true, not null."""
    found = predicate_mask(predicate, payload)
    _check(predicate, payload, weight, found, predicate_mask)
    return np.asarray(found)


def _check(
    expr: Expr, payload: pa.Table, weight: Int64s, found: pa.Array, ask: Callable[[Expr, pa.Table], pa.Array]
) -> None:
    gone = weight < 0
    functions = functions_in(expr) if gone.any() else ()
    if not functions:
        return
    rows = payload.filter(pa.array(gone))
    first, again = found.filter(pa.array(gone)), ask(expr, rows)
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
