"""Texts and the trees they are: every statement and clause, places, errors, limits."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys

import pytest

from headrace.errors import HeadraceError, SqlError
from headrace.sql import syntax as s
from headrace.sql.parse import MAX_TEXT, parse, parse_expression, parse_statement
from headrace.sql.printer import to_sql
from headrace.sql.tables import grammar, tables


def name(text: str) -> s.Name:
    return s.Name(text)


def column(text: str, stream: str | None = None) -> s.Column:
    return s.Column(s.Name(text), s.Name(stream) if stream else None)


def number(value: float) -> s.Number:
    return s.Number(value)


def duration(*amounts: tuple[float, str]) -> s.Duration:
    return s.Duration(amounts)


def query(text: str) -> s.Query:
    ask = parse_statement(text)
    assert isinstance(ask, s.Ask)
    return ask.query


def select(text: str) -> s.Select:
    body = query(text).body
    assert isinstance(body, s.Select)
    return body


def bracket(text: str) -> s.Bracket:
    (found,) = select(f"SELECT a FROM s [{text}]").source.brackets
    return found


A, B, C = column("a"), column("b"), column("c")
SEC = duration((10, "s"))

# ---- expressions


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a OR b AND c", s.Binary("OR", A, s.Binary("AND", B, C))),
        ("NOT a = b AND c", s.Binary("AND", s.Unary("NOT", s.Binary("=", A, B)), C)),
        ("a | b ^ c", s.Binary("|", A, s.Binary("^", B, C))),
        ("a ^ b & c", s.Binary("^", A, s.Binary("&", B, C))),
        ("a & b << c", s.Binary("&", A, s.Binary("<<", B, C))),
        ("a >> b + c", s.Binary(">>", A, s.Binary("+", B, C))),
        ("a || b * c", s.Binary("||", A, s.Binary("*", B, C))),
        ("a - b - c", s.Binary("-", s.Binary("-", A, B), C)),
        ("a - (b - c)", s.Binary("-", A, s.Binary("-", B, C))),
        ("-a * b", s.Binary("*", s.Unary("-", A), B)),
        ("- -a", s.Unary("-", s.Unary("-", A))),
        ("~a % +b", s.Binary("%", s.Unary("~", A), s.Unary("+", B))),
        ("a == b", s.Binary("=", A, B)),
        ("a != b", s.Binary("<>", A, B)),
        ("a <> b", s.Binary("<>", A, B)),
        ("a | b = c", s.Binary("=", s.Binary("|", A, B), C)),
        ("a IS NULL", s.IsNull(A)),
        ("a is not null", s.IsNull(A, negated=True)),
        ("a IN (b, c)", s.In(A, (B, C))),
        ("a NOT IN (1)", s.In(A, (number(1),), negated=True)),
        ("a BETWEEN b AND c", s.Between(A, B, C)),
        ("a NOT BETWEEN b AND c AND a", s.Binary("AND", s.Between(A, B, C, negated=True), A)),
        ("a LIKE 'x%'", s.Like(A, s.Text("x%"))),
        ("a NOT RLIKE '^x'", s.Like(A, s.Text("^x"), "REGEXP", negated=True)),
        ("CASE WHEN a THEN b END", s.Case(((A, B),))),
        ("CASE a WHEN 1 THEN b WHEN 2 THEN c ELSE a END",
         s.Case(((number(1), B), (number(2), C)), default=A, subject=A)),
        ("CASE WHEN end THEN start ELSE end END", s.Case(((column("end"), column("start")),), default=column("end"))),
        ("CAST(a AS DOUBLE)", s.Cast(A, name("DOUBLE"))),
        ("try_cast (a AS int)", s.Cast(A, name("int"))),
        ("cast", column("cast")),
        ("s.a", column("a", "s")),
        ("first.price - this.price", s.Binary("-", column("price", "first"), column("price", "this"))),
        ("'it''s'", s.Text("it's")),
        ('"a ""b"""', column('a "b"')),
        ("`a ``b```", column("a `b`")),
        ("100.000", number(100.0)),
        (".5", number(0.5)),
        ("1e3", number(1000.0)),
        ("12", number(12)),
        ("TRUE", s.Value(value=True)),
        ("Null", s.Value(value=None)),
        ("DATETIME '2024-05-01 12:00:00'", s.DateTime("2024-05-01 12:00:00")),
        ("timestamp'2024'", s.DateTime("2024")),
        ("timestamp", column("timestamp")),
        ("1 h 30 min", duration((1, "h"), (30, "min"))),
        ("1.5 hours", duration((1.5, "hours"))),
        ("a - 5 minutes", s.Binary("-", A, duration((5, "minutes")))),
        ("now()", s.Call((name("now"),))),
        ("count(*)", s.Call((name("count"),), (s.Star(),))),
        ("count(DISTINCT a)", s.Call((name("count"),), (A,), distinct=True)),
        ("finance.ema(a, alpha => 0.2)",
         s.Call((name("finance"), name("ema")), (A,), (s.Named(name("alpha"), number(0.2)),))),
        ("a -- so\n + /* or so */ b", s.Binary("+", A, B)),
    ],
)  # fmt: skip
def test_an_expression_means(text: str, tree: s.Expression):
    assert parse_expression(text) == tree


