"""What the trips of a batch have made, put together."""

from __future__ import annotations

from typing import Any

from headrace.host.driving.trips import BatchResult
from headrace.stages.message import STATISTICS, Message


def told(bucket: int, **more: Any) -> Message:
    return Message(bucket, STATISTICS, extra={"level": 1, "bucket": bucket, "arrivals": [], **more})


def test_bytes_that_were_fetched_in_an_earlier_trip_count():
    batch: Any = None
    made = BatchResult(batch, batch, [told(0, fetched=7), told(1)])
    made.add(batch, [told(0), told(1, fetched=2)])
    made.add(batch, [told(0, fetched=1), told(1)])
    assert [part["fetched"] for part in made.statistics] == [8, 2]
