"""Compile the text of native code to machine code, by Numba.

Compiling takes seconds, so the code is kept on disk, for all workers and for later processes: in `native` below
HEADRACE_CACHE, or the user's cache folder. A text is kept under a name that follows from it and from everything that
becomes part of it, so a change of either is compiled anew. Where nothing can be written, every process compiles.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
import numpy as np
from numba import njit, types
from numba.np.numpy_support import from_dtype

from headrace.cache import cache_folder
from headrace.sql.aggregates.native.rows import ROW_FUNCTIONS
from headrace.sql.aggregates.native.scalars import CONSTANTS, FUNCTIONS

__all__ = ["compiled"]

Dtype = np.dtype[Any]


def _jit(function: Callable[..., Any], *signature: Any, **options: bool) -> Any:
    """Compile a function: no exceptions, and floats computed in the order of the text."""
    made: Any = njit(*signature, error_model="numpy", nogil=True, **options)  # type: ignore[call-overload]
    return made(function)


@lru_cache(maxsize=1)
def _space() -> dict[str, Any]:
    """The global names of a text: its functions, and only the builtins that it uses."""
    spaces: list[dict[str, Any]] = []
    functions = {}
    for name, function in (FUNCTIONS | ROW_FUNCTIONS).items():
        spaces.append(dict(function.__globals__))
        inner = FunctionType(function.__code__, spaces[-1], name)
        # Only native code calls them: without an entry point for Python they compile faster.
        functions[name] = _jit(inner, no_cpython_wrapper=True, no_cfunc_wrapper=True)
    for space in spaces:  # they call each other
        space |= functions
    plain = {"range": range, "len": len, "min": min, "abs": abs}
    return {"__builtins__": plain, **CONSTANTS, **functions}


@lru_cache(maxsize=256)
def compiled(source: str, takes: Sequence[Dtype]) -> Any:
    """The function of a text, compiled once, for columns of these types."""
    integer, whether = types.int64, types.boolean
    read, written = types.Array(integer, 1, "C", readonly=True), types.Array(integer, 1, "C")
    decimals = types.Array(types.float64, 1, "C", readonly=True)
    inputs = [types.Array(kind, 1, "C", readonly=True) for one in takes for kind in (from_dtype(one), whether)]
    frame = [integer, integer, whether, integer, integer, integer, integer, integer]
    signature = (*[read] * 4, *frame, read, decimals, read, *[written] * 3, *inputs)
    space = {**_space(), "__name__": __name__}  # cached code names an importable module
    # Numba finds the constants of cached code by the function's name: two texts must not share one.
    title, mark = source.removeprefix("def ").partition("(")[0], hashlib.sha256(source.encode()).hexdigest()[:12]
    source = source.replace(f"def {title}(", f"def {title}_{mark}(", 1)
    kept = _kept(source)
    exec(compile(source, str(kept or "<native aggregate>"), "exec"), space)  # noqa: S102 - written by `native`
    function = space[f"{title}_{mark}"]
    return _jit(function, signature, cache=kept is not None)


def _kept(source: str) -> Path | None:
    """The file that caches a text beside its code; None if there is no cache."""
    folder = cache_folder("native")
    if folder is None:
        return None
    path = folder / f"{hashlib.sha256((_parts() + source).encode()).hexdigest()[:32]}.py"
    try:
        if not path.exists():
            handle, draft = tempfile.mkstemp(dir=folder, suffix=".tmp")
            with os.fdopen(handle, "w") as file:
                file.write(source)
            Path(draft).replace(path)
    except OSError:  # no room
        return None
    return path


@lru_cache(maxsize=1)
def _parts() -> str:
    """The sources that become part of the code besides its own text."""
    functions = [inspect.getsource(function) for function in (FUNCTIONS | ROW_FUNCTIONS).values()]
    return "\n".join([__name__, numba.__version__, repr(sorted(CONSTANTS.items())), *functions])
