"""Views, materialized views, and the statements about what exists."""

from __future__ import annotations

import gc
import weakref
from datetime import UTC, date, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.sql.test_tables import CREATES, allows, bag, changes, messages, rows

import headrace as hr
from headrace import col
from headrace.errors import SqlError
from headrace.sql.session import Done, ShownTable, SqlSession, Words

STREAM = hr.events([{"le": 1, "id": 1}, {"le": 5, "id": 2}], "id LONG")
POINTS = hr.from_arrow(pa.table({"id": [1, 2], "ts": [1, 5]}), lifetime=hr.point("ts"))
BASE = """
CREATE TABLE t (id LONG, n INT);
CREATE VIEW big AS SELECT * FROM t WHERE n > 2;
CREATE MATERIALIZED VIEW total AS SELECT count(*) AS c, sum(n) AS s FROM big;
"""


def test_a_view_is_a_name_for_a_query() -> None:
    session = SqlSession()
    session.execute(BASE + "INSERT INTO t VALUES (1, 1), (2, 5)")
    assert rows(session, "SELECT id FROM big") == [(2,)]
    session.execute("INSERT INTO t VALUES (3, 9)")
    assert rows(session, "SELECT id FROM big ORDER BY id DESC") == [(3,), (2,)]
    assert rows(session, "WITH big AS (SELECT id FROM t) SELECT count(*) AS c FROM big") == [(3,)]
    session.execute("CREATE VIEW pairs AS SELECT x.id, y.n FROM big AS x JOIN t AS y ON x.id = y.id")
    assert rows(session, "SELECT * FROM pairs ORDER BY id") == [(2, 5), (3, 9)]


def test_a_view_can_be_replaced() -> None:
    session = SqlSession()
    session.execute("CREATE TABLE t (id LONG); CREATE VIEW a AS SELECT * FROM t; CREATE VIEW b AS SELECT id FROM a")
    session.execute("INSERT INTO t VALUES (1), (2); CREATE OR REPLACE VIEW a AS SELECT * FROM t WHERE id = 2")
    assert rows(session, "SELECT * FROM b") == [(2,)]
    with pytest.raises(SqlError, match="the view b reads a, and would not fit"):
        session.execute("CREATE OR REPLACE VIEW a AS SELECT id AS other FROM t")
    with pytest.raises(SqlError, match="would read itself"):
        session.execute("CREATE OR REPLACE VIEW a AS SELECT * FROM b")
    assert rows(session, "SELECT * FROM b") == [(2,)]
    session.execute("CREATE MATERIALIZED VIEW m AS SELECT * FROM b")
    with pytest.raises(SqlError, match="MATERIALIZED VIEW m has the old query of a"):
        session.execute("CREATE OR REPLACE VIEW a AS SELECT * FROM t")
    session.execute("DROP MATERIALIZED VIEW m; CREATE OR REPLACE VIEW a AS SELECT * FROM t")
    assert rows(session, "SELECT * FROM b ORDER BY id") == [(1,), (2,)]


def test_a_materialized_view_has_the_answer_now() -> None:
    session = SqlSession()
    session.execute(BASE)
    assert rows(session, "SELECT * FROM total") == [(0, None)]
    session.execute("INSERT INTO t VALUES (1, 1), (2, 5), (3, 9)")
    assert rows(session, "SELECT * FROM total") == [(2, 14)]
    session.execute(
        "UPDATE t SET n = n + 2 WHERE id < 3; CREATE MATERIALIZED VIEW more AS SELECT c + 1 AS c FROM total"
    )
    assert rows(session, "SELECT * FROM total") == [(3, 19)]
    assert rows(session, "SELECT * FROM more") == [(4,)]
    session.execute("DELETE FROM t WHERE n = 9; INSERT INTO t SELECT 10, CAST(c AS INT) FROM total")
    assert rows(session, "SELECT more.c, s FROM more JOIN total ON more.c = total.c + 1") == [(3, 10)]
    session.execute("DROP MATERIALIZED VIEW more; DROP MATERIALIZED VIEW total")


def test_a_view_does_not_give_statements_a_time() -> None:
    session = SqlSession({"c": STREAM})
    session.execute("CREATE TABLE t (id LONG, name STRING)")
    session.execute("CREATE MATERIALIZED VIEW named AS SELECT t.id, name FROM c JOIN t ON c.id = t.id")
    session.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    (outcome,) = session.execute("SELECT * FROM named")
    assert sorted(row["le"] for row in outcome.stream.cht().to_pylist()) == [1, 5]  # type: ignore[attr-defined]
    session.execute("DROP MATERIALIZED VIEW named")


