"""Messages: the first line, the place, and the advice; the words of SQL, and none of Python or of the engine."""

from __future__ import annotations

import re

import pytest
from tests.unit.sql.wrong_statements import WRONG

import headrace as hr
from headrace.errors import SqlError, nearest
from headrace.sql.bind.expressions import SQL_AGGREGATES, SQL_FUNCTIONS
from headrace.sql.elsewhere import FUNCTIONS
from headrace.sql.forms import FORMS
from headrace.sql.parse import parse, parse_expression
from headrace.sql.session import SqlSession

COLUMNS = "symbol STRING, ts DATETIME, price DOUBLE, quantity INT, ok BOOLEAN"
TICKS = hr.events("kind|le|re|symbol|ts|price|quantity|ok\n", schema=COLUMNS)
W = "FROM ticks [TUMBLING 10 s]"
#: Words of Python, and names that only the engine has.
FORBIDDEN = re.compile(
    r"\b(?:str|int|float|bool|None|True|False|list|dict|lambda|NoneType|timedelta|[A-Z]\w+Error)\b"
    r"|\bhr\.|\)\.\w+\(|\.(?:cast|of|window|where|select)\(|\bcol\(|\w='|__\w|_sql_|\w_right\b|:[0-9a-f]{8}\b|\b[a-z]+_\d+\b|headrace\."
)
#: The statements that an advice may be.
STATEMENT = re.compile(r"(?<!\")\b(?:DROP|SELECT|CREATE|INSERT|SET|MERGE|SHOW|DESCRIBE)\b[^…?]*\Z")


