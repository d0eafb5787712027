"""Old answers are removed, those that still matter are not."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SubscriptionError
from headrace.events import events_table, history, to_changes
from headrace.schema import Schema
from headrace.server.connection import ServerConnection
from headrace.server.core import HeadraceServer
from headrace.server.interface import RowsReply, Who
from headrace.server.retention import LogRetention, needed_rows
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
            if query.running is not None:
                query.running.process_all_available()

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
