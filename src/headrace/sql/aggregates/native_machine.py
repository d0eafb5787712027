"""From the text of native code to code of the machine, by Numba."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit, types
from numba.np.numpy_support import from_dtype

from headrace.sql.aggregates.native_scalars import CONSTANTS, FUNCTIONS

__all__ = ["compiled"]

Dtype = np.dtype[Any]


def _jit(function: Callable[..., Any], *signature: Any) -> Any:
    """Nothing raises, and decimals are computed as they are written, in the same order."""
    return njit(*signature, error_model="numpy", nogil=True)(function)


@lru_cache(maxsize=1)
def _space() -> dict[str, Any]:
    """All that a text finds: no more of Python itself than it uses."""
    functions = {name: _jit(function) for name, function in FUNCTIONS.items()}
    return {"__builtins__": {"range": range, "len": len, "min": min, "abs": abs}, **CONSTANTS, **functions}


@lru_cache(maxsize=256)
def compiled(source: str, state: Dtype, takes: Sequence[Dtype], gives: Sequence[Dtype]) -> Any:
    """The function of a text, for columns of these types: said here, so that it is compiled once and no more."""
    integer, whether = types.int64, types.boolean
    numbers, written = types.Array(integer, 1, "C", readonly=True), types.Array(integer, 1, "C")
    states = types.Array(from_dtype(state), 1, "C")
    inputs = [types.Array(kind, 1, "C", readonly=True) for one in takes for kind in (from_dtype(one), whether)]
    outputs = [types.Array(kind, 1, "C") for one in gives for kind in (from_dtype(one), whether)]
    plain = [*[numbers] * 4, integer, integer, whether, integer, integer]
    signature = integer(*plain, states, *[written] * 5, *inputs, *outputs)
    space = dict(_space())
    exec(compile(source, "<native aggregate>", "exec"), space)  # noqa: S102 - written by `native`, from the tree
    return _jit(space[source.removeprefix("def ").partition("(")[0]], signature)
