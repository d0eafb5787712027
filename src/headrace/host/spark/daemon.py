"""The process that Spark forks Python workers from, with everything imported that they need.

Workers that import by themselves take a second each, at the first batch of a query. What is imported here is shared by
all of them, and left out when they collect garbage.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager

import headrace.host.spark.worker  # noqa: F401 - for the workers

__all__: list[str] = []

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
