"""A process that delivers batches, to be killed.

Run as `python -m tests.services.kafka.deliverer BOOTSTRAP TOPIC QUERY FIRST LAST`.

It delivers the batches in order and prints the number of each that is delivered, as a driver would note it.
"""

from __future__ import annotations

import sys

import pyarrow as pa

from headrace.adapters.kafka import KafkaSink
from headrace.io.adapter import DeliveryId

__all__ = ["ROWS", "batch_rows"]

ROWS = 500


def batch_rows(batch: int, rows: int = ROWS) -> pa.Table:
    """The rows of a batch: each number occurs once in all batches."""
    first = batch * rows
    numbers = pa.array(range(first, first + rows), pa.int64())
    return pa.table({"le": numbers, "re": numbers, "n": numbers})


def main(bootstrap: str, topic: str, query: str, first: int, last: int) -> None:
    sink = KafkaSink("final", bootstrap=bootstrap, topic=topic, message_key=("n",))
    for batch in range(first, last):
        for part in range(2):
            rows = batch_rows(batch).slice(part * ROWS // 2, ROWS // 2)
            sink.deliver(DeliveryId(query, 0, part, batch), rows)
        print(batch, flush=True)  # noqa: T201 - read by the test


if __name__ == "__main__":
    main(*sys.argv[1:4], *map(int, sys.argv[4:6]))
