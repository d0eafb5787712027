"""What a review of the dialect found, each by its smallest script."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import SqlError

LEFT = "k,time,x\na,4,1\nb,7,2\na,11,3\na,26,4\n"
RIGHT = "k,time,y\na,6,10\na,11,20\nb,8,30\nc,9,40\nb,25,50\n,6,70\n"
BOTH = """
CREATE STREAM l (k STRING, time LONG, x INT) ORDER BY time SOURCE FILE ('l.csv', ',');
CREATE STREAM r (k STRING, time LONG, y INT) ORDER BY time SOURCE FILE ('r.csv', ',');
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "l.csv").write_text(LEFT)
    (tmp_path / "r.csv").write_text(RIGHT)
    return tmp_path


def answers(text: str, base: Path, *columns: str) -> list[tuple[object, ...]]:
    """The rows of the last query, which batch SQL over the history gives as well."""
    stream = hr.sql(text, base=base)
    table = stream.cht()
    assert hr.same_history(table, stream.history(engine="duckdb").cht())
    return [tuple(row[name] for name in columns) for row in table.sort_by([("le", "ascending")]).to_pylist()]


@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_a_row_is_malformed_whichever_columns_are_read(folder: Path):
    (folder / "bad.csv").write_text("time,a,b\n1,10,x\n2,20,3\n")
    create = "CREATE STREAM s (time LONG, a INT, b INT) ORDER BY time SOURCE FILE ('bad.csv', ',');"
    assert answers(create + "SELECT sum(a) AS s FROM s [TUMBLING 10 ticks]", folder, "s") == [(20,)]


def test_the_other_side_of_a_left_join_is_null_where_nothing_matches(folder: Path):
    text = "SELECT l.k, r.k AS rk, y FROM l [TUMBLING 10 ticks] LEFT JOIN r [TUMBLING 10 ticks] ON l.k = r.k"
    assert answers(BOTH + text, folder, "le", "k", "rk", "y") == [
        (0, "a", "a", 10), (0, "b", "b", 30), (10, "a", "a", 20), (20, "a", None, None),
    ]  # fmt: skip
    assert answers(BOTH + text + " WHERE r.k IS NULL", folder, "k", "y") == [("a", None)]


def test_a_table_has_a_key_of_its_own_in_a_left_join(folder: Path):
    (folder / "t.csv").write_text("k,name\na,one\n")
    create = BOTH + "CREATE TABLE t SOURCE FILE ('t.csv'); "
    text = "SELECT l.k, name FROM l LEFT JOIN t ON l.k = t.k"
    assert answers(create + text, folder, "k", "name")[1] == ("b", None)
    assert ("a", "one") not in answers(create + text + " WHERE t.k IS NULL", folder, "k", "name")


@pytest.mark.parametrize("word", ["ASOF", "OUTER"])
def test_joins_of_other_dialects_are_no_aliases(word: str, folder: Path):
    text = f"SELECT x, y FROM l [TUMBLING 10 ticks] {word} JOIN r [TUMBLING 10 ticks] USING (k)"
    with pytest.raises(SqlError, match=f"there is no {word} JOIN"):
        hr.sql(BOTH + text, base=folder)


@pytest.mark.parametrize("apart", [0, 1])
def test_rows_of_files_that_come_together_stay_in_order(apart: int, folder: Path):
    (folder / "in").mkdir()
    for number, values in enumerate(([1, 2, 3], [4, 5, 6])):
        path = folder / "in" / f"{number}.csv"
        path.write_text("v\n" + "".join(f"{value}\n" for value in values))
        os.utime(path, ns=(0, 1_000_000_000 + number * apart * 1000))
    create = "CREATE STREAM s (v LONG) SOURCE FILE ('in', ',', TRUE);"
    assert answers(create + "SELECT collect(v) AS c FROM s [SIZE 3]", folder, "c") == [([1, 2, 3],), ([4, 5, 6],)]
    assert answers(create + "SELECT last(v) AS l FROM s [SIZE 2 EVERY 1]", folder, "l") == [(n,) for n in range(1, 7)]


