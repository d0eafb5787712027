"""Queries over PostgreSQL's catalog, and what they may not reach."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.server.postgres.stand_in import StandIn

from headrace.server.interface import Who
from headrace.server.postgres.catalog import CatalogQueries
from headrace.server.postgres.lexing import statements
from headrace.server.postgres.settings import ClientSettings
from headrace.server.postgres.states import StatementRefused

SCRIPT = """
    CREATE TABLE trades (id INT PRIMARY KEY, symbol STRING NOT NULL, n DECIMAL(10,2), ts DATETIME);
    CREATE VIEW v AS SELECT symbol FROM trades;
    CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM trades;
"""

_COLUMNS = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = 'public.trades'::regclass AND a.attnum > 0 ORDER BY a.attnum
"""


@pytest.fixture(scope="module")
def catalog() -> CatalogQueries:
    return CatalogQueries(StandIn(SCRIPT).connect(Who("ann", "reader")), ClientSettings("ann", {}), "db", lambda: ["c"])


def rows(catalog: CatalogQueries, text: str) -> list[tuple[Any, ...]]:
    (statement,) = statements(text)
    assert catalog.answers(statement)
    return [tuple(row.values()) for row in catalog.rows(statement).to_pylist()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT pg_get_viewdef('v'::regclass) AS a, pg_get_viewdef('trades'::regclass, true) AS b",
         [(" SELECT symbol\nFROM trades;", None)]),
        ("SELECT relname, relkind FROM pg_class ORDER BY 1",
         [("m", "m"), ("trades", "r"), ("trades_pkey", "i"), ("v", "v")]),
        (_COLUMNS,
         [("id", "integer", True), ("symbol", "text", True), ("n", "numeric(10,2)", False),
          ("ts", "timestamp with time zone", False)]),
        ("SELECT table_name, table_type FROM information_schema.tables ORDER BY 1",
         [("m", "MATERIALIZED VIEW"), ("trades", "BASE TABLE"), ("v", "VIEW")]),
        ("SELECT column_name, data_type, is_nullable FROM information_schema.columns WHERE table_name = 'v'",
         [("symbol", "text", "YES")]),
        ("SELECT current_schema(), current_database(), current_user", [("public", "db", "ann")]),
        ("SELECT oid::regclass::text FROM pg_class WHERE relkind = 'v'", [("v",)]),
        ("SELECT 'int4'::regtype::oid AS a, 23::regtype::text AS b, to_regtype('nothing')", [(23, "integer", None)]),
        ("SELECT pg_get_indexdef(indexrelid) FROM pg_index",
         [("CREATE UNIQUE INDEX trades_pkey ON public.trades USING btree (id)",)]),
        ("SELECT name FROM pg_cursors", [("c",)]),
        ("SELECT current_setting('TimeZone')", [("UTC",)]),
        ("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' ORDER BY 1", [("information_schema",), ("public",)]),
        ("WITH x AS (SELECT relname FROM pg_class) SELECT count(*) FROM x", [(4,)]),
        ("SELECT relname OPERATOR(pg_catalog.~) '^(v)$' COLLATE pg_catalog.default FROM pg_class WHERE relname = 'v'",
         [(True,)]),
    ],
)  # fmt: skip
def test_answers(catalog: CatalogQueries, text: str, expected: list[tuple[Any, ...]]):
    assert rows(catalog, text) == expected


def test_columns_have_postgres_names(catalog: CatalogQueries):
    (statement,) = statements("SELECT version(), pg_catalog.current_schema(), oid::regclass, 1, relname FROM pg_class")
    names = ["version", "current_schema", "oid", "?column?", "relname"]
    assert catalog.rows(statement).schema.names == names


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM trades", "SELECT version FROM trades", "SELECT 'pg_class'", "SHOW TABLES",
        "INSERT INTO pg_class VALUES (1)",
        'SELECT "current_user" FROM trades', "SELECT pg_prices.x FROM pg_prices", "SELECT -- pg_class\n 1",
    ],
)  # fmt: skip
def test_queries_that_are_not_about_the_catalog(catalog: CatalogQueries, text: str):
    (statement,) = statements(text)
    assert not catalog.answers(statement)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT version(), * FROM read_csv('/etc/passwd')",
        "SELECT version(), * FROM '/etc/passwd'",
        "SELECT version(), * FROM read_text('/etc/passwd')",
        "SELECT version(), * FROM glob('/*')",
        "SELECT version(), * FROM duckdb_settings()",
        "SELECT version(), getenv('HOME')",
        "SELECT version(), * FROM hr.duckdb_settings",
        "SELECT version(), * FROM sqlite_master",
        "SELECT version(), * FROM main.pg_class",
        "SELECT version(), * FROM trades",
        "SELECT version(), * FROM query('SELECT 1')",
        "SELECT version() INTO x",
        "WITH x AS (DELETE FROM pg_class) SELECT version()",
        "SELECT pg_read_file('/etc/passwd'), version()",
        "SELECT version() FROM (",
        "SELECT version(), sum(a.oid) FROM pg_nothing a",
        "SELECT version(), $1",
        "SELECT version(), x FROM pg_class WHERE nope = 1",
        "SELECT version(), range(1000000000)",
        "SELECT version(), repeat('x', 2000000000) || repeat('y', 2000000000)",
    ],
)
def test_nothing_else_is_reached(catalog: CatalogQueries, text: str):
    (statement,) = statements(text)
    with pytest.raises(StatementRefused):
        catalog.rows(statement)


def test_what_is_created_later_is_seen():
    server = StandIn(SCRIPT)
    catalog = CatalogQueries(server.connect(Who("ann", "reader")), ClientSettings("ann", {}), "db", list)
    assert len(rows(catalog, "SELECT oid FROM pg_class WHERE relkind = 'r'")) == 1
    list(server.session.execute("CREATE TABLE more (x INT)"))
    catalog.forget()
    assert len(rows(catalog, "SELECT oid FROM pg_class WHERE relkind = 'r'")) == 2
    catalog.close()
