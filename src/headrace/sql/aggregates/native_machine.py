"""From the text of native code to code of the machine, by Numba."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit, types
from numba.np.numpy_support import from_dtype

from headrace.sql.aggregates.native_rows import ROW_FUNCTIONS
from headrace.sql.aggregates.native_scalars import CONSTANTS, FUNCTIONS

__all__ = ["compiled"]

Dtype = np.dtype[Any]


def _jit(function: Callable[..., Any], *signature: Any, **options: bool) -> Any:
    """Nothing raises, and decimals are computed as they are written, in the same order."""
    made: Any = njit(*signature, error_model="numpy", nogil=True, **options)  # type: ignore[call-overload]
    return made(function)


@lru_cache(maxsize=1)
def _space() -> dict[str, Any]:
    """All that a text finds: no more of Python itself than it uses."""
    spaces: list[dict[str, Any]] = []
    functions = {}
    for name, function in (FUNCTIONS | ROW_FUNCTIONS).items():
        spaces.append(dict(function.__globals__))
        inner = FunctionType(function.__code__, spaces[-1], name)
        # Only native code calls them: without a way in for Python they are compiled sooner.
        functions[name] = _jit(inner, no_cpython_wrapper=True, no_cfunc_wrapper=True)
    for space in spaces:  # they call each other
        space |= functions
    plain = {"range": range, "len": len, "min": min, "abs": abs}
    return {"__builtins__": plain, **CONSTANTS, **functions}


@lru_cache(maxsize=256)
def compiled(source: str, takes: Sequence[Dtype]) -> Any:
    """The function of a text, for columns of these types: said here, so that it is compiled once and no more."""
    integer, whether = types.int64, types.boolean
    read, written = types.Array(integer, 1, "C", readonly=True), types.Array(integer, 1, "C")
    decimals = types.Array(types.float64, 1, "C", readonly=True)
    inputs = [types.Array(kind, 1, "C", readonly=True) for one in takes for kind in (from_dtype(one), whether)]
    frame = [integer, integer, whether, integer, integer, integer, integer, integer]
    signature = (*[read] * 4, *frame, read, decimals, read, *[written] * 3, *inputs)
    space = dict(_space())
    exec(compile(source, "<native aggregate>", "exec"), space)  # noqa: S102 - written by `native`, from the tree
    return _jit(space[source.removeprefix("def ").partition("(")[0]], signature)
