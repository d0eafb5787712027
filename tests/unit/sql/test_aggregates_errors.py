"""Aggregates written in SQL: what is refused, where the error points, and that no text is ever executed as Python."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from tests.fixtures.esl import AVG, DECAY, GROUPING, NESTED, SELECTION, TOP, made

import headrace as hr
from headrace.errors import ModuleError, ModuleFailed, SqlError
from headrace.sql.aggregates.front import stored

TICKS = hr.events("kind | le | re | symbol | price\ninsert | 1 | 2 | A | 1", "symbol STRING, price DOUBLE")

# ---- what is refused

BODY = "CREATE AGGREGATE f(next REAL): REAL {{ TABLE t(a REAL, b INT, KEY (b)); TABLE s(c STRING); {} }}"
OK = "INITIALIZE: {{ INSERT INTO t VALUES (next, 1); {} }} TERMINATE: {{ INSERT INTO RETURN SELECT a FROM t; {} }}"
WINDOW = (
    "CREATE WINDOW AGGREGATE f(a REAL): REAL {{ TABLE inwindow(b REAL); "
    "INITIALIZE: {{ INSERT INTO RETURN VALUES (a) }} EXPIRE: {{ {} }} }}"
)
UNDECLARED = (
    "CREATE WINDOW AGGREGATE f(a REAL): REAL {{ TABLE t(a REAL); "
    "INITIALIZE: {{ INSERT INTO RETURN VALUES (a) }} EXPIRE: {{ {} }} }}"
)


def first(statement: str) -> str:
    return BODY.format(OK.format(statement, ""))


def last(statement: str) -> str:
    return BODY.format(OK.format("", statement))


#: A text, what the error says, and the words of the text it points at.
REFUSED = [
    (first("INSERT INTO u VALUES (1)"), "f has no table 'u'", "u"),
    (first("DELETE FROM tt"), "f has no table 'tt'", "tt"),
    (first("UPDATE t SET d = 1"), "t has no column 'd'", "d"),
    (first("UPDATE t SET a = aa"), "no column 'aa'", "aa"),
    (first("UPDATE t SET a = 1, A = 2"), "A is set twice", "A"),
    (first("UPDATE t SET a = 1 WHERE c = 'x'"), "no column 'c'", "c"),
    (first("INSERT INTO t VALUES (1)"), "t has 2 columns, and these are 1 values", "(1)"),
    (first("INSERT INTO t SELECT a FROM t"), "t has 2 columns, and these are 1 values", "SELECT a FROM t"),
    (first("INSERT INTO t VALUES ('x', 1)"), "a of t is FLOAT, and this is STRING", "'x'"),
    (first("INSERT INTO t VALUES (1, 0.5)"), "b of t is INT, and this is DOUBLE", "0.5"),
    (first("UPDATE s SET c = 1"), "c of s is STRING, and this is INT", "1"),
    (first("INSERT INTO RETURN VALUES (1, 2)"), "RETURN has 1 column, and these are 2 values", "(1, 2)"),
    (first("INSERT INTO RETURN VALUES ('a')"), "is FLOAT, and this is STRING", "'a'"),
    (first("INSERT INTO inwindow VALUES (1)"), "no table 'inwindow'", "inwindow"),
    (first("INSERT INTO RETURN SELECT f(a) FROM t"), "f calls itself", "f(a)"),
    (first("INSERT INTO RETURN SELECT approx_distinct(a) FROM t"), "not there yet", "approx_distinct(a)"),
    (first("INSERT INTO RETURN SELECT a, max(b) FROM t"), "RETURN has 1 column", "SELECT a, max(b) FROM t"),
    (first("INSERT INTO RETURN SELECT a + max(b) FROM t"), "beside an aggregate", "a + max(b)"),
    (
        first("INSERT INTO RETURN SELECT max(b) FROM t ORDER BY b"),
        "nothing to order",
        "SELECT max(b) FROM t ORDER BY b",
    ),
    (first("INSERT INTO RETURN VALUES (max(b))"), "about many events", "max(b)"),
    (first("UPDATE t SET a = (SELECT a, b FROM t)"), "has one column", "(SELECT a, b FROM t)"),
    (first("UPDATE t SET a = 1 WHERE a"), "must be BOOLEAN", "a"),
    (first("UPDATE t SET a = oldest()"), "oldest() is the oldest tuple of a window", "oldest()"),
    (first("UPDATE t SET a = nonsense(a)"), "no function, aggregate or module 'nonsense'", "nonsense"),
    (last("UPDATE t SET a = next"), "TERMINATE has no tuple", "next"),
    (BODY.format("ITERATE: { INSERT INTO RETURN VALUES (1) }"), "what to do with the first tuple", "f"),
    (BODY.format("INITIALIZE: { INSERT INTO t VALUES (1, 1) }"), "f returns nothing", "f"),
    (BODY.format("INITIALIZE: {} INITIALIZE: {}"), "INITIALIZE is there twice", "INITIALIZE: {}"),
    (BODY.format("INITIALIZE: {} EXPIRE: {}"), "tuples expire in windows", "EXPIRE: {}"),
    ("CREATE AGGREGATE f(a REAL, A INT): REAL { INITIALIZE: {} }", "'A' is there twice", "A"),
    ("CREATE AGGREGATE f(a REALL): REAL { INITIALIZE: {} }", "unknown type", "REALL"),
    ("CREATE AGGREGATE f(a REAL): REAL { TABLE return(a INT); INITIALIZE: {} }", "where results go", "return"),
    ("CREATE AGGREGATE f(a REAL): REAL { TABLE t(a INT); TABLE T(a INT); INITIALIZE: {} }", "already", "T"),
    ("CREATE AGGREGATE f(a REAL): REAL { TABLE t(a INT, KEY (b)); INITIALIZE: {} }", "no column 'b'", "b"),
    ("CREATE AGGREGATE f(a REAL): REAL { TABLE t(b INT) AS VALUES (a); INITIALIZE: {} }", "has no tuple", "a"),
    ("CREATE AGGREGATE f(a REAL): REAL { TABLE inwindow(b REAL); INITIALIZE: {} }", "kept by the system", "inwindow"),
    (UNDECLARED.format("INSERT INTO RETURN VALUES (oldest())"), "declares the table of its tuples", "oldest()"),
    (UNDECLARED.format("DELETE FROM inwindow"), "declares the table of its tuples", "inwindow"),
    (UNDECLARED.format("") + "; " + AVG.replace("myavg", "f").replace("next REAL", "next INT"), "the same", "f"),
    (AVG + "; " + UNDECLARED.format("").replace("f(a REAL)", "myavg(a REAL, b REAL)"), "the same", "myavg"),
    (UNDECLARED.format("INSERT INTO RETURN SELECT f(a) FROM t"), "f calls itself", "f(a)"),
    (UNDECLARED.format("} TERMINATE: { DELETE FROM t"), "it has no end", "TERMINATE: { DELETE FROM t }"),
    (WINDOW.format("").replace("(b REAL)", "(b INT)"), "types of the arguments", "TABLE inwindow(b INT);"),
    (WINDOW.format("INSERT INTO inwindow VALUES (1)"), "kept by the system", "inwindow"),
    (WINDOW.format("UPDATE inwindow SET b = 1"), "kept by the system", "inwindow"),
    (WINDOW.format("DELETE FROM inwindow WHERE b < oldest().bb"), "no such column", "bb"),
    (WINDOW.format("INSERT INTO RETURN VALUES (a)"), "EXPIRE has no tuple", "a"),
    (f"{AVG};{AVG}", "exists already", "myavg"),
    (first("INSERT INTO RETURN SELECT a FROM t, t"), "t is there twice", "t"),
    (first("INSERT INTO RETURN SELECT a FROM t JOIN t AS u ON t.b = u.b"), "may be several columns", "a"),
    (first("INSERT INTO RETURN SELECT a FROM t JOIN s ON t.b = s.cc"), "no column 'cc'", "cc"),
    (first("INSERT INTO RETURN SELECT a FROM t JOIN s ON b"), "must be BOOLEAN", "b"),
    (first("INSERT INTO RETURN SELECT a FROM t GROUP BY b"), "or in GROUP BY", "a"),
    (first("INSERT INTO RETURN SELECT max(a) FROM t GROUP BY b HAVING a > 1"), "or in GROUP BY", "a > 1"),
    (first("INSERT INTO RETURN SELECT max(a) FROM t GROUP BY b ORDER BY a"), "or in GROUP BY", "a"),
    (first("INSERT INTO RETURN SELECT a FROM t HAVING a > 1"), "HAVING is about groups", "a > 1"),
    (first("INSERT INTO RETURN SELECT next GROUP BY next"), "no table is named", "SELECT next GROUP BY next"),
    (
        first("INSERT INTO RETURN SELECT b FROM t GROUP BY b, (SELECT max(c) FROM s)"),
        "not by sub-selects",
        "(SELECT max(c) FROM s)",
    ),
    ("DROP AGGREGATE nothing", "no aggregate 'nothing'", "nothing"),
]


@pytest.mark.parametrize(("text", "says", "where"), REFUSED, ids=range(len(REFUSED)))
def test_refused(text: str, says: str, where: str):
    with pytest.raises(SqlError) as caught:
        hr.script(text)
    error = caught.value
    assert says in error.message
    assert text[slice(*error.at)] == where, str(error)
    assert "^" in str(error)


@pytest.mark.parametrize("name", ["avg", "Mean", "sqrt", "nvl"])
def test_built_in_names_are_taken(name: str):
    text = f"CREATE AGGREGATE {name}(x DOUBLE): DOUBLE {{ INITIALIZE: {{ INSERT INTO RETURN VALUES (x) }} }}"
    with pytest.raises(SqlError, match=f"{name} is built in") as caught:
        hr.sql_aggregate(text)
    assert caught.value.instead == f"my_{name}"


def test_a_text_that_makes_no_aggregate():
    for text in ("", "SELECT a FROM b", "SHOW AGGREGATES", 5):
        with pytest.raises(SqlError):
            hr.sql_aggregate(text)  # type: ignore[arg-type]


def test_an_error_points_at_its_line():
    with pytest.raises(SqlError) as caught:
        hr.sql_aggregate(AVG.replace("cnt + 1", "count + 1"))
    assert caught.value.line == 5
    assert "UPDATE state SET tsum = tsum + next, cnt = count + 1" in str(caught.value)


def test_what_cannot_be_a_value_or_never_answers():
    with pytest.raises(SqlError, match="gives rows, not a value"):
        hr.sql(TOP + "; SELECT frequent(symbol) AS f FROM ticks [TUMBLING 10 ticks]", ticks=TICKS)
    with pytest.raises(SqlError, match="blocking"):
        hr.sql(AVG + "; SELECT myavg(price) AS f FROM ticks [NOW]", ticks=TICKS)
    with pytest.raises((SqlError, ModuleError), match="takes next as"):
        hr.sql(AVG + "; SELECT myavg(symbol) AS f FROM ticks [TUMBLING 10 ticks]", ticks=TICKS)


@pytest.mark.parametrize(
    "statement", ["INSERT INTO Prices VALUES (1)", "UPDATE Prices SET a = 1", "DELETE FROM Prices"]
)
def test_a_stored_table_is_only_read(tmp_path: Path, statement: str):
    (tmp_path / "prices.csv").write_text("a\n1\n")
    text = "CREATE TABLE prices (a DOUBLE) SOURCE FILE ('prices.csv');" + first(statement)
    with pytest.raises(SqlError, match="prices is a stored table, and an aggregate only reads those") as caught:
        hr.script(text, base=tmp_path)
    assert text[slice(*caught.value.at)] == "Prices"


def test_a_stored_table_travels_only_if_it_is_small(monkeypatch: pytest.MonkeyPatch):
    text = "CREATE AGGREGATE f(x LONG): LONG { INITIALIZE: { INSERT INTO RETURN SELECT count(*) FROM big } }"
    big = pa.table({"a": range(1000)})
    assert hr.sql_aggregate(text, big=big).compute([1]) == 1000
    monkeypatch.setattr(stored, "MOST_CHARACTERS", 1000)
    with pytest.raises(SqlError, match="too large to travel") as caught:
        hr.sql_aggregate(text, big=big)
    assert text[slice(*caught.value.at)] == "big"


@pytest.mark.parametrize("rows", ["", "[[1]", "[[1, 2]]", '[["x"]]', "[[1.5]]", "7", "[7]", "[" * 100_000])
def test_stored_rows_that_cannot_be_read(rows: str):
    text = f"""CREATE AGGREGATE f(x LONG): LONG {{
        TABLE t(a LONG) AS STORED '{rows}'; INITIALIZE: {{ INSERT INTO RETURN SELECT count(*) FROM t }}
    }}"""
    with pytest.raises(SqlError, match="cannot be read"):
        hr.sql_aggregate(text)


def test_python_does_not_travel_with_a_text():
    double = hr.udf(lambda x: x * 2, takes="DOUBLE", returns="DOUBLE")
    with pytest.raises(SqlError, match="do not travel"):
        hr.script(DECAY.replace("VALUES (next);", "VALUES (twice(next));", 1), functions={"twice": double})


# ---- nothing of a text is executed as Python

NASTY = ["__class__", "self", "class", "def", "float", "eq", "returned", "x); import os #", "\n", "ü", "a b", "1", "__"]


@pytest.mark.parametrize("name", NASTY)
def test_names_are_only_names(name: str):
    quoted = '"' + name + '"'
    text = f"""
    CREATE AGGREGATE {quoted}({quoted} DOUBLE, "other" DOUBLE): DOUBLE {{
        TABLE "t {name}"({quoted} DOUBLE, "b" DOUBLE); TABLE "u {name}"({quoted} DOUBLE);
        INITIALIZE: {{ INSERT INTO "t {name}" VALUES ({quoted}, "other"); INSERT INTO "u {name}" VALUES ({quoted}); }}
        TERMINATE: {{
            INSERT INTO RETURN SELECT ({quoted} + (SELECT max({quoted}) FROM "u {name}")) * "b" FROM "t {name}";
        }}
    }}"""
    module = made(text)
    assert module.compute([(2.0, 5.0)]) == 20.0
    stream = hr.events([{"le": 1, "x": 2.0}], "x DOUBLE")
    call = module.of("x", "x")
    assert stream.window(hr.tumbling(10)).aggregate(a=call).cht().to_pylist()[0]["a"] == 8.0


@pytest.mark.parametrize("name", [*NASTY, "mark", "rows", "oldest", "group", "inwindow", "oldest_x", "room"])
def test_names_are_only_names_in_windows(name: str):
    quoted = '"' + name + '"'
    text = f"""
    CREATE WINDOW AGGREGATE {quoted}({quoted} DOUBLE, "x" DOUBLE): (a DOUBLE, b LONG) {{
        TABLE inwindow({quoted} DOUBLE, "x" DOUBLE); TABLE "t {name}"({quoted} DOUBLE);
        INITIALIZE: ITERATE: {{
            INSERT INTO "t {name}" VALUES ({quoted});
            DELETE FROM inwindow WHERE {quoted} < 2.0;
        }}
        EXPIRE: {{
            INSERT INTO RETURN SELECT sum({quoted}) + oldest().{quoted}, count(*) FROM inwindow GROUP BY "x";
            INSERT INTO RETURN
                SELECT max(a.{quoted} * b.{quoted}), 0
                FROM "t {name}" AS a JOIN inwindow AS b ON a.{quoted} = b.{quoted};
        }}
    }}"""
    stepper = made(text).folder("rows").make()
    for one in (1.0, 3.0, 2.0):
        stepper.arrive(one, 5.0, mark=one)
    assert stepper.expire() == [(8.0, 2), (9.0, 0)]


def test_texts_are_only_texts():
    for nasty in ["'''", '"""', "\\", "\\'", "\n", "'); raise SystemExit  #", "{x}", "\u2028", "\x1b"]:
        literal = "'" + nasty.replace("'", "''") + "'"
        text = f"CREATE AGGREGATE f(x LONG): STRING {{ INITIALIZE: {{ INSERT INTO RETURN VALUES ({literal}) }} }}"
        assert made(text).compute([1]) == nasty


