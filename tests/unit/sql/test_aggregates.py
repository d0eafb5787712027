"""Aggregates written in SQL: ESL's examples, what is refused and where, and how they are used (rule 7)."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from tests.fixtures.esl import AVG, CUMULATIVE, DECAY, GROUPING, MINIMUM, NESTED, SELECTION, TOP, made

import headrace as hr
from headrace.cli.sql.pieces import is_complete, pieces
from headrace.errors import ModuleFailed, SqlError
from headrace.sql.aggregates import SqlAggregate, SqlRows

TICKS = """
    kind   | le | re | symbol | price
    insert | 1  | 2  | A      | 1
    insert | 2  | 3  | B      | 2
    insert | 4  | 5  | A      | 4
    insert | 6  | 9  | A      | 8
    insert | 11 | 12 | A      | 3
"""


@pytest.mark.parametrize(
    ("text", "items", "answer"),
    [
        (AVG, [1.0, 2.0, 4.5], 2.5),
        (DECAY, [4.0, 8.0, 8.0], 0.25 * 8 + 0.75 * (0.25 * 8 + 0.75 * 4)),
        (CUMULATIVE, [1.0, 2.0, 6.0], 3.0),
        (MINIMUM, [3.0, None, 1.0, 2.0], 1.0),
        (MINIMUM, [None, 2.0], 2.0),
        (NESTED, [1.0, 2.0, 6.0], 3.0),
    ],
    ids=["avg", "decay", "cumulative", "min", "min with null", "an aggregate calls another"],
)
def test_values(text: str, items: list[Any], answer: Any):
    assert made(text).compute(items) == answer


@pytest.mark.parametrize(
    ("text", "items", "rows"),
    [
        (SELECTION, [("a", 999), ("b", 1001), ("c", None)], [("b", 1001)]),
        (GROUPING, [("a", 1), ("b", 2), ("c", 5), ("d", 6)], [("a", 1), ("b", 1), ("c", 2), ("d", 2)]),
        (TOP, ["x", "y", "y", "z", "z", "x"], [("x", 2), ("y", 2)]),
    ],
    ids=["selection", "sequence grouping", "top k"],
)
def test_rows(text: str, items: list[Any], rows: list[Any]):
    assert made(text).compute(items) == rows


def test_blocking_is_a_terminate_that_does_something():
    assert made(AVG).blocking
    assert not made(DECAY).blocking
    assert not made(DECAY.replace("\n}\n", "\nTERMINATE: {} }\n")).blocking


def test_how_tables_are_kept():
    def forms(text: str) -> list[str]:
        definition = made(text).definition
        return [definition.form(table) for table in definition.tables]

    assert forms(AVG) == ["row"]
    assert forms(TOP) == ["keyed"]
    assert forms(NESTED) == ["rows"]
    written = "TABLE state(tsum REAL, cnt INT) AS VALUES (0.0, 0); INITIALIZE: { UPDATE state SET tsum = next; }"
    assert forms(AVG.replace(AVG[AVG.index("TABLE") : AVG.index("ITERATE")], written)) == ["row"]
    for more in ("DELETE FROM state;", "INSERT INTO state VALUES (1, 1);", "INSERT INTO state SELECT * FROM state;"):
        assert forms(AVG.replace("ITERATE: {", "ITERATE: { " + more)) == ["rows"]
    assert forms(AVG.replace("INITIALIZE: {", "INITIALIZE: { UPDATE state SET cnt = 1;")) == ["rows"]


def test_the_source_is_python_to_be_read():
    source = made(AVG).source
    assert "self.state_tsum, self.state_cnt = add_float(self.state_tsum, next), add_int(self.state_cnt, 1)" in source
    assert "# line 6" in source
    assert "UPDATE" in made(AVG).text.splitlines()[6]
    ast.parse(source)


def test_rows_of_equal_key_replace_each_other_and_nan_is_a_key():
    text = """
    CREATE AGGREGATE keys(k DOUBLE, v LONG): (k DOUBLE, v LONG) {
        TABLE t(k DOUBLE, v LONG, KEY (k));
        INITIALIZE: ITERATE: { INSERT INTO t VALUES (keys.k, keys.v); }
        TERMINATE: { INSERT INTO RETURN SELECT * FROM t; }
    }"""
    rows = made(text).compute([(1.0, 1), (float("nan"), 2), (None, 3), (float("nan"), 4), (1.0, 5), (None, 6)])
    assert [(str(k), v) for k, v in rows] == [("1.0", 5), ("nan", 4), ("None", 6)]


def test_null_comes_first_and_nan_last():
    text = """
    CREATE AGGREGATE ordered_by(x DOUBLE): (x DOUBLE) {
        TABLE t(x DOUBLE);
        INITIALIZE: ITERATE: { INSERT INTO t VALUES (ordered_by.x); }
        TERMINATE: { INSERT INTO RETURN SELECT x FROM t ORDER BY x; }
    }"""
    items = [2.0, float("nan"), None, -1.0, float("inf")]
    rising = [str(row[0]) for row in made(text).compute(items)]
    assert rising == ["None", "-1.0", "2.0", "inf", "nan"]
    falling = [str(row[0]) for row in made(text.replace("ORDER BY x", "ORDER BY x DESC")).compute(items)]
    assert falling == rising[::-1]


def test_a_table_that_is_read_before_it_has_its_row_is_empty_then():
    text = """
    CREATE AGGREGATE early(x LONG): LONG {
        TABLE t(n LONG);
        INITIALIZE: { INSERT INTO t VALUES ((SELECT count(*) FROM t) + x); }
        TERMINATE: { INSERT INTO RETURN SELECT n FROM t; }
    }"""
    assert made(text).compute([5]) == 5


def test_an_update_sees_what_was_before_it():
    text = """
    CREATE AGGREGATE swap(a LONG, b LONG): (a LONG, b LONG) {
        TABLE one(a LONG, b LONG); TABLE many(a LONG, b LONG);
        INITIALIZE: {
            INSERT INTO one VALUES (swap.a, swap.b);
            INSERT INTO many VALUES (1, 2), (3, 4);
            UPDATE one SET a = b, b = a;
            UPDATE many SET a = (SELECT max(m.a) FROM many AS m) + 1;
        }
        TERMINATE: { INSERT INTO RETURN SELECT * FROM one; INSERT INTO RETURN SELECT * FROM many; }
    }"""
    assert made(text).compute([(7, 8)]) == [(8, 7), (4, 2), (4, 4)]


def test_numbers_are_as_wide_as_their_columns():
    text = """
    CREATE AGGREGATE widths(x LONG): (narrow BYTE, single REAL, whole INT) {
        TABLE t(n BYTE, s REAL, w INT);
        INITIALIZE: { INSERT INTO t VALUES (CAST(x AS BYTE), 0.1, CAST(x AS INT)); UPDATE t SET w = w * w; }
        TERMINATE: { INSERT INTO RETURN SELECT * FROM t; }
    }"""
    single = 0.10000000149011612
    assert made(text).compute([100]) == [(100, single, 10_000)]
    assert made(text).compute([100_000]) == [(None, single, None)]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ("TABLE t(n BYTE); INITIALIZE: { INSERT INTO t VALUES (x); }", "x"),
        ("TABLE t(n BYTE); INITIALIZE: { INSERT INTO t VALUES (300); }", "300"),
        ("TABLE t(n BYTE); INITIALIZE: { INSERT INTO t SELECT x; }", "x"),
        ("TABLE t(n INT) AS VALUES (0); INITIALIZE: { UPDATE t SET n = n + x; }", "n + x"),
        ("TABLE t(n INT) AS VALUES (3000000000); INITIALIZE: { UPDATE t SET n = 1; }", "3000000000"),
        ("INITIALIZE: { INSERT INTO RETURN VALUES (x); }", "x"),
    ],
)
def test_a_narrower_column_takes_no_value_that_it_may_not_hold(body: str, place: str):
    """As CREATE STREAM: what may be lost is refused, with the CAST that says so."""
    with pytest.raises(SqlError, match=r"and this is (LONG|INT)") as caught:
        made(f"CREATE AGGREGATE f(x LONG): BYTE {{ {body} }}")
    assert caught.value.text[slice(*caught.value.at)] == place
    assert "CAST" in str(caught.value)
    fine = "TABLE t(n BYTE, s SHORT); INITIALIZE: { INSERT INTO t VALUES (-128, 300); }"
    fine += " TERMINATE: { INSERT INTO RETURN SELECT n FROM t; }"
    assert made(f"CREATE AGGREGATE f(x LONG): BYTE {{ {fine} }}").compute([1]) == -128


def test_several_values_where_one_is_wanted_are_a_failure():
    twice = made(DECAY.replace("SELECT mean FROM state;", "VALUES (1.0), (2.0);"))
    with pytest.raises(ModuleFailed, match="2 values"):
        twice.compute([1.0, 2.0])
    several = made(NESTED.replace("SELECT myavg(m.v) FROM", "SELECT m.v FROM"))
    with pytest.raises(ModuleFailed, match="2 rows where one value is wanted"):
        several.compute([1.0, 2.0])


def test_a_table_does_not_grow_without_end():
    text = """
    CREATE AGGREGATE doubling(x LONG): LONG {{
        TABLE t(n LONG {key}) LIMIT 100;
        INITIALIZE: {{ INSERT INTO t VALUES (1); }}
        ITERATE: {{ INSERT INTO t SELECT n + (SELECT count(*) FROM t) FROM t; }}
        TERMINATE: {{ INSERT INTO RETURN SELECT count(*) FROM t; }}
    }}"""
    for key in ("", ", KEY (n)"):
        module = made(text.format(key=key))
        assert module.compute([1] * 7) == 64
        with pytest.raises(ModuleFailed, match="doubling, line 5: t has grown to more than 100 rows"):
            module.compute([1] * 8)


# ---- in queries


def ticks() -> hr.Stream:
    return hr.events(TICKS, "symbol STRING, price DOUBLE")


def answers(stream: hr.Stream) -> list[dict[str, Any]]:
    live = stream.cht()
    assert not hr.history_diff(stream.history(engine="duckdb").cht(), live)
    assert not hr.history_diff(stream.run(buckets=2, batch_rows=1).cht(), live)
    return live.to_pylist()


def test_over_a_window():
    text = AVG + "; SELECT symbol, myavg(price) * 2 AS m FROM ticks [TUMBLING 10 ticks] GROUP BY symbol"
    found = answers(hr.sql(text, ticks=ticks()))
    assert [(row["le"], row["symbol"], round(row["m"], 4)) for row in found] == [
        (0, "A", 8.6667), (0, "B", 4.0), (10, "A", 6.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ("ROWS 1 PRECEDING", [1, 1.5, 3, 6, 5.5]),
        ("RANGE 2 ticks PRECEDING", [1, 1.5, 3, 6, 3]),
        ("UNBOUNDED PRECEDING", [1, 1.5, 7 / 3, 3.75, 3.6]),
    ],
)
def test_over_what_precedes(frame: str, expected: list[float]):
    text = AVG.replace("REAL", "DOUBLE") + f"; SELECT price, myavg(price) OVER ({frame}) AS m FROM ticks"
    stream = hr.sql(text, ticks=ticks())
    assert [row["m"] for row in answers(stream)] == expected
    assert ("(box 1)" if "UNBOUNDED" in frame else "(box 2), computed anew over each frame") in stream.explain()


def test_an_online_aggregate_over_what_precedes_gives_what_it_returns_at_each_tuple():
    text = DECAY + "; SELECT decay(price) OVER (PARTITION BY symbol UNBOUNDED PRECEDING) AS m FROM ticks"
    found = [row["m"] for row in answers(hr.sql(text, ticks=ticks()))]
    assert found == [1.0, 2.0, 1.75, 3.3125, 3.234375]


def test_rows_by_apply():
    text = TOP + "; SELECT item, n FROM ticks [TUMBLING 10 ticks] [APPLY frequent(symbol)]"
    found = answers(hr.sql(text, ticks=ticks()))
    assert [(row["le"], row["item"], row["n"]) for row in found] == [(0, "A", 3), (0, "B", 1), (10, "A", 1)]


def test_from_python():
    average = hr.sql_aggregate(AVG)
    assert isinstance(average, SqlAggregate)
    stream = ticks().group_by("symbol").window(hr.tumbling(10)).aggregate(a=average.of("price"), n=hr.count())
    assert [row["n"] for row in answers(stream)] == [3, 1, 1]
    text = AVG + "; SELECT symbol, myavg(price) AS a, count(*) AS n FROM t [TUMBLING 10 ticks] GROUP BY symbol"
    assert hr.sql(text, t=ticks()).node == stream.node
    assert isinstance(hr.sql_aggregate(TOP), SqlRows)


def test_a_correction_is_computed_anew():
    drawn = """
        kind    | le | re | re_new | price
        insert  | 1  | 2  |        | 1
        insert  | 6  | 9  |        | 8
        insert  | 4  | 5  |        | 4
        insert  | 12 | 13 |        | 4
        retract | 6  | 9  | 6      | 8
    """
    stream = hr.events(drawn, "price DOUBLE")
    run = hr.sql(DECAY + "; SELECT decay(price) AS m FROM t [TUMBLING 10 ticks]", t=stream).run(batch_rows=1)
    assert [row["m"] for row in run.cht().to_pylist()] == [0.25 * 4 + 0.75 * 1, 4.0]
    assert "retract" in run.events()["kind"].to_pylist()


def test_a_module_is_its_text():
    for text, items in ((NESTED, [1.0, 2.0, 6.0]), (TOP, ["a", "b", "a"])):
        module = made(text)
        again = pickle.loads(pickle.dumps(module))  # noqa: S301 - our own
        assert again.compute(items) == module.compute(items)
        assert (str(again), again.fields, again.gives, again.mark) == (
            str(module), module.fields, module.gives, module.mark,
        )  # fmt: skip
        assert type(module)(module.statements).source == module.source
    assert made(AVG).mark == made(AVG.replace("\n", "\n\n")).mark != made(AVG.replace("cnt + 1", "cnt + 2")).mark


def test_create_show_drop():
    script = hr.script(f"{AVG}; {TOP}; SHOW AGGREGATES; DROP AGGREGATE MYAVG; SHOW AGGREGATES; {AVG}")
    _, _, shown, dropped, left, _ = script.outcomes
    assert shown.rows == (  # type: ignore[attr-defined]
        ("myavg", "next FLOAT", "FLOAT", "after the last tuple (blocking)"),
        ("frequent", "item STRING", "item STRING, n LONG", "after the last tuple (blocking)"),
    )
    assert dropped.message == "aggregate myavg dropped"  # type: ignore[attr-defined]
    assert [row[0] for row in left.rows] == ["frequent"]  # type: ignore[attr-defined]


# ---- without a window


def test_what_is_not_blocking_answers_at_each_tuple():
    text = DECAY + "; SELECT symbol, decay(price) AS m FROM ticks WHERE price < 8 GROUP BY symbol"
    found = answers(hr.sql(text, ticks=ticks()))
    assert [(row["le"], row["symbol"], row["m"]) for row in found] == [
        (1, "A", 1.0), (2, "B", 2.0), (4, "A", 1.75), (11, "A", 2.0625),
    ]  # fmt: skip


def test_where_nothing_is_returned_there_is_no_answer():
    rises = """
    CREATE AGGREGATE rises(next DOUBLE): DOUBLE {
        TABLE before(v DOUBLE);
        INITIALIZE: { INSERT INTO before VALUES (next); }
        ITERATE: {
            INSERT INTO RETURN SELECT next - v FROM before WHERE next > v;
            UPDATE before SET v = next;
        }
    }"""
    found = answers(hr.sql(rises + "; SELECT rises(price) + 1 AS up FROM ticks", ticks=ticks()))
    assert [(row["le"], row["up"]) for row in found] == [(2, 2.0), (4, 3.0), (6, 5.0)]


def test_blocking_ones_beside_it_are_refused():
    with pytest.raises(SqlError, match="blocking"):
        hr.sql(DECAY + "; SELECT decay(price) AS m, max(price) AS x FROM ticks [NOW]", ticks=ticks())


def test_rows_are_found_by_their_key():
    source = made(TOP).source
    assert "for (item_2, n) in found(self.often, item)" in source
    text = """
    CREATE AGGREGATE f(k LONG, v LONG): (k LONG, v LONG) {
        TABLE t(k LONG, v LONG, KEY (k)) AS VALUES (1, 10), (2, 20), (NULL, 30);
        INITIALIZE: ITERATE: {
            UPDATE t SET v = v + f.v WHERE f.k = k AND v < 100;
            DELETE FROM t WHERE k = f.k AND v > 100;
        }
        TERMINATE: { INSERT INTO RETURN SELECT * FROM t; }
    }"""
    module = made(text)
    assert "without(self.t, [(k_2, v_2) for (k_2, v_2) in found(self.t, k) if " in module.source
    assert module.compute([(2, 1), (1, 95), (None, 5), (7, 7)]) == [(2, 21), (None, 30)]


def test_the_page_shows_the_source_that_runs():
    page = (Path(__file__).parents[3] / "docs" / "sql" / "aggregates.md").read_text()
    (text,) = re.findall(r'^MEAN = """(.*?)"""', page, re.MULTILINE | re.DOTALL)
    assert made(text).source in page


def test_the_shell_keeps_a_body_together():
    typed = AVG.strip() + ";\nSHOW AGGREGATES;"
    assert [piece.text for piece in pieces(typed)] == [AVG.strip() + ";", "SHOW AGGREGATES;"]
    assert not is_complete("CREATE AGGREGATE f(x INT): INT { TABLE t(a INT);")
    assert is_complete("SELECT { FROM x;")