@pytest.mark.parametrize(
    ("text", "over"),
    [
        ("", s.Over(whole=True)),
        ("UNBOUNDED PRECEDING", s.Over()),
        ("ROWS UNBOUNDED PRECEDING", s.Over()),
        ("PARTITION BY b, c ROWS 49 PRECEDING SLIDE 10", s.Over((B, C), "rows", number(49), number(10))),
        ("RANGE 10 s PRECEDING ACTIVE EXPIRATION", s.Over((), "range", SEC, active=True)),
        ("RANGE 10 PRECEDING SLIDE 10 s", s.Over((), "range", number(10), SEC)),
    ],
)
def test_over_means(text: str, over: s.Over):
    assert parse_expression(f"sum(a) OVER ({text})") == s.Call((name("sum"),), (A,), over=over)


# ---- windows

GRID = s.GridWindow(size=SEC, every=duration((5, "s")))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("SIZE 100", s.SizeWindow(size=s.Tuples(100))),
        ("SIZE 60 ON ts EVERY 10 s ON s.ts STARTING FIRST",
         s.SizeWindow(size=s.Application(number(60), column("ts")),
                      every=s.Application(SEC, column("ts", "s")), starting="first")),
        ("SIZE 10 s STARTING AT '2024' EVERY 3", s.SizeWindow(size=s.Arrival(SEC), every=s.Tuples(3),
                                                              starting=s.Text("2024"))),
        ("SIZE 1 CLIP LEFT WHERE a > 1 TIMESTAMP ALIGN PARTITION BY b, c",
         s.SizeWindow(size=s.Tuples(1), partition=(B, C), where=s.Binary(">", A, number(1)),
                      policies=s.WindowPolicies("left", "align"))),
        ("ROWS 5", s.SizeWindow(size=s.Tuples(5), every=s.Tuples(1))),
        ("ROWS 5 SLIDE 2", s.SizeWindow(size=s.Tuples(5), every=s.Tuples(2))),
        ("TUMBLING 10 s", s.GridWindow(size=SEC)),
        ("HOPPING 10 s EVERY 5 s", GRID),
        ("RANGE 10 s SLIDE 5 s", GRID),
        ("RANGE 10 s", s.Lifespan("range", SEC)),
        ("RANGE UNBOUNDED", s.Lifespan("range", duration())),
        ("RANGE forever", s.Lifespan("range", duration())),
        ("NOW", s.Lifespan("now")),
        ("SHIFT -10 s", s.Lifespan("shift", s.Unary("-", SEC))),
        ("EXTEND 10 s", s.Lifespan("extend", SEC)),
        ("CAP 10 s", s.Lifespan("cap", SEC)),
        ("CHOP 10 s", s.Lifespan("chop", SEC)),
        ("CHOP 10 s STARTING AT 7", s.Lifespan("chop", SEC, s.Number(7))),
        ("POINT AT START", s.Lifespan("point_at_start")),
        ("POINT AT END", s.Lifespan("point_at_end")),
        ("COALESCE", s.Lifespan("coalesce")),
        ("SNAPSHOT", s.SnapshotWindow()),
        ("COUNT BY START 3", s.CountWindow(edge="start", count=3)),
        ("COUNT BY END 3", s.CountWindow(edge="end", count=3)),
        ("SESSION 10 s", s.SessionWindow(gap=SEC)),
        ("DELTA this.a - first.a THRESHOLD 10",
         s.DeltaWindow(delta=s.Binary("-", column("a", "this"), column("a", "first")), threshold=number(10))),
        ("LANDMARK DATETIME '2024' EVERY 10 s", s.LandmarkWindow(start=s.DateTime("2024"), every=s.Arrival(SEC))),
        ("FIXED 1 TO 2", s.FixedWindow(start=number(1), end=number(2))),
        ("APPLY m.f(a, k => 3)",
         s.Module(s.Call((name("m"), name("f")), (A,), (s.Named(name("k"), number(3)),)))),
    ],
)  # fmt: skip
def test_brackets_mean(text: str, tree: s.Bracket):
    assert bracket(text) == tree


