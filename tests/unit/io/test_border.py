"""Times as users see them (rule 1.1): dates as UTC timestamps with null for infinity, and numbers as numbers."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.border import DATE, as_ticks, shown
from headrace.errors import HeadraceError, LateEvent, SchemaError, TimeError
from headrace.events import history as history_of
from headrace.events import physical_schema, to_changes
from headrace.io.sinks import read_events_output
from headrace.testing.strategies import SCHEMA, physical_streams, without_ids
from headrace.time import INFINITY, format_ticks, ticks

SIGNALS = """
    kind    | le                     | re         | re_new     | x
    insert  | 2024-05-01             | ∞          |            | 1
    insert  | 2024-05-01T12:00:00.5Z | 2024-05-02 |            | 2
    retract | 2024-05-01T12:00:00.5Z | 2024-05-02 | ∞          | 2
    cti     | 2024-05-03             |            |            |
    insert  | 2024-05-04             | 2024-05-05 |            | 3
"""
MAY = datetime(2024, 5, 1, tzinfo=UTC)
FORMATS: tuple[Literal["jsonl", "parquet"], ...] = ("jsonl", "parquet")


def signals() -> hr.Stream:
    return hr.events(SIGNALS, batches=[2, 1, 2])


def test_tables_of_dates():
    stream = signals()
    run = stream.run()
    for table in (stream.cht(), run.cht(), run.events(), stream.history("duckdb").cht()):
        assert {table.schema.field(name).type for name in ("le", "re")} == {DATE}
    assert run.cht().slice(0, 1).to_pylist() == [{"le": MAY, "re": None, "x": 1}]
    assert run.events().to_pylist()[-1] == {"kind": "cti", "le": None, "re": None, "re_new": None, "x": None}


def test_tables_of_numbers():
    large = ticks("2024-05-01T00:00:00Z")
    run = hr.events([{"le": large, "re": INFINITY, "x": 1}]).run()
    assert run.cht().to_pylist() == [{"le": large, "re": INFINITY, "x": 1}]
    assert run.events().schema.field("re_new").type == pa.int64()


@pytest.mark.parametrize("encoding", ["events", "changes", "final", "upsert"])
@pytest.mark.parametrize("host", ["run", "start"])
def test_sinks_get_the_times_of_their_stream(encoding: Any, host: str, tmp_path: Path):
    key = {"key": "x"} if encoding == "upsert" else {}
    for form in FORMATS:
        memory = hr.memory(encoding=encoding, time_columns=("start", "end"), **key)
        files = hr.files(str(tmp_path / form), encoding=encoding, format=form, time_columns=("start", "end"), **key)
        if host == "run":
            hr.run({"a": signals(), "b": signals()}, sinks={"a": memory, "b": files})
        else:
            query = hr.start_all([(signals(), memory), (signals(), files)], host="local")
            query.finish()
            query.stop()
        assert memory.cht().schema.names == ["start", "end", "x"]
        assert {memory.cht().schema.field(name).type for name in ("start", "end")} == {DATE}
        assert memory.rows().schema.field("start").type == DATE
    for path in tmp_path.glob("parquet/**/*.parquet"):
        assert pq.read_schema(path).field("start").type == DATE
    lines = [json.loads(line) for path in tmp_path.glob("jsonl/**/*.jsonl") for line in path.read_text().splitlines()]
    assert {"2024-05-01T00:00:00.000000Z"} <= {line["start"] for line in lines}
    assert all("le" not in line and "re" not in line for line in lines)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("far", [False, True])
def test_files_are_read_back_as_they_were_written(form: Literal["jsonl", "parquet"], far: bool, tmp_path: Path):
    stream = signals().extend("10000000 d") if far else signals()  # after the last date of Python's
    place = str(tmp_path / "out")
    hr.run({"a": stream}, sinks={"a": hr.files(place, format=form)})
    back = hr.read_events(place, "x LONG", format=form.removesuffix("l"))
    assert back.node.dates
    declared = hr.read_events(place, "le DATETIME, x LONG", format=form.removesuffix("l"))
    for other in (back.cht(), back.history("duckdb").cht(), declared.cht()):
        assert hr.same_history(other, stream.cht())
    written = history_of(to_changes(read_events_output(place, "x LONG"), stream.schema))
    assert hr.same_history(written, stream.cht())


def test_other_names_are_read_back_by_renaming(tmp_path: Path):
    place = str(tmp_path / "out")
    hr.run({"a": signals()}, sinks={"a": hr.files(place, time_columns=("start", "end"))})
    names = {"start": "le", "end": "re", "end_new": "re_new"}
    back = hr.read_events(place, "x LONG", format="json", rename=names)
    assert hr.same_history(back.cht(), signals().cht())


def test_a_history_is_read_back(tmp_path: Path):
    place = str(tmp_path / "out")
    signals().history("duckdb").write(place)
    back = hr.read_parquet(place, lifetime=hr.interval("le", "re"))
    assert back.node.dates
    assert hr.same_history(back.cht(), signals().cht())
    assert hr.same_history(back.history("duckdb").cht(), signals().cht())
    assert hr.same_history(hr.events(signals().cht()).cht(), signals().cht())
    assert hr.same_history(hr.events(signals().cht().to_pylist()).cht(), signals().cht())


def test_a_null_end_in_another_column_is_malformed(tmp_path: Path):
    (tmp_path / "a.csv").write_text("start,end,x\n2024-05-01,,1\n")
    life = hr.interval("start", "end")
    stream = hr.read_csv(str(tmp_path / "a.csv"), "start DATETIME, end DATETIME, x LONG", lifetime=life)
    with pytest.warns(hr.RowsNotUsed, match="the time end is missing"):
        assert stream.cht().num_rows == 0


def test_a_null_end_is_endless_where_that_is_said():
    written = signals().cht(time_columns=("start", "end"))
    with pytest.warns(hr.RowsNotUsed, match=r"the time end is missing; hr.interval\(..., endless=True\)"):
        hr.from_arrow(written, lifetime=hr.interval("start", "end")).run()
    back = hr.from_arrow(written, lifetime=hr.interval("start", "end", endless=True)).select("x")
    assert hr.same_history(back.cht(), signals().cht())
    assert hr.same_history(back.history("duckdb").cht(), signals().cht())


def test_an_end_that_no_time_holds_is_not_endless():
    rows = pa.table({"a": [1, 2, 3], "b": [2, None, 2**62]})
    stream = hr.from_arrow(rows, lifetime=hr.interval("a", "b", unit="s", endless=True))
    with pytest.warns(hr.RowsNotUsed, match="the time of b is out of range"):
        found = stream.cht()
    assert found["a"].to_pylist() == [1, 2]
    assert hr.same_history(stream.history("duckdb").cht(), found)


@settings(deadline=None)
@given(physical_streams(), st.integers(-(2**50), 2**50))
def test_shown_and_back_is_the_same(stream: Any, by: int):
    table = pa.Table.from_pylist(without_ids(stream), schema=physical_schema(SCHEMA))
    table = table.select(["kind", "le", "re", "re_new", "k"])  # NaN does not equal itself
    assert as_ticks(shown(table, dates=True)).equals(table)
    assert shown(table, dates=False) is table
    assert as_ticks(shown(table, dates=True, time_columns=("a", "b")), ("a", "b")).equals(table)
    assert format_ticks(by, dates=True) == format_ticks(ticks(format_ticks(by, dates=True)), dates=True)


def test_far_dates_have_zones():
    assert ticks("0000-01-01T12:00:00z") == ticks("0000-01-01T12:00:00Z") == ticks("0000-01-01T13:30:00+01:30")
    assert ticks("12000-01-01T00:00:00+00:00") == ticks("12000-01-01")
    for text in ("0000-01-01T12:00:00+25:00", "0000-01-01T12-05", "0000-01-01-05:00", "-1-1"):
        with pytest.raises(TimeError, match="not a time"):
            ticks(text)


@pytest.mark.parametrize("names", [("le",), ("a", "a"), ("kind", "b"), "start", ("re", "le"), 5, ("", "b"), (1, 2)])
def test_names_that_cannot_be_columns_of_times(names: Any):
    with pytest.raises(SchemaError, match="time_columns"):
        signals().cht(time_columns=names)
    with pytest.raises(SchemaError, match="time_columns"):
        hr.memory(time_columns=names)


def test_the_payload_keeps_its_columns():
    stream = signals().select(start=col("x"))
    with pytest.raises(SchemaError, match="the payload has a column of that name"):
        stream.cht(time_columns=("start", "end"))
    assert stream.cht(time_columns=("from", "to")).schema.names == ["from", "to", "start"]


def test_both_forms_are_compared_and_differences_shown_as_dates():
    numbered = hr.events([{"le": ticks("2024-05-01"), "re": "inf", "x": 1}]).cht()
    first = signals().where(col("x") == 1)
    assert hr.same_history(first.cht(), numbered)
    assert hr.same_history(numbered, first.cht())
    assert "[2024-05-01T00:00:00, ∞)" in hr.history_diff(first.shift("1 d").cht(), numbered)


def test_messages_show_dates(tmp_path: Path):
    late = SIGNALS + "    insert | 2024-05-02 | 2024-05-04 | | 9"
    with pytest.raises(LateEvent, match=r"promise of the CTI 2024-05-03T00:00:00"):
        hr.events(late).cht()
    run = hr.events(late, progress=hr.explicit("drop")).run
    with pytest.warns(hr.RowsNotUsed, match="its sync time 2024-05-02T00:00:00 is before the CTI 2024-05-03T00:00:00"):
        run()
    (tmp_path / "a.csv").write_text("at,x\n2024-05-01,1\n2024-05-03,2\n2024-05-02,3\n")
    rows = hr.read_csv(str(tmp_path / "a.csv"), "at DATETIME, x LONG", lifetime=hr.point("at"), progress=hr.ordered())
    with pytest.warns(hr.RowsNotUsed, match="2024-05-02T00:00:00"):
        diverted = rows.run().diverted()
    assert diverted["le"].to_pylist() == [datetime(2024, 5, 3, tzinfo=UTC)]


def test_reports_show_dates():
    window = signals().window(hr.tumbling("1 d")).aggregate(n=hr.count())
    report = window.run(finish=False).progress()
    assert report["cti"] == "2024-05-03T00:00:00Z"
    assert [list(times) for times in report["sources"].values()] == [["2024-05-03T00:00:00Z", "2024-05-04T00:00:00Z"]]
    assert "CTI 2024-05-03T00:00:00 has not closed them" in str(report)
    assert hr.events("le | re | x \n 1 | 2 | 3 ").run(finish=False).progress()["cti"] == -(2**63)


def test_an_older_checkpoint_continues_with_ticks(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("at,x\n2024-05-01,1\n")
    schema = "at DATETIME, x LONG"
    stream = hr.read_csv(str(tmp_path / "in"), schema, lifetime=hr.point("at"), progress=hr.ordered())

    def go(**options: Any) -> None:
        sink = hr.files(str(tmp_path / "out"), **options)
        query = stream.start(sink, host="local", checkpoint=str(tmp_path / "state"))
        query.process_all_available()
        query.stop()

    go()
    about = tmp_path / "state" / "headrace.json"
    stored = json.loads(about.read_text())
    assert stored["dates"] == [True, True]
    about.write_text(json.dumps({k: v for k, v in stored.items() if k not in ("dates", "source_dates")}))
    (tmp_path / "in" / "b.csv").write_text("at,x\n2024-05-02,2\n")
    with caplog.at_level(logging.WARNING, "headrace"):
        go()
    assert "began with times as numbers of ticks and continues so" in caplog.text
    lines = [json.loads(p.read_text()) for p in sorted((tmp_path / "out").glob("**/part*.jsonl"))]
    assert [line["le"] for line in lines] == ["2024-05-01T00:00:00.000000Z", ticks("2024-05-02")]
    with pytest.raises(HeadraceError, match="outputs are written in another form"):
        go(time_columns=("start", "end"))


def test_one_table_has_one_form_of_dates(capsys: pytest.CaptureFixture[str]):
    at = datetime(2024, 5, 1, 12, tzinfo=UTC)
    stream = hr.from_arrow(pa.table({"at": pa.array([at], pa.timestamp("us", "UTC"))}), lifetime=hr.point("at"))
    stream.show()
    assert capsys.readouterr().out.splitlines()[1].split(" | ")[0::2] == ["2024-05-01T12:00:00"] * 2
