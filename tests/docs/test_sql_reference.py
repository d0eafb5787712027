"""The reference of the dialect: what its tables say is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import SqlError
from headrace.plan.nodes import Aggregate, walk
from headrace.sql.bind.catalog import SETTINGS
from headrace.sql.bind.expressions import SQL_AGGREGATES, SQL_FUNCTIONS

PAGE = (Path(__file__).parents[2] / "docs" / "sql" / "reference.md").read_text()
ROWS = re.findall(r"^\| `(\[.+\])` \|.*\| `([^`|]+)` \|$", PAGE, re.MULTILINE)
WINDOWS = [(text, python) for text, python in ROWS if python.startswith("hr.")]
LIFETIMES = [(text, python) for text, python in ROWS if python.startswith(".")]


@pytest.fixture
def ticks(tmp_path: Path) -> hr.Stream:
    (tmp_path / "ticks.csv").write_text("ts,price\n")
    return hr.read_csv(str(tmp_path / "ticks.csv"), "ts DATETIME, price DOUBLE", lifetime=hr.point("ts"))


def said(python: str, **names: hr.Stream) -> Any:
    """What a piece of Python on the page means."""
    return eval(python, {"hr": hr, "col": col, **names})  # noqa: S307 - our own page


@pytest.mark.parametrize(("text", "python"), WINDOWS)
def test_a_window_is_the_one_of_python(ticks: hr.Stream, text: str, python: str):
    found = hr.sql(f"SELECT count(*) AS n FROM ticks {text}", ticks=ticks).node
    wanted = said(python)
    assert [str(one.window) for one in walk(found) if isinstance(one, Aggregate)] == [str(wanted)]


@pytest.mark.parametrize(("text", "python"), LIFETIMES)
def test_a_lifetime_is_the_one_of_python(ticks: hr.Stream, text: str, python: str):
    wanted = said(f"ticks{python}", ticks=ticks)
    assert hr.sql(f"SELECT * FROM ticks {text}", ticks=ticks).node == wanted.node


@pytest.mark.parametrize("text", re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
def test_every_example_is_a_query(text: str):
    streams = {
        "ticks": hr.events([{"le": 1, "symbol": "a", "ts": 1, "price": 2.0}], "symbol STRING, ts LONG, price DOUBLE"),
        "servers": hr.events([{"le": 1, "node": "a"}], "node STRING"),
        "links": hr.events([{"le": 1, "src": "a", "dst": "b"}], "src STRING, dst STRING"),
    }
    assert hr.sql(text, **streams).cht().num_rows in (0, 2)


def test_the_tables_are_found():
    assert len(WINDOWS) >= 18
    assert len(LIFETIMES) == 9


@pytest.mark.parametrize(
    "text",
    [
        "SELECT finance.ema(price, alpha => 0.2) AS p FROM ticks [TUMBLING 10 s]",
        "SELECT time_weighted_avg(price) AS p FROM ticks [TUMBLING 10 s CLIP FULL]",
        "SELECT * FROM ticks [TUMBLING 10 s] [APPLY finance.w_pattern(price, tolerance => 0.1)]",
        "SELECT first - 1 AS below FROM ticks [TUMBLING 10 s TIMESTAMP ALIGN] [APPLY finance.w_pattern(price)]",
    ],
)
def test_modules_are_called_by_their_names(ticks: hr.Stream, text: str):
    assert hr.sql(text, ticks=ticks).cht().num_rows == 0


def named(heading: str) -> set[str]:
    """The names in back-ticks behind a heading, up to the end of the section or row."""
    (text,) = re.findall(rf"^{heading}(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`(\w+)`", text))


@pytest.mark.parametrize("name", [*SQL_FUNCTIONS, *SQL_AGGREGATES])
def test_every_function_is_named(name: str):
    assert name in named("## Expressions")


def test_no_function_is_named_that_is_not_there():
    rows = re.findall(
        r"^\| (?:numbers|bits|texts|JSON|lists|times|what may be missing|aggregates) \|(.*)\|$", PAGE, re.MULTILINE
    )
    names = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert names == {*SQL_FUNCTIONS, *SQL_AGGREGATES}


def test_every_setting_is_named():
    (row,) = re.findall(r"^\| `SET name = value` \|(.*)\|$", PAGE, re.MULTILINE)
    assert re.findall(r"`(\w+)`", row) == list(SETTINGS)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT avg(price) FROM ticks",
        "SELECT a.price FROM ticks AS a JOIN ticks AS b ON a.price = b.price",
        "SELECT * FROM ticks ORDER BY price",
        "INSERT INTO ticks SELECT * FROM ticks",
        "SELECT prise FROM ticks",
        "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY price MEASURES price AS p PATTERN (A))",
        "WITH RECURSIVE r AS (SELECT price FROM ticks UNION SELECT max(price) FROM r [TUMBLING 5 s]) SELECT * FROM r",
    ],
)
def test_what_is_refused_is_refused(ticks: hr.Stream, text: str):
    with pytest.raises(SqlError):
        hr.script(text, ticks=ticks)
