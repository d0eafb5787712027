"""The library by name: in Python, in SQL, and where a user has something else of that name."""

from __future__ import annotations

import pickle
from importlib.resources import files
from pathlib import Path

import pytest

import headrace as hr
from headrace import stdlib
from headrace.errors import ModuleError, SqlError
from headrace.sql import shipped
from headrace.sql.session import SqlSession

TICKS = hr.events([{"le": 1, "price": 4.0}, {"le": 2, "price": 8.0}], "price DOUBLE")


def answers(text: str) -> list[object]:
    return hr.sql(text, s=TICKS).cht()["answer"].to_pylist()


def test_every_file_is_an_aggregate_of_its_name():
    names = {one.name.removesuffix(".sql") for one in files(shipped).iterdir() if one.name.endswith(".sql")}
    assert set(stdlib.LIBRARY) == names == set(dir(stdlib)) - set(stdlib.__all__)
    for name in names:
        assert stdlib.LIBRARY[name].name == name
        assert getattr(stdlib, name) is stdlib.LIBRARY[name] is stdlib.LIBRARY[f"stdlib.{name}"]


@pytest.mark.parametrize("name", list(stdlib.LIBRARY))
def test_each_says_what_it_does_takes_and_remembers(name: str):
    said = stdlib.about(name)
    assert "Memory: " in said
    for field in stdlib.LIBRARY[name].definition.parameters:
        assert f"\n  {field.name} " in said


def test_the_same_with_the_name_in_front():
    assert answers("SELECT ewma(price, 0.25) AS answer FROM s") == [4.0, 5.0]
    assert answers("SELECT stdlib.ewma(price, 0.25) AS answer FROM s") == [4.0, 5.0]
    assert answers("SELECT stdlib.online_mean(price) AS answer FROM s [TUMBLING 10 ticks]") == [6.0]


def test_python_and_sql_make_one_plan():
    in_python = TICKS.over(rows=3).aggregate(m=stdlib.online_mean.of("price"))
    in_sql = hr.sql("SELECT price, online_mean(price) OVER (ROWS 3 PRECEDING) AS m FROM s", s=TICKS)
    assert in_sql.node == in_python.node


def test_the_users_own_comes_first():
    own = "CREATE AGGREGATE ewma(x DOUBLE): DOUBLE { INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (-x); } };"
    assert answers(own + "SELECT ewma(price) AS answer FROM s") == [-4.0, -8.0]
    assert answers(own + "SELECT stdlib.ewma(price, 0.25) AS answer FROM s") == [4.0, 5.0]


def test_a_window_version_of_the_users_own_is_no_part_of_the_librarys():
    own = """
    CREATE WINDOW AGGREGATE ewma(x DOUBLE): DOUBLE {
        TABLE inwindow(x DOUBLE);
        INITIALIZE: ITERATE: { INSERT INTO RETURN SELECT sum(x) FROM inwindow; }
    };
    """
    assert answers(own + "SELECT ewma(price) OVER (ROWS 1 PRECEDING) AS answer FROM s") == [4.0, 12.0]


def test_the_users_own_may_be_dropped_again():
    session = SqlSession({"s": TICKS})
    session.execute("CREATE AGGREGATE ewma(x DOUBLE): DOUBLE { INITIALIZE: { INSERT INTO RETURN VALUES (x); } }")
    session.execute("DROP AGGREGATE ewma")
    session.execute("SELECT ewma(price, 0.5) AS m FROM s")
    with pytest.raises(SqlError, match="there is no aggregate 'ewma'"):
        session.execute("DROP AGGREGATE ewma")


def test_modules_that_are_shown_have_those_of_the_library():
    (shown,) = SqlSession().execute("SHOW MODULES")
    assert ("stdlib.silence", "SQL aggregate") in [row[:2] for row in shown.rows]  # type: ignore[attr-defined]


def test_a_name_that_nearly_is_one():
    with pytest.raises(ModuleError, match="online_mean"):
        stdlib.online_meen  # noqa: B018 - asking is what is tested
    with pytest.raises(SqlError, match="online_mean"):
        answers("SELECT online_meen(price) AS answer FROM s")
    assert not hasattr(stdlib, "mean")


def test_workers_get_the_text():
    for module in stdlib.LIBRARY.values():
        assert pickle.loads(pickle.dumps(module)).text == module.text  # noqa: S301 - our own


@pytest.mark.parametrize("name", list(stdlib.LIBRARY))
def test_the_page_has_each_with_what_it_takes(name: str):
    page = (Path(__file__).parents[4] / "docs" / "sql" / "library.md").read_text()
    text = stdlib.LIBRARY[name].text
    assert f"\n| `{text[text.index(name) : text.index(' {')]}` |" in page