# ---- queries


def test_a_select_with_everything():
    assert select(
        "SELECT DISTINCT a, s.*, b AS x, c y FROM s [NOW] [SHIFT 10 s] AS t WHERE a GROUP BY b, c AS k HAVING c "
        "ORDER BY a, b DESC LIMIT 3 BY a"
    ) == s.Select(
        entries=(s.Entry(A), s.Entry(s.Star(name("s"))), s.Entry(B, name("x")), s.Entry(C, name("y"))),
        source=s.FromItem(name("s"), (s.Lifespan("now"), s.Lifespan("shift", SEC)), name("t")),
        where=A,
        group=(s.Entry(B), s.Entry(C, name("k"))),
        having=C,
        order=(s.OrderKey(A), s.OrderKey(B, descending=True)),
        limit=s.Limit(3, (A,)),
        distinct=True,
    )


ITEM = s.FromItem(name("u"))


@pytest.mark.parametrize(
    ("text", "join"),
    [
        (", u", s.Join("cross", ITEM)),
        ("CROSS JOIN u", s.Join("cross", ITEM)),
        ("JOIN u", s.Join("inner", ITEM)),
        ("JOIN u ON a", s.Join("inner", ITEM, A)),
        ("INNER JOIN u USING a", s.Join("inner", ITEM, using=(name("a"),))),
        ("LEFT OUTER JOIN u USING (a, b)", s.Join("left", ITEM, using=(name("a"), name("b")))),
        ("ANTI JOIN u v ON a", s.Join("anti", s.FromItem(name("u"), alias=name("v")), A)),
        ("CLIP JOIN u ON a", s.Join("clip", ITEM, A)),
    ],
)
def test_joins_mean(text: str, join: s.Join):
    assert select(f"SELECT a FROM s {text}").joins == (join,)


def test_what_stands_behind_a_query_stands_in_any_order():
    plain = query("SELECT a FROM s INTO t EMIT FINAL TICK BATCH BY b")
    assert plain == query("SELECT a FROM s TICK BATCH BY b EMIT FINAL INTO t")
    assert (plain.into, plain.emit, plain.tick, plain.tick_by) == (name("t"), "final", "batch", B)
    assert query("SELECT a FROM s WHERE a > 3 TICK TIME").tick == "time"


def test_unions_group_from_the_left():
    one = select("SELECT a FROM s")
    union = query("SELECT a FROM s UNION ALL SELECT a FROM s UNION SELECT a FROM s").body
    assert union == s.SetOperation("union", s.SetOperation("union", one, one, all=True), one)


def test_a_sub_select_has_brackets_and_an_alias():
    inner = query("SELECT a FROM s")
    item = select("SELECT a FROM (SELECT a FROM s) [NOW] x").source
    assert item == s.FromItem(s.Subquery(inner), (s.Lifespan("now"),), name("x"))


# ---- statements

