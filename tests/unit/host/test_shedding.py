"""Load shedding (rule 3.7): which rows a started query drops, their counts, and that a restart drops the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fixtures.rows_to_shed import ROWS, SCHEMA, answer, read, write_files

import headrace as hr
from headrace import col
from headrace.changes import Changes
from headrace.cli.sql.follow import FollowedInProcess
from headrace.errors import CheckpointError, HeadraceError, PlanError, RowsNotUsed, SqlError
from headrace.host.driving import in_process
from headrace.io import shedding
from headrace.io.ingress import Channel
from headrace.io.shedding import Shedder
from headrace.io.sinks import read_events_output
from headrace.plan.nodes import Source
from headrace.progress import Progress
from headrace.sql.parse import parse_statement
from headrace.sql.printer import to_sql
from headrace.sql.session import SqlSession
from headrace.testing.adapter_check.log import LogSource
from headrace.testing.same import assert_same_history


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Four files of 20 rows; those of the third have a late row and a bad one more."""
    return write_files(tmp_path / "in", 4, {2: ["3,late,99", "x,bad,99"]})


def by_file(rows: list[dict[str, Any]]) -> list[list[int]]:
    return [[row["v"] for row in rows if row["t"] // 100 == number] for number in range(4)]


def test_a_batch_keeps_so_many_rows_and_the_others_are_counted(data: Path):
    rows, counts = answer(read(data).shed(above=6))
    assert [len(kept) for kept in by_file(rows)] == [6] * 4
    assert len({tuple(kept) for kept in by_file(rows)}) > 1, "files do not all lose the rows at the same places"
    assert (counts["rows"], counts["accepted"], counts["diverted"]) == (82, 24, 2)
    assert (counts["shed"], counts["dropped"], counts["late"], counts["malformed"]) == (56, 56, 1, 1)


def test_the_greatest_values_are_kept_also_if_the_query_does_not_read_them(data: Path):
    rows, _ = answer(read(data).shed(above=6, by="v"))
    assert [sorted(kept) for kept in by_file(rows)] == [[14, 15, 16, 17, 18, 19]] * 4
    starts, _ = answer(read(data).shed(above=6, by="v").select("t"))
    assert [row["t"] for row in starts] == [row["t"] for row in rows]


def test_the_files_of_a_batch_share_the_rows(data: Path):
    rows, counts = answer(read(data).shed(above=10), files_per_batch=4)
    assert len(rows) == counts["accepted"] == 10
    assert all(kept for kept in by_file(rows))


def test_partitions_share_the_rows_by_their_offsets(tmp_path: Path):
    log = LogSource(str(tmp_path / "log"), "t LONG, v LONG")
    for partition, size in (("a", 30), ("b", 10)):
        log.add(partition)
        log.append(partition, pa.table({"t": np.arange(size), "v": [size] * size}))
    stream = hr.read_source(log, lifetime=hr.point("t"))
    rows, counts = answer(stream.shed(above=8))
    assert sorted(row["v"] for row in rows) == [10] * 2 + [30] * 6
    assert (counts["rows"], counts["shed"]) == (40, 32)
    assert answer(stream.shed(above=40))[1]["shed"] == 0


def test_rows_that_are_points_at_their_arrival_are_shed(data: Path):
    arrivals = hr.read_csv(str(data), SCHEMA, lifetime=hr.by_arrival()).shed(above=6, by="v")
    rows, counts = answer(arrivals)
    assert (len(rows), counts["shed"], counts["malformed"]) == (24, 57, 1)


def test_a_batch_that_is_small_enough_loses_nothing(data: Path):
    expected, counts = answer(read(data))
    assert counts["shed"] == 0
    assert answer(read(data).shed(above=ROWS)) == (expected, counts)
    assert "shed" not in read(data).explain()


def test_progress_is_that_of_all_rows(data: Path):
    """The promise that the first file makes by a row that is shed is broken by the late row of the third."""
    _, shed = answer(read(data).shed(above=1))
    _, whole = answer(read(data))
    assert (shed["late"], shed["malformed"]) == (whole["late"], whole["malformed"])


def test_windows_count_the_rows_that_were_admitted(data: Path):
    counted = read(data).shed(above=6).window(hr.tumbling(100)).aggregate(n=hr.count(), s=hr.sum("v"))
    rows, _ = answer(read(data).shed(above=6))
    answers, _ = answer(counted)
    assert [(row["n"], row["s"]) for row in answers] == [(len(kept), sum(kept)) for kept in by_file(rows)]


def test_a_filter_does_not_change_which_rows_are_shed(data: Path):
    stream = hr.read_csv(str(data), SCHEMA, lifetime=hr.point("t")).shed(above=6)
    rows, _ = answer(stream)
    filtered, counts = answer(stream.where(col("v") > 9))
    assert filtered == [row for row in rows if row["v"] > 9]
    assert counts["rows"] == 82


@pytest.mark.parametrize("by", [None, "v"])
@pytest.mark.parametrize("files_per_batch", [1, 3])
def test_a_restart_in_the_middle_of_a_batch_sheds_the_same_rows(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str | None, files_per_batch: int
):
    """A batch fails when its rows have been read, and other tasks run it again."""
    stream = read(data).shed(above=6, by=by)
    counted = stream.group_by("k").window(hr.tumbling(100)).aggregate(n=hr.count(), s=hr.sum("v"))
    expected = [answer(one, files_per_batch=files_per_batch) for one in (stream, counted)]
    for number, one in enumerate((stream, counted)):
        options = {"checkpoint": str(tmp_path / f"state{number}"), "files_per_batch": files_per_batch}
        out = hr.files(str(tmp_path / f"out{number}"))
        with monkeypatch.context() as patch:
            patch.setattr(in_process, "available_cores", lambda: 3)
            patch.setattr(in_process, "run_intake", failing(in_process.run_intake, batch=1))
            query = one.start(out, host="local", **options)
            with pytest.raises(HeadraceError):
                query.process_all_available()
            query.stop()
        (before,) = query.counts.values()
        monkeypatch.setattr(in_process, "available_cores", lambda: 1)
        query = one.start(out, host="local", **options, buckets=1)
        query.finish()
        query.stop()
        (counts,) = query.counts.values()
        assert before["rows"] < counts["rows"]
        rows, expected_counts = expected[number]
        written = read_events_output(str(tmp_path / f"out{number}"), one.schema)
        assert_same_history(written, pa.Table.from_pylist(rows))
        assert counts == expected_counts


def failing(run: Callable[..., Any], batch: int) -> Callable[..., Any]:
    def intake(job: Any, planned: Any, *rest: Any, **more: Any) -> Any:
        messages = run(job, planned, *rest, **more)
        if planned.number == batch:
            raise OSError("the machine is gone")
        return messages

    return intake


@given(st.data())
def test_blocks_do_not_decide_which_rows_are_shed(choice: st.DataObject):
    values = choice.draw(st.lists(st.none() | st.integers(-3, 3), max_size=30))
    most = choice.draw(st.integers(0, 12))
    by = choice.draw(st.sampled_from([None, "v"]))
    table = pa.table({"t": pa.array(range(len(values)), pa.int64()), "v": pa.array(values, pa.int64())})
    node = hr.from_arrow(table, lifetime=hr.point("t")).shed(1, by).node
    assert isinstance(node, Source)
    cuts = sorted(choice.draw(st.lists(st.integers(0, len(values)), max_size=4)))
    waiting = choice.draw(st.integers(0, 5))
    whole = shed_rows(node, values, [], most, 100)
    assert shed_rows(node, values, cuts, most, waiting) == whole
    assert len(whole) == min(most, len(values))
    if by is not None:
        ranks = sorted((-10 if value is None else value for value in values), reverse=True)[:most]
        assert sorted((-10 if values[t] is None else values[t] for t in whole), reverse=True) == ranks


def shed_rows(source: Source, values: list[int | None], cuts: list[int], most: int, waiting: int) -> list[int]:
    """The places of the rows that are kept, if they come in blocks."""
    before, shedding._WAITING = shedding._WAITING, waiting
    try:
        shedder, channel = Shedder(source, most, "part"), Channel(source, Progress())
        for start, stop in zip([0, *cuts], [*cuts, len(values)], strict=True):
            times = np.arange(start, stop)
            payload = pa.table({"t": times, "v": pa.array(values[start:stop], pa.int64())})
            shedder.take(Changes.inserts(times, times + 1, payload))
        kept = shedder.end(channel)
    finally:
        shedding._WAITING = before
    assert channel.report.counts["shed"] == len(values) - len(kept) == -channel.report.counts["accepted"]
    return kept.le.tolist()


# --- what runs to its end sheds nothing ------------------------------------------------------------------------------


def test_runs_and_histories_use_every_row(data: Path):
    stream, whole = read(data).shed(above=2), read(data)
    with pytest.warns(RowsNotUsed, match=r"\(1 late, 1 malformed; 2 diverted\)"):
        assert stream.cht().equals(whole.cht())
    assert stream.history("duckdb").cht().equals(whole.history("duckdb").cht())


def test_a_run_with_a_checkpoint_is_a_part_of_a_query_and_warns(data: Path, tmp_path: Path):
    with pytest.warns(RowsNotUsed, match=r"56 shed; 2 diverted, 56 dropped\)") as seen:
        run = read(data).shed(above=6).run(checkpoint=str(tmp_path / "state"))
    assert run.cht().num_rows == 24
    assert len(seen) == 1


def test_a_checkpoint_continues_with_the_same_rule_only(data: Path, tmp_path: Path):
    given: dict[str, Any] = {"checkpoint": str(tmp_path / "state")}
    answer(read(data).shed(above=6), **given)
    for other in (read(data), read(data).shed(above=7)):
        with pytest.raises(CheckpointError):
            answer(other, **given)


# --- what is shown, and what is refused ------------------------------------------------------------------------------


def test_explain_and_progress_show_the_rule_and_the_count(data: Path):
    stream = read(data).shed(above=6_000, by="v")
    assert "sheds the least v above 6,000 rows of a batch" in stream.explain()
    query = read(data).shed(above=6).start(hr.memory(), host="local", files_per_batch=1)
    query.process_all_available()
    query.stop()
    assert "56 shed" in str(query.progress())
    assert "the source sheds at random above 6 rows of a batch" in str(query.progress())


SQL = """CREATE STREAM s (t LONG, k STRING, v LONG) ORDER BY t SOURCE FILE ('in')
    WITH PROGRESS ADVANCE 5 ticks LATE DIVERT"""


@pytest.mark.parametrize(("clause", "by"), [("RANDOM", None), ("BY v", "v"), ("by V", "v")])
def test_sql_builds_the_same_plan(data: Path, clause: str, by: str | None):
    text = f"{SQL} WITH SHEDDING {clause} ABOVE 6 ROWS"
    part = parse_statement(text)
    assert parse_statement(to_sql(part)) == part
    script = hr.script(f"{text};", base=data.parent)
    assert script.streams["s"].node == read(data).shed(above=6, by=by).node


def test_show_diverted_has_the_count(data: Path):
    session = SqlSession(base=data.parent)
    (_,) = session.execute(f"{SQL} WITH SHEDDING RANDOM ABOVE 6 ROWS")
    followed = FollowedInProcess(session.catalog.streams["s"].stream)
    followed.poll()
    followed.stop()
    assert "56 shed" in "\n".join(followed.notes())
    session.latest = followed.run
    (shown,) = session.execute("SHOW DIVERTED")
    assert [row[1] for row in shown.rows][-1] == "56 rows shed"  # type: ignore[union-attr]
    assert len(shown.rows) == 3  # type: ignore[union-attr]


def test_shedding_that_has_no_meaning_is_refused(data: Path):
    for above in (0, -1, 1.5, True):
        with pytest.raises(PlanError, match="number of rows that a batch may have"):
            read(data).shed(above=above)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="by a number or a time"):
        read(data).shed(above=1, by="k")
    with pytest.raises(HeadraceError, match="nothing"):
        read(data).shed(above=1, by="nothing")
    with pytest.raises(PlanError, match="only a stream as it is read"):
        read(data).where(col("v") > 1).shed(above=1)
    edges = hr.read_csv(str(data), SCHEMA, lifetime=hr.edge("t", "k"))
    drawn = hr.events("kind|le|re|x\ninsert|1|9|3\n")
    for stream in (edges, drawn):
        with pytest.raises(PlanError, match="none may be shed"):
            stream.shed(above=1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{SQL} WITH SHEDDING RANDOM ABOVE 0 ROWS", "the number of rows that a batch may have"),
        (f"{SQL} WITH SHEDDING RANDOM ABOVE 1.5 ROWS", "not a whole number"),
        (f"{SQL} WITH SHEDDING BY k ABOVE 5 ROWS", "by a number or a time"),
        (f"{SQL} WITH SHEDDING BY w ABOVE 5 ROWS", "w"),
        (f"{SQL} WITH SHEDDING ABOVE 5 ROWS", "SHEDDING"),
        (f"{SQL} WITH SHEDDING RANDOM ABOVE 5", "ROWS"),
        (f"{SQL}; CREATE STREAM x WITH SHEDDING RANDOM ABOVE 5 ROWS AS SELECT v FROM s", "a SOURCE sheds rows"),
        (f"{SQL}; CREATE STREAM x ORDER BY t WITH SHEDDING RANDOM ABOVE 5 ROWS AS s", "a SOURCE sheds rows"),
        (SQL.replace("ORDER BY t", "LIFETIME EDGE AT t KEY k") + " WITH SHEDDING RANDOM ABOVE 5 ROWS", "may be shed"),
    ],
)
def test_errors_of_sql(data: Path, text: str, problem: str):
    with pytest.raises(SqlError, match=problem):
        hr.script(text, base=data.parent)
