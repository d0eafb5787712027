"""Arguments of the wrong kind: told at once, by an error that says what to write instead, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace import col, errors
from headrace.cli import app

STREAM = hr.events("le | re | k | i\n1 | 4 | a | 5\n2 | 3 | b | 1")
WINDOWED = STREAM.group_by("k").window(hr.tumbling(2))
Build = Callable[[], Any]


def refused(build: Build, kind: type[errors.HeadraceError]) -> errors.HeadraceError:
    with pytest.raises(kind) as raised:
        build()
    error = raised.value
    assert error.given is not None
    assert error.allowed
    assert error.instead
    return error


@pytest.mark.parametrize(
    ("build", "instead"),
    [
        (lambda: STREAM.where("i > 3"), "where(col('k') == ...)"),
        (lambda: STREAM.where(True), "where(col('k') == ...)"),
        (lambda: STREAM.where(None), "where(col('k') == ...)"),
        (lambda: STREAM.where(hr.when(col("i") > 1)), "then"),
        (lambda: STREAM.select(3), "select(name=3)"),
        (lambda: STREAM.select("k", None), "select(name=None)"),
        (lambda: STREAM.select(["k", "i"]), "select(*"),
        (lambda: STREAM.group_by(3), "group_by('k')"),
        (lambda: STREAM.group_by(["k", "i"]), "group_by(*"),
        (lambda: STREAM.group_by(g=3), "group_by('k')"),
        (lambda: WINDOWED.aggregate(m="i"), "m=hr.max('i')"),
        (lambda: WINDOWED.aggregate("i"), "hr.max('i')"),
        (lambda: WINDOWED.aggregate(m=3), "m=hr.count()"),
        (lambda: WINDOWED.aggregate(m=hr.count), "m=hr.count()"),
        (lambda: STREAM.join(STREAM, on="k", where="i > 3"), "where=col('k') == ..."),
        (lambda: hr.point(3), "col('ts')"),
        (lambda: hr.interval("a", None), "col('ts')"),
    ],
)
def test_what_is_no_expression(build: Build, instead: str):
    assert instead in refused(build, errors.ExpressionError).instead


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (STREAM.union, "at least one other stream"),
        (lambda: STREAM.union(None), "this is not a stream"),
        (lambda: STREAM.union(STREAM, "x"), "this is not a stream"),
        (lambda: STREAM.join(None), "this is not a stream"),
        (lambda: STREAM.join(STREAM.group_by("k")), "this is not a stream"),
        (lambda: STREAM.join(STREAM, on=3), "join keys are columns"),
        (lambda: STREAM.join(STREAM, on=col("k") == col("i")), "keys of a join are columns, not a condition"),
        (lambda: STREAM.join(STREAM, on=["k", 3]), "join keys are columns"),
        (lambda: STREAM.join(STREAM, on={"k": None}), "join keys are columns"),
        (lambda: hr.run(STREAM), "named streams"),
        (lambda: hr.run({}), "named streams"),
        (lambda: hr.run({"out": None}), "this is not a stream"),
        (lambda: hr.read_csv("a.csv", "ts LONG, v INT", lifetime="ts"), "this is not a lifetime"),
        (lambda: hr.read_csv("a.csv", "le LONG", lifetime=hr.point("le")), "at least one payload column"),
        (lambda: hr.read_events("a.csv", ""), "at least one payload column"),
    ],
)
def test_what_is_no_stream_or_does_not_name_one(build: Build, said: str):
    assert said in refused(build, errors.PlanError).message


def test_several_streams_in_a_list_are_told_the_star():
    assert refused(lambda: STREAM.union([STREAM, STREAM]), errors.PlanError).instead == "union(*streams)"


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (STREAM.start, "at least one sink"),
        (lambda: hr.start_all([]), "at least one sink"),
        (lambda: STREAM.start("x"), "this is not a sink"),
        (lambda: STREAM.start(None), "this is not a sink"),
        (lambda: STREAM.start([hr.memory()]), "this is not a sink"),
        (lambda: STREAM.start(hr.memory(), "out"), "this is not a sink"),
        (lambda: hr.start_all([(STREAM, "x")]), "this is not a sink"),
        (lambda: hr.start_all([("x", hr.memory())]), "this is not a stream"),
        (lambda: hr.start_all(STREAM), "pairs of a stream and a sink"),
        (lambda: hr.start_all([STREAM]), "pairs of a stream and a sink"),
    ],
)
def test_what_is_no_sink(build: Build, said: str):
    assert said in refused(build, errors.PlanError).message


def test_a_sink_that_was_not_called_is_told_so():
    assert refused(lambda: STREAM.start(hr.memory), errors.PlanError).instead == "memory()"


@pytest.mark.parametrize("host", ["local", "spark"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True])
def test_buckets_are_counted_from_one(host: str, value: object):
    error = refused(lambda: STREAM.cht(host=host, buckets=value), errors.PlanError)
    assert "buckets" in error.message
    assert error.given == value
    assert error.instead == "buckets=1"


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: STREAM.cht(batch_rows=0), "batch_rows"),
        (lambda: STREAM.cht(batch_rows=-5), "batch_rows"),
        (lambda: hr.run({"out": STREAM}, batch_rows=0), "batch_rows"),
        (lambda: STREAM.start(hr.memory(), buckets=0), "buckets"),
        (lambda: STREAM.start(hr.memory(), files_per_batch=0), "files_per_batch"),
    ],
)
def test_numbers_that_must_be_positive(build: Build, name: str):
    assert name in refused(build, errors.PlanError).message


def test_options_may_be_left_open():
    assert STREAM.cht(buckets=None, batch_rows=None).equals(STREAM.cht())


@pytest.mark.parametrize(
    ("build", "given", "allowed", "instead"),
    [
        (lambda: STREAM.cht(foo=1), "foo", "batch_rows", "leave it out"),
        (lambda: STREAM.cht(bucket=1), "bucket", "buckets", "buckets=..."),
        (lambda: STREAM.run(consistancy="final"), "consistancy", "consistency", "consistency=..."),
        (lambda: STREAM.run(host="spark", chekpoint="x"), "chekpoint", "checkpoint", "checkpoint=..."),
        (lambda: STREAM.run(host="spark", file_per_batch=1), "file_per_batch", "master", "files_per_batch=..."),
        (lambda: STREAM.start(hr.memory(), chekpoint="x"), "chekpoint", "trigger", "checkpoint=..."),
        (lambda: hr.start_all([(STREAM, hr.memory())], Master="local"), "Master", "trigger", "master=..."),
    ],
)
def test_an_unknown_option_is_told_the_nearest(build: Build, given: str, allowed: str, instead: str):
    error = refused(build, errors.PlanError)
    assert error.given == given
    assert allowed in error.allowed.split(", ")
    assert error.instead == instead


def test_what_is_right_still_works():
    assert (
        STREAM.where(col("i") > 3).select("k", col("i").alias("j"), two=2, none=None, text=hr.lit("x")).cht().num_rows
        == 1
    )
    assert STREAM.union(STREAM, STREAM).cht().num_rows == 6
    pairs = STREAM.join(STREAM, on={"k": "k"}, where=col("i") > 3).cht()
    assert pairs.num_rows == 1
    assert STREAM.join(STREAM, on=col("k"), where=col("i") > 3).cht().num_rows == 1
    assert STREAM.group_by(g="i").window(hr.tumbling(9)).aggregate(hr.count()).cht().num_rows == 2
    assert STREAM.group_by("k", j=col("i") + 1).window(hr.tumbling(9)).aggregate(hr.count()).cht().num_rows == 2


# --- the master of the demo -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_variable", [False, True])
def test_the_demo_gives_its_master_to_its_spark_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_variable: bool
):
    started: list[list[str]] = []

    def start(command: list[str], **_: Any) -> None:
        started.append(command)
        raise errors.HostError("not in this test")

    monkeypatch.setattr("headrace.cli.demo.child.subprocess.Popen", start)
    arguments = ["demo", "--events", "200", "--keep", str(tmp_path / "kept")]
    if by_variable:
        monkeypatch.setenv("HEADRACE_MASTER", "local[3]")
    else:
        monkeypatch.setenv("HEADRACE_MASTER", "local[9]")
        arguments += ["--master", "local[3]"]
    with pytest.raises(errors.HostError, match="not in this test"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert started[0][-2:] == [str(tmp_path / "kept"), "local[3]"]


def test_the_demo_does_not_promise_to_kill_a_connect_server():
    def demo() -> None:
        CliRunner().invoke(app, ["demo", "--master", "sc://host"], catch_exceptions=False)

    assert refused(demo, errors.PlanError).instead == "headrace demo --no-crash --master sc://host"


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.where(hr.sum("v") > 1),
        lambda s: s.select(x=hr.sum("v")),
        lambda s: s.top(1, by=hr.max("v")),
        lambda s: s.group_by(x=hr.count()),
        lambda s: s.join(s, on="k", where=hr.sum("v") > 1),
    ],
)
def test_an_aggregate_is_refused_where_one_event_is_looked_at(build: Callable[[hr.Stream], object]):
    with pytest.raises(hr.HeadraceError, match="looks at one event at a time"):
        build(hr.events("le | k | v \n 1 | a | 2"))


@pytest.mark.parametrize("method", ["join", "left_join", "anti_join"])
def test_two_streams_of_instants_do_not_meet(method: str, tmp_path: Path):
    """They would only where both fall on the same tick; the rule, and its words, are those of SQL."""
    (tmp_path / "a.csv").write_text("t,k\n1,x\n")
    points = hr.read_csv(str(tmp_path / "a.csv"), "t LONG, k STRING", lifetime=hr.point("t"))
    arrivals = hr.read_csv(str(tmp_path / "a.csv"), "t LONG, k STRING", lifetime=hr.by_arrival())
    spans = points.set_duration(5)
    for left, right in (
        (points, points),
        (points, arrivals),
        (points.where(col("k") == "x").select("k").shift(1), spans.point_at_end()),
        (points.union(arrivals), points.final()),
    ):
        error = refused(lambda left=left, right=right: getattr(left, method)(right, on="k"), errors.PlanError)
        assert "both sides are instants" in error.message
        assert "set_duration" in error.instead
    with pytest.raises(errors.SqlError, match="both sides are instants"):
        hr.sql("SELECT p.k FROM p JOIN q USING (k)", p=points, q=arrivals)
    for left, right in ((spans, points), (points, spans), (STREAM, STREAM)):
        getattr(left, method)(right, on="k")


@pytest.mark.parametrize(
    ("build", "given"),
    [
        (lambda s: s.aggregate(n=hr.count()), "aggregate(n=count(*))"),
        (lambda s: s.group_by("x").aggregate(hr.max("x")), "group_by('x').aggregate(max(x))"),
    ],
)
def test_an_aggregate_without_a_window_says_what_sql_says(build: Callable[[hr.Stream], object], given: str):
    stream = hr.events("le | x\n 1 | 2").point_at_start()
    with pytest.raises(errors.PlanError) as found:
        build(stream)
    assert found.value.given == given
    assert "window(hr.tumbling('10 s')).aggregate(...)" in str(found.value)
    with pytest.raises(errors.SqlError) as in_sql:
        hr.sql("SELECT max(x) AS n FROM s GROUP BY x", s=stream)
    assert found.value.message in in_sql.value.message
