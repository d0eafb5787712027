"""Subscriptions: snapshot and changes, from any cursor, add up to the history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SubscriptionError, UnknownColumn
from headrace.events import events_table, history, to_changes
from headrace.io.live_table import log_columns
from headrace.schema import Schema
from headrace.server.interface import SubscribedRows
from headrace.server.log import EventLog
from headrace.server.subscription import LogSubscription
from headrace.testing.strategies import SCHEMA, physical_streams, without_ids
from headrace.time import INFINITY, NEG_INFINITY

PAYLOAD = Schema.of(SCHEMA)


OPENED: list[EventLog] = []


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def log_at(folder: Path, payload: Schema = PAYLOAD, **options: Any) -> EventLog:
    OPENED.append(EventLog(folder / "000007-out", log_columns(payload), durable=False, **options))
    return OPENED[-1]


def pieces(subscription: LogSubscription, rows: int = 3) -> Iterator[SubscribedRows]:
    while (piece := subscription.next(0, rows)) is not None:
        yield piece


def folded(tables: list[pa.Table], payload: Schema = PAYLOAD) -> pa.Table:
    return history(to_changes(pa.concat_tables([log_columns(payload).arrow.empty_table(), *tables]), payload))


@given(physical_streams(), st.data())
def test_snapshot_and_changes_are_the_history_from_any_cursor(stream: list[dict[str, Any]], data: st.DataObject):
    with TemporaryDirectory() as folder:
        log = log_at(Path(folder))
        events = events_table(without_ids(stream), PAYLOAD).cast(log.schema.arrow)
        cuts = sorted(data.draw(st.lists(st.integers(0, events.num_rows), max_size=4)))
        begins = data.draw(st.integers(0, len(cuts)))
        found: list[SubscribedRows] = []
        subscription: LogSubscription | None = None
        for number, (start, end) in enumerate(zip([0, *cuts], [*cuts, events.num_rows], strict=True)):
            log.append(events.slice(start, end - start))
            if number == begins:
                subscription = LogSubscription("out", log, PAYLOAD)
            if subscription is not None:
                found += pieces(subscription, data.draw(st.integers(1, 4)))
                if data.draw(st.booleans()):  # the client comes back with its cursor
                    cursor = found[-1].cursor if found else subscription.cursor
                    subscription = LogSubscription("out", log, PAYLOAD, cursor=cursor)
        assert repr(folded([piece.rows for piece in found]).to_pylist()) == repr(folded([events]).to_pylist())
        promises = [row["le"] for row in events.to_pylist() if row["kind"] == "cti"]
        assert (found[-1].cti if found else NEG_INFINITY) == max([NEG_INFINITY, *promises])
        log.close()


@given(physical_streams(), st.data())
def test_final_rows_are_the_history_up_to_the_promise(stream: list[dict[str, Any]], data: st.DataObject):
    with TemporaryDirectory() as folder:
        log = log_at(Path(folder))
        events = events_table(without_ids(stream), PAYLOAD).cast(log.schema.arrow)
        cut = data.draw(st.integers(0, events.num_rows))
        log.append(events.slice(0, cut))
        subscription = LogSubscription("out", log, PAYLOAD, form="final")
        found = [piece.rows for piece in pieces(subscription)]
        log.append(events.slice(cut))
        if data.draw(st.booleans()):
            subscription = LogSubscription("out", log, PAYLOAD, form="final", cursor=subscription.cursor)
        found += [piece.rows for piece in pieces(subscription)]
        whole = folded([events])
        promises = [row["le"] for row in events.to_pylist() if row["kind"] == "cti"]
        reached = max([NEG_INFINITY, *promises])
        expected = [row for row in whole.to_pylist() if row["re"] <= reached]
        given_rows = [row for table in found for row in table.to_pylist()]
        assert sorted(map(repr, given_rows)) == sorted(map(repr, expected))
        log.close()


ROWS = Schema.of("k STRING, v LONG")


def event(kind: str, key: str, value: int, le: int, re_new: int | None = None) -> dict[str, Any]:
    return {"kind": kind, "le": le, "re": INFINITY, "re_new": re_new, "k": key, "v": value}


def test_upserts_follow_the_rows_that_hold(tmp_path: Path):
    log = log_at(tmp_path, ROWS)

    def append(*events: dict[str, Any]) -> None:
        log.append(pa.Table.from_pylist(list(events), schema=log.schema.arrow))

    append(event("insert", "a", 1, 0), event("insert", "b", 2, 0))
    subscription = LogSubscription("out", log, ROWS, form="upsert", key=["k"], relation=True)
    first = subscription.next(0)
    assert first is not None
    assert first.snapshot
    assert [(row["_op"], row["k"], row["v"]) for row in first.rows.to_pylist()] == [
        ("upsert", "a", 1),
        ("upsert", "b", 2),
    ]
    append(event("retract", "a", 1, 0, 5), event("insert", "a", 3, 5), event("retract", "b", 2, 0, 5))
    second = subscription.next(0)
    assert second is not None
    changed = sorted((row["_op"], row["k"], row["v"]) for row in second.rows.to_pylist())
    assert changed == [("delete", "b", None), ("upsert", "a", 3)]
    assert subscription.next(0) is None
    again = LogSubscription("out", log, ROWS, form="upsert", key=["k"], relation=True, cursor=first.cursor)
    repeated = again.next(0)
    assert repeated is not None
    assert repeated.rows.equals(second.rows)
    append(event("insert", "c", 4, 6), event("retract", "c", 4, 6, 7))  # nobody has seen it
    assert subscription.next(0) is None
    fresh = LogSubscription("out", log, ROWS, form="upsert", key=["k"], relation=True).next(0)
    assert fresh is not None
    assert [(row["_op"], row["k"], row["v"]) for row in fresh.rows.to_pylist()] == [("upsert", "a", 3)]


def test_a_cursor_reads_no_more_than_the_latest_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headrace.server.subscription._ROWS", 5)
    log = log_at(tmp_path, ROWS)
    for number in range(20):
        row = {"kind": "cti", "le": number} if number in (3, 12) else event("insert", "a", number, 0)
        log.append(pa.Table.from_pylist([row], schema=log.schema.arrow))
    read: list[tuple[int, int]] = []
    rows = log.rows
    monkeypatch.setattr(log, "rows", lambda start, end: (read.append((start, end)), rows(start, end))[1])
    assert LogSubscription("out", log, ROWS, cursor="000007.19").next(0).cti == 12
    assert read == [(14, 19), (9, 14), (19, 20)]
    read.clear()
    assert LogSubscription("out", log, ROWS, cursor="000007.2").next(0, 1).cti == NEG_INFINITY


def test_cursors_that_cannot_go_on(tmp_path: Path):
    log = log_at(tmp_path, ROWS, segment_bytes=1)
    for number in range(4):
        log.append(pa.Table.from_pylist([event("insert", "a", number, 0)], schema=log.schema.arrow))
    subscription = LogSubscription("out", log, ROWS, cursor="000007.1")
    log.forget(2)
    with pytest.raises(SubscriptionError, match="no longer kept") as caught:
        subscription.next(0)
    assert "000007.2 or later" in str(caught.value)
    for cursor in ("000007.99", "000008.0", "x", "000007.-1"):
        with pytest.raises(SubscriptionError, match="not a cursor of out"):
            LogSubscription("out", log, ROWS, cursor=cursor)
    with pytest.raises(SubscriptionError, match="need a key"):
        LogSubscription("out", log, ROWS, form="upsert")
    with pytest.raises(UnknownColumn):
        LogSubscription("out", log, ROWS, form="upsert", key=["z"])
