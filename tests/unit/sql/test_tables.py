"""Tables that live: statements change their rows, and queries see their history."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import PlanError, SqlError, TableError, UnknownColumn
from headrace.io.live_table import LiveTable
from headrace.sql.peek import current
from headrace.sql.session import Answers, Done, SqlSession
from headrace.time import BEGINNING

T = "CREATE TABLE t (id LONG PRIMARY KEY, name STRING NOT NULL, n INT DEFAULT 7, ts DATETIME)"


def rows(session: SqlSession, query: str) -> list[tuple[Any, ...]]:
    """The rows that a query shows now, in its order."""
    (outcome,) = session.execute(query)
    assert isinstance(outcome, Answers)
    assert outcome.relation
    done = hr.run({"q": outcome.shown})
    return [tuple(row.values()) for row in current(done.results["q"], outcome.order).to_pylist()]


def messages(session: SqlSession, text: str) -> list[str]:
    return [outcome.message for outcome in session.execute(text) if isinstance(outcome, Done)]


def test_statements_change_rows() -> None:
    session = SqlSession()
    assert messages(session, f"{T}; INSERT INTO t VALUES (1, 'a', 2, '2020-01-01'), (2, 'b', NULL, NULL)") == [
        "table t (id LONG, name STRING, n INT, ts DATETIME)",
        "2 rows inserted into t",
    ]
    assert messages(session, "INSERT INTO t (id, name) VALUES (1 + 2, upper('c'))") == ["1 row inserted into t"]
    assert rows(session, "SELECT id, name, n FROM t ORDER BY id") == [(1, "a", 2), (2, "b", None), (3, "C", 7)]
    assert messages(session, "UPDATE t SET n = id * 10, name = name || 'x' WHERE id < 3") == ["2 rows of t updated"]
    assert rows(session, "SELECT name, n FROM t ORDER BY 1") == [("C", 7), ("ax", 10), ("bx", 20)]
    assert messages(session, "DELETE FROM t WHERE n = 10; CREATE TABLE u AS SELECT id, n FROM t WHERE n > 5") == [
        "1 row of t deleted",
        "table u (id LONG, n INT)",
    ]
    session.execute("INSERT INTO u (n) SELECT n + 1 FROM u; INSERT INTO u SELECT * FROM u WHERE id = 2")
    assert rows(session, "SELECT * FROM u ORDER BY id, n") == [
        (2, 20), (2, 20), (3, 7), (None, 8), (None, 21),
    ]  # fmt: skip
    assert messages(session, "TRUNCATE TABLE u") == ["5 rows of u deleted"]
    assert rows(session, "SELECT * FROM u") == []


def test_rows_of_other_tables_decide_about_those_of_one() -> None:
    session = SqlSession()
    session.execute(f"{T}; INSERT INTO t (id, name) VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    session.execute("CREATE TABLE p (item LONG, n INT); INSERT INTO p VALUES (1, 10), (3, 30), (3, 30)")
    text = "UPDATE t SET n = p.n + t.id, name = name || '!' FROM p WHERE item = id"
    assert messages(session, text) == ["2 rows of t updated"]
    assert rows(session, "SELECT name, n FROM t ORDER BY id") == [("a!", 11), ("b", 7), ("c!", 33)]
    session.execute("UPDATE t SET n = (SELECT count(*) FROM p WHERE item <= id)")
    assert rows(session, "SELECT n FROM t ORDER BY id") == [(1,), (1,), (3,)]
    text = "DELETE FROM t USING p AS q JOIN p ON p.item = q.item WHERE q.item = t.id AND q.n > 10"
    assert messages(session, text) == ["1 row of t deleted"]


def test_a_table_that_is_followed_for_long_keeps_its_latest_promises() -> None:
    clock = iter(range(0, 10**12, 10**6))
    live = LiveTable("t", hr.Schema.of("x LONG"), clock=lambda: next(clock))
    rows = hr.Schema.of("x LONG").arrow.empty_table()
    seen, promised, at = 0, [], 0
    for number in range(5_000):
        if number % 1000 == 0:
            live.insert(pa.concat_tables([rows, pa.table([pa.array([number])], names=["x"])]))
        end = live.follow()
        numbers, log = live.numbered_log(at, end)
        assert len(numbers) == log.num_rows
        seen, at = seen + log["kind"].to_pylist().count("insert"), end
        promised += [
            time for kind, time in zip(log["kind"].to_pylist(), log["le"].to_pylist(), strict=True) if kind == "cti"
        ]
    assert seen == 5
    assert promised == sorted(promised)
    assert live.changes > 5_000
    assert live.log(0, live.changes).num_rows <= 2_005
    assert live.so_far()["kind"].to_pylist() == ["insert"] * 5 + ["cti"]
    stored = pickle.loads(pickle.dumps(live)).numbered_log(0, live.changes)[1]  # noqa: S301 - our own
    assert stored.num_rows == live.changes
    assert stored.filter(pc.equal(stored["kind"], "insert"))["x"].to_pylist() == [0, 1000, 2000, 3000, 4000]
    live._log._folder.cleanup()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("statement", "message", "at"),
    [
        ("INSERT INTO t VALUES (1, 'x', 1, NULL)", "has a row with this key already", "INSERT"),
        ("INSERT INTO t VALUES (2, 'x', 1, NULL), (2, 'y', 1, NULL)", "has a row with this key already", "INSERT"),
        ("INSERT INTO t (id, name) VALUES (2, NULL)", "name of table t may not be null: it is NOT NULL", "INSERT"),
        ("INSERT INTO t (name) VALUES ('x')", "id of table t may not be null: it is part of the PRIMARY KEY", "INSERT"),
        ("UPDATE t SET name = NULL", "may not be null", "UPDATE"),
        ("UPDATE t SET id = 5", "already", "UPDATE"),
        ("INSERT INTO t VALUES ('x', 'x', 1, NULL)", "the column id has the type LONG", "'x'"),
        ("INSERT INTO t VALUES (2, 'x', 1.5, NULL)", "the column n has the type INT", "1.5"),
        ("INSERT INTO t VALUES (2, 'x', 3000000000, NULL)", "does not fit the column n", "3000000000"),
        ("INSERT INTO t VALUES (2, 'x', 1, 'soon')", "the column ts has the type DATETIME", "'soon'"),
        ("UPDATE t SET name = 5", "the column name has the type STRING", "5"),
        ("UPDATE t SET n = 1, n = 2", "n is set twice", "n = 2"),
        ("UPDATE t SET nn = 1", "there is no column 'nn' in t", "nn"),
        ("UPDATE t SET n = x FROM (VALUES (1), (2)) AS v (x)", "several rows match a row of t", "(VALUES"),
        ("UPDATE t SET n = x FROM s RIGHT JOIN s AS u ON true", "rows that belong to no row of t", "RIGHT"),
        ("UPDATE t SET n = u.name FROM t AS u WHERE u.id = t.id", "the column n has the type INT", "u.name"),
        ("UPDATE t SET n = 1 WHERE n", "a condition must be BOOLEAN", "n"),
        ("INSERT INTO t VALUES (2, 'x')", "2 values for 4 columns", "(2, 'x')"),
        ("INSERT INTO t (id, id) VALUES (2, 3)", "id is named twice", "id)"),
        ("INSERT INTO t SELECT id FROM t", "1 value for 4 columns", "SELECT"),
        ("INSERT INTO t (n) SELECT name FROM t", "the column n has the type INT", "SELECT"),
        ("DELETE FROM tt", "there is no table 'tt'", "tt"),
        ("DELETE FROM s", "s is a stream", "s"),
        ("DELETE FROM t AT 5", "time does not go back", "DELETE"),
        ("CREATE TABLE v (a INT PRIMARY KEY, PRIMARY KEY (a))", "a table has one PRIMARY KEY", "a"),
        ("CREATE TABLE v (a INT, PRIMARY KEY (b))", "there is no column 'b'", "b)"),
        ("CREATE TABLE v (le INT)", "may not be named 'le'", "CREATE"),
        ("CREATE TABLE v (a INT NOT NULL) SOURCE FILE ('x')", "only a table without a source has rules", "a INT"),
    ],
)
def test_what_a_table_does_not_allow(statement: str, message: str, at: str) -> None:
    stream = hr.events([{"le": 1, "a": 1}], "a INT")
    session = SqlSession({"s": stream})
    session.execute(f"{T}; INSERT INTO t AT 10 VALUES (1, 'a', 2, NULL), (7, 'b', 2, NULL)")
    before = rows(session, "SELECT * FROM t ORDER BY id")
    with pytest.raises(SqlError, match=message) as caught:
        session.execute(statement)
    assert statement[caught.value.at[0] :].startswith(at)
    assert "{" not in str(caught.value)
    assert rows(session, "SELECT * FROM t ORDER BY id") == before


CITIES = hr.events(
    """
    kind   | le | re | id
    insert | 1  | 2  | 1
    insert | 6  | 7  | 1
    insert | 9  | 10 | 1
    insert | 9  | 10 | 2
    """,
    "id LONG",
)
JOINED = "SELECT c.id, name FROM c JOIN t ON c.id = t.id"


def joined(stream: hr.Stream) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in stream.cht().drop_columns(["re"]).to_pylist())


def test_rows_without_a_time_have_always_been_there() -> None:
    """A script that fills a table finds its rows whenever the events were, by whatever statements it was filled."""
    text = f"""
    CREATE TABLE t (id LONG, name STRING);
    INSERT INTO t VALUES (1, 'x'); INSERT INTO t VALUES (2, 'b'); UPDATE t SET name = 'a' WHERE id = 1;
    {JOINED};
    """
    made = hr.sql(text, c=CITIES)
    assert joined(made) == [(1, 1, "a"), (6, 1, "a"), (9, 1, "a"), (9, 2, "b")]
    assert hr.same_history(made.history(engine="duckdb").cht(), made.cht())


HISTORY = f"""
CREATE TABLE t (id LONG, name STRING);
INSERT INTO t AT 0 VALUES (1, 'old');
UPDATE t AT 6 SET name = 'new' WHERE id = 1;
INSERT INTO t AT 7 (id, name) VALUES (2, 'two');
DELETE FROM t AT 9 WHERE id = 1;
{JOINED};
"""


def test_a_table_that_changes_is_joined_as_its_history() -> None:
    text = HISTORY.replace("AT 7 (id, name)", "(id, name) AT 7")
    assert joined(hr.sql(text, c=CITIES)) == [(1, 1, "old"), (6, 1, "new"), (9, 2, "two")]
    by_setting = """
    CREATE TABLE t (id LONG, name STRING);
    SET time = 0; INSERT INTO t VALUES (1, 'old'); SET time = 6; UPDATE t SET name = 'new' WHERE id = 1;
    SET time = 7; INSERT INTO t SELECT 2 AS id, 'two' AS name FROM t; SET time = 9; DELETE FROM t WHERE id = 1;
    """
    assert joined(hr.sql(by_setting + JOINED, c=CITIES)) == [(1, 1, "old"), (6, 1, "new"), (9, 2, "two")]
    dates = hr.sql("CREATE TABLE t (a INT); INSERT INTO t AT DATETIME '2024-05-01' VALUES (1); SELECT * FROM t")
    assert str(dates.cht()["le"][0]) == "2024-05-01 00:00:00+00:00"


def test_a_query_of_a_script_sees_the_rows_of_its_place() -> None:
    script = hr.script(
        """
        CREATE TABLE t (a INT); INSERT INTO t VALUES (1);
        QUERY before AS SELECT * FROM t;
        INSERT INTO t VALUES (2);
        QUERY after AS SELECT * FROM t;
        """
    )
    done = script.run()
    assert done.cht("before")["a"].to_pylist() == [1]
    assert sorted(done.cht("after")["a"].to_pylist()) == [1, 2]
    script.session.execute("INSERT INTO t VALUES (3)")
    assert sorted(script.queries["after"].cht()["a"].to_pylist()) == [1, 2, 3]


def test_the_same_script_gives_the_same_answers(tmp_path: Path) -> None:
    text = HISTORY.replace("AT 7 (id, name)", "(id, name) AT 7")
    first, second = (hr.sql(text, c=CITIES) for _ in range(2))
    assert first.node == second.node
    checkpoint = str(tmp_path / "state")
    for _ in range(2):
        hr.run(
            {"q": hr.sql(text, c=CITIES)},
            checkpoint=checkpoint,
            finish=False,
            sinks={"q": hr.files(str(tmp_path / "out"))},
        )
    assert sum(file.read_text().count("insert") for file in (tmp_path / "out").rglob("*.jsonl")) == 3


# --- Python ----------------------------------------------------------------------------------------------------------


def test_a_table_in_python() -> None:
    table = hr.table("id LONG, name STRING, n INT", key="id", required="name", defaults={"n": 7})
    assert table.insert({"id": 1, "name": "a"}) == 1
    assert table.insert([{"id": 2, "name": "b", "n": 1}, {"id": 3, "name": "c"}]) == 2
    assert table.update({"n": col("n") + 1, "name": "z"}, where=col("id") > 1) == 2
    assert table.delete(col("id") == 1) == 1
    assert table.rows().to_pylist() == [{"id": 2, "name": "z", "n": 2}, {"id": 3, "name": "z", "n": 8}]
    assert repr(table).endswith("of id LONG, name STRING, n INT: 2 rows")
    assert table.insert(table.rows().slice(0, 0).to_pandas()) == 0
    query = hr.sql("SELECT id FROM t WHERE n > 5", t=table)
    assert query.cht()["id"].to_pylist() == [3]
    table.insert({"id": 4, "name": "d"})
    assert sorted(query.cht()["id"].to_pylist()) == [3, 4]
    for change, error in [
        (lambda: table.insert({"id": 4, "name": "d"}), TableError),
        (lambda: table.insert({"id": "x", "name": "d"}), TableError),
        (lambda: table.insert(5), TableError),
        (lambda: table.insert({"idd": 1}), UnknownColumn),
        (lambda: table.update({"idd": 1}), UnknownColumn),
        (lambda: table.update({"n": "x"}), TableError),
        (lambda: hr.table("a INT", key="b"), UnknownColumn),
    ]:
        with pytest.raises(error):
            change()
    assert len(table.rows()) == 3


def test_two_tables_of_one_name_are_not_confused() -> None:
    one, other = hr.table("a INT", name="t"), hr.table("a INT", name="t")
    with pytest.raises(PlanError, match="the same name"):
        one.union(other).cht()


def test_a_started_query_follows_a_table() -> None:
    table = hr.table("id LONG, n LONG")
    table.insert({"id": 1, "n": 10})
    sink = hr.memory()
    query = table.group_by("id").aggregate(n=hr.sum("n")).start(sink, host="local")

    def now() -> list[tuple[int, int]]:
        query.process_all_available()
        return sorted((row["id"], row["n"]) for row in sink.cht().to_pylist() if row["re"] is None)

    try:
        assert now() == [(1, 10)]
        table.insert([{"id": 1, "n": 5}, {"id": 2, "n": 1}])
        assert now() == [(1, 15), (2, 1)]
        table.update({"n": 7}, where=col("n") == 5)
        assert now() == [(1, 17), (2, 1)]
        table.delete(col("id") == 1)
        assert now() == [(2, 1)]
        with pytest.raises(TableError, match="time does not go back"):
            table.insert({"id": 9, "n": 9}, at="2020-01-01")
    finally:
        query.stop()
    assert query.counts["table " + table.live.name]["late"] == 0
    assert {row["le"].year for row in sink.cht().to_pylist()} > {1}


# --- against DuckDB --------------------------------------------------------------------------------------------------

QUERIES = [
    "SELECT * FROM t",
    "SELECT k, count(*) AS c, sum(n) AS s, min(n) AS low FROM t GROUP BY k",
    "SELECT x.id, y.id AS other FROM t AS x JOIN t AS y ON x.k = y.k WHERE x.n < y.n",
    "SELECT DISTINCT k FROM t WHERE n > 1",
    "SELECT id, n FROM t WHERE n IS NOT NULL ORDER BY n DESC, id LIMIT 2",
    "SELECT k, n FROM t UNION ALL SELECT k, id AS n FROM u",
]
numbers = st.integers(0, 4)
values = st.one_of(st.none(), numbers).map(lambda value: "NULL" if value is None else str(value))
conditions = st.one_of(
    st.builds("id = {}".format, numbers),
    st.builds("n < {}".format, numbers),
    st.builds("k = '{}' OR n IS NULL".format, st.sampled_from("ab")),
    st.just("n <> id"),
)
keys = st.sampled_from(["'a'", "'b'", "NULL"])
changes = st.one_of(
    st.builds("INSERT INTO t VALUES ({}, {}, {})".format, numbers, keys, values),
    st.builds("INSERT INTO t (k, id) VALUES ({}, {}), ({}, {})".format, keys, numbers, keys, numbers),
    st.builds("INSERT INTO t SELECT id + 1, k, n FROM t WHERE {}".format, conditions),
    st.builds("INSERT INTO u SELECT id, k FROM t WHERE {}".format, conditions),
    st.builds("UPDATE t SET n = {}, k = {} WHERE {}".format, values, keys, conditions),
    st.builds("UPDATE t SET n = n + id WHERE {}".format, conditions),
    st.builds("UPDATE t SET id = id + {}".format, numbers),
    st.builds(
        "UPDATE t SET n = t.n + m.k FROM (SELECT id, count(*) AS k FROM u GROUP BY id) AS m WHERE m.{}".format,
        st.sampled_from(["id = t.id", "id = t.n", "id = t.id AND m.k > 1"]),
    ),
    st.builds("UPDATE t SET n = (SELECT max(id) FROM u WHERE u.id < t.id) WHERE {}".format, conditions),
    st.builds("DELETE FROM t USING u WHERE u.id {} t.id".format, st.sampled_from(["=", "<"])),
    st.builds("DELETE FROM t WHERE {}".format, conditions),
    st.just("DELETE FROM u"),
)
CREATES = "CREATE TABLE t (id {0}, k {1}, n {0} DEFAULT 3{2}); CREATE TABLE u (id {0}, k {1})"


def bag(found: list[tuple[Any, ...]]) -> list[str]:
    return sorted(map(repr, found))


def allows(session: SqlSession, text: str) -> bool:
    try:
        session.execute(text)
    except SqlError as error:
        if "key already" not in str(error) and "PRIMARY KEY" not in str(error):
            raise
        return False
    return True


@settings(deadline=None)
@given(st.lists(changes, min_size=1, max_size=5), st.booleans())
def test_differential_statements_do_what_duckdb_does(texts: list[str], keyed: bool) -> None:
    key = ", PRIMARY KEY (id)" if keyed else ""
    session, oracle = SqlSession(), duckdb.connect()
    session.execute(CREATES.format("LONG", "STRING", key))
    oracle.execute(CREATES.format("BIGINT", "VARCHAR", key))
    for number, text in enumerate(texts):
        try:
            oracle.execute(text)
            expected = True
        except duckdb.ConstraintException:
            expected = False
        happened = allows(session, text)
        if happened and not expected:  # DuckDB checks keys row by row, and refuses what is right in the end
            assert text.startswith("UPDATE t SET id")
            return
        assert happened == expected, text
        for query in [*QUERIES[:1], QUERIES[1 + number % 5]]:
            assert bag(rows(session, query)) == bag(oracle.execute(query).fetchall()), (text, query)


@settings(deadline=None)
@given(st.lists(changes, min_size=1, max_size=5))
def test_oracle_the_history_of_a_table_is_its_rows_after_each_statement(texts: list[str]) -> None:
    session, oracle = SqlSession(), duckdb.connect()
    session.execute(CREATES.format("LONG", "STRING", ""))
    oracle.execute(CREATES.format("BIGINT", "VARCHAR", ""))
    after: list[list[str]] = []
    for time, text in enumerate(texts):
        session.execute(f"SET time = {time}; {text}")
        oracle.execute(text)
        after.append(bag(oracle.execute("SELECT k, count(*), sum(n) FROM t GROUP BY k").fetchall()))
    (outcome,) = session.execute("SELECT k, count(*) AS c, sum(n) AS s FROM t GROUP BY k")
    assert isinstance(outcome, Answers)
    history = outcome.stream.cht().to_pylist()
    for time, expected in enumerate(after):
        alive = [tuple(row.values())[2:] for row in history if row["le"] <= time < row["re"]]
        assert bag(alive) == expected
    assert hr.same_history(outcome.stream.history(engine="duckdb").cht(), outcome.stream.cht())
    assert all(row["le"] > BEGINNING for row in history)


def test_statements_and_readers_share_a_log():
    """Readers gather what statements append; a row that both touch is neither lost nor there twice."""
    session = SqlSession()
    session.execute("CREATE TABLE t (id INT)")
    table = session.catalog.tables["t"].table.live  # type: ignore[union-attr]
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            numbers, rows = table.numbered_log(0, 10**6)
            assert len(numbers) == rows.num_rows

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(300):
        table._log.append(
            pa.Table.from_pylist([{"kind": "insert", "le": number, "id": number}], table.log_schema.arrow)
        )
    done.set()
    for reader in readers:
        reader.join()
    numbers, found = table.numbered_log(0, 10**6)
    assert found["id"].to_pylist() == list(range(300))
    assert numbers.tolist() == list(range(len(numbers)))


def test_an_unknown_name_in_set_is_named():
    session = SqlSession()
    session.execute("CREATE TABLE t (id INT, n INT); INSERT INTO t VALUES (1, 2)")
    for one in ("n = nope", "n = id + nope", "n = 1, id = nope"):
        with pytest.raises(SqlError, match="no column 'nope'"):
            session.execute(f"UPDATE t SET {one} WHERE id IN (SELECT 1)" if "," in one else f"UPDATE t SET {one}")


def test_a_name_of_the_list_comes_first_in_order_by():
    session = SqlSession()
    session.execute("CREATE TABLE t (id INT, n INT); INSERT INTO t VALUES (1, 10), (2, 20), (3, 5)")
    for rest, expected in (("", [-20, -10, -5]), (" LIMIT 1", [-20]), (" OFFSET 1", [-10, -5])):
        assert rows(session, f"SELECT -n AS n FROM t ORDER BY n{rest}") == [(n,) for n in expected]
    assert rows(session, "SELECT n AS id, id AS n FROM t ORDER BY id LIMIT 2") == [(5, 3), (10, 1)]
    assert rows(session, "SELECT DISTINCT -n AS n FROM t ORDER BY n LIMIT 1") == [(-20,)]
