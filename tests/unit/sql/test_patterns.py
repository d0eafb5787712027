"""MATCH_RECOGNIZE: the plans that Python makes, the way back, and what is refused where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.ordered import long_streams
from tests.strategies.patterns import measures, patterns

import headrace as hr
from headrace import Stream, col, count, first, last, prev
from headrace.errors import PlanError, SqlError
from headrace.patterns import classifier, final, next, offset
from headrace.plan.nodes import Match
from headrace.sql.parse import parse
from headrace.sql.printer import to_sql
from headrace.sql.unbind import unbind

FEW = settings(max_examples=max(5, settings().max_examples // 5))
COLUMNS = "symbol STRING, price LONG, at LONG"


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stream]:
    path = tmp_path_factory.mktemp("data") / "ticks.csv"
    path.write_text("symbol,price,at\na,1,1\n")
    return {
        "ticks": hr.read_csv(str(path), COLUMNS, lifetime=hr.point("at"), progress=hr.ordered()),
        "drawn": hr.events("le | re | symbol | price\n1 | 2 | a | 1\n", "symbol STRING, price LONG"),
    }


def said(*clauses: str, source: str = "ticks") -> str:
    return f"SELECT * FROM {source} MATCH_RECOGNIZE ({' '.join(clauses)})"


N = "MEASURES count(*) AS n"


def plans(ticks: Stream) -> dict[str, Stream]:
    """What Python says, by what SQL says."""
    per_symbol = ticks.group_by("symbol")
    falls = {"B": col("B.price") < prev("B.price")}
    n = count()
    return {
        said("PARTITION BY symbol ORDER BY at", N, "PATTERN (A B+) DEFINE B AS B.price < PREV(B.price)"): (
            per_symbol.match(hr.pattern("A B+", define=falls), n=n)
        ),
        said("PARTITION BY symbol ORDER BY le", N, "PATTERN (a B) define b as b.PRICE < prev(b.price)"): (
            per_symbol.match(hr.pattern("a B", define=falls), n=n)
        ),
        said(N, "PATTERN (A B+? (C | D E){2,3} F{2}? G{3,} H{,4} I?? PERMUTE(J, K L)) AFTER MATCH SKIP TO NEXT ROW"): (
            ticks.match(
                hr.pattern("A B+? (C | D E){2,3} F{2}? G{3,} H{0,4} I?? PERMUTE(J, K L)", skip="to next row"), n=n
            )
        ),
        said(N, "PATTERN ((A | B)* C) AFTER MATCH SKIP TO FIRST C"): ticks.match(
            hr.pattern("(A | B)* C", skip="to first C"), n=n
        ),
        said(N, "PATTERN (A B) AFTER MATCH SKIP TO LAST B"): ticks.match(hr.pattern("A B", skip="to last B"), n=n),
        said(N, "PATTERN (A B) AFTER MATCH SKIP TO b"): ticks.match(hr.pattern("A B", skip="to last B"), n=n),
        said(N, "PATTERN (A B) AFTER MATCH SKIP PAST LAST ROW"): ticks.match(hr.pattern("A B"), n=n),
        said(N, "PATTERN (A B) ALL MATCHES"): ticks.match(hr.pattern("A B").all_matches(), n=n),
        said(N, "PATTERN (A B) ALL MATCHES WITH PARTIAL"): ticks.match(hr.pattern("A B").partial(), n=n),
        said(N, "PATTERN (A B) WITHIN 30 s"): ticks.match(hr.pattern("A B", within="30 s"), n=n),
        said("MEASURES match_number() AS n PATTERN (^ A B) DEFINE A AS price > 1"): ticks.match(
            hr.pattern("A B", define={"A": col("price") > 1}).anchored(), n=hr.match_number()
        ),
        said("MEASURES sum(S.price) AS s, count(S.*) AS n PATTERN (A B+ C) SUBSET S = (A, b), T = (C) ",
             "DEFINE C AS T.price > first(S.price)"): ticks.match(
            hr.pattern("A B+ C", define={"C": col("T.price") > first("S.price")})
            .subset("S", "A", "B").subset("T", "C"),
            s=hr.sum("S.price"), n=count("S"),
        ),
        said(N, "ALL ROWS PER MATCH OMIT EMPTY MATCHES PATTERN (A B)"): ticks.match("A B", rows="all", n=n),
        said(N, "PATTERN (A B) WITHIN 30"): ticks.match(hr.pattern("A B", within=30), n=n),
        said(N, "PATTERN (A B) WITHIN FOREVER"): ticks.match(hr.pattern("A B"), n=n),
        said(N, "PATTERN (A B+) WHERE count(B.*) > 2 AND A.price < price"): ticks.match(
            hr.pattern("A B+", where=(count("B") > 2) & (col("A.price") < col("price"))), n=n
        ),
        said(N, "REGISTERS m = -1 (B AS m + price), t = 'x' (A AS symbol) PATTERN (A B+) WHERE m = 0"): ticks.match(
            hr.pattern("A B+")
            .register("m", -1, B=col("m") + col("price"))
            .register("t", "x", A=col("symbol"))
            .where(col("m") == 0),
            n=n,
        ),
        said(
            "MEASURES A.price AS a, FIRST(A.price) AS f, LAST(B.price, 1) AS b, FINAL max(price) AS h, "
            "CLASSIFIER() AS c, "
            "avg(B.price) - price AS d, PREV(price, 2) AS p, NEXT(A.price) AS q, first(le) AS le_, A.at AS at,"
            "PREV(FIRST(B.price), 2) AS x, NEXT(LAST(B.price, 3)) AS y PATTERN (A B+)"
        ): ticks.match(
            "A B+", a=col("A.price"), f=first("A.price"), b=offset(last("B.price"), 1), h=hr.max("price"),
            c=classifier(), d=hr.avg("B.price") - col("price"), p=prev("price", 2), q=next("A.price"),
            le_=first("le"), at=col("A.at"), x=first(prev("B.price", 2)), y=offset(last(next("B.price")), 3),
        ),
        said(
            "PARTITION BY price / 10 AS g MEASURES RUNNING count(B.*) AS n, FINAL count(B.*) AS m, CLASSIFIER() AS c "
            "ALL ROWS PER MATCH PATTERN (A B+)"
        ): ticks.group_by(g=col("price") / 10).match(
            "A B+", rows="all", n=count("B"), m=final(count("B")), c=classifier()
        ),
        "SELECT n FROM (SELECT * FROM ticks WHERE price > 1) MATCH_RECOGNIZE (MEASURES count(*) AS n PATTERN (A B)) "
        "AS m WHERE m.n > 1": ticks.where(col("price") > 1).match("A B", n=n).where(col("n") > 1),
        "SELECT max(n) AS m FROM ticks [RANGE 5 s] MATCH_RECOGNIZE (MEASURES count(*) AS n PATTERN (A B)) "
        "[TUMBLING 5 s]": (
            ticks.set_duration("5 s").match("A B", n=n).window(hr.tumbling("5 s")).aggregate(m=hr.max("n"))
        ),
        "SELECT n FROM ticks MATCH_RECOGNIZE (MEASURES count(*) AS n PATTERN (A B)) "
        "MATCH_RECOGNIZE (MEASURES sum(n) AS n PATTERN (A+))": ticks.match("A B", n=n).match("A+", n=hr.sum("n")),
    }  # fmt: skip


@pytest.mark.slow
def test_sql_and_python_build_equal_plans(streams: dict[str, Stream]):
    different = []
    for text, wanted in plans(streams["ticks"]).items():
        found = hr.sql(text, **streams)
        if found.node != wanted.node:
            different.append(f"{text}\n--- SQL\n{found.explain()}\n--- Python\n{wanted.explain()}")
    assert not different, "\n\n".join(different)


@pytest.mark.slow
def test_plans_said_in_sql_are_the_same_plans(streams: dict[str, Stream]):
    names = {stream.node: name for name, stream in streams.items()}
    for text, wanted in plans(streams["ticks"]).items():
        spoken = unbind(wanted.node, names)
        assert hr.sql(spoken.text, **streams).node == wanted.node, f"{text}\n{spoken.text}"


def test_texts_are_read_as_they_are_written(streams: dict[str, Stream]):
    for text in plans(streams["ticks"]):
        tree = parse(text)
        assert parse(to_sql(tree)) == tree


def test_absence_is_that_of_python(streams: dict[str, Stream]):
    text = said("PARTITION BY symbol", N, "PATTERN (A B* !C) WITHIN 10 s",
                "DEFINE B AS price > A.price, C AS C.price < A.price AND count(B.*) > PREV(price)")  # fmt: skip
    absent = (col("C.price") < col("A.price")) & (count("B") > prev("price"))
    pattern = hr.pattern("A B* !C", define={"B": col("price") > col("A.price"), "C": absent}, within="10 s")
    found = hr.sql(text, **streams)
    assert found.node == streams["ticks"].group_by("symbol").match(pattern, n=count()).node
    tree = parse(text)
    assert parse(to_sql(tree)) == tree
    assert "PATTERN (A B* !C)" in to_sql(tree)
    anchored = hr.sql(said(N, "PATTERN (^ A !C) WITHIN 10 s"), **streams)
    assert anchored.node == streams["ticks"].match(hr.pattern("A !C", within="10 s").anchored(), n=count()).node


@st.composite
def queries(draw: st.DrawFn) -> tuple[Stream, Stream]:
    stream, pattern = draw(long_streams(8)), draw(patterns())
    named = {f"m_{name}": expr for name, expr in draw(measures(pattern)).items()}
    key = draw(st.sampled_from([None, "k", "computed"]))
    grouped: Any = stream.group_by(g=col("i") > 0) if key == "computed" else stream.group_by(key) if key else stream
    return stream, grouped.match(pattern, rows=draw(st.sampled_from(["one", "all"])), **named)


@FEW
@given(queries())
def test_differential_random_patterns_said_in_sql(both: tuple[Stream, Stream]):
    stream, query = both
    spoken = unbind(query.node, {stream.node: "s"})
    found = hr.sql(spoken.text, s=stream)
    assert found.schema == query.schema
    # What is final of a whole expression is said of its parts, which is the same.
    if found.node != query.node:
        assert "FINAL" in spoken.text
        assert hr.history_diff(query.cht(), found.cht()) == ""


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pattern", "measures", "define", "within", "matches", "next", "past", "registers"])
def test_its_words_are_still_names(name: str):
    stream = hr.events([{"le": 1, name: 1}, {"le": 2, name: 3}], f"{name} LONG")
    text = f"SELECT {name} AS final FROM s MATCH_RECOGNIZE (MEASURES last(A.{name}) AS {name} PATTERN (A+)) AS running"
    assert hr.sql(text, s=stream).cht()["final"].to_pylist() == [3]


def test_words_before_a_parenthesis_are_names_elsewhere():
    stream = hr.events([{"le": 1, "final": 2, "permute": 3}], "final LONG, permute LONG")
    text = "SELECT final, permute FROM s AS match_recognize WHERE final IN (2, 3) AND permute < (4)"
    assert hr.sql(text, s=stream).cht().num_rows == 1
    twice = 'SELECT * FROM s MATCH_RECOGNIZE (MEASURES count(*) AS n PATTERN ("permute_" (B | C)?))'
    assert hr.sql(twice, s=stream).cht()["n"].to_pylist() == [1]


def test_variables_are_found_in_any_case_but_as_written_first():
    stream = hr.events([{"le": i, "x": i} for i in range(1, 4)], "x LONG")
    text = said("MEASURES a.x AS low, A.x AS high PATTERN (a A B) DEFINE b AS B.x > a.x", source="s")
    assert hr.sql(text, s=stream).cht().to_pylist()[0] | {"le": 0, "re": 0} == {"le": 0, "re": 0, "low": 1, "high": 2}


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "(SELECT price, at FROM ticks WHERE price > 0)",
        "(SELECT price, at FROM ticks UNION ALL SELECT price, at FROM ticks)",
        "ticks [RANGE 10 s]",
        "(SELECT price, at FROM ticks JOIN names USING (symbol))",
    ],
)
def test_the_order_is_the_streams_own_time(streams: dict[str, Stream], source: str, tmp_path: Path):
    (tmp_path / "names.csv").write_text("symbol,name\na,x\n")
    table = f"CREATE TABLE names (symbol STRING, name STRING) SOURCE FILE ('{tmp_path}/names.csv'); "
    text = said("ORDER BY at", N, "PATTERN (A)", source=source)
    assert any(isinstance(node, Match) for node in _nodes(hr.sql(table + text, **streams)))


def _nodes(stream: Stream) -> list[Any]:
    from headrace.plan.base import walk

    return list(walk(stream.node))


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("ticks", "price"),
        ("ticks", "at DESC"),
        ("ticks", "le DESC"),
        ("ticks", "at + 1"),
        ("ticks [SHIFT 5 s]", "at"),
        ("(SELECT price AS at FROM ticks)", "at"),
        ("(SELECT count(*) AS at FROM ticks [TUMBLING 5 s])", "at"),
    ],
)
def test_any_other_order_is_refused(streams: dict[str, Stream], source: str, key: str):
    with pytest.raises(SqlError, match="own time") as caught:
        hr.sql(said(f"ORDER BY {key}", N, "PATTERN (A)", source=source), **streams)
    assert caught.value.text[slice(*caught.value.at)] == key
    assert "CREATE STREAM … ORDER BY" in str(caught.value)


def test_matches_are_instants(streams: dict[str, Stream]):
    matches = "ticks MATCH_RECOGNIZE (MEASURES count(*) AS n PATTERN (A B))"
    with pytest.raises(SqlError, match="instants"):
        hr.sql(f"SELECT m.n FROM {matches} AS m JOIN ticks AS t ON m.n = t.price", **streams)
    assert hr.sql(f"SELECT m.n FROM {matches} AS m JOIN ticks [RANGE 5 s] AS t ON m.n = t.price", **streams).schema


# --- what is refused -------------------------------------------------------------------------------------------------

#: Clauses, what the error says, and the words of the text it points at.
REFUSED = [
    (f"{N} PATTERN (A", "ends too early", ""),
    (f"{N} PATTERN (A = b)", "cannot stand here", "="),
    (f"{N} PATTERN ()", "cannot stand here", ")"),
    (f"{N} PATTERN (A{{}})", "cannot stand here", "}"),
    (f"{N} PATTERN (A{{,}})", "how often", "{,}"),
    (f"{N} PATTERN (A{{1.5}})", "not a whole number", "1.5"),
    (f"{N} PATTERN (A{{3,2}})", "so many to so many", "A{3,2}"),
    (f"{N} PATTERN (A*)", "at least one tuple", "A*"),
    (f"{N} PATTERN (PERMUTE(A, B, C, D, E, F, G))", "too many orders", "PERMUTE(A, B, C, D, E, F, G)"),
    (f'{N} PATTERN ("a b")', "a plain name", '"a b"'),
    (f"{N} PATTERN (price)", "a column and something of the pattern", "price"),
    (f"{N} DEFINE A AS TRUE", "a pattern is missing", None),
    (f"{N} PATTERN (A) PATTERN (B)", "said already", "PATTERN (B)"),
    (f"{N} PATTERN (A) AFTER MATCH SKIP TO Q", "no variable 'Q'", "Q"),
    (f"{N} PATTERN (A) DEFINE Q AS TRUE", "no variable 'Q'", "Q"),
    (f"{N} PATTERN (A) DEFINE A AS TRUE, a AS FALSE", "two conditions", "a AS FALSE"),
    (f"{N} PATTERN (A) DEFINE A AS price", "must be BOOLEAN", "price"),
    (f"{N} PATTERN (A) DEFINE A AS pric > 1", "no column 'pric'", "pric"),
    (f"{N} PATTERN (A) DEFINE A AS A.pric > 1", "no column 'pric' in A", "pric"),
    (f"{N} PATTERN (A) DEFINE A AS Q.price > 1", "no variable of the pattern and no stream", "Q"),
    (f"{N} PATTERN (A) DEFINE A AS price > FINAL last(price)", "during the match", "FINAL last(price)"),
    (
        f"{N} PATTERN (A) DEFINE A AS price > sum(price) OVER (ROWS 1 PRECEDING)",
        "OVER stands in the list of a SELECT",
        None,
    ),
    (f"{N} PATTERN (A) DEFINE A AS PREV(price, price) > 1", "plain value|a distance in tuples", None),
    (f"{N} PATTERN (A) DEFINE A AS PREV() > 1", "a distance in tuples", "PREV()"),
    (f"{N} PATTERN (A) DEFINE A AS PREV(price, 0) > 1", "another tuple", "PREV(price, 0)"),
    (f"{N} PATTERN (A B) WHERE count(A.*)", "must be BOOLEAN", "count(A.*)"),
    (f"{N} PATTERN (A B) WHERE count(Q.*) = 1", "no variable 'Q'", "Q"),
    (f"{N} PATTERN (A B) WITHIN -3 s", "cannot stand here", "-"),
    (f"{N} PATTERN (A B) ALL MATCHES AFTER MATCH SKIP PAST LAST ROW", "skips nothing", None),
    (f"{N} REGISTERS m = 0 (Q AS 1) PATTERN (A)", "no variable 'Q'", "Q"),
    (f"{N} REGISTERS m = 0 (A AS 1), m = 1 (A AS 1) PATTERN (A)", "a register 'm' already", None),
    ("MEASURES match_number() AS n PATTERN (A) ALL MATCHES", "so they have no numbers", None),
    (f"{N} PATTERN (A) DEFINE A AS match_number() > 1", "no number while it is being searched for", None),
    (f"{N} PATTERN (A B $)", "not known before its stream ends", "$"),
    (f"{N} PATTERN (A ^ B)", "cannot stand here", "^"),
    (f"{N} PATTERN (A {{- B+ -}} C) ALL ROWS PER MATCH", "all rows of a match are given", "{- B+ -}"),
    (f"{N} PATTERN (A) ALL ROWS PER MATCH SHOW EMPTY MATCHES", "an empty one has none", None),
    (f"{N} PATTERN (A) ALL ROWS PER MATCH WITH UNMATCHED ROWS", "in no match are not given", None),
    (f"{N} PATTERN (A B !C)", "an absence needs a time", "!C"),
    (f"{N} PATTERN (A !C B) WITHIN 1 s", "the end of a pattern", "!C"),
    (f"{N} PATTERN (A (!C)+) WITHIN 1 s", "the end of a pattern", "!C"),
    (f"{N} PATTERN (!C) WITHIN 1 s", "the end of a pattern", "!C"),
    (f"{N} PATTERN (A !(B C)) WITHIN 1 s", "the end of a pattern", "!(B C)"),
    (f"{N} PATTERN (A !A) WITHIN 1 s", "the end of a pattern", "!A"),
    (f"{N} PATTERN (A !C) WITHIN 1 s ALL ROWS PER MATCH", "all rows of a match", None),
    (f"{N} PATTERN (A !C) WITHIN 1 s AFTER MATCH SKIP TO C", "no variable 'C'", "C"),
    ("MEASURES C.price AS n PATTERN (A !C) WITHIN 1 s", "no variable of the pattern and no stream", "C"),
    (f"{N} PATTERN (A !C) WITHIN 1 s DEFINE A AS C.price > 1", "no variable of the pattern and no stream", "C"),
    (f"{N} PATTERN (A !C) WITHIN 1 s DEFINE C AS C.pric > 1", "no column 'pric' in C", "pric"),
    (f"{N} PATTERN (A B) SUBSET S = (A, Q)", "no variable 'Q'", "Q"),
    (f"{N} PATTERN (A B) SUBSET A = (A, B)", "a variable and a subset", "A = (A, B)"),
    (f"{N} PATTERN (A B) SUBSET S = (A), S = (B)", "a name of its own", "S = (B)"),
    (f"{N} PATTERN (A B) SUBSET S = (A, B) DEFINE S AS TRUE", "no variable 'S'", "S"),
    ("MEASURES sum(A.price * B.price) AS n PATTERN (A B)", "one variable cannot look", "sum(A.price * B.price)"),
    (
        "MEASURES finance.ema(price, alpha => 0.2) AS n PATTERN (A)",
        "not modules",
        "finance.ema(price, alpha => 0.2)",
    ),
    ("MEASURES PREV(sum(price)) AS n PATTERN (A)", "single tuples are looked at", "PREV(sum(price))"),
    ("MEASURES PREV(CLASSIFIER()) AS n PATTERN (A)", "single tuples are looked at", "PREV(CLASSIFIER())"),
    ("MEASURES count(CLASSIFIER()) AS n PATTERN (A)", "single tuples are looked at", "count(CLASSIFIER())"),
    ("MEASURES PREV(first(price) + 1) AS n PATTERN (A)", "single tuples are looked at", "PREV(first(price) + 1)"),
    ("REGISTERS m = 0 (A AS 1) MEASURES sum(m) AS n PATTERN (A)", "'m' is a register", "sum(m)"),
    (f"{N} REGISTERS m = 0 (A AS 1) PATTERN (A) DEFINE A AS PREV(m) > 1", "'m' is a register", "PREV(m) > 1"),
    ("MEASURES price AS n, at AS n PATTERN (A)", "two columns have the name 'n'", "n"),
    ("MEASURES price PATTERN (A)", "cannot stand here", "PATTERN"),
    ("PARTITION BY price + 1 MEASURES at AS n PATTERN (A)", "needs a name", "price + 1"),
    ("PATTERN (A)", "needs at least one measure", None),
]


@pytest.mark.parametrize(("clauses", "message", "place"), REFUSED)
def test_what_is_refused_and_where(streams: dict[str, Stream], clauses: str, message: str, place: str | None):
    text = said(clauses) if clauses != f"{N} PATTERN (A" else said(clauses).removesuffix(")")
    with pytest.raises(SqlError, match=message) as caught:
        hr.sql(text, **streams)
    assert place is None or text[slice(*caught.value.at)] == place


def test_outside_of_patterns_final_has_no_meaning(streams: dict[str, Stream]):
    with pytest.raises(SqlError, match="no value here"):
        hr.sql("SELECT FINAL sum(price) AS s FROM ticks [SNAPSHOT]", **streams)


def test_hints_are_in_sql(streams: dict[str, Stream]):
    for clauses in ("PATTERN (A)", f"{N} PATTERN (A*)"):
        with pytest.raises(SqlError) as caught:
            hr.sql(said(clauses), **streams)
        assert "match(" not in str(caught.value)
        assert "pattern(" not in str(caught.value)


def test_what_has_no_words(streams: dict[str, Stream]):
    drawn = streams["drawn"]
    silent = [
        drawn.match(hr.pattern("A").register("m", 0).where(col("m") == 0), n=count()),
        drawn.match("A", rows="all", n=final(hr.median("price"))),
        drawn.match(hr.pattern("A !C", within=1), n=count()),
    ]
    for query in silent:
        with pytest.raises(PlanError, match="no words"):
            unbind(query.node, {drawn.node: "drawn"})


def test_registers_of_texts_and_of_the_event_itself():
    stream = hr.events("le | k | x \n 1 | a | 1 \n 2 | b | 2 \n 3 | b | 3 \n 4 | c | 1")
    text = """
        SELECT * FROM s MATCH_RECOGNIZE (MEASURES r AS r, t AS t PATTERN (A B)
            REGISTERS r = 'z' (A AS A.k, B AS upper(B.k)), t = 0 (A AS A.x, B AS t + B.x)
            DEFINE B AS r = 'B' AND t = 3)
    """
    found = hr.sql(text, s=stream)
    assert found.cht().to_pylist() == [{"le": 2, "re": 3, "r": "B", "t": 3}]
    assert found.history(engine="duckdb").cht().to_pylist() == found.cht().to_pylist()
    bare = hr.sql(text.replace("A.k", "k").replace("(B.k)", "(k)").replace("A.x", "x").replace("B.x", "x"), s=stream)
    assert found.cht().equals(bare.cht())
