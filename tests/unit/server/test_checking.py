"""Texts that are checked and not carried out: errors at their places, the plan of a query, and nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.server.core import HeadraceServer
from headrace.server.interface import RowsReply, Who

_ANN = Who("ann", "admin")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    with HeadraceServer(tmp_path_factory.mktemp("data"), durable=False) as found:
        list(found.connect(_ANN).execute("""
            CREATE STREAM sales (item STRING, amount LONG, ts DATETIME) ORDER BY ts WITH PROGRESS ADVANCE 1 min;
            CREATE TABLE prices (item STRING PRIMARY KEY, price DOUBLE);
            INSERT INTO prices VALUES ('pear', 3.5);
            CREATE MATERIALIZED VIEW dear AS SELECT item FROM prices WHERE price > 10;
            QUERY all_sales AS SELECT * FROM sales
        """))  # fmt: skip
        yield found


def everything(server: HeadraceServer) -> list[Any]:
    shown = server.connect(_ANN).execute(
        "SHOW STREAMS; SHOW TABLES; SHOW VIEWS; SHOW AGGREGATES; SHOW SCHEMAS; SHOW SETTINGS; SELECT * FROM prices"
    )
    named = [reply.table.to_pylist() for reply in shown if isinstance(reply, RowsReply)]
    return [*named, sorted(served.stored.text for served in server.objects.values())]


TEXTS = """
SELECT item, sum(amount) AS total FROM sales [TUMBLING 1 min] GROUP BY item
QUERY minutes AS SELECT item FROM sales; SELECT * FROM minutes; DROP QUERY minutes; QUERY minutes AS SELECT * FROM sales
CREATE STREAM b (x LONG, ts DATETIME) ORDER BY ts; INSERT INTO b VALUES (1, '2024-05-01T12:00:00'); SELECT x FROM b
CREATE STREAM large AS SELECT item FROM sales WHERE amount > 10; SELECT * FROM large
CREATE TABLE t AS SELECT * FROM prices; SELECT price FROM t; UPDATE t SET price = 1; DELETE FROM t; TRUNCATE TABLE t
INSERT INTO prices VALUES ('fig', 1.5); INSERT INTO prices SELECT item, 1.0 FROM dear; DELETE FROM prices
CREATE VIEW v AS SELECT price FROM prices; CREATE MATERIALIZED VIEW w AS SELECT count(*) AS n FROM v; SELECT n FROM w
DROP MATERIALIZED VIEW dear; CREATE MATERIALIZED VIEW dear AS SELECT item, price FROM prices; SELECT price FROM dear
STOP QUERY all_sales; ALTER QUERY all_sales SET retention = '1 day'; SUBSCRIBE all_sales; SHOW QUERIES
EXPLAIN ANALYZE SELECT * FROM sales; VERIFY SELECT * FROM sales; DROP TABLE prices; DROP SECRET none
DROP QUERY IF EXISTS none; SET view = events; SELECT item FROM sales INTO FILE ('sales.csv')
""".strip().splitlines()


@pytest.mark.parametrize("text", TEXTS)
def test_right_texts_change_nothing(server: HeadraceServer, text: str) -> None:
    before = everything(server)
    found = server.check(_ANN, text)
    assert found["error"] is None
    assert found["at"] is None
    assert everything(server) == before


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("SELECT itme FROM sales", "itme"),
        ("SELEC 1", "SELEC"),
        ("SELECT * FROM sales; SELECT * FROM sale", "sale"),
        ("QUERY all_sales AS SELECT * FROM sales", "all_sales"),
        ("CREATE TABLE sales (a LONG)", "sales"),
        ("INSERT INTO prices VALUES ('fig')", "('fig')"),
        ("INSERT INTO nothing VALUES (1)", "nothing"),
        ("DROP STREAM nothing", "nothing"),
        ("DROP MATERIALIZED VIEW dear; SELECT * FROM dear", "dear"),
    ],
)
def test_an_error_has_its_place(server: HeadraceServer, text: str, wrong: str) -> None:
    found = server.check(_ANN, text)
    start, end = found["at"]
    assert text[start:end] == wrong
    assert start >= text.rindex(wrong)
    assert found["error"]["message"]
    assert found["plan"] is None


def test_the_plan_is_of_the_query_at_the_caret(server: HeadraceServer) -> None:
    text = "SELECT item FROM sales; SELECT price FROM prices"
    at_first, at_last = server.check(_ANN, text, 3), server.check(_ANN, text)
    assert "sales" in at_first["explain"]
    assert "sales" not in at_last["explain"]
    assert at_last["explain"] == server.check(_ANN, text, len(text))["explain"]
    assert {node["id"] for node in at_first["plan"]["nodes"]} >= {1, 2}
    assert server.check(_ANN, "SHOW STREAMS")["plan"] is None
    assert server.check(_ANN, "")["error"] is None


def test_a_source_is_not_read(server: HeadraceServer) -> None:
    found = server.check(_ANN, "CREATE STREAM f (a LONG) SOURCE FILE ('/nowhere.csv', ','); SELECT b FROM f")
    assert found["error"] is None
    assert "reads a source" in found["note"]


def test_a_role_that_is_not_enough(server: HeadraceServer) -> None:
    found = server.check(Who("bob", "reader"), "SELECT * FROM sales; CREATE TABLE x (a LONG)")
    assert found["error"]["code"] == "ACCESS"
    assert found["at"] == [21, 44]
    assert server.check(Who("bob", "reader"), "SELECT * FROM sales")["plan"] is not None
