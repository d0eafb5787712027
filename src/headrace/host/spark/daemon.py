"""The process that Spark forks Python workers from, with everything imported that they need.

Workers that import by themselves take a second each, at the first batch of a query. What is imported here is shared by
all of them, and left out when they collect garbage. Workers also keep memory that they have freed, up to a bound:
arrays of a few megabytes come and go by the dozen in every batch, and to get each of them from the system, page by
page, costs a sixth of all time.
"""

from __future__ import annotations

import ctypes
import gc

from pyspark.daemon import manager

import headrace.host.spark.worker  # noqa: F401 - for the workers

__all__: list[str] = []

_MEGABYTE = 1 << 20
#: Of `mallopt`: what is smaller comes from memory that is kept; so much of it stays when it is free.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = (-3, 32 * _MEGABYTE), (-1, 256 * _MEGABYTE)


def keep_memory() -> None:
    """Tell the C library to keep what is freed; where it has no such setting, it goes on as it is."""
    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    for option in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
        if setting is not None:
            setting(*option)


if __name__ == "__main__":
    keep_memory()
    gc.collect()
    gc.freeze()
    manager()
