"""The table of features: the page is what the script writes, and every line of Headrace and Spark gives its answer."""

from __future__ import annotations

import importlib.util
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.fixtures.changing_tables import bound, refused

import headrace as hr
from headrace.sql.outcomes import Words
from headrace.sql.session import SqlSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[2] / "docs"
spec = importlib.util.spec_from_file_location("make_features", DOCS / "make_features.py")
assert spec is not None
assert spec.loader is not None
make_features = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_features)

ROWS = [row for rows in make_features.parts().values() for row in rows]
PLACE = Path(__file__).parents[1] / "fixtures" / "features"
DAY = datetime(2024, 5, 1, tzinfo=UTC)
ORDERS = [
    {"id": 1, "customer": 10, "item": "ham", "price": 3.0, "qty": 2},
    {"id": 2, "customer": 10, "item": "eggs", "price": 1.5, "qty": 12},
    {"id": 3, "customer": 20, "item": "ham", "price": 4.0, "qty": 1},
    {"id": 4, "customer": 30, "item": "milk", "price": None, "qty": 3},
]
CUSTOMERS = [
    {"cid": 10, "name": "Ann", "city": "Oslo"},
    {"cid": 20, "name": "Bob", "city": "Rome"},
    {"cid": 40, "name": "Cid", "city": "Oslo"},
]
TICKS = [
    {"symbol": symbol, "ts": DAY.replace(second=second), "price": price, "n": n}
    for symbol, second, price, n in (
        ("A", 1, 10.0, 10), ("B", 4, 50.0, 20), ("A", 12, 12.0, 30), ("A", 15, 9.0, 31), ("B", 31, 54.0, 32),
    )
]  # fmt: skip
COLUMNS = {
    "orders": "id LONG, customer LONG, item STRING, price DOUBLE, qty LONG",
    "customers": "cid LONG, name STRING, city STRING",
    "ticks": "symbol STRING, ts DATETIME, price DOUBLE, n LONG",
}


def _inputs() -> dict[str, hr.Stream]:
    lasting = {"orders": ORDERS, "customers": CUSTOMERS}
    return {
        **{
            name: hr.events([{"kind": "insert", "le": DAY, "re": None, **row} for row in rows], COLUMNS[name])
            for name, rows in lasting.items()
        },
        "ticks": hr.from_arrow(pa.Table.from_pylist(TICKS), lifetime=hr.point("ts")),
    }


def plain(value: Any) -> Any:
    """A value as the table writes it."""
    if value is None:
        return "NULL"
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime):
        shown = value.astimezone(UTC) if value.tzinfo else value
        return f"{shown:%Y-%m-%d %H:%M:%S}"
    return f"{value:%Y-%m-%d}" if isinstance(value, date) else value


def bag(rows: list[Any]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(map(plain, row)) for row in rows)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("features"))


def filled(folder: Path) -> Path:
    """A folder with the files that lines read, and a Delta table of two versions."""
    copytree(PLACE, folder, dirs_exist_ok=True)
    rows = pa.Table.from_pylist([{"id": 1, "balance": 10}, {"id": 2, "balance": 50}])
    write_deltalake(str(folder / "accounts"), rows)
    DeltaTable(str(folder / "accounts")).update(updates={"balance": "15"}, predicate="id = 1")
    return folder


def bind(row: dict[str, Any], place: Path) -> hr.Stream:
    script = hr.script(row["headrace"], base=place, **_inputs())
    return [*script.queries.values(), *(stream for stream, _ in script.deliveries.values())][-1]


@pytest.mark.filterwarnings("ignore::headrace.errors.RowsNotUsed")
@pytest.mark.parametrize("row", [row for row in ROWS if "answer" in row], ids=lambda row: str(row["feature"]))
def test_a_line_of_headrace_gives_its_answer(row: dict[str, Any], place: Path):
    answer = bound(lambda: bind(row, place), row.get("waits")).cht()
    found = [list(r.values())[2:] for r in answer.to_pylist()]
    assert bag(found) == bag(row["answer"])


@pytest.mark.parametrize("row", [row for row in ROWS if "shows" in row], ids=lambda row: str(row["feature"]))
def test_a_statement_shows_its_words(row: dict[str, Any]):
    outcome = SqlSession(_inputs()).execute(row["headrace"])[-1]
    assert isinstance(outcome, Words)
    assert [word for word in row["shows"] if word not in outcome.text] == []


def test_what_waits_is_refused(place: Path):
    waits = {row["feature"]: partial(bind, row, place) for row in ROWS if "waits" in row}
    assert refused(waits) == set(waits), "some of these run: python -m tests.docs.mark_features"


def test_the_lines_of_spark(spark: SparkSession):
    """All in one test: each takes a moment."""
    views = {"orders": ORDERS, "customers": CUSTOMERS, "ticks": TICKS}
    types = {name: text.replace("DATETIME", "TIMESTAMP").replace(" LONG", " BIGINT") for name, text in COLUMNS.items()}
    for name, rows in views.items():
        frame = spark.createDataFrame([tuple(r.values()) for r in rows], types[name])
        frame.coalesce(1).cache().createOrReplaceTempView(name)  # read from Python once, not for each line
    wrong = [message for row in ROWS if (message := _spark_says(spark, row))]
    for name in views:
        spark.catalog.uncacheTable(name)
        spark.catalog.dropTempView(name)
    assert not wrong, "\n".join(wrong)


def _spark_says(spark: SparkSession, row: dict[str, Any]) -> str:
    """What is wrong with a line of Spark, or nothing."""
    from pyspark.errors import PySparkException

    text = row.get("spark") or row["spark_refuses"]
    try:
        found = spark.sql(row["headrace"] if text == "same" else text).collect()
    except PySparkException as error:
        return "" if "spark_refuses" in row else f"{row['feature']}: {str(error)[:300]}"
    if "spark_refuses" in row:
        return f"{row['feature']}: Spark runs it"
    answer = bag([list(r) for r in found])
    return "" if answer == bag(row["answer"]) else f"{row['feature']}: {answer}"


def test_the_page_is_what_the_script_writes():
    assert make_features.PAGE.read_text(encoding="utf-8") == make_features.page(), "run: python docs/make_features.py"