def test_a_materialized_view_in_python() -> None:
    table = hr.table("k STRING, n LONG")
    view = hr.materialized(table.group_by("k").aggregate(n=hr.sum("n")))
    table.insert([{"k": "a", "n": 1}, {"k": "a", "n": 2}])
    assert view.rows().to_pylist() == [{"k": "a", "n": 3}]
    assert view.where(col("n") > 5).cht().num_rows == 0
    assert "MaterializedView" in repr(view)
    query, live = view.live.query, weakref.ref(view.live)
    assert query.is_active
    del view
    gc.collect()
    assert live() is None
    assert not query.is_active


def test_cascade_drops_what_reads_it() -> None:
    session = SqlSession({"c": STREAM, "p": POINTS})
    session.execute(BASE + "CREATE STREAM old AS SELECT id FROM t")
    (done,) = session.execute("DROP TABLE t CASCADE")
    assert isinstance(done, Done)
    assert done.message.endswith("stream old dropped; table t dropped")
    assert "t" not in session.catalog.tables
    assert "old" not in session.catalog.streams


@pytest.mark.parametrize(
    ("statement", "message", "instead"),
    [
        ("DROP TABLE t", "VIEW big, STREAM old still read t", "before it, or DROP TABLE t CASCADE"),
        ("DROP VIEW big", "MATERIALIZED VIEW total still reads big", "DROP MATERIALIZED VIEW total before it"),
        ("DROP TABLE big", "there is no table 'big'", "DROP VIEW big"),
        ("DROP VIEW total", "there is no view 'total'", "DROP MATERIALIZED VIEW total"),
        ("DROP STREAM t", "there is no stream 't'", "DROP TABLE t"),
        ("DROP VIEW bgi", "there is no view 'bgi'", "big"),
        ("CREATE VIEW t AS SELECT * FROM c", "'t' exists already", "another name, or first DROP TABLE t"),
        ("CREATE OR REPLACE VIEW total AS SELECT * FROM c", "exists already", "first DROP MATERIALIZED VIEW total"),
        ("INSERT INTO big VALUES (1, 2)", "big is a view: its rows are those of its query", "a table that it reads"),
        ("SHOW CREATE bgi", "there is no 'bgi'", "big"),
        ("SELECT id FROM p UNION ALL SELECT id FROM t", "they have no union", "[RANGE UNBOUNDED]"),
        ("SELECT id FROM big UNION SELECT id FROM p", "they have no union", "[RANGE UNBOUNDED]"),
    ],
)
def test_what_is_refused_and_what_to_write(statement: str, message: str, instead: str) -> None:
    session = SqlSession({"c": STREAM, "p": POINTS})
    session.execute(BASE + "CREATE STREAM old AS SELECT id FROM t")
    with pytest.raises(SqlError) as caught:
        session.execute(statement)
    assert message in caught.value.message
    assert instead in caught.value.instead


def test_what_may_be_united() -> None:
    session = SqlSession({"c": STREAM})
    session.execute(
        "CREATE TABLE t (id LONG); CREATE TABLE u (id LONG); INSERT INTO t VALUES (1); INSERT INTO u VALUES (1)"
    )
    assert rows(session, "SELECT id FROM t UNION SELECT id FROM u") == [(1,)]
    assert rows(session, "SELECT id FROM t UNION ALL SELECT id FROM u") == [(1,), (1,)]
    lasting = hr.sql("SELECT id FROM p [RANGE UNBOUNDED] UNION ALL SELECT id FROM t", p=POINTS, t=session.table("t"))
    assert lasting.cht().num_rows == 3


