"""The examples of the thesis that the dialect comes from, run: schemas, streams, merge, split, windows, joins, groups.

Texts are the thesis's own; where a word differs, a comment says which.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import SqlError
from headrace.schema import Schema

SCHEMAS = """
CREATE SCHEMA StockTickSchema (symbol String, sourceTimestamp Long, price Double, quantity Int, exchange String);
CREATE SCHEMA StockTickSchema2 StockTickSchema;
CREATE SCHEMA StockTickSchema3 (id Int) EXTENDS StockTickSchema;
"""
TICKS = """\
IBM,10,81.5,100,NYSE
MSFT,20,120.0,30000,NASDAQ
IBM,30,101.5,200000,NYSE
ORCL,40,40.0,20000,NYSE
IBM,50,99.0,0,AMEX
MSFT,65,130.0,150,NASDAQ
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "ticks.csv").write_text(TICKS)
    os.utime(tmp_path / "ticks.csv", (1_000_000, 1_000_000))
    return tmp_path


SOURCE = SCHEMAS + "CREATE STREAM StockTick StockTickSchema SOURCE FILE ('ticks.csv', ',');\n"


def rows(text: str, base: Path, name: str | None = None) -> list[dict[str, object]]:
    """The answers of a script's query, without their times."""
    found = hr.script(text, base=base)
    stream = found.streams[name] if name else list(found.queries.values())[-1]
    return stream.cht().drop_columns(["le", "re"]).to_pylist()


def values(text: str, base: Path, column: str) -> list[object]:
    """One column of the answers, by the times they end."""
    table = list(hr.script(text, base=base).queries.values())[-1].cht()
    return table.sort_by([("re", "ascending"), ("le", "ascending")])[column].to_pylist()


def test_schemas_refer_to_and_extend_others():
    catalog = hr.script(SCHEMAS).session.catalog
    ticks = catalog.schemas["StockTickSchema"]
    assert ticks == Schema.of("symbol STRING, sourceTimestamp LONG, price DOUBLE, quantity INT, exchange STRING")
    assert catalog.schemas["StockTickSchema2"] == ticks
    assert catalog.schemas["StockTickSchema3"].names == (*ticks.names, "id")


def test_a_derived_stream(files: Path):
    text = SOURCE + "CREATE STREAM HighStockTick AS SELECT * FROM StockTick WHERE price > 100;"
    assert [row["price"] for row in rows(text, files, "HighStockTick")] == [120.0, 101.5, 130.0]


def test_a_derived_stream_with_a_schema(files: Path):
    text = SOURCE + "CREATE STREAM StockPrice (symbol String, price Double) AS SELECT symbol, price FROM StockTick"
    assert rows(text, files, "StockPrice")[0] == {"symbol": "IBM", "price": 81.5}


def test_a_stream_from_a_host():
    text = SCHEMAS + 'CREATE STREAM StockTick StockTickSchema SOURCE HOST ("98.138.253.109", 2000)'
    assert "98.138.253.109" in hr.script(text).streams["StockTick"].explain()


def test_select_all_of_an_exchange(files: Path):
    # One word differs: a text is in single quotes, double quotes are for names.
    assert len(rows(SOURCE + "SELECT * from StockTick where Exchange = 'NYSE'", files)) == 3
    with pytest.raises(SqlError, match="no column 'NYSE'") as caught:
        hr.script(SOURCE + 'SELECT * from StockTick where Exchange = "NYSE"', base=files)
    assert "'NYSE'" in str(caught.value)


def test_insert_completes_a_stream(files: Path):
    text = """
    CREATE STREAM stockStream StockTickSchema SOURCE FILE ('ticks.csv', ',');
    CREATE STREAM StockTick StockTickSchema; INSERT INTO StockTick AS stockStream;
    """
    assert len(rows(SCHEMAS + text, files, "StockTick")) == 6
    with pytest.raises(SqlError, match="has a source already"):
        hr.script(SCHEMAS + text + "INSERT INTO StockTick AS stockStream;", base=files)


