"""Every encoding of keyed changes is the table that a dict replays, live and in batch SQL (rules 1.2 and 1.5)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.logs import FORMS, LOGS, TABLE, Change, Row, changes_of_a_table, effective, replayed, seen

import headrace as hr
from headrace import col
from headrace.expr import Expr
from headrace.io.keyed_changes import ENCODINGS
from headrace.schema import Schema
from headrace.testing.strategies import buckets
from headrace.time import INFINITY

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are lost here on purpose


@settings(max_examples=max(5, settings().max_examples // 2))
@given(changes_of_a_table, st.data(), buckets())
def test_oracle_every_encoding_is_the_replay_of_its_log_by_time(changes: list[Change], data: st.DataObject, n: int):
    expected = replayed(changes, in_order=True)
    batch_rows = data.draw(st.integers(1, 6))
    for encoding, log in LOGS.items():
        stream = hr.read_changes(log(changes), TABLE, key="id", encoding=encoding, at="ts", deletes=_deletes(encoding))
        assert stream.schema.names == ("ts", "id", "name", "v")
        assert seen(stream.cht(batch_rows=batch_rows, buckets=n)) == expected, encoding
        assert seen(stream.history("duckdb").cht()) == expected, encoding


def _deletes(encoding: str) -> Expr | None:
    return col("v").is_null() if encoding == "upsert" else None


@settings(max_examples=max(5, settings().max_examples // 4))
@given(changes_of_a_table, st.data(), buckets())
def test_oracle_every_encoding_is_the_replay_of_its_log_in_its_order(
    changes: list[Change], data: st.DataObject, n: int
):
    """Rows in memory arrive one after another, so a row's time is its number in its log, which differs by encoding."""
    final = _state(changes)
    for encoding, log in LOGS.items():
        rows = log(changes)
        stream = hr.read_changes(rows, TABLE, key="id", encoding=encoding, deletes=_deletes(encoding))
        history = stream.cht(batch_rows=data.draw(st.integers(1, 6)), buckets=n)
        last = {r["id"]: str((r["name"], r["v"])) for r in history.to_pylist() if r["re"] == INFINITY}
        assert last == {key: str((row["name"], row["v"])) for key, row in final.items()}, encoding
        kept = [i for i, r in enumerate(rows) if next(iter(r.values())) not in ("-U", "update_preimage")]
        numbered = [(i, key, new) for i, (_, _, key, _, new) in zip(kept, effective(changes), strict=True)]
        assert seen(history) == replayed(numbered, in_order=False), encoding
        assert hr.same_history(stream.history("duckdb").cht(), history), encoding


def _state(changes: Sequence[Change]) -> dict[int, Row]:
    state: dict[int, Row] = {}
    for _, _, key, _, new in effective(changes):
        state |= {key: new} if new is not None else {}
        if new is None:
            del state[key]
    return state


@settings(max_examples=max(5, settings().max_examples // 4))
@given(changes_of_a_table, st.data(), buckets())
def test_batches_and_buckets_do_not_show(changes: list[Change], data: st.DataObject, n: int):
    rows = LOGS["flink"](changes)
    for at in ("ts", None):
        stream = hr.read_changes(rows, TABLE, key="id", encoding="flink", at=at, progress=hr.advance(3, late="drop"))
        totals = stream.group_by("name").window(hr.hopping(4, every=3)).aggregate(n=hr.count(), m=hr.max("ts"))
        for query in (stream, totals):
            whole = query.cht()
            assert hr.same_history(query.cht(batch_rows=data.draw(st.integers(1, 6)), buckets=n), whole)
            assert hr.same_history(query.history("duckdb").cht(), whole)


@settings(max_examples=max(5, settings().max_examples // 4))
@given(changes_of_a_table, st.data(), buckets(), st.sampled_from([None, "us", "ms", "s"]))
def test_oracle_every_form_of_a_log_is_its_replay(changes: list[Change], data: st.DataObject, n: int, unit: Any):
    """Files, frames and drawn tables: rows of the same log, in the times of any unit."""
    scale = {"ms": 1_000, "s": 1_000_000}.get(unit, 1)
    expected = replayed(changes, in_order=True)
    encoding = data.draw(st.sampled_from(["rows", "flink", "spark"]))
    columns = pa.schema([pa.field(ENCODINGS[encoding].op, pa.string()), *Schema.of(TABLE).arrow])
    rows = pa.Table.from_pylist(LOGS[encoding](changes), columns)
    options: dict[str, Any] = {"key": "id", "encoding": encoding, "at": "ts", "unit": unit}
    with TemporaryDirectory() as folder:
        for form, make in FORMS.items():
            stream = hr.read_changes(make(rows, Path(folder)), TABLE, **options)
            history = stream.cht(batch_rows=data.draw(st.integers(1, 6)), buckets=n)
            assert seen(_in_units(history, scale)) == expected, form
            assert hr.same_history(stream.history("duckdb").cht(), history), form


def _in_units(history: pa.Table, ticks: int) -> pa.Table:
    """A history with the times of a log."""
    for place, name in enumerate(("le", "re")):
        times = pc.fill_null(history[name].cast(pa.int64()), INFINITY)
        units = pc.if_else(pc.equal(times, INFINITY), INFINITY, pc.divide(times, ticks))
        history = history.set_column(place, name, units)
    return history
