"""Deliveries of a batch to a service: its parts, and where its CTI goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.adapters import DeliveryId, SinkAdapter

_DELIVERED: list[tuple[int, int, list[dict[str, Any]]]] = []


@dataclass(frozen=True)
class _Service(SinkAdapter):
    """Keeps what is delivered: batch, part and rows."""

    def deliver(self, delivery: DeliveryId, rows: pa.Table) -> None:
        _DELIVERED.append((delivery.batch, delivery.part, rows.to_pylist()))


@pytest.fixture(autouse=True)
def _nothing_delivered() -> Iterator[None]:
    _DELIVERED.clear()
    yield
    _DELIVERED.clear()


def _deliver(buckets: int) -> list[tuple[int, int, list[str]]]:
    """The kinds of the rows of every delivery: a batch with rows, then one with only a CTI."""
    stream = hr.events("""
        kind   | le | re | re_new | k | v
        insert | 1  | 5  |        | a | 1
        insert | 2  | 5  |        | b | 1
        insert | 3  | 5  |        | c | 1
        insert | 4  | 5  |        | d | 1
        cti    | 10 |    |        |   |
        cti    | 20 |    |        |   |
    """, batches=[5, 1])  # fmt: skip
    counts = stream.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count())
    query = counts.start(_Service(), host="local", buckets=buckets, files_per_batch=1)
    query.process_all_available()
    query.stop()
    return [(batch, part, [row["kind"] for row in rows]) for batch, part, rows in _DELIVERED]


def test_the_cti_follows_the_rows_of_the_only_part():
    assert _deliver(1) == [(0, 0, ["insert"] * 4 + ["cti"]), (1, -1, ["cti"])]


def test_the_cti_follows_all_parts_where_there_are_several():
    *rows, cti, alone = _deliver(2)
    assert sorted(part for _, part, _ in rows) == [0, 1]
    assert sorted(kind for _, _, kinds in rows for kind in kinds) == ["insert"] * 4
    assert (cti, alone) == ((0, -1, ["cti"]), (1, -1, ["cti"]))
