"""What is refused, in which words, and where the error points."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import headrace as hr
from headrace import Stream
from headrace.errors import HeadraceError, SqlError

SPANS = "kind | le | re | id | n\ninsert | 1 | 5 | a | 1\n"


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stream]:
    path = tmp_path_factory.mktemp("data") / "points.csv"
    path.write_text("id,n,at\na,1,1\n")
    return {
        "spans": hr.events(SPANS, "id STRING, n LONG"),
        "others": hr.events(SPANS, "id STRING, n LONG"),
        "points": hr.read_csv(str(path), "id STRING, n LONG, at LONG", lifetime=hr.point("at")),
    }


#: A text, what the error says, and the words of the text it points at.
REFUSED = [
    ("SELECT nn FROM spans", "no column 'nn'", "nn"),
    ("SELECT x.n FROM spans", "no stream 'x' in FROM", "x"),
    ("SELECT n FROM span", "no stream 'span'", "span"),
    ("SELECT n FROM spans JOIN others USING (id)", "may be several columns", "n"),
    ("SELECT n + id AS a FROM spans", "cannot take", "n + id"),
    ("SELECT n FROM spans WHERE n", "must be BOOLEAN", "n"),
    ("SELECT upper(n) AS u FROM spans", "cannot take LONG", "upper(n)"),
    ("SELECT uper(id) AS u FROM spans", "no function, aggregate or module 'uper'", "uper"),
    ("SELECT round(n, 1, 2) AS u FROM spans", "does not take 3 arguments", "round(n, 1, 2)"),
    ("SELECT avg(n, 1) AS u FROM spans [SNAPSHOT]", "avg takes 1 argument", "avg(n, 1)"),
    ("SELECT sum(DISTINCT n) AS u FROM spans [SNAPSHOT]", "DISTINCT", "sum(DISTINCT n)"),
    ("SELECT avg(n) AS a FROM points", "blocking", "avg(n) AS a"),
    ("SELECT id FROM spans WHERE sum(n) > 1", "about many events", "sum(n)"),
    ("SELECT id, n FROM spans [SNAPSHOT] GROUP BY id", "neither in GROUP BY nor in an aggregate", "n"),
    ("SELECT n, n FROM spans", "two columns have the name 'n'", "n"),
    ("SELECT * FROM points JOIN points AS p USING (id)", "instants", "JOIN points AS p USING (id)"),
    ("SELECT * FROM spans [SNAPSHOT] JOIN others ON spans.id = others.id", "only time windows", "SNAPSHOT"),
    ("SELECT * FROM spans [SNAPSHOT] [TUMBLING 5 s]", "a window comes last", "TUMBLING 5 s"),
    ("SELECT n FROM spans ORDER BY id", "cannot be sorted as a whole", "id"),
    ("SELECT DISTINCT ON (n) n FROM spans LIMIT 3", "DISTINCT ON takes the first row of each key", "LIMIT 3"),
    ("SELECT n FROM spans LIMIT 3 OFFSET 1 OFFSET 2", "was said already", "OFFSET 2"),
    ("SELECT n FROM spans GROUP BY 2", "the list has no entry 2", "2"),
    ("SELECT * FROM spans ORDER BY 1 LIMIT 2", "positions are counted in a list without *", "1"),
    ("SELECT count(*) OVER v FROM spans WINDOW w AS (PARTITION BY n)", "there is no window 'v'", "v"),
    ("SELECT count(*) OVER (w PARTITION BY n) FROM spans WINDOW w AS (PARTITION BY n)", "has its PARTITION BY", None),
    ("SELECT max(n ORDER BY id) FROM spans [SNAPSHOT]", "max is the same in any order", "id"),
    ("SELECT abs(n) FILTER (WHERE n > 0) FROM spans", "FILTER is for built-in aggregates", "n > 0"),
    ("SELECT DISTINCT n FROM spans QUALIFY count(*) OVER () = 1 LIMIT 3", "stand around them", "LIMIT 3"),
    ("SELECT id FROM spans UNION ALL SELECT id, n FROM spans", "the same number of columns", "SELECT id, n FROM spans"),
    ("SELECT id FROM spans UNION ALL SELECT n FROM spans", "cannot be one column", "n"),
    ("SELECT n, id FROM spans EXCEPT (SELECT n, n AS m FROM spans)", "cannot be one column", "n AS m"),
    ("SELECT id FROM spans UNION VALUES (1)", "cannot be one column", "1"),
    ("SELECT id, n AS m FROM spans UNION SELECT n, id FROM spans UNION SELECT * FROM spans", "one column", "n"),
    ("CREATE STREAM s (t LONG) ORDER BY t SOURCE FILE ('a.csv', 5)", "delimiter is a text", "5"),
    ("CREATE STREAM s (t LONG) ORDER BY t SOURCE FILE ('a.csv', ',,')", "one character", "',,'"),
    ("CREATE STREAM s (t LONG) ORDER BY t SOURCE FILE ('a.csv', rename => 'k')", "renames no column", "'k'"),
    ("CREATE STREAM s (t LONG) ORDER BY t SOURCE FILE ('none.csv', ',')", "no file", "'none.csv'"),
    ("CREATE STREAM s (t LONG) ORDER BY t SOURCE HOST ('h', 'x')", "not a port", "'x'"),
    ("SELECT * FROM spans [TUMBLING 0 s]", "must be positive", "TUMBLING 0 s"),
    ("SELECT * FROM spans [TUMBLING 5 parsecs]", "", None),
    ("CREATE SCHEMA a (n LONG); CREATE SCHEMA A (n LONG)", "exists already", "A"),
    ("CREATE SCHEMA a (n LONGG)", "unknown type", "LONGG"),
    ("CREATE SCHEMA a (n LONG, n INT)", "appears twice", None),
    ("CREATE SCHEMA a b", "no schema, stream or table 'b'", "b"),
    ("CREATE STREAM spans (n LONG)", None, None),
    ("CREATE STREAM t (n LONG); SELECT * FROM t", "no source yet", "t"),
    ("CREATE STREAM t (n LONG) AS SELECT id FROM spans", "does not widen to", None),
    ("CREATE STREAM t (a LONG, b LONG) AS SELECT n FROM spans", "declared columns", None),
    ("CREATE STREAM t (n LONG) SOURCE FILES ('a.csv')", "no source 'FILES'", "FILES"),
    ("CREATE STREAM t (n LONG) SOURCE FILE ('nowhere.csv', ',') ORDER BY id", "no column 'id'", "id"),
    ("CREATE STREAM t (n LONG) SOURCE HOST ('h')", "needs a port", None),
    ("MERGE spans, points", "equal schemas", "points"),
    ("DROP STREAM nothing", "no stream 'nothing'", "nothing"),
    ("SHOW THINGS", None, None),
    ("SET hosts = spark", "no setting 'hosts'", "hosts"),
    ("SET host = flink", "cannot be 'flink'", "flink"),
    ("DESCRIBE spam", "no schema, stream or table 'spam'", "spam"),
    ("INSERT INTO FIL ('x') SELECT * FROM spans", None, None),
    ("SELECT * FROM spans [APPLY finance.spikes(n)]", "works on windows", None),
    ("SELECT DATETIME '2015-13-45 00:00:00' AS t FROM spans", "", None),
]


@pytest.mark.parametrize(("text", "says", "where"), REFUSED, ids=[text[:60] for text, *_ in REFUSED])
def test_refused(text: str, says: str | None, where: str | None, streams: dict[str, Stream]):
    given = {} if "CREATE STREAM spans" in text else streams
    if says is None and "CREATE STREAM spans" in text:
        hr.script(text, **given)  # a name that is free can be taken
        return
    with pytest.raises(SqlError) as caught:
        hr.script(text, **given)
    error = caught.value
    assert (says or "") in error.message
    assert 0 <= error.at[0] <= error.at[1] <= len(text)
    if where is not None:
        assert text[slice(*error.at)] == where, str(error)
    assert "^" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301 - our own


def test_an_error_names_what_was_meant(streams: dict[str, Stream]):
    for text, meant in [
        ("SELECT nn FROM spans", "n"),
        ("SELECT * FROM span", "spans"),
        ("SELECT uper(id) AS u FROM spans", "upper"),
        ("SET hosts = spark", "host"),
        ("SELECT * FORM spans", "FROM"),
    ]:
        with pytest.raises(SqlError) as caught:
            hr.script(text, **streams)
        assert meant in caught.value.instead, str(caught.value)


def test_an_error_shows_the_line_and_a_caret(streams: dict[str, Stream]):
    text = "SELECT id,\n       prise\nFROM spans"
    with pytest.raises(SqlError) as caught:
        hr.sql(text, **streams)
    assert (caught.value.line, caught.value.column) == (2, 8)
    assert "  2 |        prise\n             ^^^^^" in str(caught.value)


def test_a_text_that_asks_nothing():
    with pytest.raises(SqlError, match="has no query"):
        hr.sql("CREATE SCHEMA a (n LONG)")


# --- what nobody should be able to do --------------------------------------------------------------------------------

HOSTILE = [
    "SELECT reflect('java.lang.System', 'exit', 1) AS r FROM spans",
    "SELECT java_method('java.lang.Runtime', 'getRuntime') AS r FROM spans",
    "SELECT TRANSFORM(id) USING 'cat' AS r FROM spans",
    "SELECT ${system:user.home} AS r FROM spans",
    "SELECT `${env:HOME}` AS r FROM spans",
    "SELECT id FROM spans; -- ' \" `\n DROP TABLE x",
    "SELECT id\x00 FROM spans",
    f"SELECT {'n' * 10_000} FROM spans",
    f"SELECT {'(' * 10_000}n{')' * 10_000} AS r FROM spans",
    f"SELECT {'-' * 10_000}n AS r FROM spans",
    f"SELECT {'NOT ' * 10_000}TRUE AS r FROM spans",
    "SELECT id FROM parquet.`/etc/passwd`",
    "SELECT input_file_name() AS r FROM spans",
    "SELECT 'a' || (SELECT id FROM spans) AS r FROM spans",
    "SELECT 'unfinished FROM spans",
    "SELECT id FROM spans /* unfinished",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_are_refused(text: str, streams: dict[str, Stream]):
    with pytest.raises(SqlError):
        hr.script(text, **streams)


def test_quotes_in_texts_and_names_stay_what_they_are():
    nasty = "a'b\"c`d${x}--e/*f*/;g\\"
    stream = hr.events([{"le": 1, nasty: "x", "v": nasty}], hr.Schema.of(_schema(nasty)))
    quoted = '"' + nasty.replace('"', '""') + '"'
    text = f"SELECT {quoted} AS n, v FROM s WHERE v = '{nasty.replace(chr(39), chr(39) * 2)}'"
    (row,) = hr.sql(text, s=stream).cht().to_pylist()
    assert (row["n"], row["v"]) == ("x", nasty)
    (row,) = hr.sql(text, s=stream).history(engine="duckdb").cht().to_pylist()
    assert (row["n"], row["v"]) == ("x", nasty)


def _schema(name: str) -> hr.Schema:
    from headrace.schema import Field, Type

    return hr.Schema((Field(name, Type.STRING), Field("v", Type.STRING)))


def test_files_outside_the_roots_are_refused(tmp_path: Path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "a.csv").write_text("1\n")
    (inside / "link").symlink_to(outside)
    create = "CREATE STREAM s (n LONG) SOURCE FILE ('{}', ',')"
    hr.script(create.format("a.csv"), base=inside, roots=[inside])
    for path in (outside / "a.csv", "../out/a.csv", "link/a.csv", "/etc/passwd", "s3://bucket/a.csv"):
        with pytest.raises(SqlError, match="may not use files there"):
            hr.script(create.format(path), base=inside, roots=[inside])
    writes = create.format("a.csv") + f"; INSERT INTO FILE ('{outside}/o') SELECT * FROM s"
    with pytest.raises(SqlError, match="may not use files there"):
        hr.script(writes, base=inside, roots=[inside])
    with pytest.raises(SqlError, match="may not use files there"):
        hr.script(f"CREATE TABLE t SOURCE FILE ('{outside}/a.csv')", base=inside, roots=[inside])


def test_long_chains_are_not_deep(streams: dict[str, Stream]):
    text = "SELECT id FROM spans WHERE " + " AND ".join(f"n <> {i}" for i in range(2000))
    try:
        hr.sql(text, **streams).cht()
    except HeadraceError as error:
        assert isinstance(error, SqlError)  # noqa: PT017 - it may be refused, but not break