def test_merge(files: Path):
    for name, exchange in (("NYSE", "NYSE"), ("AMEX", "AMEX"), ("NASDAQ", "NASDAQ")):
        (files / f"{name}.csv").write_text(
            "".join(line for line in TICKS.splitlines(keepends=True) if exchange in line)
        )
    streams = "".join(
        f"CREATE STREAM stockTickFrom{name} StockTickSchema SOURCE FILE ('{name}.csv', ',');\n"
        for name in ("NYSE", "AMEX", "NASDAQ")
    )
    text = SCHEMAS + streams + "MERGE stockTickFromNYSE, stockTickFromAMEX, stockTickFromNASDAQ"
    assert sorted(row["sourceTimestamp"] for row in rows(text, files)) == [10, 20, 30, 40, 50, 65]


def test_split(files: Path):
    text = (
        SOURCE
        + """
    on StockTick
    insert into LargeTicks select symbol, price where quantity >= 100000
    insert into MediumTicks select symbol, price where quantity between 20000 and 100000
    insert into SmallTicks select symbol, price where quantity > 0
    """
    )
    assert rows(text, files, "LargeTicks") == [{"symbol": "IBM", "price": 101.5}]
    assert [row["symbol"] for row in rows(text, files, "MediumTicks")] == ["MSFT", "ORCL"]
    assert len(rows(text, files, "SmallTicks")) == 5  # every branch that matches


def test_the_average_of_a_tumbling_window_of_tuples(files: Path):
    # The thesis counts 100; there are six ticks here.
    assert values(SOURCE + "SELECT avg(quantity) AS a FROM StockTick [SIZE 3]", files, "a") == [76700.0, 20150 / 3]


def test_an_aggregate_without_a_window_is_refused(files: Path):
    with pytest.raises(SqlError, match="blocking") as caught:
        hr.script(SOURCE + "SELECT avg(quantity) FROM StockTick", base=files)
    assert "[SIZE 100]" in str(caught.value)


def test_windows_by_an_attribute(files: Path):
    text = SOURCE + "SELECT count(*) AS n FROM StockTick [SIZE 60 on sourceTimestamp]"
    assert values(text, files, "n") == [5, 1]


def test_windows_by_the_clock(files: Path):
    assert values(SOURCE + "SELECT count(*) AS n FROM StockTick [SIZE 1 min]", files, "n") == [6]


def test_a_window_with_all_its_parts(files: Path):
    text = """SELECT Exchange, count(*) AS n FROM StockTick [
      SIZE 3 hours EVERY 1 hours
      PARTITIONED BY Exchange
      WHERE Quantity > 100.000
    ]"""
    found = rows(SOURCE + text, files)
    assert {(row["Exchange"], row["n"]) for row in found} == {("NYSE", 2), ("NASDAQ", 2)}
    assert len(found) == 6  # each tuple is in three windows


def test_partitioned_windows(files: Path):
    # The thesis writes `ave`, which is avg here too.
    text = SOURCE + "SELECT ave(quantity) AS a FROM StockTick [SIZE 2] GROUP BY symbol, exchange"
    assert sorted(values(text, files, "a")) == [15075.0, 100050.0]


def test_a_join_of_time_windows(files: Path):
    (files / "news.csv").write_text("IBM,12,up\nIBM,70,down\nORCL,45,flat\n")
    text = (
        SOURCE
        + """
    CREATE STREAM News (symbol String, at Long, word String) SOURCE FILE ('news.csv', ',');
    SELECT StockTick.symbol, word, price
    FROM StockTick [SIZE 60 ON sourceTimestamp] JOIN News [SIZE 60 ON at] ON StockTick.symbol = News.symbol
    """
    )
    found = {(row["word"], row["price"]) for row in rows(text, files)}
    assert found == {("up", 81.5), ("up", 101.5), ("up", 99.0), ("flat", 40.0)}
    crossed = text.replace("JOIN", "CROSS JOIN").partition("ON StockTick.symbol")[0]
    assert len(rows(crossed, files)) == 5 * 2 + 1 * 1