def test_a_promise_about_one_time_says_nothing_about_another(folder: Path):
    (folder / "o.csv").write_text("time,value\n10,1\n30,2\n5,3\n12,4\n31,5\n")
    text = """CREATE STREAM e (time LONG, value LONG) ORDER BY value SOURCE FILE ('o.csv', ',')
    WITH PROGRESS ORDERED LATE DROP; SELECT collect(value) AS c FROM e [SIZE 10 ON time]"""
    assert answers(text, folder, "c") == [([3],), ([1, 4],), ([2, 5],)]


def test_names_of_an_events_parts_are_refused_where_they_are_declared():
    with pytest.raises(SqlError, match="may not be named 'kind'") as caught:
        hr.script("CREATE STREAM w (t LONG, kind INT) ORDER BY t SOURCE FILE ('res.csv', ',')")
    assert caught.value.text[slice(*caught.value.at)] == "kind INT"
    assert "rename => 'kind AS kind_'" in caught.value.instead


def test_union_takes_out_duplicates_and_no_more(folder: Path):
    union = "(SELECT k FROM l UNION SELECT k FROM r)"
    assert answers(BOTH + f"SELECT count(*) AS n FROM {union} [TUMBLING 10 ticks]", folder, "n")[0] == (6,)
    assert answers(BOTH + "SELECT count(*) AS n FROM (SELECT k FROM l UNION SELECT k FROM l) [TUMBLING 10 ticks]",
                   folder, "n")[0] == (2,)  # fmt: skip


def test_distinct_is_of_each_window(folder: Path):
    text = BOTH + "SELECT DISTINCT k FROM l [TUMBLING 20 ticks]"
    assert sorted(answers(text, folder, "le", "k")) == [(0, "a"), (0, "b"), (20, "a")]


def test_distinct_rows_are_ranked_by_what_they_show(folder: Path):
    for text in ("ORDER BY x LIMIT 1", "ORDER BY k LIMIT 1 BY x"):
        with pytest.raises(SqlError, match="may differ among them") as caught:
            hr.sql(BOTH + f"SELECT DISTINCT k FROM l [SIZE 2] {text}", base=folder)
        assert "SELECT DISTINCT …, x" in str(caught.value)


def test_columns_of_with_are_renamed_before_they_must_differ(folder: Path):
    both = "WITH l (a, b) AS ({}) SELECT a, b FROM l"
    assert answers(BOTH + both.format("SELECT x, x FROM l WHERE x = 1"), folder, "a", "b") == [(1, 1)]
    assert answers(BOTH + both.format("SELECT x, x FROM l WHERE x = 1 UNION ALL SELECT y, y FROM r WHERE y = 0"),
                   folder, "a", "b") == [(1, 1)]  # fmt: skip
    loop = "SELECT x, x FROM l WHERE x = 1 UNION SELECT b, b FROM n"
    assert answers(BOTH + f"WITH RECURSIVE n (a, b) AS ({loop}) SELECT a, b FROM n", folder, "a", "b") == [(1, 1)]
    grouped = "SELECT k, k, count(*) FROM l [TUMBLING 20 ticks] GROUP BY k"
    found = answers(BOTH + f"WITH n (a, b, c) AS ({grouped}) SELECT a, b, c FROM n", folder, "a", "b", "c")
    assert sorted(found) == [("a", "a", 1), ("a", "a", 2), ("b", "b", 1)]
    created = "CREATE STREAM n (a LONG, b LONG) AS SELECT x, x FROM l WHERE x = 1; SELECT * FROM n"
    assert answers(BOTH + created, folder, "a", "b") == [(1, 1)]
    unnamed, below = "WITH n AS (SELECT x, x FROM l) SELECT 1 AS o FROM n", "SELECT * FROM (SELECT x, x FROM l)"
    for wrong in (unnamed, both.format(below)):
        with pytest.raises(SqlError, match="two columns have the name 'x'"):
            hr.sql(BOTH + wrong, base=folder)


