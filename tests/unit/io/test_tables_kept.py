"""Upserts for places that hold one row of a key: tables and compacted topics (`kept`, `ended` of adapters' sinks)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.io.test_upserts import _latest, _steps

import headrace as hr
from headrace.adapters import SinkAdapter
from headrace.errors import PlanError
from headrace.host.local import run_local
from headrace.io.sinks import rows_of
from headrace.plan.nodes import Output
from headrace.stages.egress import prepared
from headrace.time import INFINITY


@dataclass(frozen=True)
class _Table(SinkAdapter):
    """A sink of which only the encoding is used."""


def _contents(stream: hr.Stream, buckets: int = 1, ended: Any = "keep") -> list[dict[str, tuple[int, int]]]:
    """What a table holds after every batch: by key, `le` and `v`."""
    sink = _Table("upsert", ("k",), ended)
    done = run_local([Output(prepared(stream.node, sink), "out")], buckets=buckets)
    table: dict[str, tuple[int, int]] = {}
    found = []
    for number, (changes, _) in enumerate(done.results["out"].batches):
        rows = rows_of(changes, sink, number)
        assert rows.column_names == ["op", "_batch", "le", "k", "v"]
        for row in rows.to_pylist():
            if row["op"] == "delete":
                del table[row["k"]]
            else:
                table[row["k"]] = (row["le"], row["v"])
        found.append(dict(table))
    return found


def test_a_row_before_the_cti_is_written_again_when_the_later_one_goes():
    stream = hr.events("""
        kind    | le | re | re_new | k | v
        insert  | 1  | 5  |        | a | 1
        cti     | 10 |    |        |   |
        insert  | 20 | 25 |        | a | 2
        retract | 20 | 25 | 20     | a | 2
    """, batches=[1, 1, 1, 1])  # fmt: skip
    assert _contents(stream)[:4] == [{"a": (1, 1)}, {"a": (1, 1)}, {"a": (20, 2)}, {"a": (1, 1)}]


@settings(max_examples=max(5, settings().max_examples // 2))
@given(_steps(), st.integers(1, 3))
@pytest.mark.slow
def test_oracle_a_table_has_the_latest_rows_after_every_batch(batches: list[list[dict[str, Any]]], buckets: int):
    if not any(row["kind"] == "insert" for batch in batches for row in batch):
        return
    rows = [row for batch in batches for row in batch]
    stream = hr.events(rows, "k STRING, v LONG", batches=[len(batch) for batch in batches])
    found = _contents(stream, buckets)
    assert found[: len(batches)] == [_latest(batches[: number + 1]) for number in range(len(batches))]


@st.composite
def _tables(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[int], list[dict[str, tuple[int, int]]]]:
    """Changes of a table as physical events, the sizes of their batches, and the table after each batch."""
    table: dict[str, tuple[int, int]] = {}
    rows: list[dict[str, Any]] = []
    sizes, tables, time, cti = [0], [], 1, 0
    for key, value, ahead, promise, ends in draw(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 2), st.booleans(), st.booleans()),
                 min_size=1, max_size=30)
    ):  # fmt: skip
        time += ahead
        events = []
        if key in table and table[key][0] < time:
            old = {"le": table[key][0], "re": INFINITY, "k": key, "v": table[key][1]}
            events.append({"kind": "retract", **old, "re_new": time})
            del table[key]
        if value and key not in table:
            events.append({"kind": "insert", "le": time, "re": INFINITY, "k": key, "v": value})
            table[key] = (time, value)
        if promise and time > cti:
            cti = time
            events.append({"kind": "cti", "le": cti})
        rows += events
        sizes[-1] += len(events)
        if ends and sizes[-1]:
            tables.append(dict(table))
            sizes.append(0)
    tables.append(dict(table))
    return rows, sizes, tables


@settings(max_examples=max(5, settings().max_examples // 2))
@given(_tables(), st.integers(1, 3))
@pytest.mark.slow
def test_oracle_ended_rows_are_deleted(
    drawn: tuple[list[dict[str, Any]], list[int], list[dict[str, tuple[int, int]]]], buckets: int
):
    rows, sizes, tables = drawn
    if not any(row["kind"] == "insert" for row in rows):
        return
    if not sizes[-1]:
        sizes, tables = sizes[:-1], tables[:-1]
    stream = hr.events(rows, "k STRING, v LONG", batches=sizes)
    assert _contents(stream, buckets, "delete")[: len(tables)] == tables


def test_ended_is_for_upserts():
    with pytest.raises(PlanError, match="ended= says"):
        _Table("final", (), "delete")
    with pytest.raises(PlanError, match="upsert rows add a column '_ended'"):
        prepared(hr.events([{"le": 1, "re": 2, "k": "a", "_ended": True}]).node, _Table("upsert", ("k",)))