def test_the_source_calls_nothing_but_its_helpers():
    for text in (AVG, DECAY, TOP, NESTED, GROUPING, SELECTION):
        tree = ast.parse(made(text).source)
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not names & {"__import__", "eval", "exec", "open", "getattr", "globals", "compile"}
        assert not [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
        dotted = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        assert not [name for name in dotted if name.startswith("_")]


def test_long_expressions_are_refused_or_computed():
    for operator in ("AND next > 1", "+ 1"):
        chain = " ".join([f"next > 0 {operator}" if "AND" in operator else "next", *([operator] * 3000)])
        value = f"CASE WHEN {chain} THEN 1 END" if "AND" in operator else chain
        text = f"CREATE AGGREGATE f(next DOUBLE): DOUBLE {{ INITIALIZE: {{ INSERT INTO RETURN VALUES ({value}) }} }}"
        with pytest.raises(SqlError, match="deep"):
            made(text)


# ---- what goes wrong while it runs

GROWS = """SELECT price FROM ticks;
CREATE AGGREGATE inner_one(next DOUBLE): DOUBLE {
    TABLE log(v DOUBLE) LIMIT 1;
    INITIALIZE:
    ITERATE: {

        INSERT INTO log VALUES (next);  -- line 7
    }
    TERMINATE: { INSERT INTO RETURN SELECT sum(v) FROM log; }
};
CREATE WINDOW AGGREGATE inner_one(next DOUBLE): DOUBLE {
    TABLE s(x DOUBLE) AS VALUES (1), (2);
    INITIALIZE: { INSERT INTO RETURN VALUES (next); }
    ITERATE: { INSERT INTO RETURN
        SELECT (SELECT x FROM s); }
};
CREATE AGGREGATE outer_one(next DOUBLE): DOUBLE {
    TABLE kept(v DOUBLE);
    INITIALIZE: ITERATE: { INSERT INTO kept VALUES (next); }
    TERMINATE: { INSERT INTO RETURN SELECT inner_one(v) FROM kept; }
};
"""


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("inner_one(price) OVER (UNBOUNDED PRECEDING)", "inner_one, line 7: log has grown to more than 1 rows"),
        ("inner_one(price) OVER (ROWS 3 PRECEDING)", "inner_one, line 14: a sub-select gave 2 rows"),
        ("outer_one(price) OVER (ROWS 3 PRECEDING)", "inner_one, line 7: log has grown"),
    ],
)
def test_a_failure_is_told_with_the_line_that_was_written(query: str, says: str):
    ticks = hr.events([{"le": n, "price": n} for n in range(3)], "price DOUBLE")
    with pytest.raises(ModuleFailed) as caught:
        hr.sql(f"{GROWS}SELECT {query} AS m FROM ticks", ticks=ticks).cht()
    assert says in caught.value.message
    assert "arg0" not in str(caught.value)


