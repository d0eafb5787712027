"""Which statements are computed in the server's process: those that cannot become large."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.server.computing import sizes
from headrace.server.connection import ServerConnection
from headrace.server.core import HeadraceServer
from headrace.server.interface import Who
from headrace.sql.bind.context import Context
from headrace.sql.outcomes import Answers
from headrace.sql.parse import parse_statement

SCRIPT = """
CREATE TABLE t (k LONG, v DOUBLE, x STRING);
INSERT INTO t VALUES (1, 2.0, 'a'), (2, 3.0, 'b');
CREATE STREAM fed (k LONG, ts DATETIME) ORDER BY ts;
CREATE MATERIALIZED VIEW sums AS SELECT k, sum(v) AS s FROM t GROUP BY k;
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerConnection]:
    data: Path = tmp_path_factory.mktemp("sizes")
    with HeadraceServer(data, durable=False) as server:
        connection = server.connect(Who("ada", "admin"))
        for _ in connection.execute(SCRIPT):
            pass
        yield connection


def is_small(client: ServerConnection, text: str) -> bool:
    outcome = client.session.statement(Context(text), parse_statement(text))
    assert isinstance(outcome, Answers)
    return sizes.is_small(outcome.shown.node)


@pytest.mark.parametrize("text", [
    "SELECT 1 AS x",
    "SELECT * FROM t WHERE k > 1 ORDER BY v",
    "SELECT upper(x) AS x, k + 1 AS n FROM t",
    "SELECT k, sum(v) AS s, count(*) AS n FROM t GROUP BY k HAVING sum(v) > 1",
    "SELECT t.x, sums.s FROM t JOIN sums ON t.k = sums.k",
    "SELECT x FROM t WHERE k IN (SELECT k FROM sums)",
    "SELECT * FROM fed",
    "SELECT g FROM generate_series(1, 300) AS g",
])  # fmt: skip
def test_what_cannot_become_large_is_computed_in_process(client: ServerConnection, text: str):
    assert is_small(client, text)


@pytest.mark.parametrize("text", [
    "SELECT a.a FROM generate_series(1, 1000) AS a, generate_series(1, 1000) AS b",  # pairs
    "SELECT a.k FROM t AS a, t AS b, t AS c, t AS d, t AS e, t AS f, t AS g, t AS h, t AS i, t AS j, t AS l, t AS m",
    "SELECT repeat(x, 10000) AS x FROM t",  # longer texts
    "SELECT x || x AS x FROM t",
    "SELECT replace(x, 'a', 'aaaa') AS x FROM t",
    "SELECT string_agg(x, ',') AS x FROM t",  # an answer that holds all of a group, for each of its windows
    "SELECT count(*) AS n FROM fed [TUMBLING 1 min]",  # as many windows as fit into a lifetime
    "SELECT * FROM t ORDER BY k LIMIT 1",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 AS n FROM r WHERE n < 9) SELECT n FROM r",
])  # fmt: skip
def test_what_may_become_large_is_computed_elsewhere(client: ServerConnection, text: str):
    assert not is_small(client, text)


def test_a_join_of_a_long_text_with_many_rows_is_large(client: ServerConnection):
    row = f"SELECT '{'x' * 100_000}' AS x"
    assert is_small(client, row)
    assert not is_small(client, f"SELECT a.x, g.g FROM ({row}) AS a, generate_series(1, 1000) AS g")


def test_a_text_in_many_columns_is_large(client: ServerConnection):
    row = f"SELECT '{'x' * 100_000}' AS x"
    columns = ", ".join(f"a.x AS x{number}" for number in range(400))
    assert not is_small(client, f"SELECT {columns} FROM ({row}) AS a")
