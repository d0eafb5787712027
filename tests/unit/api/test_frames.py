"""Frames of pandas, Polars and Arrow as streams; epochs as times."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import headrace as hr
from headrace import col
from headrace.errors import BadRow, ExpressionError, PlanError, SchemaError, UnknownColumn
from headrace.io.sinks import read_events_output

ROWS = {
    "symbol": ["A", "B", None, "A"],
    "ts": [datetime(2024, 5, 1, 12, 0, second, tzinfo=UTC) for second in (1, 4, 12, 5)],
    "price": [10.0, 50.0, None, 11.5],
}
BY_TIME: Any = {"lifetime": hr.point("ts"), "progress": hr.advance(delay="10 s")}
READERS: dict[str, Callable[..., hr.Stream]] = {
    "pandas": lambda rows, **options: hr.from_pandas(pd.DataFrame(rows), **options),
    "polars": lambda rows, **options: hr.from_polars(pl.DataFrame(rows), **options),
    "arrow": lambda rows, **options: hr.from_arrow(pa.table(rows), **options),
    "record batch": lambda rows, **options: hr.from_arrow(pa.table(rows).to_batches()[0], **options),
    "batches": lambda rows, **options: hr.from_arrow(pa.table(rows).to_reader(), **options),
}


def totals(trades: hr.Stream) -> hr.Stream:
    return trades.group_by("symbol").window(hr.tumbling("10 s")).aggregate(total=hr.sum("price"), n=hr.count())


@pytest.fixture
def expected(tmp_path: Path) -> pa.Table:
    """The answer over the same rows in a file."""
    pd.DataFrame(ROWS).to_csv(tmp_path / "rows.csv", index=False)
    read = hr.read_csv(str(tmp_path / "rows.csv"), "symbol STRING, ts DATETIME, price DOUBLE", **BY_TIME)
    return totals(read).cht()


@pytest.mark.parametrize("kind", READERS)
def test_a_frame_is_a_stream_like_a_file(kind: str, expected: pa.Table, tmp_path: Path):
    stream = totals(READERS[kind](ROWS, **BY_TIME))
    assert stream.cht().equals(expected)
    assert hr.same_history(stream.history(engine="duckdb").cht(), expected)
    place: Any = {"host": "local", "checkpoint": str(tmp_path / "state")}
    for end in ("process_all_available", "finish"):  # the second start continues the first
        query = totals(READERS[kind](ROWS, **BY_TIME)).start(hr.files(str(tmp_path / "out")), **place)
        getattr(query, end)()
        query.stop()
    answers = hr.events(read_events_output(str(tmp_path / "out"), stream.schema))
    assert hr.same_history(answers.cht(), expected)


@pytest.mark.parametrize("kind", READERS)
def test_a_schema_picks_and_converts(kind: str):
    stream = READERS[kind](ROWS, schema={"ts": datetime, "price": "float"}, lifetime=hr.point("ts"))
    assert str(stream.schema) == "ts DATETIME, price FLOAT"
    assert stream.cht()["price"].to_pylist() == [10.0, 50.0, 11.5, None]


def test_an_index_with_a_name_is_a_column():
    frame = pd.DataFrame({"price": [1.0]}, index=pd.Index([5], name="t"))
    assert hr.from_pandas(frame, lifetime=hr.point("t")).cht().to_pylist() == [{"le": 5, "re": 6, "t": 5, "price": 1.0}]


def test_a_level_of_an_index_with_a_name_is_a_column():
    levels = pd.MultiIndex.from_tuples([(1, "x"), (2, "y")], names=["t", None])
    frame = pd.DataFrame({"v": [3, 4]}, index=levels)
    assert hr.from_pandas(frame, lifetime=hr.point("t")).cht().drop_columns(["le", "re"]).to_pydict() == {
        "t": [1, 2],
        "v": [3, 4],
    }


UNREADABLE = {
    "complex": pd.DataFrame({"t": [1], "u": [1j]}),
    "mixed": pd.DataFrame({"t": [1, 2], "u": ["a", 1]}),
    "large": pd.DataFrame({"t": [1], "u": [2**70]}),
    "twice": pd.DataFrame([[1, 2, 3]], columns=["t", "u", "u"]),
    "index": pd.DataFrame({"t": [1], "u": [2]}, index=pd.Index([3], name="u")),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_columns_that_a_schema_leaves_out_may_be_anything(name: str):
    frame = UNREADABLE[name]
    assert hr.from_pandas(frame, "t LONG", lifetime=hr.point("t")).cht()["t"].to_pylist()[0] == 1
    with pytest.raises(SchemaError):
        hr.from_pandas(frame, lifetime=hr.point("t"))


FAR = pa.array([0, 253_402_300_800_000_000], pa.timestamp("us", "UTC"))  # the year 10000


@pytest.mark.parametrize(
    "read",
    [
        lambda: hr.from_arrow(pa.table({"t": pa.array([1, 2**60], pa.timestamp("s"))}), lifetime=hr.point("t")),
        lambda: hr.from_arrow(pa.table({"t": [1, 2], "far": FAR}), lifetime=hr.point("t")),
        lambda: hr.from_pandas(pd.DataFrame({"t": FAR.to_numpy()}), lifetime=hr.point("t")),
    ],
)
def test_a_date_after_the_year_9999_does_not_fit(read: Callable[[], hr.Stream]):
    with pytest.raises(SchemaError, match=r"row 2 of the frame does not fit.* of the years 1 to 9999"):
        read()


def test_names_of_an_event_can_be_renamed():
    frame = pd.DataFrame({"kind": ["x"], "t": [5]})
    with pytest.raises(SchemaError, match="kind"):
        hr.from_pandas(frame, lifetime=hr.point("t"))
    stream = hr.from_pandas(frame, lifetime=hr.point("t"), rename={"kind": "sort"})
    assert stream.cht()["sort"].to_pylist() == ["x"]


def test_an_empty_frame_has_no_rows():
    assert hr.from_polars(pl.DataFrame(schema={"t": pl.Int64}), lifetime=hr.point("t")).cht().num_rows == 0


def test_rows_without_a_time_are_diverted_or_raised():
    frame = pd.DataFrame({"ts": [pd.Timestamp("2024-05-01"), pd.NaT], "v": [1, 2]})
    stream = hr.from_pandas(frame, lifetime=hr.point("ts"))
    with pytest.warns(hr.RowsNotUsed, match="the time ts is missing"):
        run = stream.run()
    assert run.cht()["v"].to_pylist() == [1]
    assert hr.same_history(stream.history(engine="duckdb").cht(), run.cht())
    strict = hr.from_pandas(frame, lifetime=hr.point("ts"), bad_rows="raise")
    with pytest.raises(BadRow):
        strict.cht()
    with pytest.raises(BadRow):
        strict.history(engine="duckdb").cht()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: hr.from_pandas(pl.DataFrame(ROWS), **BY_TIME), PlanError, "hr.from_polars"),
        (lambda: hr.from_polars(pd.DataFrame(ROWS), **BY_TIME), PlanError, "hr.from_pandas"),
        (lambda: hr.from_polars(pl.DataFrame(ROWS).lazy(), **BY_TIME), PlanError, "frame.collect()"),
        (lambda: hr.from_arrow([ROWS], **BY_TIME), PlanError, "hr.events"),
        (lambda: hr.from_pandas(pd.DataFrame(ROWS), "sybol STRING, ts DATETIME", **BY_TIME), UnknownColumn, "symbol"),
        (lambda: hr.from_pandas(pd.DataFrame(ROWS), "symbol LONG, ts DATETIME", **BY_TIME), SchemaError, "row 1 of"),
        (lambda: hr.from_pandas(pd.DataFrame({"a": [1, "x"]}), lifetime=hr.point("a")), SchemaError, "one type"),
        (
            lambda: hr.from_pandas(pd.DataFrame([[1, 2]], columns=["a", "a"]), lifetime=hr.point("a")),
            SchemaError,
            "duplicated",
        ),
        (
            lambda: hr.from_arrow(pa.table([[1], [2]], names=["a", "a"]), "a LONG", lifetime=hr.point("a")),
            SchemaError,
            "2",
        ),
        (lambda: hr.from_arrow(pa.table({"a": [{"b": 1}]}), "a LONG", lifetime=hr.point("a")), SchemaError, "struct"),
        (lambda: hr.from_pandas(pd.DataFrame(ROWS), lifetime=hr.point("ts", unit="ms")), PlanError, "DATETIME"),
        (lambda: hr.from_pandas(pd.DataFrame(ROWS), lifetime=hr.point("symbol", unit="ms")), PlanError, "STRING"),
        (lambda: hr.point("ts", unit="ns"), ExpressionError, "s, ms, us"),
    ],
)
def test_what_is_no_such_frame_is_refused(call: Callable[[], Any], error: type[Exception], text: str):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)


# --- epochs -----------------------------------------------------------------------------------------------------------

NOON = int(datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("unit", "dtype", "values"),
    [
        ("s", "int32", [NOON, NOON + 7]),
        ("s", "int64", [NOON, NOON + 7]),
        ("s", "float64", [NOON + 0.0, NOON + 7.0]),
        ("ms", "int64", [NOON * 1000, NOON * 1000 + 7000]),
        ("us", "int64", [NOON * 10**6, NOON * 10**6 + 7 * 10**6]),
    ],
)
def test_epochs(unit: Any, dtype: str, values: list[Any]):
    frame = pd.DataFrame({"t": pd.array(values, dtype=dtype), "end": pd.array([v + 1 for v in values], dtype=dtype)})
    points = hr.from_pandas(frame, lifetime=hr.point("t", unit=unit))
    starts = [NOON * 10**6, NOON * 10**6 + 7 * 10**6]
    assert points.cht().column("le").cast(pa.int64()).to_pylist() == starts
    for lifetime in (hr.interval("t", "end", unit=unit), hr.edge(col("t"), unit=unit)):
        stream = hr.from_pandas(frame, lifetime=lifetime)
        assert stream.cht().column("le").cast(pa.int64()).to_pylist() == starts
        assert hr.same_history(stream.history(engine="duckdb").cht(), stream.cht())


def test_fractions_of_a_second_are_exact_to_the_microsecond():
    stamps = [NOON + n / 10**6 for n in (1, 333_333, 999_999)]
    stream = hr.from_pandas(pd.DataFrame({"t": stamps}), lifetime=hr.point("t", unit="s"))
    starts = stream.cht().column("le").cast(pa.int64()).to_pylist()
    assert [start - NOON * 10**6 for start in starts] == [1, 333_333, 999_999]
    assert hr.same_history(stream.history(engine="duckdb").cht(), stream.cht())


def test_an_epoch_that_no_time_holds_is_malformed():
    stream = hr.from_pandas(pd.DataFrame({"t": [1, 2**62], "v": [1, 2]}), lifetime=hr.point("t", unit="s"))
    with pytest.warns(hr.RowsNotUsed, match="the time of t is out of range"):
        found = stream.cht()
    assert found["v"].to_pylist() == [1]
    assert hr.same_history(stream.history(engine="duckdb").cht(), found)


def test_epochs_of_changes():
    log = pd.DataFrame({"op": ["insert", "update"], "t": [1000, 3000], "item": ["milk", "milk"], "price": [1, 2]})
    prices = hr.read_changes(log, key="item", at="t", unit="ms")
    assert prices.cht().column("le").cast(pa.int64()).to_pylist() == [1_000_000, 3_000_000]
    with pytest.raises(PlanError, match="unit"):
        hr.read_changes(log, key="item", unit="ms")


# --- other places that take frames ------------------------------------------------------------------------------------


def test_events_and_tables_take_frames_of_polars():
    events = hr.events(pl.DataFrame({"le": [1, 3], "re": [4, 5], "code": ["a", "b"]}))
    names = pl.DataFrame({"code": ["a", "b"], "name": ["Ann", "Bob"]})
    assert events.join_table(names, on="code").cht()["name"].to_pylist() == ["Ann", "Bob"]


def test_a_frame_of_spark_is_no_log_in_memory():
    """Its rows have no order that is kept, and the order of a log counts."""
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.dataframe", "isStreaming": False})()
    with pytest.raises(PlanError, match="not a frame in memory") as caught:
        hr.read_changes(frame, "t LONG, v LONG", key="t")
    assert caught.value.instead == "frame.toArrow()"


def test_polars_is_loaded_only_when_it_is_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "polars", None)  # as if it were not installed
    stream = hr.from_pandas(pd.DataFrame({"t": [1]}), lifetime=hr.point("t"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stream.to_pandas()["t"].tolist() == [1]
    with pytest.raises(PlanError, match="Polars is not installed"):
        stream.to_polars()


# --- frames out -------------------------------------------------------------------------------------------------------


def test_histories_as_frames():
    stream = hr.from_pandas(pd.DataFrame({"t": [3, 1], "name": ["b", None]}), lifetime=hr.point("t"))
    frame = stream.to_pandas()
    names = frame.pop("name")
    assert frame.to_dict("list") == {"le": [1, 3], "re": [2, 4], "t": [1, 3]}
    assert names.isna().tolist() == [True, False]  # None in pandas 2, NaN from pandas 3 on
    assert names[1] == "b"
    assert stream.to_polars().equals(pl.from_arrow(stream.cht()))
    run = hr.run({"all": stream, "some": stream.where(col("t") > 1)})
    assert run.to_pandas("some")["name"].tolist() == ["b"]
    assert run.to_polars("some")["name"].to_list() == ["b"]


def test_show_prints_the_first_rows(capsys: pytest.CaptureFixture[str]):
    stream = hr.from_pandas(pd.DataFrame({"t": [3, 1, 7], "name": ["b", None, "c"]}), lifetime=hr.point("t"))
    stream.show(2)
    assert capsys.readouterr().out == "le | re | t | name\n1  | 2  | 1 |\n3  | 4  | 3 | b\n… and 1 more\n"
    stream.run().show()
    assert "more" not in capsys.readouterr().out
    with pytest.raises(PlanError, match="number of rows"):
        stream.show(0)


def test_a_frame_may_be_changed_after_it_was_given():
    frame = pd.DataFrame({"t": [1, 2], "k": [0, 1]})
    stream = hr.from_pandas(frame, lifetime=hr.point("t"))
    frame.loc[0, "k"] = 7
    frame["t"] *= 100
    assert [(row["le"], row["k"]) for row in stream.cht().to_pylist()] == [(1, 0), (2, 1)]


@pytest.mark.parametrize("batch_rows", [None, 1])
def test_a_diverted_row_has_all_its_columns(batch_rows: int | None):
    frame = pd.DataFrame({"id": [1, 2, 3], "t": [10, 20, 1], "x": [1, 2, 5]})
    stream = hr.from_pandas(frame, lifetime=hr.point("t"), progress=hr.advance(5))
    with pytest.warns(hr.RowsNotUsed):
        run = stream.window(hr.tumbling(10)).aggregate(x=hr.sum("x")).run(batch_rows=batch_rows)
    assert run.diverted()["row"].to_pylist() == ['{"id": 3, "t": 1, "x": 5}']