def test_lines_travel_with_the_aggregate():
    module = hr.sql_aggregate("\n\n" + GROWS.partition(";")[2])
    again = pickle.loads(pickle.dumps(module))  # noqa: S301 - our own bytes
    assert "# line 21" in again.source
    assert again.text == module.text == hr.sql_aggregate(module.text).text
    assert again.mark == hr.sql_aggregate(module.text).mark


def test_rows_are_no_value():
    rows = hr.sql_aggregate(TOP)
    with pytest.raises(ModuleError, match="gives rows, not a value") as caught:
        rows.of("price")  # type: ignore[union-attr]
    assert "operate(" in caught.value.instead


def test_columns_of_rows_are_called_by_the_call():
    with pytest.raises(SqlError, match="two columns have the name 'item'") as caught:
        hr.sql("SELECT symbol AS item, top_k(symbol, price, 1) OVER () FROM ticks", ticks=TICKS)
    assert caught.value.given == "top_k(symbol, price, 1) OVER ()"
    assert caught.value.instead == "symbol AS other"


def test_a_frame_that_is_too_large():
    with pytest.raises(SqlError, match="a frame cannot have this number of rows") as caught:
        hr.sql(f"SELECT avg(price) OVER (ROWS {2**70} PRECEDING) AS m FROM ticks", ticks=TICKS)
    assert "over(" not in caught.value.instead


def test_decimals_are_refused_where_they_are_declared():
    text = """CREATE AGGREGATE whole(x DOUBLE) : DOUBLE {
        TABLE state (v DECIMAL(10, 2));
        INITIALIZE: ITERATE: { INSERT INTO state VALUES (x); } TERMINATE: { INSERT INTO RETURN SELECT v FROM state; }
    };"""
    with pytest.raises(SqlError, match="does not compute with DECIMAL") as found:
        hr.script(text)
    assert "DECIMAL(10,2)" in str(found.value.given)
