"""The process from which Spark forks Python workers, with all imports that they need.

Workers that import by themselves take a second each, in the first batch of a query. All workers share the modules that
are imported here, and their garbage collection skips them. Workers also keep freed memory, up to a bound: every batch
allocates dozens of arrays of a few megabytes, and getting each of them from the system, page by page, costs a sixth of
the time.
"""

from __future__ import annotations

import ctypes
import gc

import pyarrow as pa
from pyspark.daemon import manager

import headrace.host.spark.worker  # noqa: F401 - for the workers

__all__: list[str] = []

_MEGABYTE = 1 << 20
#: Options of `mallopt`: smaller blocks come from memory that is kept; the size of free memory that is kept.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = (-3, 32 * _MEGABYTE), (-1, 256 * _MEGABYTE)


def keep_memory() -> None:
    """Let the C library keep freed memory, if it has this setting."""
    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    for option in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
        if setting is not None:
            setting(*option)


if __name__ == "__main__":
    keep_memory()
    pa.array([0])  # the first array makes Arrow import pandas: once here, not in the first batch of every worker
    gc.collect()
    gc.freeze()
    manager()
