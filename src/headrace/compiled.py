"""Loops compiled to machine code, for work that NumPy and Arrow would do in many passes over memory.

A compiled function takes and returns arrays, and does not hold Python's global lock, so that several threads run it at
once. Numba compiles it when it is first called, and keeps the code on disk until its file changes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit, types

__all__ = [
    "BYTES", "FLOATS", "INT", "INTS", "NEW_BYTES", "NEW_FLOATS", "NEW_INTS", "NEW_TABLE", "NEW_TRUTHS", "NEW_UINTS",
    "OFFSETS", "TABLE", "TRUTHS", "UINT", "UINTS", "compiled", "inlined",
]  # fmt: skip

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: Arguments that are read.
INT = types.int64
UINT = types.uint64
INTS = types.Array(types.int64, 1, "C", readonly=True)
UINTS = types.Array(types.uint64, 1, "C", readonly=True)
FLOATS = types.Array(types.float64, 1, "C", readonly=True)
TRUTHS = types.Array(types.boolean, 1, "C", readonly=True)
OFFSETS = types.Array(types.int32, 1, "C", readonly=True)
BYTES = types.Array(types.uint8, 1, "C", readonly=True)
TABLE = types.Array(types.int64, 2, "C", readonly=True)
#: Arguments that are written to.
NEW_BYTES = types.Array(types.uint8, 1, "C")
NEW_INTS = types.Array(types.int64, 1, "C")
NEW_UINTS = types.Array(types.uint64, 1, "C")
NEW_FLOATS = types.Array(types.float64, 1, "C")
NEW_TRUTHS = types.Array(types.boolean, 1, "C")
NEW_TABLE = types.Array(types.int64, 2, "C")


def compiled(*takes: types.Type) -> Callable[[_Function], _Function]:
    """Compile a function that Python calls, for arguments of these types: once, also for arrays that are read-only.

    It may call only `inlined` functions of its own file: the file's age decides whether the kept code is still valid.
    """

    def wrap(function: _Function) -> _Function:
        return cast("_Function", update_wrapper(_Compiled(function, takes), function))

    return wrap


def inlined(function: _Function) -> _Function:
    """Compile a function into those that call it."""
    return njit(  # type: ignore[no-any-return, call-overload]
        function, error_model="numpy", nogil=True, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True
    )


class _Compiled:
    """A function that is compiled, or read from the disk, by its first call."""

    def __init__(self, function: Callable[..., Any], takes: tuple[types.Type, ...]) -> None:
        self._function, self._takes = function, takes
        self._code: Any = None

    def __call__(self, *args: Any) -> Any:
        if self._code is None:
            self._code = self._compile()
        try:
            return self._code(*args)
        except TypeError:  # an array with gaps between its values: one that is only read may be a copy
            read = [isinstance(kind, types.Array) and not kind.mutable for kind in self._takes]
            copied = (np.ascontiguousarray(a) if only else a for a, only in zip(args, read, strict=True))
            return self._code(*copied)

    def _compile(self) -> Any:
        options: Any = {"error_model": "numpy", "nogil": True}
        try:
            return njit(self._takes, cache=True, **options)(self._function)
        except RuntimeError:  # there is no folder for the cache
            return njit(self._takes, **options)(self._function)