def test_what_exists() -> None:
    session = SqlSession({"c": STREAM})
    session.execute(BASE + "QUERY q AS SELECT id, id * 2 AS twice FROM c")
    assert messages(
        session, "CREATE TABLE IF NOT EXISTS t (x INT); CREATE VIEW IF NOT EXISTS big AS SELECT * FROM c"
    ) == [
        "t exists already",
        "big exists already",
    ]
    assert messages(session, "DROP VIEW IF EXISTS nothing; DROP QUERY q; DROP TABLE IF EXISTS u") == [
        "there is no view nothing",
        "query q dropped",
        "there is no table u",
    ]

    def shown(text: str) -> Any:
        (outcome,) = session.execute(text)
        if isinstance(outcome, Words):
            return outcome.text
        assert isinstance(outcome, ShownTable)
        return outcome.rows

    session.execute("QUERY q AS SELECT id, id * 2 AS twice FROM c")
    session.execute("CREATE TABLE rules (a INT PRIMARY KEY, b STRING NOT NULL DEFAULT 'x', c INT)")
    assert shown("SHOW VIEWS") == (("big", "view", "id LONG, n INT"), ("total", "materialized view", "c LONG, s LONG"))
    assert [name for name, _ in shown("SHOW TABLES")] == ["t", "rules"]
    assert shown("SHOW CREATE big") == "CREATE VIEW big AS\nSELECT *\nFROM t\nWHERE n > 2;"
    assert shown("SHOW CREATE t") == "CREATE TABLE t (id LONG, n INT);"
    assert shown("SHOW CREATE q").startswith("QUERY q AS\nSELECT id")
    assert shown("SHOW CREATE c") == "-- c comes from Python"
    assert shown("DESCRIBE big") == (("id", "LONG"), ("n", "INT"))
    assert shown("DESCRIBE q") == (("id", "LONG"), ("twice", "LONG"))
    assert shown("DESCRIBE (SELECT n AS m FROM t)") == shown("DESCRIBE SELECT n AS m FROM big") == (("m", "INT"),)
    assert shown("DESCRIBE rules") == (
        ("a", "INT", "PRIMARY KEY"),
        ("b", "STRING", "NOT NULL DEFAULT 'x'"),
        ("c", "INT", ""),
    )
    assert all(isinstance(outcome, Done) for outcome in session.execute("DROP MATERIALIZED VIEW total; DROP VIEW big"))


VIEWS = {
    "sums": "SELECT k, count(*) AS c, sum(n) AS s FROM t GROUP BY k",
    "whole": "SELECT count(*) AS c, max(n) AS m FROM t",
    "pairs": "SELECT x.id, u.k FROM t AS x JOIN u ON x.id = u.id",
    "over": "SELECT s, count(*) AS times FROM sums GROUP BY s",
}


@settings(deadline=None, max_examples=max(1, settings().max_examples // 3))
@given(st.lists(changes, min_size=1, max_size=4))
def test_differential_materialized_views_have_the_answers_of_duckdb(texts: list[str]) -> None:
    session, oracle = SqlSession(), duckdb.connect()
    session.execute(CREATES.format("LONG", "STRING", ""))
    oracle.execute(CREATES.format("BIGINT", "VARCHAR", ""))
    for name, query in VIEWS.items():
        session.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        oracle.execute(f"CREATE VIEW {name} AS {query}")
    try:
        for text in texts:
            assert allows(session, text)
            oracle.execute(text)
            for name in VIEWS:
                found = rows(session, f"SELECT * FROM {name}")
                assert bag(found) == bag(oracle.execute(f"SELECT * FROM {name}").fetchall()), (text, name)
    finally:
        for name in reversed(VIEWS):
            session.execute(f"DROP MATERIALIZED VIEW {name}")


def test_show_create_may_say_the_kind() -> None:
    session = SqlSession({"points": POINTS})
    session.execute(BASE + "CREATE SCHEMA row (id LONG); QUERY asked AS SELECT id FROM t")
    kinds = {
        "big": "VIEW",
        "total": "MATERIALIZED VIEW",
        "t": "TABLE",
        "row": "SCHEMA",
        "asked": "QUERY",
        "points": "STREAM",
    }
    for name, kind in kinds.items():
        plain, full = session.execute(f"SHOW CREATE {name}; SHOW CREATE {kind} {name}")
        assert isinstance(plain, Words)
        assert isinstance(full, Words)
        assert plain.text == full.text
    with pytest.raises(SqlError, match="big is no table") as caught:
        session.execute("SHOW CREATE TABLE big")
    assert caught.value.instead == "SHOW CREATE VIEW big"


def test_names_that_nobody_gave_are_not_suggested() -> None:
    session = SqlSession()
    session.execute("CREATE TABLE t (id LONG); SELECT id FROM t; SELECT id FROM t")
    with pytest.raises(SqlError, match="no stream 'x'") as caught:
        session.execute("SELECT id FROM x")
    assert caught.value.allowed == "t"


def test_the_time_of_a_statement() -> None:
    before = datetime.now(UTC)
    [answer] = hr.sql("SELECT now() AS at, current_date AS day, current_date + 1 AS next").cht().to_pylist()
    assert before <= answer["at"] <= datetime.now(UTC)
    assert answer["day"] == answer["at"].date()
    assert answer["next"] == answer["day"] + timedelta(days=1)
    [row] = hr.sql("SELECT current_date AS day, ts FROM points WHERE ts = 5", points=POINTS).cht().to_pylist()
    assert row["day"] == date(1970, 1, 1)
