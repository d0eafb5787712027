"""A text changes the catalog as a whole or not at all, also if the process dies at any step of it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.asking import AppClient

from headrace.errors import HeadraceError, ServerError, SqlError, UnknownColumn
from headrace.server.core import HeadraceServer
from headrace.server.http.app import make_app
from headrace.server.interface import RowsReply, Who

ADMIN = Who("ada", "admin")
BEFORE = """
CREATE STREAM fed (k LONG, ts DATETIME) ORDER BY ts;
INSERT INTO fed VALUES (1, DATETIME '2024-01-01T00:00:00Z'), (2, DATETIME '2024-01-01T00:00:01Z');
CREATE TABLE old (k LONG);
INSERT INTO old VALUES (7);
QUERY q AS SELECT k FROM fed WHERE k > 1;
CREATE VIEW v AS SELECT k FROM old;
"""
TEXT = """
CREATE TABLE young (k LONG);
CREATE OR REPLACE VIEW v AS SELECT k + 1 AS k FROM young;
DROP QUERY q;
QUERY q AS SELECT k FROM fed WHERE k > 0;
CREATE TABLE short_lived (k LONG);
DROP TABLE short_lived;
DROP TABLE old;
"""


def carried_out(server: HeadraceServer, text: str) -> None:
    for _ in server.connect(ADMIN).execute(text):
        pass


def content(server: HeadraceServer) -> Mapping[str, Any]:
    """The objects with their statements, whether their queries run, and the rows of those that can be asked."""
    found: dict[str, Any] = {}
    for name, served in server.objects.items():
        running = None if served.query is None else served.query.state
        (reply,) = server.connect(ADMIN).execute(f"SELECT k FROM {name}")
        assert isinstance(reply, RowsReply)
        found[name] = served.stored.text, running, sorted(row["k"] for row in reply.table.to_pylist())
    return found


@contextmanager
def copied_at_each_step(server: HeadraceServer, folder: Path) -> Iterator[list[Path]]:
    """Copies of the data directory as a kill would leave it: before each transaction of the catalog, and after all."""
    database, copies = server.stored._database, list[Path]()
    changing = database.changing

    def copy() -> None:
        for run in server.runs.runs:  # no batch runs while files are copied
            run.query.process_all_available()
        copies.append(folder / str(len(copies)))
        shutil.copytree(server.data, copies[-1], ignore=shutil.ignore_patterns("*.db", "*.db-*", ".drafts"))
        for file in server.data.glob("*.db"):
            with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copies[-1] / file.name)) as target:
                source.backup(target)

    @contextmanager
    def copying() -> Iterator[Any]:
        copy()
        with changing() as connection:
            yield connection

    database.changing = copying  # type: ignore[method-assign]
    try:
        yield copies
        copy()
    finally:
        del database.changing  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_process_that_dies_in_a_text_leaves_all_of_it_or_nothing(tmp_path: Path):
    with HeadraceServer(tmp_path / "data", durable=False) as server:
        carried_out(server, BEFORE)
        before = content(server)
        with copied_at_each_step(server, tmp_path / "copies") as copies:
            carried_out(server, TEXT)
        after = content(server)
    assert before.keys() == {"fed", "old", "q", "v"}
    assert after.keys() == {"fed", "young", "q", "v"}
    assert [after[name][1:] for name in ("q", "young")] == [("running", [1, 2]), (None, [])]
    found = []
    for copy in copies:
        with HeadraceServer(copy, durable=False) as server:
            assert not server.unrecovered
            found.append(content(server))
            folders = {file.name for file in (copy / "logs").iterdir()}
            assert folders == {one.stored.folder for one in server.objects.values() if one.log is not None}
            places = {place.folder for place in server.stored.places().values()}
            assert {file.name for file in (copy / "checkpoints").iterdir()} == places
    assert found[0] == before
    assert found[-1] == after
    changed = found.index(after)
    assert found == [before] * changed + [after] * (len(found) - changed)
    assert changed > 4


@pytest.mark.slow
def test_a_text_that_fails_restores_what_it_dropped(tmp_path: Path):
    with HeadraceServer(tmp_path / "data", durable=False) as server:
        carried_out(server, BEFORE)
        before = content(server)
        with pytest.raises(SqlError):
            carried_out(server, f"{TEXT} SELECT nothing FROM fed;")
        assert content(server) == before
        carried_out(server, "INSERT INTO fed VALUES (3, DATETIME '2024-01-01T00:00:02Z')")
        assert content(server)["q"][1:] == ("running", [2, 3])  # it goes on where it was
        carried_out(server, TEXT)
        after = content(server)
    with HeadraceServer(tmp_path / "data", durable=False) as server:
        assert content(server) == after


@pytest.mark.slow
def test_a_text_that_its_way_in_refuses_at_the_end_creates_nothing(tmp_path: Path):
    with HeadraceServer(tmp_path / "data", durable=False) as server:
        reply = AppClient(make_app(server)).post("/sql", json={"sql": "CREATE TABLE t (k LONG); SUBSCRIBE t"})
        assert (reply.status_code, reply.json()["code"]) == (400, "SERVER")
        assert not server.objects
        with pytest.raises(HeadraceError, match="there is no stream"):
            carried_out(server, "SUBSCRIBE t")


@pytest.mark.slow
def test_a_query_that_its_text_stops_is_stopped_after_a_start(tmp_path: Path):
    with HeadraceServer(tmp_path / "data", durable=False) as server:
        carried_out(server, BEFORE)
        carried_out(server, "QUERY r AS SELECT k FROM fed; STOP QUERY r")
        assert content(server)["r"][1] == "stopped"
    with HeadraceServer(tmp_path / "data", durable=False) as server:
        assert [content(server)[name][1] for name in ("q", "r")] == ["running", "stopped"]


def test_roots_do_not_contain_the_data_directory(tmp_path: Path):
    for root in (tmp_path, tmp_path / "data"):
        with pytest.raises(ServerError, match="data directory"):
            HeadraceServer(tmp_path / "data", roots=[str(root)])
    HeadraceServer(tmp_path / "data", roots=[str(tmp_path / "files")])


def test_the_key_of_a_subscription_is_a_name_of_sql(tmp_path: Path):
    with HeadraceServer(tmp_path / "data", durable=False) as server:
        carried_out(server, "CREATE TABLE t (Item STRING, n LONG); INSERT INTO t VALUES ('a', 1)")
        subscription = server.connect(ADMIN).subscribe("t", "upsert", key=["ITEM"])
        rows = subscription.next(60)
        assert rows is not None
        assert rows.rows.select(["Item", "n"]).to_pylist() == [{"Item": "a", "n": 1}]
        with pytest.raises(UnknownColumn):
            server.connect(ADMIN).subscribe("t", "upsert", key=["nothing"])