QUERY = s.Query(s.Select((s.Entry(A),), s.FromItem(name("s"))))
COLUMNS = (s.TypedColumn(name("a"), name("INT")), s.TypedColumn(name("ts"), name("DATETIME")))


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("CREATE SCHEMA x (a INT, ts DATETIME) EXTENDS y", s.CreateSchema(name("x"), COLUMNS, extends=name("y"))),
        ("CREATE SCHEMA x EXTENDS y", s.CreateSchema(name("x"), extends=name("y"))),
        ("CREATE STREAM x AS y", s.CreateStream(name("x"), derived=name("y"))),
        ("CREATE STREAM x (a INT, ts DATETIME) AS (SELECT a FROM s)",
         s.CreateStream(name("x"), COLUMNS, derived=QUERY)),
        ("CREATE STREAM x AS MERGE a, b", s.CreateStream(name("x"), derived=s.Merge((name("a"), name("b"))))),
        ("""CREATE STREAM x y BAD ROWS DIVERT SOURCE FILE ('f', header => TRUE) LATE DROP ORDER BY a
         WITH PROGRESS ADVANCE 10 s SKEW 3 EVERY 10 s""",
         s.CreateStream(
             name("x"), like=name("y"), lifetime=s.PointLifetime(A),
             source=s.SourceClause(name("FILE"), (s.Text("f"),), (s.Named(name("header"), s.Value(value=True)),)),
             progress=s.Progress("advance", SEC, SEC, number(3)), policy=s.Policy("drop", "divert"))),
        ("CREATE STREAM x LIFETIME FROM a TO b WITH PROGRESS ORDERED",
         s.CreateStream(name("x"), lifetime=s.IntervalLifetime(A, B), progress=s.Progress("ordered"))),
        ("CREATE STREAM x LIFETIME EDGE AT a KEY b, c CLOSED WHEN c WITH PROGRESS HEARTBEAT 10 s DELAY 3",
         s.CreateStream(name("x"), lifetime=s.EdgeLifetime(A, (name("b"), name("c")), C),
                        progress=s.Progress("heartbeat", SEC, delay=number(3)))),
        ("CREATE STREAM x LIFETIME CHANGES", s.CreateStream(name("x"), lifetime=s.ChangesLifetime())),
        ("CREATE STREAM x lifetime changes KEY b, c ENCODING 'it''s' AT a DELETED WHEN c OPERATION b LATE DROP",
         s.CreateStream(name("x"), lifetime=s.ChangesLifetime(A, (name("b"), name("c")), name("b"), "it's", C),
                        policy=s.Policy("drop"))),
        ("CREATE STREAM x source generator LIFETIME PHYSICAL WITH PROGRESS EXPLICIT",
         s.CreateStream(name("x"), lifetime=s.PhysicalLifetime(), source=s.SourceClause(name("GENERATOR")),
                        progress=s.Progress("explicit"))),
        ("CREATE TABLE x (a INT, ts DATETIME) SOURCE PARQUET ('p')",
         s.CreateTable(name("x"), COLUMNS, s.SourceClause(name("PARQUET"), (s.Text("p"),)))),
        ("INSERT INTO x AS y", s.Insert(name("x"), name("y"))),
        ("INSERT INTO x y", s.Insert(name("x"), name("y"))),
        ("INSERT INTO x SELECT a FROM s", s.Insert(name("x"), QUERY)),
        ("INSERT INTO x AS (SELECT a FROM s)", s.Insert(name("x"), QUERY)),
        ("INSERT INTO console y", s.Insert(s.Into(name("CONSOLE")), name("y"))),
        ('INSERT INTO "console" y', s.Insert(name("console"), name("y"))),
        ("INSERT INTO file (\"out\", format => `b`) y",
         s.Insert(s.Into(name("FILE"), (s.Text("out"),), (s.Named(name("format"), B),)), name("y"))),
        ("MERGE a, b INTO c", s.Merge((name("a"), name("b")), name("c"))),
        ("ON s INSERT INTO x SELECT a WHERE b, INSERT INTO y SELECT * INSERT INTO z SELECT c WHERE a",
         s.Split(name("s"), (s.SplitBranch(name("x"), (s.Entry(A),), B), s.SplitBranch(name("y"), (s.Entry(s.Star()),)),
                             s.SplitBranch(name("z"), (s.Entry(C),), A)))),
        ("DROP TABLE x", s.Drop("table", name("x"))),
        ("SHOW STREAMS", s.Show("streams")),
        ("DESCRIBE x", s.Describe(name("x"))),
        ("EXPLAIN x", s.Explain(name("x"))),
        ("EXPLAIN LIVELINESS SELECT a FROM s", s.Explain(QUERY, liveliness=True)),
        ("VERIFY SELECT a FROM s OVER 'late' SEEDS 5", s.Verify(QUERY, 5, "late")),
        ("VERIFY x", s.Verify(name("x"))),
        ("SET host = spark", s.Set(name("host"), column("spark"))),
        ("QUERY x AS SELECT a FROM s", s.Ask(QUERY, name("x"))),
        ("SELECT a FROM s", s.Ask(QUERY)),
    ],
)  # fmt: skip
def test_a_statement_means(text: str, tree: s.Statement):
    assert parse_statement(text) == tree
    assert parse_statement(text + ";") == tree
    assert parse(f";{text};;{text}").statements == (tree, tree)
    assert parse_statement(to_sql(tree)) == tree


