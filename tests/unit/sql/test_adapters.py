"""Adapters in SQL: SOURCE name (…) and INTO name (…) build what Python builds, run, and show no secrets."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import SqlError
from headrace.sql.parse import parse
from headrace.sql.printer import to_sql
from headrace.sql.session import ShownTable
from headrace_sqlite import SqliteSink, SqliteSource

COLUMNS = "item STRING, ts DATETIME, amount LONG"
CREATE = f"CREATE STREAM orders ({COLUMNS}) ORDER BY ts "
READ = CREATE + "SOURCE sqlite ('shop.db', 'orders') WITH PROGRESS ADVANCE 10 s;\n"


def orders(database: str = "shop.db", **progress: str) -> hr.Stream:
    adapter = SqliteSource(database, "orders", hr.Schema.of(COLUMNS))
    return hr.read_source(adapter, lifetime=hr.point("ts"), progress=hr.advance("10 s", **progress))  # type: ignore[arg-type]


def sources() -> dict[str, hr.Stream]:
    """What Python says, by the clauses of SQL."""
    adapter, at = SqliteSource("shop.db", "orders", hr.Schema.of(COLUMNS)), hr.point("ts")
    return {
        "SOURCE sqlite ('shop.db', 'orders') WITH PROGRESS ADVANCE 10 s": orders(),
        "SOURCE SQLITE (tables => 'orders', database => 'shop.db') WITH PROGRESS ADVANCE 10 s": orders(),
        "SOURCE sqlite ('shop' || '.db', 'orders') WITH PROGRESS ADVANCE 10 s": orders(),
        "SOURCE sqlite ('shop.db', 'orders') WITH PROGRESS ADVANCE 10 s IDLE 1 min": orders(idle="1 min"),
        "SOURCE sqlite ('shop.db', 'orders') WITH PROGRESS ADVANCE 10 s EVERY 5 s SKEW 1 h IDLE 1 min": hr.read_source(
            adapter, lifetime=at, progress=hr.advance("10 s", "5 s", "divert", "1 h", "1 min")
        ),
        "SOURCE sqlite ('shop.db', 'orders') WITH PROGRESS ORDERED IDLE 30 s LATE DROP": hr.read_source(
            adapter, lifetime=at, progress=hr.ordered("drop", "30 s")
        ),
        "SOURCE sqlite ('shop.db', 'orders') WITH PROGRESS EXPLICIT IDLE 30 s BAD ROWS RAISE": hr.read_source(
            adapter, lifetime=at, progress=hr.explicit(idle="30 s"), bad_rows="raise"
        ),
    }


@pytest.mark.parametrize("clauses", sources())
def test_a_source_is_what_python_reads(clauses: str):
    made = hr.sql(f"{CREATE} {clauses}; SELECT * FROM orders")
    assert made.node == sources()[clauses].node


SINKS = {
    "INSERT INTO sqlite ('shop.db', 'totals') SELECT item FROM orders": SqliteSink(database="shop.db", table="totals"),
    "SELECT item FROM orders INTO sqlite ('shop.db', 'totals')": SqliteSink(database="shop.db", table="totals"),
    "SELECT item FROM orders INTO sqlite (table => 't', database => 'shop.db', encoding => 'upsert', key => 'item')":
        SqliteSink("upsert", ("item",), database="shop.db", table="t"),
    "SELECT item, ts FROM orders INTO sqlite ('shop.db', 't', 'upsert', 'item, ts', 'delete') EMIT FINAL":
        SqliteSink("upsert", ("item", "ts"), "delete", database="shop.db", table="t"),
    "MERGE orders, orders INTO sqlite ('shop.db', 'totals', encoding => 'final')":
        SqliteSink("final", database="shop.db", table="totals"),
}  # fmt: skip


@pytest.mark.parametrize("statement", SINKS)
def test_a_sink_is_what_python_makes(statement: str):
    ((stream, sink),) = hr.script(READ + statement).deliveries.values()
    assert sink == SINKS[statement]
    if statement.startswith(("INSERT", "SELECT item FROM")):
        assert stream.node == orders().select("item").node


def test_into_says_where_answers_go_also_for_the_dialects_own_sinks(tmp_path: Path):
    script = hr.script(READ + f"QUERY all_of AS SELECT * FROM orders INTO FILE ('{tmp_path}/out', 'parquet')")
    stream, sink = script.deliveries["all_of"]
    assert (stream.node, sink) == (orders().node, hr.files(f"{tmp_path}/out", format="parquet"))
    assert script.queries == {}


@pytest.mark.parametrize("text", [
    READ, *(f"{one};" for one in SINKS),
    "SELECT a FROM s INTO CONSOLE;", 'SELECT a FROM s INTO "CONSOLE";', "SELECT a FROM s INTO x;",
    "CREATE STREAM x SOURCE kafka ('h', create => TRUE, order => 1, \"sasl.password\" => env('P'));",
])  # fmt: skip
def test_what_is_printed_is_read_again(text: str):
    tree = parse(text)
    assert parse(to_sql(tree)) == tree
    assert to_sql(parse(to_sql(tree))) == to_sql(tree)


# ---- a run


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    rows = [(item, second * 1_000_000, second) for second in range(90) for item in ("ham", "eggs")]
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
        connection.execute("CREATE TABLE orders (item TEXT, ts INTEGER, amount INTEGER)")
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?)", rows)
    return tmp_path


def stored(shop: Path, table: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(shop / "shop.db")) as connection:
        return sorted(connection.execute(f"SELECT item, le / 1000000, total FROM {table}"))


TOTALS = "SELECT item, sum(amount) AS total FROM orders [TUMBLING 1 min] GROUP BY item"


def test_a_script_reads_and_writes_a_database(shop: Path):
    text = f"""{READ}
        CREATE STREAM totals AS {TOTALS};
        SELECT * FROM totals INTO sqlite ('shop.db', 'finals', encoding => 'final');
        INSERT INTO sqlite ('shop.db', 'latest', encoding => 'upsert', key => 'item') AS totals;
        SELECT count(*) AS n FROM orders [TUMBLING 1 h];
    """
    run = hr.script(text, base=shop).run()
    first, second = sum(range(60)), sum(range(60, 90))
    assert stored(shop, "latest") == [("eggs", 60, second), ("ham", 60, second)]
    assert stored(shop, "finals") == [
        (item, le, total) for item in ("eggs", "ham") for le, total in ((0, first), (60, second))
    ]
    assert run.cht()["n"].to_pylist() == [180]


def test_a_started_script_goes_on_with_new_rows(shop: Path):
    text = f"{READ} {TOTALS} INTO sqlite ('shop.db', 'latest', encoding => 'upsert', key => 'item')"
    query = hr.script(text, base=shop).start(host="local", checkpoint=str(shop / "state"))
    try:
        query.process_all_available()
        assert len(stored(shop, "latest")) == 2
        with closing(sqlite3.connect(shop / "shop.db")) as connection, connection:
            connection.execute("INSERT INTO orders VALUES ('jam', 95000000, 7), ('jam', 200000000, 8)")
        query.process_all_available()
        assert ("jam", 60, 7) in stored(shop, "latest")
    finally:
        query.stop()


def test_a_history_reads_what_an_adapter_has_stored(shop: Path):
    stream = hr.sql(f"{READ} {TOTALS}", base=shop)
    assert sorted(stream.history().cht()["total"].to_pylist()) == sorted(stream.cht()["total"].to_pylist())


# ---- errors and secrets


WRONG = [
    ("SOURCE sqlit ('a', 'b')", "there is no source 'SQLIT'", "sqlit"),
    ("SOURCE sqlite ('a', tabels => 'b')", "SQLITE has no 'tabels'", "tabels"),
    ("SOURCE sqlite ('a', 'b', 'c')", "SQLITE takes 2 arguments", "'c'"),
    ("SOURCE sqlite ('a')", "SQLITE needs the option 'tables'", "SOURCE sqlite ('a')"),
    ("SOURCE sqlite ('a', 'b', database => 'c')", "database is given twice", "database"),
    ("SOURCE sqlite (5, 'b')", "database is a text", "5"),
    ("SOURCE sqlite ('a', 'b', \"x.y\" => 1)", "SQLITE has no 'x.y'", '"x.y"'),
    ("SOURCE sqlite (env('HEADRACE_NOT_SET'), 'b')", "no variable HEADRACE_NOT_SET", "env('HEADRACE_NOT_SET')"),
    ("SOURCE sqlite (env('A', 'B'), 'b')", "env takes a name", "env('A', 'B')"),
    ("SOURCE sqlite ('a' || 5, 'b')", "|| joins texts", "'a' || 5"),
    (
        "SOURCE HOST ('h', 99) WITH PROGRESS ORDERED IDLE 9 s",
        "idle= is for sources with partitions",
        "SOURCE HOST ('h', 99)",
    ),
]


@pytest.mark.parametrize(("clause", "message", "place"), WRONG)
def test_errors_point_at_the_place(clause: str, message: str, place: str):
    with pytest.raises(SqlError) as caught:
        hr.script(f"{CREATE}\n{clause};")
    assert message in caught.value.message
    assert caught.value.text[slice(*caught.value.at)] == place
    assert caught.value.line == 2


@pytest.mark.parametrize(("statement", "message"), [
    ("INSERT INTO sqlit ('a') AS orders", "there is no sink 'SQLIT'"),
    ("SELECT * FROM orders INTO sqlite ('a')", "needs a database and a table"),
    ("SELECT * FROM orders INTO sqlite ('a', 'b', encoding => 'upsert')", "upsert rows need a key"),
    ("CREATE STREAM x AS SELECT * FROM orders INTO CONSOLE", "INTO stands behind a whole statement"),
    ("SELECT * FROM (SELECT * FROM orders INTO y)", "INTO stands behind a whole statement"),
])  # fmt: skip
def test_errors_of_sinks(statement: str, message: str):
    with pytest.raises(SqlError, match=message.replace("'", ".")):
        hr.script(READ + statement)


def test_a_variable_of_the_environment_is_used_and_not_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHOP_DB", "hush-hush.db")
    text = READ.replace("'shop.db'", "env('SHOP_DB')")
    script = hr.script(f"{text} SELECT * FROM orders; SHOW STREAMS; EXPLAIN SELECT * FROM orders INTO x; SHOW QUERIES")
    assert script.queries["query_1"].node == orders("hush-hush.db").node
    entry = script.session.catalog.streams["orders"]
    assert "env('SHOP_DB')" in entry.text
    assert "hush" not in " ".join(map(str, [entry.text, *script.outcomes[2:]]))
    with pytest.raises(SqlError) as caught:  # the adapter shows what it was given
        hr.script(READ + "SELECT * FROM orders INTO sqlite (env('SHOP_DB'))")
    assert "hush" not in str(caught.value)
    assert "env('SHOP_DB')" in str(caught.value)
    assert caught.value.__cause__ is None


def test_sessions_with_roots_use_only_files_there(shop: Path, monkeypatch: pytest.MonkeyPatch):
    inside = shop / "in"
    inside.mkdir()
    hr.script(READ, base=shop, roots=[shop])
    with pytest.raises(SqlError, match="may not use files there"):
        hr.script(READ, base=shop, roots=[inside])
    monkeypatch.setenv("SHOP_DB", "shop.db")
    with pytest.raises(SqlError, match="may not read variables"):
        hr.script(READ.replace("'shop.db'", "env('SHOP_DB')"), base=shop, roots=[shop])
    monkeypatch.setattr(SqliteSource, "paths", None)
    with pytest.raises(SqlError, match="not known which files this adapter uses"):
        hr.script(READ, base=shop, roots=[shop])


def test_sources_and_sinks_are_shown():
    found, sinks = hr.script("SHOW SOURCES; SHOW SINKS").outcomes
    assert isinstance(found, ShownTable)
    assert isinstance(sinks, ShownTable)
    rows = {name: (options, origin) for name, options, origin in found.rows}
    assert rows["GENERATOR"] == ("name, rows, seed", "headrace")
    assert rows["sqlite"][0] == "database, tables, columns"
    assert rows["sqlite"][1].startswith("headrace-sqlite ")
    assert ("CONSOLE", "encoding, key, rows", "headrace") in sinks.rows
