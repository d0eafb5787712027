"""A traced run: the answers of a run, and every change on the way."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace import col
from headrace.cli import app
from headrace.errors import PlanError
from headrace.tracing.traced import TracedRun

READINGS = hr.events(
    """
    kind    | le | re | re_new | k | x
    insert  | 1  | 2  |        | a | 1
    insert  | 3  | 9  |        | b | 2
    insert  | 12 | 13 |        | a | 3
    insert  | 5  | 6  |        | a | 7
    retract | 3  | 9  | 11     | b | 2
    cti     | 20 |    |        |   |
    insert  | 11 | 12 |        | b | 9
    insert  | 25 | 26 |        | b | 4
    """,
    progress=hr.explicit(late="divert"),
)
SUMS = READINGS.where(col("x") > 1).group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count(), s=hr.sum("x"))


def words(trace: TracedRun) -> list[str]:
    return [text.split()[0] for text in trace.operators["text"].to_pylist()]


def test_its_history_is_that_of_a_run():
    trace = SUMS.trace(batch_rows=1)
    with pytest.warns(hr.RowsNotUsed):
        assert hr.history_diff(trace.history(), SUMS.cht()) == ""


def test_it_runs_the_query_as_it_is_written():
    trace = SUMS.trace()
    assert words(trace) == ["Source", "Admit", "Where", "Aggregate", "Diverted", "Orphans"]
    assert trace.operators["inputs"].to_pylist() == [[], [1], [2], [3], [1], [2]]


def test_every_change_is_there_with_its_batch():
    trace = SUMS.trace(batch_rows=1)
    assert trace.of(4).sort_by([("batch", "ascending"), ("k", "ascending")]).to_pylist() == [
        {"batch": 2, "operator": 4, "le": 0, "re": 10, "weight": 1, "k": "b", "n": 1, "s": 2},
        {"batch": 3, "operator": 4, "le": 0, "re": 10, "weight": 1, "k": "a", "n": 1, "s": 7},
        {"batch": 5, "operator": 4, "le": 10, "re": 20, "weight": 1, "k": "a", "n": 1, "s": 3},
        {"batch": 5, "operator": 4, "le": 10, "re": 20, "weight": 1, "k": "b", "n": 1, "s": 2},
        {"batch": 8, "operator": 4, "le": 20, "re": 30, "weight": 1, "k": "b", "n": 1, "s": 4},
    ]
    assert trace.of(2, batches=range(4, 5))["weight"].to_pylist() == [-1, 1]
    assert trace.of(5)["reason"].to_pylist()[0].startswith("late")
    assert trace.changes.num_rows == sum(trace.operators["changes"].to_pylist())


def test_histories_and_progress_after_a_batch():
    trace = SUMS.trace(batch_rows=1)
    assert trace.history(batch=2).to_pylist() == [{"le": 0, "re": 10, "k": "b", "n": 1, "s": 2}]
    after = [row for row in trace.batches.to_pylist() if row["operator"] == 4]
    assert [row["cti"] for row in after] == [None, None, None, None, None, 20, 20, 20, None]
    assert sum(row["changes_in"] for row in after) == trace.operators["changes"][2].as_py()
    edges = [row for row in trace.edges.to_pylist() if row["consumer"] == 4]
    assert [row["changes"] for row in edges] == [row["changes_in"] for row in after]


def test_state_is_kept_on_request():
    trace = SUMS.trace(batch_rows=1, state=True)
    tables = trace.state(4, batch=3)
    assert sum(table.num_rows for table in tables.values()) == trace.batches.to_pylist()[3 * 6 + 3]["state_rows"]
    assert trace.state(4, batch=8) == {} or sum(t.num_rows for t in trace.state(4, batch=8).values()) == 0
    with pytest.raises(PlanError, match="state=True"):
        SUMS.trace().state(4)
    with pytest.raises(PlanError, match="not kept"):
        trace.state(3)


def test_columns_of_one_name_and_several_types():
    stream = READINGS.select("k", x=col("x").cast("STRING"))
    table = stream.trace().changes
    assert {"x", "x string"} <= set(table.column_names)
    assert table.schema.field("x").type == pa.int64()


def test_dates_are_shown_as_dates():
    events = hr.events("kind | le | re | x\ninsert | 2024-05-01T12:00:00Z | ∞ | 1\ncti | 2024-05-01T12:00:09Z | | ")
    trace = events.where(col("x") > 0).trace()
    assert pa.types.is_timestamp(trace.changes.schema.field("le").type)
    assert pa.types.is_timestamp(trace.batches.schema.field("cti").type)


def test_loops_joins_and_sides_are_traced():
    links = hr.events("kind | le | re | a | b\ninsert | 1 | 9 | 1 | 2\ninsert | 1 | 9 | 2 | 3\ninsert | 4 | 9 | 3 | 4")
    seed = links.where(col("a") == 1)
    paths = hr.recurse(seed, lambda found: found.join(links, on={"b": "a"}).select("a", b=col("b_right")))
    trace = paths.trace(batch_rows=1)
    assert hr.history_diff(trace.history(), paths.cht()) == ""
    assert "Recurse" in trace.operators["kind"].to_pylist()


def test_what_is_not_there_is_named():
    trace = SUMS.trace()
    with pytest.raises(PlanError, match="1 to 6"):
        trace.of(7)
    with pytest.raises(PlanError, match="0 to 1"):
        trace.history(batch=2)
    socket = hr.read_host("127.0.0.1", 1, "x LONG, t LONG", lifetime=hr.point("t"))
    with pytest.raises(PlanError, match="have no end"):
        socket.trace()


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("q.sql").write_text("CREATE STREAM s (t LONG, x LONG) ORDER BY t SOURCE FILE ('s.csv', ',');\n"
                             "QUERY big AS SELECT x FROM s WHERE x > 1;\n")  # fmt: skip
    Path("s.csv").write_text("t,x\n1,1\n2,2\n3,3\n")
    run = CliRunner().invoke
    done = run(app, ["trace", "q.sql:big", "--save", "out"])
    assert done.exit_code == 0, done.output
    assert "Where x > 1" in done.stdout
    assert pq.read_table("out/changes.parquet").num_rows == 3 + 2 * 2
    shown = run(app, ["trace", "q.sql:big", "--batch-rows", "1", "--batches", "2..3"])
    assert shown.stdout.splitlines()[1].split(" | ")[-1].strip() == "3"
    for batches, says in {"3..99": "0 to ", "2..1": "1..2"}.items():
        refused = run(app, ["trace", "q.sql:big", "--batches", batches])
        assert isinstance(refused.exception, PlanError)
        assert says in str(refused.exception)
    wrong = run(app, ["trace", "q.sql:big", "--batches", "x"])
    assert isinstance(wrong.exception, PlanError)