def refused(text: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        SqlSession({"ticks": TICKS}).execute(text)
    return caught.value


def error_of(text: str) -> SqlError | None:
    try:
        SqlSession({"ticks": TICKS}).execute(text)
    except SqlError as error:
        return error
    return None


def marked(error: SqlError) -> str:
    return error.text[slice(*error.at)]


#: A text, the marked part, the first line, and the advice.
MESSAGES = [
    ("SELECT prize FROM ticks", "prize", "there is no column 'prize' in ticks", "price"),
    ("SELECT x FROM ticks", "x", "there is no column 'x' in ticks", ""),
    ("SELECT sym FROM ticks", "sym", "there is no column 'sym' in ticks", "symbol"),
    ("SELECT a FROM tick", "tick", "there is no stream 'tick'", "ticks"),
    ("SELEC symbol FROM ticks", "SELEC", "SELEC cannot stand here", "did you mean SELECT?"),
    ("SELECT FROM ticks", "FROM", "FROM cannot stand here", "SELECT * FROM …"),
    ("SELECT symbol, FROM ticks", ", FROM", ", FROM cannot stand here", "no comma before FROM"),
    ("SELECT order FROM ticks", "order", "order cannot stand here", '"order", if this is a name'),
    ("SELECT select FROM ticks", "select", "select cannot stand here", '"select", if this is a name'),
    ("SELECT -symbol FROM ticks", "-symbol", "-symbol cannot take STRING", ""),
    ("SELECT symbol IN (1, 2) FROM ticks", "symbol IN (1, 2)", "symbol IN (1, 2) cannot take STRING, INT, INT", ""),
    ("SELECT len(price) FROM ticks", "len(price)", "len(price) cannot take DOUBLE", ""),
    (
        "SELECT ts * 2 FROM ticks",
        "ts * 2",
        "ts * 2 cannot take DATETIME, INT",
        "ts + 10 s, or the difference of two times",
    ),
    ("SELECT CASE WHEN price THEN 1 END FROM ticks", "price", "a condition must be BOOLEAN, and this is DOUBLE", ""),
    ("SELECT abs(price, 2) FROM ticks", "abs(price, 2)", "abs does not take 2 arguments", ""),
    ("SELECT nonsense(price) FROM ticks", "nonsense", "there is no function, aggregate or module 'nonsense'", ""),
    ("SELECT uper(symbol) FROM ticks", "uper", "there is no function, aggregate or module 'uper'", "upper"),
    ("SELECT ISNULL(price) FROM ticks", "ISNULL", "there is no function, aggregate or module 'ISNULL'", "x IS NULL"),
    (
        "SELECT isnull(price, 0) FROM ticks",
        "isnull",
        "there is no function, aggregate or module 'isnull'",
        "coalesce(x, 0)",
    ),
    (
        "SELECT DATEADD(day, 1, ts) FROM ticks",
        "DATEADD",
        "there is no function, aggregate or module 'DATEADD'",
        "ts + 10 s",
    ),
    (
        "SELECT charindex('a', symbol) FROM ticks",
        "charindex",
        "there is no function, aggregate or module 'charindex'",
        "position('a', name)",
    ),
    (f"SELECT stdev(price) AS s {W}", "stdev", "there is no function, aggregate or module 'stdev'", "stddev(x)"),
    (f"SELECT ewma(price) AS e {W}", "ewma(price)", "ewma takes 2 arguments", ""),
    (f"SELECT ewma(symbol, 0.5) AS e {W}", "ewma(symbol, 0.5)", "ewma takes next as DOUBLE", ""),
    (
        f"SELECT finance.ema(price, alpha => 'x') AS e {W}",
        "finance.ema(price, alpha => 'x')",
        "finance.ema's parameter alpha must be a number",
        "",
    ),
    (
        f"SELECT finance.ema(price, alfa => 0.1) AS e {W}",
        "finance.ema(price, alfa => 0.1)",
        "finance.ema has no parameter 'alfa'",
        "",
    ),
    ("SELECT symbol FROM ticks WHERE ts > 'soon'", "'soon'", "this text is not a time", ""),
    (
        "SELECT window_start FROM ticks",
        "window_start",
        "window_start is known where answers last as long as their window",
        "le and re, the times of a row",
    ),
    (
        "CREATE STREAM s (a INT) SOURCE FILE ('nothing.csv', header => 'maybe')",
        "'maybe'",
        "header is TRUE or FALSE",
        "",
    ),
    ("CREATE STREAM s (a INT, a INT)", "a", "column 'a' appears twice", ""),
    (
        "CREATE STREAM s (a INT); CREATE STREAM S (b INT)",
        "S",
        "'s' exists already",
        "another name, or first DROP STREAM s",
    ),
    (
        "CREATE SCHEMA g (a INT); CREATE SCHEMA g (a INT)",
        "g",
        "'g' exists already",
        "another name, or first DROP SCHEMA g",
    ),
    (
        "SELECT symbol FROM ticks SELECT price FROM ticks",
        "SELECT",
        "SELECT cannot stand here",
        "a semicolon between two statements",
    ),
    (
        "SELECT symbol FROM ticks UNION SELECT price FROM ticks",
        "price",
        "symbol and price cannot be one column: STRING, DOUBLE",
        "",
    ),
    (
        "INSERT INTO FILE ('out', encoding => 'upsert') SELECT symbol FROM ticks",
        "FILE ('out', encoding => 'upsert')",
        "upsert rows need a key, other encodings have none",
        "encoding => 'upsert', key => 'symbol'",
    ),
    ("VERIFY ticks OVER 'nonsense'", "VERIFY ticks OVER 'nonsense'", "there is no trait 'nonsense'", ""),
]


@pytest.mark.parametrize(("text", "place", "message", "instead"), MESSAGES, ids=[text for text, *_ in MESSAGES])
def test_a_message(text: str, place: str, message: str, instead: str):
    error = refused(text)
    assert (marked(error), error.message, error.instead) == (place, message, instead)


def test_every_wrong_statement_has_a_place_and_the_words_of_sql():
    """A statement that is right by now needs no message; most stay wrong."""
    errors = {text: error for text in WRONG if (error := error_of(text)) is not None}
    for text, error in errors.items():
        assert error.text == text
        said = f"{error.message}\n{error.allowed}\n{error.instead}"
        assert not FORBIDDEN.search(said), f"{text}\n{error}"
        for advice in STATEMENT.findall(error.instead):
            parse(advice)
    assert len(errors) > 0.85 * len(WRONG) > 200


def shown_advice(hint: str) -> str:
    """The beginning of an advice, up to what stands for a part of the user's text."""
    return hint.partition("{}")[0]


@pytest.mark.parametrize("form", FORMS, ids=[form.example for form in FORMS])
def test_forms_of_other_dialects(form: tuple[str, str, str, str]):
    with pytest.raises(SqlError) as caught:  # a form that is right by now needs no hint: remove it
        parse(form[3])
    assert caught.value.instead.startswith(shown_advice(form[2]))


@pytest.mark.parametrize("hint", sorted(set(FUNCTIONS.values())))
def test_functions_of_other_dialects_have_a_valid_substitute(hint: str):
    parse_expression(hint)
    other = hr.events("kind|le|re|x|name|ts|ok\n", schema="x DOUBLE, name STRING, ts DATETIME, ok BOOLEAN")
    SqlSession({"s": other}).execute(f"SELECT {hint} AS y FROM s [TUMBLING 10 s]")


def test_functions_of_other_dialects_are_not_functions_here():
    assert not {*SQL_FUNCTIONS, *SQL_AGGREGATES} & set(FUNCTIONS)


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("now", ["pow", "ln"], None), ("nuw", ["new"], "new"), ("lenght", ["length"], "length"),
        ("dayOfWeek", ["day_of_week", "day"], "day_of_week"), ("prce", ["price", "piece"], "price"),
        ("x", ["y", "z"], None), ("id", ["ts"], None), ("hst", ["host", "rows"], "host"), ("sym", ["symbol"], "symbol"),
        ("nonsense", ["silence"], None), ("initcap", ["finance.vwap"], None), ("COUNT", ["count"], "count"),
    ],
)  # fmt: skip
def test_a_name_is_near_another_only_if_it_is_likely(name: str, known: list[str], meant: str | None):
    assert nearest(name, known) == meant


def test_the_line_is_shown_whole_or_cut_with_a_sign():
    error = refused(f"SELECT {'symbol, ' * 30}prize FROM ticks")
    _, line, carets, *_ = str(error).splitlines()
    assert line.startswith("  1 | …")
    assert line[carets.index("^") :][:5] == "prize"
    wide = str(refused("SELECT '日本', prize FROM ticks")).splitlines()
    assert wide[2].index("^") == wide[1].index("prize") + 2  # two letters are two columns wide
