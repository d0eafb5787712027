"""Old answers are removed, those that still matter are not."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SqlError, SubscriptionError
from headrace.events import events_table, history, to_changes
from headrace.io.live_table import LiveTable, log_columns
from headrace.schema import Schema
from headrace.server.connection import ServerConnection
from headrace.server.core import HeadraceServer
from headrace.server.interface import RowsReply, Who
from headrace.server.log import EventLog
from headrace.server.published import DiskLog
from headrace.server.retention import LogRetention, needed_rows, needed_rows_of_a_table
from headrace.testing.strategies import SCHEMA, physical_streams, without_ids
from headrace.time import NEG_INFINITY

PAYLOAD = Schema.of(SCHEMA)


def answer(events: pa.Table, after: int = NEG_INFINITY) -> list[str]:
    held = history(to_changes(events, PAYLOAD)).to_pylist()
    return sorted(repr(row) for row in held if row["re"] > after)


@given(physical_streams(), st.data())
def test_what_is_needed_and_the_rest_give_the_answer_from_the_promise_on(stream: list[Any], data: st.DataObject):
    events = events_table(without_ids(stream), PAYLOAD)
    cut = data.draw(st.integers(0, events.num_rows))
    needed = needed_rows(events.slice(0, cut), PAYLOAD)
    assert needed.num_rows <= cut
    promises = [row["le"] for row in events.slice(0, cut).to_pylist() if row["kind"] == "cti"]
    reached = max([NEG_INFINITY, *promises])
    assert answer(pa.concat_tables([needed, events.slice(cut)]), reached) == answer(events, reached)


def asked(client: ServerConnection, text: str) -> list[int]:
    (reply,) = client.execute(text)
    assert isinstance(reply, RowsReply)
    return sorted(reply.table["total"].to_pylist())


def test_old_answers_of_a_query_are_removed(tmp_path: Path):
    def insert(*seconds: int) -> None:
        rows = [{"x": n, "ts": f"2024-01-01T00:{n // 60:02d}:{n % 60:02d}Z"} for n in seconds]
        client.insert("s", rows)
        for name in ("sums", "large"):
            query = server.objects[name].query
            assert query is not None
            query.process_all_available()

    with HeadraceServer(tmp_path, durable=False) as server:
        client = server.connect(Who("ada", "admin"))
        for text in (
            "CREATE STREAM s (x LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 15 s LATE DROP",
            "QUERY sums AS SELECT sum(x) AS total FROM s [TUMBLING 10 s]",
            "CREATE STREAM large AS SELECT total FROM sums WHERE total > 10",
            "ALTER QUERY sums SET retention = '1 h'",
        ):
            list(client.execute(text))
        log = server.objects["sums"].log
        assert log is not None
        later = LogRetention(lambda: list(server.objects.values()), clock=lambda: time.time() + 7200)
        insert(1, 11, 21, 31)
        old = client.subscribe("sums")
        assert old.next(0) is not None
        list(client.execute("STOP QUERY large"))
        later.look()  # begins a segment
        insert(41, 51, 61, 71)
        later.look()
        reader = server.objects["large"].query
        assert reader is not None
        assert log.kept <= reader.reached("sums") < log.end  # the rest it has still to read
        list(client.execute("START QUERY large"))
        insert(81)
        later.look()
        insert(91)
        later.look()
        assert log.kept > 0
        totals = "SELECT total FROM sums"
        kept = asked(client, totals)
        assert 1 not in kept
        assert 71 in kept  # its window may still be corrected
        insert(77)
        assert 71 + 77 in asked(client, totals)
        assert asked(client, "SELECT total FROM large")[:3] == [11, 21, 31]  # its own log keeps everything
        with pytest.raises(SubscriptionError, match="no longer kept"):
            client.subscribe("sums", cursor="000002.1")
        list(client.execute("CREATE STREAM later AS SELECT total FROM sums"))
        server.catch_up(server.objects["later"].published.node)  # type: ignore[union-attr]
        assert asked(client, "SELECT total FROM later") == asked(client, totals)
        before = asked(client, totals)
    with HeadraceServer(tmp_path, durable=False) as server:
        client = server.connect(Who("ada", "admin"))
        assert asked(client, totals) == before


# --- tables ----------------------------------------------------------------------------------------------------------

COLUMNS = Schema.of("k LONG, v LONG")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(0, 9)),
        st.tuples(st.just("update"), st.integers(0, 9)),
        st.tuples(st.sampled_from(["delete", "promise", "compact", "reopen"]), st.integers(0, 9)),
    ),
    max_size=30,
)


@given(steps=STEPS, timed=st.booleans())
def test_a_table_is_the_same_after_compaction_and_new_starts(  # noqa: C901 - a list of steps
    tmp_path_factory: Any, steps: list[Any], timed: bool
):
    folder, now = tmp_path_factory.mktemp("table"), [0]

    def opened() -> LiveTable:
        log = DiskLog(EventLog(folder, log_columns(COLUMNS), durable=False))
        return LiveTable("t", COLUMNS, clock=lambda: now[0], log=log)

    def close() -> None:
        assert isinstance(table.row_log, DiskLog)
        table.row_log.log.close()

    def compact() -> None:
        assert isinstance(table.row_log, DiskLog)
        log = table.row_log.log
        log.divide()
        starts = [start for start, _ in log.segments() if start > log.kept]
        if starts:
            before = log.rows(log.first, starts[-1])[1]
            needed = needed_rows_of_a_table(before, COLUMNS)
            assert needed.num_rows <= sum(before["kind"].to_numpy(zero_copy_only=False) == "insert") + 1
            log.forget(starts[-1], needed)

    table = opened()
    if timed:
        table.follow()
    for step, value in steps:
        now[0] += 2_000_000
        rows = pa.table([[value], [now[0]]], schema=COLUMNS.arrow)
        chosen = np.array([value % len(table)]) if len(table) else np.empty(0, np.int64)
        if step == "insert":
            table.insert(rows)
        elif step == "update":
            table.change(chosen, rows.slice(0, len(chosen)))
        elif step == "delete":
            table.change(chosen, rows.slice(0, 0))
        elif step == "promise" and timed:
            table.follow()
        elif step == "compact":
            compact()
        elif step == "reopen":
            content, latest = sorted(map(repr, table.rows.to_pylist())), table.latest
            close()
            table = opened()
            assert sorted(map(repr, table.rows.to_pylist())) == content
            assert table.latest == latest
    content = sorted(map(repr, table.rows.to_pylist()))
    compact()
    close()
    table = opened()
    assert sorted(map(repr, table.rows.to_pylist())) == content
    close()


def done(client: ServerConnection, *texts: str) -> None:
    for text in texts:
        list(client.execute(text))


def read_all(server: HeadraceServer) -> None:
    for served in server.objects.values():
        if served.query is not None and served.query.running is not None:
            served.query.process_all_available()


def rows_of(client: ServerConnection, text: str) -> list[dict[str, Any]]:
    (reply,) = client.execute(text)
    assert isinstance(reply, RowsReply)
    return sorted(reply.table.to_pylist(), key=repr)


def test_old_versions_of_rows_of_a_table_are_removed(tmp_path: Path):
    with HeadraceServer(tmp_path, durable=False) as server:
        client = server.connect(Who("ada", "admin"))
        done(
            client, "CREATE TABLE t (k LONG PRIMARY KEY, v LONG)", "INSERT INTO t VALUES (1, 0), (2, 0)",
            "CREATE MATERIALIZED VIEW v AS SELECT k, v FROM t WHERE v > 0", "ALTER TABLE t SET retention = '1 h'",
        )  # fmt: skip
        log = server.objects["t"].log
        assert log is not None
        later = LogRetention(lambda: list(server.objects.values()), clock=lambda: time.time() + 7200)
        old = client.subscribe("t")
        assert old.next(0) is not None
        cursor = old.cursor
        done(client, *(f"UPDATE t SET v = {n} WHERE k = 1" for n in range(1, 30)))
        done(client, "STOP QUERY v")
        later.look()
        done(client, "UPDATE t SET v = 30 WHERE k = 1")
        later.look()
        assert log.kept == 0  # the stopped query may have to read it
        done(client, "START QUERY v")
        read_all(server)
        later.look()
        assert log.kept > 0
        assert len(log.rows(0, log.end)[1]) < 10
        content = [{"k": 1, "v": 30}, {"k": 2, "v": 0}]
        assert rows_of(client, "SELECT k, v FROM t") == content
        with pytest.raises(SubscriptionError, match="no longer kept"):
            client.subscribe("t", cursor=cursor)
        with pytest.raises(SubscriptionError, match="no longer kept"):
            old.next(0)
        done(client, "CREATE MATERIALIZED VIEW w AS SELECT k, v FROM t", "UPDATE t SET v = 31 WHERE k = 2")
        read_all(server)
        both = [{"k": 1, "v": 30}, {"k": 2, "v": 31}]
        assert [rows_of(client, f"SELECT k, v FROM {name}") for name in ("t", "v", "w")] == [both] * 3
    with HeadraceServer(tmp_path, durable=False) as server:
        client = server.connect(Who("ada", "admin"))
        done(client, "DELETE FROM t WHERE k = 1")
        assert [rows_of(client, f"SELECT k, v FROM {name}") for name in ("t", "v", "w")] == [both[1:]] * 3
        assert server.objects["t"].settings == {"retention": "1 h"}
        done(client, "ALTER TABLE t SET retention = NULL")
        assert server.objects["t"].settings == {}


def test_old_rows_of_a_stream_that_clients_feed_are_removed(tmp_path: Path):
    with HeadraceServer(tmp_path, durable=False) as server:
        client = server.connect(Who("ada", "admin"))
        done(
            client, "CREATE STREAM s (x LONG, ts LONG) ORDER BY ts WITH PROGRESS ADVANCE 1",
            "ALTER STREAM s SET retention = 1 h", "QUERY q AS SELECT x FROM s",
        )  # fmt: skip
        log = server.objects["s"].log
        assert log is not None
        later = LogRetention(lambda: list(server.objects.values()), clock=lambda: time.time() + 7200)

        def insert(*values: int) -> None:
            client.insert("s", [{"x": value, "ts": value} for value in values])
            read_all(server)

        insert(1, 2, 3)
        later.look()
        done(client, "STOP QUERY q")
        insert(4, 5)
        later.look()
        assert log.first == 0
        done(client, "START QUERY q")
        read_all(server)
        later.look()
        assert log.first == 3
        insert(6)
        done(client, "QUERY late AS SELECT x FROM s")
        read_all(server)
        assert [row["x"] for row in rows_of(client, "SELECT x FROM q")] == [1, 2, 3, 4, 5, 6]
        assert [row["x"] for row in rows_of(client, "SELECT x FROM late")] == [4, 5, 6]
    with HeadraceServer(tmp_path, durable=False) as server:
        client = server.connect(Who("ada", "admin"))
        client.insert("s", [{"x": 7, "ts": 7}])
        read_all(server)
        assert [row["x"] for row in rows_of(client, "SELECT x FROM q")] == [1, 2, 3, 4, 5, 6, 7]
        assert [row["x"] for row in rows_of(client, "SELECT x FROM late")] == [4, 5, 6, 7]


def test_a_stream_keeps_rows_up_to_a_size(tmp_path: Path):
    with HeadraceServer(tmp_path, durable=False) as server:
        client = server.connect(Who("ada", "admin"))
        done(
            client, "CREATE STREAM s (x LONG, ts LONG) ORDER BY ts WITH PROGRESS ADVANCE 1",
            "ALTER STREAM s SET retention = '365 days, 8 kB'",
        )  # fmt: skip
        log = server.objects["s"].log
        assert log is not None
        for part in range(20):
            client.insert("s", [{"x": n, "ts": n} for n in range(100 * part, 100 * part + 100)])
            server.retention.look()
            assert sum(log.sizes()) < 20_000
        assert 0 < log.kept < log.end == 2000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ALTER TABLE s SET retention = '1 h'", "there is no table 's' whose rows the server keeps"),
        ("ALTER STREAM u SET retention = '1 h'", "there is no stream 'u' whose rows the server keeps"),
        ("ALTER TABLE t SET trigger = '1 s'", "a table has no setting 'trigger'"),
        ("ALTER TABLE t SET retention = 'a while'", "a while"),
        ("ALTER TABLE t SET retention = 0", "longer than nothing"),
    ],
)
def test_what_cannot_be_set(tmp_path: Path, text: str, message: str):
    with HeadraceServer(tmp_path, durable=False) as server:
        client = server.connect(Who("ada", "admin"))
        done(client, "CREATE STREAM s (x LONG)", "CREATE TABLE t (x LONG)")
        with pytest.raises(SqlError, match=message):
            done(client, text)