@pytest.mark.parametrize("text", ["", ";", " ;; -- nothing\n", "/* nothing */"])
def test_a_script_may_be_empty(text: str):
    assert parse(text) == s.Script(())


# ---- places


def test_every_part_knows_where_it_stands():
    text = "SELECT  a + b AS total FROM  ticks [SIZE 10 s] WHERE (c) > 1 ;"
    found: dict[type, str] = {}
    waiting: list[s.Part] = [parse(text)]
    while waiting:
        part = waiting.pop()
        found.setdefault(type(part), text[slice(*part.at)])
        waiting += reversed(part.parts())
    assert found[s.Ask] == found[s.Query] == found[s.Select] == text.rstrip(" ;")
    assert found[s.Entry] == "a + b AS total"
    assert found[s.Binary] == "a + b"
    assert found[s.Column] == "a"
    assert found[s.FromItem] == "ticks [SIZE 10 s]"
    assert found[s.SizeWindow] == "SIZE 10 s"
    assert found[s.Duration] == "10 s"
    where = select(text).where
    assert where is not None
    assert text[slice(*where.at)] == "(c) > 1"


# ---- errors


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("SELCT a FROM s", "SELCT", "did you mean SELECT?"),
        ("SELECT a FORM s", "s", "did you mean FROM instead of FORM?"),
        ("SELECT a FROM s [SIZ 3]", "SIZ", "did you mean SIZE?"),
        ("SELECT a FROM s [SIZE 3 hurs]", "hurs", "3 hours"),
        ("SELECT FROM s", "FROM", "an expression"),
        ("SELECT a AS from FROM s", "from", '"from", if this is a name'),
        ("SELECT a FROM s WHERE", "", "an expression"),
        ("SELECT a FROM s WHERE a = = b", "=", "an expression"),
        ("SELECT 'a FROM s", "'", "a text that does not end"),
        ("SELECT \"a FROM s", '"', "a quoted name that does not end"),
        ("SELECT a /* FROM s", "/*", "a comment that does not end"),
        ("SELECT 10abc FROM s", "10abc", "neither a number nor a name"),
        ("SELECT ${a} FROM s", "$", "a sign that means nothing here"),
        ("SELECT `` FROM s", "``", "this name is empty"),
        ("SELECT a FROM s [SIZE 1.5]", "1.5", "this is not a whole number"),
        ("SELECT a FROM s [HOPPING 5 s]", "HOPPING 5 s", "a hopping window needs its hop"),
        ("SELECT a FROM s [SIZE 1 EVERY 1 EVERY 2]", "EVERY 2", "said already"),
        ("SELECT a FROM s EMIT FINAL TICK TIME EMIT FINAL", "EMIT FINAL", "said already"),
        ("CREATE STREAM x SOURCE a SOURCE b", "SOURCE b", "said already"),
        ("ON s INSERT INTO a SELECT a WHERE b,", ",", "no branch behind it"),
        ("SELECT 1e999 FROM s", "1e999", "too large"),
        ("ticks", "ticks", "SELECT"),
        ("SELECT a FROM s; ticks", "ticks", "cannot stand here"),
    ],
)  # fmt: skip
def test_an_error_says_what_and_where(text: str, place: str, words: str):
    with pytest.raises(SqlError) as caught:
        parse(text)
    start, end = caught.value.at
    assert text[start:end] == place
    assert words in str(caught.value)


def test_an_error_shows_the_line_and_a_caret():
    with pytest.raises(SqlError) as caught:
        parse("SELECT a\nFROM ticks [SIZE 3 hurs]\nWHERE b")
    error = caught.value
    assert (error.line, error.column) == (2, 20)
    assert str(error).splitlines()[:3] == [
        "[SQL] hurs cannot stand here",
        "  2 | FROM ticks [SIZE 3 hurs]",
        "                         ^^^^",
    ]
    assert isinstance(error, HeadraceError | ValueError)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (str(again), again.at, again.text, again.line) == (str(error), error.at, error.text, error.line)


