"""What bodies of aggregates may read: several tables at once, groups of rows, and stored tables."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.fixtures.esl import made

import headrace as hr
from headrace.errors import ModuleFailed
from headrace.sql.aggregates import modules_of

ORDERS = """
CREATE AGGREGATE orders(item STRING, n LONG): (item STRING, n LONG) {{
    TABLE seen(item STRING, n LONG);
    TABLE totals(item STRING, n LONG, KEY (item));
    INITIALIZE: ITERATE: {{ INSERT INTO seen VALUES (orders.item, orders.n); }}
    TERMINATE: {{ {} }}
}}
"""
ITEMS = [("a", 1), ("b", 2), ("a", 3), (None, 5), ("b", 2), (None, 6), ("c", None)]


def orders(statements: str) -> list[Any]:
    return made(ORDERS.format(statements)).compute(ITEMS)


@pytest.mark.parametrize(
    ("select", "rows"),
    [
        ("SELECT item, sum(n) FROM seen GROUP BY item", [("a", 4), ("b", 4), (None, 11), ("c", None)]),
        ("SELECT item, count(*) FROM seen GROUP BY item HAVING sum(n) > 4", [(None, 2)]),
        ("SELECT item, max(n) FROM seen WHERE n < 6 GROUP BY item ORDER BY max(n) DESC LIMIT 2", [(None, 5), ("a", 3)]),
        ("SELECT item || 'x', n % 2 FROM seen GROUP BY item, n % 2 HAVING item < 'c'", [("ax", 1), ("bx", 0)]),
        ("SELECT max(item), count(*) FROM seen HAVING count(*) > 7", []),
        ("SELECT max(item), count(*) FROM seen HAVING count(*) > 6", [("c", 7)]),
        ("SELECT DISTINCT item, 0 FROM seen", [("a", 0), ("b", 0), (None, 0), ("c", 0)]),
        ("SELECT DISTINCT 'x', n FROM seen WHERE n < 4 ORDER BY n DESC LIMIT 2", [("x", 3), ("x", 2)]),
        ("SELECT 'x', count(DISTINCT item) FROM seen", [("x", 3)]),
        ("SELECT string_agg(item, '+'), count(DISTINCT n) FROM seen", [("a+b+a+b+c", 5)]),
        ("SELECT first(item), last(n) FROM seen", [("a", 6)]),
        ("SELECT item, CAST(median(n) AS LONG) FROM seen GROUP BY item", [("a", 2), ("b", 2), (None, 5), ("c", None)]),
        ("SELECT a.item, b.n FROM seen AS a, seen b WHERE a.item = b.item AND a.n < b.n", [("a", 3)]),
        ("SELECT a.item, b.n FROM seen AS a JOIN seen AS b ON a.item = b.item WHERE a.n < b.n", [("a", 3)]),
        ("SELECT a.item, sum(a.n * b.n) FROM seen a CROSS JOIN seen b WHERE a.n < 2 GROUP BY a.item", [("a", 19)]),
        ("SELECT x.* FROM seen AS x JOIN seen AS y ON x.n = y.n AND x.item <> y.item", []),
    ],
)
def test_select(select: str, rows: list[Any]):
    assert orders(f"INSERT INTO RETURN {select}") == rows


def test_several_rows_into_a_table_with_a_key():
    found = orders("""
        INSERT INTO totals VALUES ('z', 0), ('a', 100);
        INSERT INTO totals SELECT item, sum(n) FROM seen GROUP BY item;
        INSERT INTO RETURN SELECT * FROM totals;
    """)
    assert found == [("z", 0), ("a", 4), ("b", 4), (None, 11), ("c", None)]


def test_a_join_finds_rows_by_their_key():
    text = ORDERS.format("""
        INSERT INTO totals SELECT item, sum(n) FROM seen GROUP BY item;
        INSERT INTO RETURN SELECT s.item, t.n - s.n FROM seen AS s JOIN totals AS t ON t.item = s.item AND t.n > s.n;
    """)
    assert "in self.seen for (item_3, n_3) in found(self.totals, item_2)" in made(text).source
    assert made(text).compute(ITEMS) == [("a", 3), ("b", 2), ("a", 1), ("b", 2)]


def test_nan_is_one_value_in_groups():
    text = """
    CREATE AGGREGATE f(x DOUBLE): (x DOUBLE, n LONG) {
        TABLE t(x DOUBLE);
        INITIALIZE: ITERATE: { INSERT INTO t VALUES (f.x); }
        TERMINATE: { INSERT INTO RETURN SELECT x, count(*) FROM t GROUP BY x; }
    }"""
    found = made(text).compute([math.nan, 1.0, math.nan, None, None, -0.0, 0.0])
    assert [(str(x), n) for x, n in found] == [("nan", 2), ("1.0", 1), ("None", 2), ("-0.0", 2)]


def test_division_by_zero_is_null():
    text = """
    CREATE AGGREGATE f(a LONG, b DOUBLE): (whole DOUBLE, rest LONG, other DOUBLE) {
        INITIALIZE: { INSERT INTO RETURN VALUES (a / 0, a % 0, b / 0.0); }
    }"""
    assert made(text).compute([(1, 1.0)]) == [(None, None, None)]


def test_a_window_that_is_kept_does_not_grow_without_end():
    text = """
    CREATE WINDOW AGGREGATE f(x LONG): LONG {
        TABLE inwindow(x LONG) LIMIT 3;
        INITIALIZE: ITERATE: { INSERT INTO RETURN SELECT count(*) FROM inwindow; }
    }"""
    stepper = made(text).folder("rows").make()
    assert [stepper.arrive(one) for one in range(3)] == [[1], [2], [3]]
    with pytest.raises(ModuleFailed, match="f: inwindow has grown to more than 3 rows"):
        stepper.arrive(3)


# ---- stored tables

RATES = """
CREATE AGGREGATE in_euro(code STRING, amount DOUBLE): DOUBLE {
    TABLE total(v DOUBLE) AS VALUES (0.0);
    INITIALIZE: ITERATE: {
        UPDATE total SET v = v + (SELECT max(r.rate) FROM Rates AS r WHERE r.code = in_euro.code) * amount;
    }
    TERMINATE: { INSERT INTO RETURN SELECT v FROM total; }
}
"""
STORED = pa.table({"code": ["EUR", "USD", "it's"], "rate": [1.0, 0.5, math.inf]})


def test_a_stored_table_is_read():
    module = hr.sql_aggregate(RATES, rates=STORED)
    assert module.compute([("EUR", 2.0), ("USD", 3.0)]) == 3.5
    assert module.compute([("it's", 2.0)]) == math.inf
    assert module.compute([("?", 2.0)]) is None
    assert "_rates_by_code = indexed(_rates, (0,))" in module.source
    assert "# _rates: the 3 rows of a stored table" in module.source


def test_its_rows_travel_with_the_text():
    module = hr.sql_aggregate(RATES, rates=STORED)
    again = pickle.loads(pickle.dumps(module))  # noqa: S301 - our own
    assert again.compute([("USD", 3.0)]) == 1.5
    assert modules_of(module.text)["in_euro"].text == module.text
    other = hr.sql_aggregate(RATES, rates=STORED.slice(1))
    assert other.mark != module.mark
    assert "EUR" in module.text
    assert "EUR" not in module.doc
    assert "it''s" not in module.doc
    folder = module.folder("unbounded")
    assert folder is not None
    assert b"USD" not in folder.make().save()


def test_a_table_of_the_session(tmp_path: Path):
    (tmp_path / "rates.csv").write_text("code,rate\nA,2.0\nB,3.0\n")
    rows = [{"le": 1, "symbol": "A", "price": 1.0}, {"le": 2, "symbol": "B", "price": 5.0}]
    ticks = hr.events(rows, "symbol STRING, price DOUBLE")
    text = f"""
    CREATE TABLE rates (code STRING, rate DOUBLE) SOURCE FILE ('rates.csv');
    {RATES};
    SELECT in_euro(symbol, price) AS total FROM ticks [TUMBLING 10 ticks];
    """
    stream = hr.sql(text, base=tmp_path, ticks=ticks)
    assert [row["total"] for row in stream.cht().to_pylist()] == [17.0]


def test_all_types_are_kept_as_they_are():
    moment = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    rows: dict[str, tuple[pa.DataType, list[Any]]] = {
        "b": (pa.int8(), [-128, None]),
        "l": (pa.int64(), [2**63 - 1, 0]),
        "f": (pa.float32(), [0.10000000149011612, -0.0]),
        "d": (pa.float64(), [0.1, math.nan]),
        "s": (pa.string(), ["ü\n'\"\\", ""]),
        "t": (pa.timestamp("us", "UTC"), [moment, None]),
        "y": (pa.bool_(), [True, False]),
    }
    stored = pa.table({name: pa.array(values, kind) for name, (kind, values) in rows.items()})
    text = """
    CREATE AGGREGATE f(x LONG): (b BYTE, l LONG, f REAL, d DOUBLE, s STRING, t DATETIME, y BOOLEAN) {
        INITIALIZE: { INSERT INTO RETURN SELECT * FROM stored; }
    }"""
    found = hr.sql_aggregate(text, stored=stored).compute([1])
    assert str(found) == str([tuple(values[place] for _, values in rows.values()) for place in range(2)])


def test_a_table_of_its_own_wins():
    text = """
    CREATE AGGREGATE f(x LONG): LONG {
        TABLE rates(a LONG) AS VALUES (7);
        INITIALIZE: { INSERT INTO RETURN SELECT a FROM rates; }
    }"""
    assert hr.sql_aggregate(text, rates=STORED).compute([1]) == 7
