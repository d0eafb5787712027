"""Promises of a log: they take no room, and no offset is used twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.events import history, to_changes
from headrace.schema import Schema
from headrace.server.core import HeadraceServer
from headrace.server.interface import RowsReply, Who
from headrace.server.log import EventLog
from headrace.server.log_files import LogFolder
from headrace.server.retention import needed_rows
from headrace.sql.bind.catalog import LiveEntry
from headrace.time import INFINITY

PAYLOAD = Schema.of("k LONG")
COLUMNS = Schema.of("kind STRING, le LONG, re LONG, re_new LONG, k LONG")
SECOND = 1_000_000


def opened(folder: Path) -> EventLog:
    return EventLog(folder, COLUMNS, durable=False)


def row(kind: str, le: int, k: int | None = None, re_new: int | None = None) -> dict[str, Any]:
    return {"kind": kind, "le": le, "re": INFINITY, "re_new": re_new, "k": k}


def append(log: EventLog, *rows: dict[str, Any]) -> int:
    return log.append(pa.Table.from_pylist(list(rows), COLUMNS.arrow)).start


def everything(log: LogFolder, end: int) -> list[dict[str, Any]]:
    return log.rows(0, end)[1].to_pylist()


def promises(log: LogFolder, end: int) -> list[int]:
    return [one["le"] for one in everything(log, end) if one["kind"] == "cti"]


def test_promises_take_no_room(tmp_path: Path):
    log = opened(tmp_path)
    append(log, row("insert", 1, 7))
    log.promise(2)
    files = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    for time in range(3, 5_000):
        log.promise(time)
    grown = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert {name: size for name, size in grown.items() if name != "promises"} == {
        name: size for name, size in files.items() if name != "promises"
    }
    assert grown["promises"] < 10_000
    assert log.end == 4_999
    assert 1_000 <= len(promises(log, log.end)) <= 2_000
    assert promises(log, log.end)[-1] == 4_999
    assert log.rows(4_998, 4_999)[0].tolist() == [4_998]
    reader = LogFolder(tmp_path, COLUMNS)  # a worker has the last of them
    assert promises(reader, 4_999)[-1] == 4_999
    assert len(promises(reader, 4_999)) == 256
    log.close()


def test_an_offset_is_used_once_whatever_is_lost(tmp_path: Path):
    """A reader has seen an offset that only a promise had: after a crash no row gets it."""
    log = opened(tmp_path)
    append(log, row("insert", 1, 7))
    for time in range(10):
        log.promise(time)
    seen = log.end
    log.close()
    slots = (tmp_path / "promises").read_bytes()
    (tmp_path / "promises").write_bytes(slots[:28] + bytes(len(slots) - 28))  # the machine failed: one slot was on disk
    log = opened(tmp_path)
    assert log.end >= seen
    assert append(log, row("insert", 11, 8)) >= seen
    assert [one["k"] for one in everything(log, log.end) if one["kind"] == "insert"] == [7, 8]
    assert (log.first, log.kept) == (0, 0)  # nothing was forgotten
    log.close()


def test_a_torn_slot_is_no_promise(tmp_path: Path):
    log = opened(tmp_path)
    for time in (1, 2, 3):
        log.promise(time)
    log.close()
    slots = bytearray((tmp_path / "promises").read_bytes())
    slots[-6] ^= 1
    (tmp_path / "promises").write_bytes(bytes(slots))
    log = opened(tmp_path)
    assert promises(log, log.end) == [1, 2]
    log.close()


STEPS = st.lists(st.sampled_from(["insert", "delete", "promise", "reopen", "divide", "forget"]), max_size=40)


@given(steps=STEPS)
def test_the_rows_are_the_same_after_compaction_and_new_starts(tmp_path_factory: Any, steps: list[str]):
    folder = tmp_path_factory.mktemp("log")
    log, rows, used = opened(folder), {}, -1

    def folded() -> tuple[list[tuple[int, int]], int]:
        events = log.rows(0, log.end)[1]
        held = history(to_changes(events, PAYLOAD)).to_pylist()
        present = sorted((one["k"], one["le"]) for one in held if one["re"] == INFINITY)
        return present, max(promises(log, log.end), default=-1)

    promised = -1
    for now, step in enumerate(steps):
        if step == "insert":
            start = append(log, row("insert", now, now))
            assert start > used
            rows[now], used = now, start
        elif step == "delete" and rows:
            gone, le = rows.popitem()
            used = append(log, row("retract", le, gone, now))
        elif step == "promise":
            log.promise(now)
            promised, used = now, log.end - 1
        elif step == "reopen":
            log.close()
            log = opened(folder)
            assert log.end > used
        elif step == "divide":
            log.divide()
        elif step == "forget":
            starts = [start for start, _ in log.segments() if start > log.kept]
            if starts:
                before = log.rows(log.first, starts[-1])[1]
                log.forget(starts[-1], needed_rows(before, PAYLOAD))
        assert folded() == (sorted(rows.items()), promised)
    log.close()


def test_a_table_that_nobody_changes_does_not_grow(tmp_path: Path):
    with HeadraceServer(tmp_path, durable=False) as server:
        client = server.connect(Who("ann", "admin"))
        for text in (
            "CREATE TABLE t (a LONG)", "CREATE MATERIALIZED VIEW v AS SELECT a AS n FROM t WHERE a > 0",
            "INSERT INTO t VALUES (1)",
        ):  # fmt: skip
            list(client.execute(text))
        entry = server.catalog.tables["t"]
        assert isinstance(entry, LiveEntry)
        now = [entry.table.live.latest + 10 * SECOND]
        entry.table.live._clock = lambda: now[0]
        logs = [server.objects[name].log for name in ("t", "v")]

        def passed(seconds: int) -> list[int]:
            for _ in range(seconds):
                now[0] += 2 * SECOND
                query = server.objects["v"].query
                assert query is not None
                assert query.running is not None
                query.running.process_all_available()
            return [log.size for log in logs if log is not None]

        before = passed(3)
        latest = [promises(log, log.end)[-1] for log in logs if log is not None]
        assert passed(20) == before
        later = [promises(log, log.end)[-1] for log in logs if log is not None]
        assert all(new >= old + 30 * SECOND for new, old in zip(later, latest, strict=True))
        *_, reply = client.execute("INSERT INTO t VALUES (2); SELECT n FROM v")
        assert isinstance(reply, RowsReply)
        assert sorted(reply.table["n"].to_pylist()) == [1, 2]
    with HeadraceServer(tmp_path, durable=False) as server:
        *_, reply = server.connect(Who("ann", "admin")).execute("INSERT INTO t VALUES (3); SELECT n FROM v")
        assert isinstance(reply, RowsReply)
        assert sorted(reply.table["n"].to_pylist()) == [1, 2, 3]