def test_a_char_becomes_a_number_where_one_is_wanted(folder: Path):
    (folder / "c.csv").write_text("time,c\n1,A\n2,5\n3,é\n")
    create = "CREATE STREAM s (time LONG, c CHAR) ORDER BY time SOURCE FILE ('c.csv', ',');"
    asked = "SELECT c + 1 AS next, c = 65 AS is_a, code(c) AS code, CAST(c AS INT) AS digit FROM s"
    found = answers(create + asked, folder, "next", "is_a", "code", "digit")
    assert found == [(66, True, 65, None), (54, False, 53, 5), (234, False, 233, None)]
    for kind in ("INT", "LONG", "DOUBLE"):
        assert answers(create + f"CREATE STREAM n (c {kind}) AS SELECT c FROM s; SELECT c FROM n", folder, "c") == [
            (65,), (53,), (233,)
        ]  # fmt: skip
    for kind in ("BYTE", "SHORT"):  # which do not hold every character
        with pytest.raises(SqlError, match="does not widen to"):
            hr.sql(create + f"CREATE STREAM n (c {kind}) AS SELECT c FROM s; SELECT c FROM n", base=folder)
    assert answers(create + "SELECT c FROM s WHERE c = 'A'", folder, "c") == [("A",)]


def test_position_looks_for_its_first_argument(folder: Path):
    asked = (
        "SELECT position('b', 'abc') AS p, strpos('abc', 'b') AS s, instr(k, 'a') AS i, position('a', k) AS k FROM l"
    )
    assert answers(BOTH + asked + " WHERE x = 1", folder, "p", "s", "i", "k") == [(2, 2, 1, 1)]
    assert hr.sql(BOTH + asked, base=folder).history(engine="duckdb").cht()["p"].to_pylist()[0] == 2
    with pytest.raises(SqlError, match="what is looked for first") as caught:
        hr.sql(BOTH + "SELECT position(k, 'a') AS p FROM l", base=folder)
    assert "position('a', k)" in str(caught.value)


def test_a_limit_behind_a_union_is_about_the_whole(folder: Path):
    rows = "SELECT k, x FROM l [RANGE 20 ticks] UNION ALL SELECT k, y FROM r [RANGE 20 ticks]"
    found = answers(BOTH + rows + " ORDER BY x DESC LIMIT 1", folder, "x")
    assert found == answers(BOTH + f"SELECT * FROM ({rows}) ORDER BY x DESC LIMIT 1", folder, "x")
    with pytest.raises(SqlError, match="no column 'y'"):
        hr.sql(BOTH + rows + " ORDER BY y LIMIT 1", base=folder)


def test_links_do_not_lead_out_of_the_roots(folder: Path):
    (folder / "in").mkdir()
    (folder / "in" / "link.csv").symlink_to(folder / "r.csv")
    for path in ("in", "in/*.csv"):
        with pytest.raises(SqlError, match="may not use files there"):
            hr.script(f"CREATE STREAM s (k STRING) SOURCE FILE ('{path}', ',')", base=folder, roots=[folder / "in"])
    with pytest.raises(SqlError, match="may not use files there"):
        hr.script("SET checkpoint = '/elsewhere'", base=folder, roots=[folder / "in"])
    for place in ("s3://bucket/state", "file:///state"):
        with pytest.raises(SqlError, match="may not use files there"):
            hr.script(f"SET checkpoint = '{place}'", base=folder, roots=[folder / "in", Path()])


@pytest.mark.slow
def test_a_long_list_does_not_end_the_process(folder: Path):
    text = f"SELECT x FROM l WHERE x IN ({', '.join(map(str, range(3, 10_003)))})"
    assert answers(BOTH + text, folder, "x") == [(3,), (4,)]


