"""The process from which Spark forks Python workers, with all imports that they need.

Workers that import by themselves take a second each, in the first batch of a query. All workers share the modules that
are imported here, and their garbage collection skips them. Workers also keep freed memory (`host/memory.py`).
"""

from __future__ import annotations

import gc

import pyarrow as pa
from pyspark.daemon import manager

import headrace.host.spark.worker  # noqa: F401 - for the workers
from headrace.host.memory import keep_freed_memory

__all__: list[str] = []

if __name__ == "__main__":
    keep_freed_memory()
    pa.array([0])  # the first array makes Arrow import pandas: once here, not in the first batch of every worker
    gc.collect()
    gc.freeze()
    manager()