def test_a_long_line_is_shown_in_part():
    with pytest.raises(SqlError) as caught:
        parse("SELECT " + "a, " * 500 + "FROM s")
    assert max(map(len, str(caught.value).splitlines())) < 160


# ---- limits: always the dialect's own error

N = 10_000


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"SELECT {'(' * N}1{')' * N} FROM s", id="parentheses"),
        pytest.param(f"SELECT {'(' * N}", id="open parentheses"),
        pytest.param(f"SELECT {'NOT ' * N}a FROM s", id="nots"),
        pytest.param(f"SELECT {'- ' * N}a FROM s", id="minus signs"),
        pytest.param(f"SELECT {'a + ' * N}a FROM s", id="a long sum"),
        pytest.param(f"SELECT {'f(' * N}{')' * N} FROM s", id="calls"),
        pytest.param(f"SELECT a FROM {'(SELECT a FROM ' * 1000}s{')' * 1000}", id="sub-selects"),
        pytest.param(f"SELECT a FROM s {'UNION SELECT a FROM s ' * 300}", id="unions"),
        pytest.param(f"SELECT {'a' * N} FROM s", id="a long name"),
        pytest.param(f'SELECT "{"a" * N}" FROM s', id="a long quoted name"),
        pytest.param(f"SELECT {'1' * N} FROM s", id="a long number"),
        pytest.param("SELECT 'a\0b' FROM s", id="NUL"),
        pytest.param("SELECT '\ud800' FROM s", id="half a character"),
        pytest.param(f"SELECT '{chr(39) * 2 * N}", id="an endless text"),
        pytest.param("/*" + "*" * N, id="an endless comment"),
        pytest.param("-" * (MAX_TEXT + 1), id="a long text"),
    ],
)
def test_too_much_is_refused(text: str):
    with pytest.raises(SqlError):
        parse(text)


def test_long_lists_are_fine():
    assert len(select(f"SELECT {', '.join(['a'] * 3000)} FROM s").entries) == 3000
    assert len(parse("SET a = 1;" * 1000).statements) == 1000
    values = parse_expression(f"a IN ({', '.join(['1'] * 3000)})")
    assert isinstance(values, s.In)
    assert len(values.options) == 3000


@pytest.mark.slow
def test_nothing_of_the_grammar_is_loaded_before_a_text_comes():
    code = "import sys, headrace; assert not {'lark', 'headrace.sql.tables'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def conflicts(caplog: pytest.LogCaptureFixture) -> list[str]:
    tables.cache_clear()
    with caplog.at_level(logging.DEBUG, logger="lark"):
        tables()
    return [record.message for record in caplog.records if "onflict" in record.message]


@pytest.mark.slow
def test_the_grammar_has_no_conflicts(caplog: pytest.LogCaptureFixture):
    assert conflicts(caplog) == []


@pytest.mark.slow
def test_a_conflict_would_be_seen(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    doubtful = grammar().replace('name "." "*"', 'path "." "*"')
    monkeypatch.setattr(sys.modules["headrace.sql.tables"], "grammar", lambda: doubtful)
    assert conflicts(caplog) != []
    tables.cache_clear()


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("a::LONG", "LONG"), ("CAST(a AS DECIMAL(15, 2))", "DECIMAL(15,2)"), ("a::numeric(3)", "numeric(3)"),
        ("CAST(a AS double precision)", "DOUBLE PRECISION"), ("CAST(a AS INT[])", "ARRAY<INT>"),
        ("CAST(a AS timestamp(3) with time zone)", "timestamp(3) WITH TIME ZONE"),
        ("CAST(a AS STRUCT<x: LONG, y STRING>)", "STRUCT<x LONG, y STRING>"),
    ],
)  # fmt: skip
def test_types(text: str, type: str):
    assert parse_expression(text) == s.Cast(A, name(type))
    assert parse_expression(to_sql(parse_expression(text))) == s.Cast(A, name(type))


@pytest.mark.parametrize("word", ["both", "leading", "trailing"])
def test_the_sides_of_trim_are_names_elsewhere(word: str):
    column = s.Column(s.Name(word))
    assert parse_expression(f"sum({word})") == s.Call((s.Name("sum"),), (column,))
    assert parse_expression(f"count({word}.*)") == s.Call((s.Name("count"),), (s.Star(s.Name(word)),))
    assert parse_expression(f"trim({word} ' ' FROM x)") == parse_expression(f"trim({word} FROM x)")