def test_delimiters(folder: Path):
    (folder / "t.tsv").write_text("a\t1\nb\t2\n")
    create = "CREATE STREAM s (k STRING, n INT) SOURCE FILE ('t.tsv', '{}'); SELECT n FROM s"
    assert answers(create.format(r"\t"), folder, "n") == [(1,), (2,)]
    for wrong in ("", ";;"):
        with pytest.raises(SqlError, match="one character"):
            hr.sql(create.format(wrong), base=folder)


def test_groups_without_a_window_are_the_stream(folder: Path):
    assert len(answers(BOTH + "SELECT k, x FROM l GROUP BY k", folder, "k", "x")) == 4


def test_what_is_no_text_is_refused():
    with pytest.raises(SqlError, match="not text"):
        hr.sql(None)  # type: ignore[arg-type]


def test_queries_are_shown():
    session = hr.script("QUERY a AS SELECT n FROM s; SHOW QUERIES", s=hr.events([{"le": 1, "n": 1}]))
    assert session.outcomes[-1].rows == (("a", "SELECT n FROM s"),)


def test_what_comes_last_is_last_whatever_its_value(folder: Path):
    (folder / "tie.csv").write_text("time,v\n10,5\n10,3\n10,9\n10,1\n11,8\n11,2\n")
    create = "CREATE STREAM t (time LONG, v INT) ORDER BY time SOURCE FILE ('tie.csv', ',');"
    found = answers(create + "SELECT v, last(v) OVER (ROWS 2 PRECEDING) AS l FROM t", folder, "v", "l")
    assert sorted(found) == [(v, v) for v in (1, 2, 3, 5, 8, 9)]
    windows = answers(create + "SELECT collect(v) AS c FROM t [SIZE 3]", folder, "c")
    assert windows == [([5, 3, 9],), ([1, 8, 2],)]


def test_where_before_modules_and_limits_stands_in_the_brackets(folder: Path):
    """They would see all that a window of tuples holds; what is left out of it, as nulls."""
    total = "CREATE AGGREGATE total(n INT): INT { TABLE t(s INT); INITIALIZE: { INSERT INTO t VALUES (n); }"
    total += " ITERATE: { UPDATE t SET s = s + n; } TERMINATE: { INSERT INTO RETURN SELECT s FROM t; } };"
    for ask in ("total(x) AS s FROM l [SIZE 2{}]{}", "x AS s FROM l [SIZE 2{}]{} ORDER BY x DESC LIMIT 1"):
        with pytest.raises(SqlError, match="the content of a window of tuples") as caught:
            hr.sql(BOTH + total + "SELECT " + ask.format("", " WHERE x <> 2"), base=folder)
        assert "[SIZE … WHERE x <> 2]" in str(caught.value)
        found = answers(BOTH + total + "SELECT " + ask.format(" WHERE x <> 2", ""), folder, "s")
        assert found == ([(4,)] if "total" in ask else [(3,)])  # 1 and 3; 4 waits for another
    plain = answers(BOTH + "SELECT sum(x) AS s FROM l [SIZE 2] WHERE x <> 2", folder, "s")
    assert plain == [(1,), (7,)]


def test_a_window_joined_with_a_table_can_be_grouped(folder: Path):
    (folder / "t.csv").write_text("k,name\na,one\nb,two\n")
    text = "CREATE TABLE t SOURCE FILE ('t.csv'); SELECT name, count(*) AS n FROM l [{}] JOIN t USING (k) GROUP BY name"
    found = answers(BOTH + text.format("TUMBLING 20 ticks"), folder, "le", "re", "name", "n")
    assert sorted(found) == [(0, 20, "one", 2), (0, 20, "two", 1), (20, 40, "one", 1)]
    hops = answers(BOTH + text.format("HOPPING 20 ticks EVERY 10 ticks"), folder, "le", "re", "name", "n")
    assert sorted(hops)[:3] == [(-10, 10, "one", 1), (-10, 10, "two", 1), (0, 20, "one", 2)]
