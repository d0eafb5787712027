"""Memory that is freed and soon needed again stays with the process.

A batch allocates arrays of some megabytes and frees them. By default the C library of Linux returns each of them to the
system, which clears every page before it hands it out again: a fifth of the time of a batch of half a million events.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

__all__ = ["keep_freed_memory"]

# Parameters of glibc's `mallopt`, and their values: freed memory is kept up to 128 MB, allocations up to 32 MB, which
# is the most, use it, and more is requested in steps of 16 MB.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_VALUES = {_TRIM_THRESHOLD: 128 << 20, _TOP_PAD: 16 << 20, _MMAP_THRESHOLD: 32 << 20}
_OWN = ("GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_")


@cache
def keep_freed_memory() -> bool:
    """Let this process keep freed memory, once; False if the user has other settings, or on other systems."""
    if sys.platform != "linux" or any(name in os.environ for name in _OWN):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # not in other C libraries
    accepted = [mallopt(name, value) for name, value in _VALUES.items()] if mallopt is not None else [0]
    return all(accepted)
