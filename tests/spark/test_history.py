"""Histories on Spark: every operator's batch SQL says there what it says in DuckDB, and what the live query says.

A query costs Spark a second however small it is, so that many operators share one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import col, stdlib
from headrace.errors import LateEvent, ModuleFailed
from headrace.events import history_diff
from headrace.expr.in_order import concat
from headrace.history.duckdb import DuckDBHistory
from headrace.history.translate import TRANSLATIONS
from headrace.plan.nodes import Node, Output, walk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.host.spark.history import SparkHistory

Agree = Callable[[hr.Stream], pa.Table]
SEEN: set[type[Node]] = {Output}  # every stream ends in one that changes nothing


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> SparkHistory:
    # Here, and not above: only these tests need Spark.
    from headrace.host.spark.history import SparkHistory

    # For a few rows, planning and compiling is all there is to wait for.
    lean = {"adaptive.enabled": "false", "codegen.wholeStage": "false", "shuffle.partitions": "2"}
    return SparkHistory(spark, {f"spark.sql.{name}": value for name, value in lean.items()})


@pytest.fixture(scope="module")
def agree(history: SparkHistory) -> Agree:
    """Live, DuckDB and Spark give the same history."""
    duck = DuckDBHistory()

    def check(stream: hr.Stream) -> pa.Table:
        live = stream.cht()
        assert live.num_rows
        assert history_diff(live, duck.cht(stream.node), names=("live", "duckdb")) == ""
        assert history_diff(live, history.cht(stream.node), names=("live", "spark")) == ""
        SEEN.update(type(node) for node in walk(stream.node))
        return live

    return check


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> hr.Stream:
    """Rows of files, which nothing has to judge."""
    place = tmp_path_factory.mktemp("rows")
    (place / "0.csv").write_text("ts,te,k,x\n1,9,a,1.5\n3,4,b,2.0\n3,4,b,2.0\n5,14,,-0.0\n")
    (place / "1.csv").write_text("ts,te,k,x\n2,7,a,\n17,18,b,4.0\n6,8,c,0.25\n")
    return hr.read_csv(str(place), "ts LONG, te LONG, k STRING, x DOUBLE", lifetime=hr.interval("ts", "te"))


@hr.udf
def half(x: float) -> float:
    return x / 2


class Mean(hr.Aggregate):
    input = "v DOUBLE"
    output = "DOUBLE"

    def compute(self, values: list[Any]) -> Any:
        found = [value for value in values if value is not None]
        return sum(found) / len(found)  # fails where there are only nulls


class Echo(hr.Operator):
    input = "v DOUBLE"
    output = "o DOUBLE"
    time_sensitive = True

    def compute(self, events: list[Any], window: Any) -> list[Any]:
        return [self.event(max(e.le, window.le), e.re, e.v) for e in events]


def test_spans_tables_and_functions(agree: Agree, rows: hr.Stream):
    table = pa.table({"k": ["a", "a", "c"], "Note": ["one", "two", None]})
    plain = rows.where((col("x") < 4.0) | col("x").is_null()).select("k", y=half(col("x") + 1))
    ends = plain.point_at_start().shift(2).union(plain.point_at_end(), plain.set_duration(3).extend(-1).cap_duration(1))
    agree(ends.coalesce().join_table(table, "k", how="left").final())


def test_event_times_and_lifetimes(agree: Agree, rows: hr.Stream):
    times = rows.select("k", "x", a=hr.start(), b=hr.end()).where(col("a") != hr.end())
    altered = times.alter_lifetime(start=hr.start() - 1, duration=col("a") + 1)
    bounded = altered.alter_lifetime(start=hr.start() + 1, earliest=3).cap_duration(7)
    merged = rows.select("k", "x").coalesce().select("k", "x", a=hr.start(), b=hr.end())  # whose ends may be corrected
    agree(times.union(altered, bounded.chop(3, 1), merged))


def test_json(agree: Agree, rows: hr.Stream):
    text = hr.lit('{"k": "').concat(col("k"), hr.lit('", "n": [1.50, null]}'))
    read = rows.select(x=text).select(
        k=col("x").json_text("k"), n=col("x").json_value("$.n[0]", "DOUBLE"), q=col("x").json_query("$.n"),
        e=col("x").json_exists("$.n[1]"), i=col("x").is_json("object"), m=col("x").json_get("n").json_array_length(),
    )  # fmt: skip
    agree(read)


def test_lists(agree: Agree, rows: hr.Stream):
    lists = rows.select("k", a=hr.array("x", 2.0, None))
    shown = lists.select(
        "k", x=col("a").element_at(1), n=col("a").cardinality(), y=col("a").array_contains(2.0),
        z=col("a").array_contains(9.0),
    )  # fmt: skip
    agree(shown)
    agree(lists.explode("a", position="n").union(lists.explode("a", position="n", outer=True)))


def test_joins(agree: Agree, rows: hr.Stream):
    right = rows.shift(2).where(col("x") > 1.0)
    left = rows.select("k", "x")
    joined = left.join(right, "k", where=col("x") <= col("x_right")).select("k", x=col("x_right"))
    outer = left.left_join(right.select("k", y=col("x")), "k").select("k", x=col("y").coalesce(-1.0))
    agree(joined.union(outer, left.anti_join(right, "k"), left.clip(right, "k")))


def test_cut_sessions(agree: Agree, rows: hr.Stream):
    cut = rows.group_by("k").window(hr.session(9, longest=4))
    agree(cut.aggregate(n=hr.count()).union(cut.with_columns(n=hr.count()).select("k", "n")))


def test_joins_made_of_others(agree: Agree, rows: hr.Stream):
    right = rows.shift(2).where(col("x") > 1.0)
    left = rows.select("k", "x")
    full = left.full_join(right, "k", where=col("x") <= col("x_right")).select("k", x=hr.coalesce("x_right", "x"))
    other = left.right_join(right, on=col("x") // 2).select(k="k_right", x="x_right")
    agree(full.union(other, left.semi_join(right, on=["k", col("x") > 2.0])))


def test_columns(agree: Agree, rows: hr.Stream):
    dates = rows.with_columns(t=col("x").cast("LONG").cast("DATETIME")).where(col("t") - "1 h" < "2024-05-01")
    times = dates.with_columns(
        x=hr.greatest((col("t") + "2 min" - col("t")) / timedelta(minutes=1), "x"), n=col("ts") // -2
    )
    top = times.drop("t").top(2, by=["k", "x"], descending=[True, False])
    agree(top.with_columns(k=hr.when(col("x") > 1.0).then("k").otherwise(hr.lit("few"))))


def test_windows_and_aggregates(agree: Agree, rows: hr.Stream):
    calls = {
        "n": hr.count(), "s": hr.sum("x"), "t": hr.sum("ts"), "a": hr.avg("ts"), "v": hr.var("x"), "m": hr.median("ts"),
        "f": hr.first("x"), "g": hr.geometric_mean("x"), "c": concat("k", "-"), "d": hr.distinct_count("x"),
        "l": hr.collect("ts"), "o": hr.top_frequent("k", 1), "h": hr.max("k"),
    }  # fmt: skip
    agree(rows.group_by("k").window(hr.hopping(6, 2, -1)).aggregate(**calls))
    windows = [hr.hopping(2, 5), hr.snapshot(), hr.count_by_start(2), hr.count_by_end(2), hr.session(3)]
    parts = [rows.group_by("k").window(window).aggregate(n=hr.count(), s=hr.max("x")) for window in windows]
    agree(parts[0].union(*parts[1:]))


def test_groups_ranks_and_modules(agree: Agree, rows: hr.Stream):
    inside = rows.group_by("k").apply(lambda g: g.window(hr.snapshot()).top(1, "x")).select("k", "x")
    means = rows.group_by("k").window(hr.tumbling(4), on_error="skip").aggregate(x=Mean().of("x"))
    echoes = rows.group_by("k").window(hr.tumbling(4), clipping="full").operate(Echo(), "x").select("k", x=col("o"))
    agree(inside.union(means, echoes))


def test_frames_of_an_order(agree: Agree, rows: hr.Stream):
    """Of places and of distances, of one event and of several; nulls among the values of the order."""
    ordered = [
        rows.group_by("k").over(by="x", rows=(1, 1)).aggregate(n=hr.sum("x"), m=hr.lag("x", 1, -1.0)),
        rows.over(by="x", descending=True, range=(1.5, 0.5)).aggregate(n=hr.median("x"), m=hr.last_value("x")),
        rows.over(by="k", peers=True).aggregate(n=hr.max("x"), m=hr.nth_value("x", 2)),
    ]
    agree(ordered[0].union(*ordered[1:]))


def test_folds_and_patterns(agree: Agree, rows: hr.Stream):
    agree(rows.group_by("k").over(rows=2).aggregate(m=stdlib.online_mean.of("x")))
    agree(rows.match(hr.pattern("A B+"), n=hr.count(), s=hr.sum("B.x")))


def test_ordered_windows_contents_and_frames(agree: Agree, rows: hr.Stream):
    windows = [
        hr.sliding(2), hr.sliding(3, every=1, tick="time"), hr.sliding(2, every="4 ticks"),
        hr.sliding("5 ticks", every=2), hr.sliding("4 ticks", every="2 ticks", starting="first"),
        hr.sliding(hr.by("x", 2), every=2), hr.sliding(hr.arrival("1 s"), every="6 ticks"),
        hr.delta((col("x") - col("first.x")).abs(), 1), hr.landmark(2, every="5 ticks"), hr.fixed(2, 6),
    ]  # fmt: skip
    parts = [rows.group_by("k").window(window).aggregate(n=hr.count(), s=hr.max("x")) for window in windows]
    agree(parts[0].union(*parts[1:]))
    framed = [rows.group_by("k").over(**frame).aggregate(n=hr.count(), s=hr.sum("x"))
              for frame in ({"rows": 1}, {"range": 3}, {})]  # fmt: skip
    whole = rows.window(hr.tumbling(4)).contents(start="began").select("k", "x", n=col("began"), s=col("x"))
    agree(whole.union(*(one.select("k", "x", "n", "s") for one in framed)))


def test_loops(agree: Agree):
    """A round costs as much as a query, so there are few."""
    links = hr.events("le | re | src | dst\n1 | ∞ | a | b\n2 | 9 | b | c")
    further = {"dst": "src"}
    agree(hr.recurse(links, lambda found: found.join(links, on=further).select("src", dst=col("dst_right"))))


@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_late_rows_and_signals(agree: Agree, tmp_path: Path):
    (tmp_path / "0.csv").write_text("ts,k,x\n10,a,1.0\n14,b,2.0\n11,a,3.0\n30,b,4.0\nnow,b,4.0\n12,a,5.0\n")
    (tmp_path / "1.csv").write_text("ts,k,x\n22,a,6.0\n29,b,7.0\n40,a,8.0\n41,b,9.0\n33,a,10.0\n")
    lifetimes = {"drop": hr.edge("ts", "k", closes=col("x") == 9.0), "adjust": hr.interval("ts", col("ts") + 20)}
    dropped, adjusted = (
        hr.read_csv(str(tmp_path), "ts LONG, k STRING, x DOUBLE", lifetime=lifetime, progress=hr.advance(5, 2, late))
        for late, lifetime in lifetimes.items()
    )
    agree(dropped.union(adjusted))


@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_physical_events_and_odd_names(agree: Agree, spark: SparkSession):
    names = ["select", "Select", "tick`s", 'qu"ote', "Le", "r"]
    payload = {**{name: f"{name}'" for name in names}, "xs": [1.5, None], "f": 0.1, "b": True, "n": -128}
    kinds = [("insert", 1, 9, None), ("retract", 1, 9, 5), ("insert", 1, 5, None), ("retract", 2, 5, 3)]
    table = [{"kind": kind, "le": le, "re": re, "re_new": new, **payload} for kind, le, re, new in kinds]
    others = [("xs", pa.list_(pa.float64())), ("f", pa.float32()), ("b", pa.bool_()), ("n", pa.int8())]
    schema = pa.schema([(name, pa.string()) for name in names] + others)
    before = spark.conf.getAll
    stream = hr.events(table, schema, bad_rows="divert", progress=hr.explicit("drop"))
    assert agree(stream).num_rows == 2  # one retraction finds no event
    assert spark.conf.getAll == before


@pytest.mark.usefixtures("spark")
def test_every_node_ran():
    assert set(TRANSLATIONS) - SEEN == set()


def test_errors_are_those_of_the_live_query(history: SparkHistory, rows: hr.Stream, tmp_path: Path):
    (tmp_path / "0.csv").write_text("ts,k\n10,a\n9,b\n")
    ordered = {"lifetime": hr.point("ts"), "progress": hr.ordered("raise")}
    late = hr.read_csv(str(tmp_path), "ts LONG, k STRING", **ordered)  # type: ignore[arg-type]
    with pytest.raises(LateEvent, match="breaks a promise"):
        history.cht(late.node)
    failing = rows.where(col("x").is_null()).window(hr.tumbling(100)).aggregate(m=Mean().of("x"))
    with pytest.raises(ModuleFailed, match="Mean"):
        history.cht(failing.node)


@pytest.mark.usefixtures("spark")
def test_a_data_frame_is_written_by_the_workers(rows: hr.Stream, tmp_path: Path):
    query = rows.where(col("x") > 1.0)
    query.history("spark").write(tmp_path / "out")
    assert history_diff(query.cht(), pq.read_table(tmp_path / "out")) == ""


def test_texts_that_name_variables_stay_texts(
    spark: SparkSession, history: SparkHistory, monkeypatch: pytest.MonkeyPatch
):
    """Names, literals and options such as `${env:SECRET}` are never replaced, whatever the session allows."""
    from headrace.host.spark.history import SparkHistory

    monkeypatch.setenv("HEADRACE_SECRET", "secret")  # this process is not the JVM: HOME is there in both
    wild = ["${env:HOME}", "${HEADRACE_SECRET}", "${system:user.name}", "${spark.app.name}", "${sparkconf:x:none}"]
    named = [{"le": 1, "k": text, wild[0]: number} for number, text in enumerate(wild)]
    stream = hr.events(named)
    literals = {f"c{number}": hr.lit(text) for number, text in enumerate(wild)}
    asked = stream.where(col("k").isin(*wild)).select("k", **{wild[0]: col(wild[0])}, **literals)
    text = "SELECT k, '${env:HOME}' AS \"${system:user.name}\" FROM s WHERE k = '${env:HOME}'"
    for out in (asked, hr.sql(text, s=stream)):
        live = out.cht()
        assert wild[0] in str(live.to_pylist())
        assert history_diff(live, history.cht(out.node), names=("live", "spark")) == ""
        forced = SparkHistory(spark, {"spark.sql.variable.substitute": "true"})
        assert history_diff(live, forced.cht(out.node), names=("live", "spark, substitution asked for")) == ""
    out = hr.run({"a": asked, "b": hr.sql(text, s=stream)}, host="spark", buckets=1)
    assert history_diff(asked.cht(), out.cht("a")) == ""
    assert history_diff(hr.sql(text, s=stream).cht(), out.cht("b")) == ""
