"""Loops compiled to machine code, for work that NumPy and Arrow would do in many passes over memory.

A compiled function takes and returns arrays, and does not hold Python's global lock, so that several threads run it at
once. Numba compiles it when it is first called with some types, and keeps the code on disk until its file changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

__all__ = ["compiled", "inlined"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(function: _Function) -> _Function:
    """Compile a function that Python calls. It may call only `inlined` functions of its own file: the file's age
    decides whether the kept code is still valid.
    """
    try:
        return njit(function, cache=True, error_model="numpy", nogil=True)  # type: ignore[no-any-return]
    except RuntimeError:  # there is no folder for the code
        return njit(function, error_model="numpy", nogil=True)  # type: ignore[no-any-return]


def inlined(function: _Function) -> _Function:
    """Compile a function into those that call it."""
    return njit(  # type: ignore[no-any-return, call-overload]
        function, error_model="numpy", nogil=True, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True
    )
