"""Upsert rows: per key the latest value, whatever the order of arrival (encodings of a sink)."""

from __future__ import annotations

import itertools

import pytest

import headrace as hr
from headrace.host.local import run_local
from headrace.io.sinks import Memory, prepared
from headrace.plan.nodes import Output


def _upserts(stream: hr.Stream) -> list[dict]:
    sink = Memory("upsert", ("k",))
    for batch in run_local([Output(prepared(stream.node, sink), "out")]).results["out"].batches:
        sink.add(*batch)
    return sink.rows().to_pylist()


def test_of_two_rows_at_the_same_time_the_other_is_left_when_one_goes():
    stream = hr.events("""
        kind    | le | re | re_new | k | v
        insert  | 1  | 5  |        | a | 10
        insert  | 1  | 5  |        | a | 20
        retract | 1  | 5  | 1      | a | 20
        retract | 1  | 5  | 1      | a | 10
    """, batches=[2, 1, 1])  # fmt: skip
    rows = [(row["op"], row["k"], row["v"]) for row in _upserts(stream)]
    assert rows == [("upsert", "a", 20), ("upsert", "a", 10), ("delete", "a", None)]


@pytest.mark.parametrize("order", list(itertools.permutations([10, 20, 30])))
@pytest.mark.parametrize("batches", [[3], [1, 2], [1, 1, 1]])
def test_arrival_does_not_decide(order: tuple[int, ...], batches: list[int]):
    stream = hr.events([{"le": 1, "re": 5, "k": "a", "v": value} for value in order], batches=batches)
    assert _upserts(stream)[-1]["v"] == 30


def test_a_later_row_replaces_and_its_end_brings_the_earlier_one_back():
    stream = hr.events("""
        kind    | le | re | re_new | k | v
        insert  | 1  | 5  |        | a | 1
        insert  | 3  | 5  |        | a | 2
        insert  | 2  | 5  |        | a | 9
        retract | 3  | 5  | 3      | a | 2
    """, batches=[1, 1, 1, 1])  # fmt: skip
    assert [(row["op"], row["le"], row["v"]) for row in _upserts(stream)] == [
        ("upsert", 1, 1), ("upsert", 3, 2), ("upsert", 2, 9),
    ]  # fmt: skip
