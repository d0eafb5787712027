"""Any query as batch SQL (rule 10.1): the history is the live query's, whatever the plan, the windows and the types."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from tests.strategies.plans import plans

import headrace as hr
from headrace import col
from headrace.errors import HistoryError, ModuleFailed, SinkError
from headrace.events import history_diff
from headrace.expr.aggregates import AGGREGATES
from headrace.expr.in_order import concat
from headrace.history.dialect import DuckDBDialect
from headrace.history.duckdb import DuckDBHistory
from headrace.history.translate import TRANSLATIONS, UNTRANSLATED, translate
from headrace.operators.reference import reference_stream, table_of
from headrace.plan.nodes import Aggregate, Combine, Merge, Node
from headrace.testing.verify.differential import seen_after

DUCK = DuckDBHistory()
STREAM = hr.events("""
    kind    | le | re | re_new | k | i  | x
    insert  | 1  | ∞  |        | a | 1  | 10.5
    insert  | 3  | 9  |        | b | -4 | 2.0
    insert  | 3  | 9  |        | b | -4 | 2.0
    retract | 1  | ∞  | 5      | a | 1  | 10.5
    insert  | 4  | ∞  |        | a | 7  | 1.0
    cti     | 4  |    |        |   |    |
    insert  | 6  | 8  |        |   | 3  |
    insert  | 5  | 14 |        | a |    | 0.25
    insert  | 5  | 11 |        | c | 2  | -3.0
    retract | 5  | 11 | 5      | c | 2  | -3.0
    insert  | 17 | 18 |        | a | 1  | 1.0
""")
LEFT = STREAM.where(col("k") != "b")
WINDOWS = {
    "tumbling": hr.tumbling(4),
    "hopping": hr.hopping(6, 2, -1),
    "jumping": hr.hopping(2, 5),
    "snapshot": hr.snapshot(),
    "count_by_start": hr.count_by_start(2),
    "count_by_end": hr.count_by_end(2),
    "session": hr.session(3),
}


def agree(stream: hr.Stream, *, rows: bool = True) -> pa.Table:
    """The live history, if the batch one is the same; `rows` asks for some."""
    live = stream.cht()
    assert history_diff(live, DUCK.cht(stream.node), names=("live", "batch")) == ""
    assert live.num_rows or not rows
    return live


def subclasses(kind: type[Node]) -> Iterator[type[Node]]:
    for below in kind.__subclasses__():
        yield below
        yield from subclasses(below)


# ---- every node


def test_every_node_is_translated_or_says_why_not():
    known = {*TRANSLATIONS, *UNTRANSLATED}
    bases = {base for kind in known for base in kind.__mro__[1:]}
    ours = [
        kind for kind in subclasses(Node) if kind.__module__.startswith("headrace.")
    ]  # and not those of other tests
    unknown = {kind.__name__ for kind in ours if kind not in known and kind not in bases}
    assert unknown == set()
    assert not set(TRANSLATIONS) & set(UNTRANSLATED)
    assert all(len(reason) > 20 for reason in UNTRANSLATED.values())


def test_a_node_without_a_translation_is_named():
    aggregate = STREAM.window(hr.tumbling(4)).aggregate(n=hr.count()).node
    assert isinstance(aggregate, Aggregate)
    halves = Combine(aggregate.input, aggregate)
    for node in (STREAM.diverted().node, halves, Merge(halves, aggregate)):
        with pytest.raises(HistoryError, match="has no translation") as caught:
            translate(node, DuckDBDialect())
        assert any(kind.__name__ in str(caught.value) for kind in UNTRANSLATED)
        assert caught.value.instead


@given(plans(depth=4, max_events=10))
@settings(max_examples=max(15, settings().max_examples * 3 // 5))
def test_differential_engine_and_duckdb_and_twins(stream: hr.Stream):
    batch = DUCK.cht(stream.node)
    rows, _ = reference_stream(stream.node, seen_after(stream.node, 10**6), ended=True)
    assert history_diff(table_of(rows, stream.node.schema), batch, names=("twins", "batch")) == ""
    assert history_diff(stream.cht(), batch, names=("live", "batch")) == ""


def test_each_operator_alone():
    agree(STREAM)
    agree(STREAM.select("k", y=col("x") * 2, z=col("i").is_null()))
    agree(STREAM.shift(-3).extend(2).shift(5))
    agree(STREAM.extend(-4))
    agree(STREAM.set_duration(3).union(STREAM.point_at_start(), STREAM.point_at_end()))
    agree(STREAM.cap_duration(2).coalesce())
    agree(STREAM.select("k").distinct())
    agree(STREAM.final())
    agree(STREAM.where(col("x") > 1000), rows=False)


@pytest.mark.parametrize("on", [(), "k", ("k", "i")], ids=str)
@pytest.mark.parametrize("where", [None, col("i") >= col("i").coalesce(0)], ids=["any", "where"])
def test_joins_of_two_streams(on: Any, where: Any):
    right = STREAM.shift(1)
    agree(STREAM.join(right, on, where))
    agree(STREAM.left_join(right.where(col("x") > 1), on, where))
    agree(STREAM.anti_join(right.where(col("x") > 1), on, where))
    agree(STREAM.clip(right, on))


def test_equal_left_events_are_matched_each():
    twice = hr.events("le | re | k\n1 | 9 | a\n1 | 9 | a\n2 | 3 | b")
    some = hr.events("le | re | k\n3 | 5 | a\n4 | 6 | a")
    assert agree(twice.left_join(some, "k")).num_rows == 9
    assert agree(twice.anti_join(some, "k")).num_rows == 5
    assert agree(twice.clip(some, "k")).num_rows == 3


def test_groups_with_queries_of_their_own():
    grouped = STREAM.group_by("k")
    agree(grouped.apply(lambda g: g.window(hr.count_by_start(2)).aggregate(n=hr.count())))
    agree(grouped.apply(lambda g: g.left_join(g.shift(2), "i")))
    agree(grouped.apply(lambda g: g.clip(g.where(col("i") > 1))))
    agree(grouped.apply(lambda g: g.group_by("i").window(hr.snapshot()).top(1, "x")))


def test_tables_beside_a_stream():
    table = pa.table({"k": ["a", "a", "c", None], "Note": ["one", "two", "three", "none"], "x": [1.0, 2.0, 3.0, 4.0]})
    agree(STREAM.join_table(table, "k"))
    agree(STREAM.join_table(table, "k", how="left").where(col("x_right").is_null() | (col("x_right") > 1.0)))
    agree(STREAM.join_table(table, {"k": "Note"}, how="left"))


# ---- windows and aggregates

CALLS = {
    "count": [hr.count(), hr.count("x")],
    "sum": [hr.sum("i"), hr.sum("x")],
    "avg": [hr.avg("i"), hr.avg("x")],
    "min": [hr.min("i"), hr.min("k")],
    "max": [hr.max("x"), hr.max("k")],
    "var": [hr.var("i"), hr.var("x")],
    "stddev": [hr.stddev("i"), hr.stddev("x")],
    "first": [hr.first("i"), hr.first("k")],
    "last": [hr.last("x"), hr.last("k")],
    "median": [hr.median("i"), hr.median("x")],
    "quantile": [hr.quantile("i", 0.3), hr.quantile("x", 0.9)],
    "percentile_disc": [hr.percentile_disc("k", 0.3), hr.percentile_disc("x", 0.9, where=hr.col("i") > 0)],
    "geometric_mean": [hr.geometric_mean("i"), hr.geometric_mean("x")],
    "collect": [hr.collect("i"), hr.collect("k")],
    "distinct_count": [hr.distinct_count("i"), hr.distinct_count("k")],
    "approx_distinct": [hr.approx_distinct("x")],
    "top_frequent": [hr.top_frequent("k", 2), hr.top_frequent("i", 1)],
    "concat": [concat("k", "-")],
}


@pytest.mark.parametrize("window", WINDOWS)
def test_every_aggregate_over_every_window(window: str):
    assert set(CALLS) == set(AGGREGATES)
    named = {f"{name}_{i}": call for name, calls in CALLS.items() for i, call in enumerate(calls)}
    agree(STREAM.window(WINDOWS[window]).aggregate(**named))
    agree(STREAM.group_by("k").window(WINDOWS[window]).aggregate(**named))
    agree(STREAM.group_by("k", odd=col("i") % 2).window(WINDOWS[window]).aggregate(r=hr.sum("x") / hr.count()))
    agree(STREAM.group_by("k").window(WINDOWS[window]).top(2, ["x", "i"], descending=False))
    agree(STREAM.window(WINDOWS[window]).top(1, "x", each=["k", col("i") % 2]))
    agree(STREAM.window(WINDOWS[window]).distinct("k"))


def test_sums_that_need_care():
    finite = [(1e308, 2**62), (1e308, 2**62), (-1e308, -1), (5e-324, 0)]
    values = [*finite, (float("inf"), 1), (float("nan"), 2**62), (-0.0, 3)]
    wild = hr.events([{"le": i, "x": x, "i": n} for i, (x, n) in enumerate(values)], "x DOUBLE, i LONG")
    calls = {"s": hr.sum("x"), "a": hr.avg("x"), "v": hr.var("x"), "n": hr.sum("i"), "m": hr.avg("i"), "h": hr.max("x")}
    agree(wild.window(hr.hopping(4, 1)).aggregate(**calls))
    agree(wild.where(col("x") < 1e309).window(hr.tumbling(100)).aggregate(**calls))


def test_windows_of_answers_of_windows():
    hourly = STREAM.group_by("k").window(hr.tumbling(3)).aggregate(n=hr.count(), x=hr.max("x"))
    agree(hourly.window(hr.hopping(8, 4)).aggregate(n=hr.sum("n"), top=hr.max("x")))
    agree(hourly.shift(2).group_by("n").window(hr.session(2)).aggregate(last=hr.last("x")))


# ---- users' functions and modules


@hr.udf
def half(x: float) -> float:
    return x / 2


@hr.udf(takes="STRING, LONG", returns="STRING", nulls="pass")
def tagged(text: str | None, number: int | None) -> str | None:
    return f"{text or '-'}{number}"


class Mean(hr.Aggregate):
    input = "v DOUBLE"
    output = "DOUBLE"

    def compute(self, values: list[Any]) -> Any:
        found = [value for value in values if value is not None]
        return sum(found) / len(found)  # fails where there are only nulls


class Total(hr.IncrementalAggregate):
    input = "v DOUBLE, n LONG"
    output = "DOUBLE"

    def initial(self) -> float:
        return 0.0

    def add(self, state: float, rows: list[Any]) -> float:
        return state + sum((row.v or 0.0) + (row.n or 0) for row in rows)

    def remove(self, state: float, rows: list[Any]) -> float:
        return state - sum((row.v or 0.0) + (row.n or 0) for row in rows)

    def compute(self, state: float) -> float:
        return state


class Busy(hr.Aggregate):
    """How long its events last together, as far as it sees."""

    input = "v DOUBLE"
    output = "LONG"
    time_sensitive = True

    def compute(self, events: list[Any], window: Any) -> int:
        return sum(min(e.re, 1000) - e.le for e in events) + 10_000 * window.le


class Echo(hr.Operator):
    input = "v DOUBLE"
    output = "o DOUBLE, n LONG"
    time_sensitive: ClassVar[bool] = True

    def compute(self, events: list[Any], window: Any) -> list[Any]:
        return [self.event(max(e.le, window.le), max(e.re, window.le + 1), e.v, len(events)) for e in events]


class Both(hr.Operator):
    input = "a DOUBLE"
    output = "o DOUBLE"

    def compute(self, values: list[Any]) -> list[Any]:
        return [value for value in values if value is not None][:2]


def test_users_functions():
    agree(STREAM.select("k", y=half("x"), t=tagged("k", "i")))
    agree(STREAM.where(half("x") > 0.5).select(t=tagged("k", col("i") + 1)))
    agree(STREAM.group_by("k").window(hr.tumbling(4)).aggregate(m=half(hr.sum(half("x")))))


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_users_modules_over_every_window(window: str):
    windowed = STREAM.group_by("k").window(WINDOWS[window], on_error="skip")
    agree(windowed.aggregate(m=Mean().of("x"), n=hr.count()))
    agree(windowed.aggregate(t=Total().of("x", "i"), b=Busy().of("x")))
    agree(windowed.operate(Both(), col("x") + 1))


def test_a_module_that_fails_is_told_as_the_live_query_tells_it():
    query = STREAM.group_by("k").window(hr.tumbling(4)).aggregate(m=Mean().of("x"))
    for run in (query.cht, query.history("duckdb").cht):
        with pytest.raises(ModuleFailed, match=r"Mean.*4 \.\. 8.*division by zero"):
            run()


@pytest.mark.parametrize("clipping", ["none", "left", "right", "full"])
@pytest.mark.parametrize("timestamping", [None, "align", "unchanged", "clip"])
@pytest.mark.parametrize("window", ["hopping", "snapshot", "count_by_end", "session"])
def test_clipping_and_timestamping(clipping: Any, timestamping: Any, window: str):
    policy = {"clipping": clipping, "timestamping": timestamping}
    agree(STREAM.group_by("k").window(WINDOWS[window], **policy).operate(Echo(), "x"))
    if timestamping in (None, "align"):
        agree(STREAM.window(WINDOWS[window], **policy).aggregate(b=Busy().of("x")))


class Onwards(hr.Operator):
    """Changes nothing before the event that caused the change."""

    input = "v DOUBLE"
    output = "o DOUBLE"
    time_sensitive = True

    def compute(self, events: list[Any], window: Any) -> list[Any]:
        return [self.event(max(e.le, window.le), max(e.le, window.le) + 1, e.v) for e in events]


def test_outputs_bound_to_time():
    inserts = hr.events("le | re | k | x\n1 | 9 | a | 1.0\n3 | ∞ | b | 2.0\n5 | 7 | a | 3.0")
    agree(inserts.group_by("k").window(hr.tumbling(4), timestamping="time_bound").operate(Onwards(), "x"))


# ---- names and types


def test_names_that_sql_would_trip_over():
    names = [
        "select",
        "Select",
        "SELECT",
        "a b",
        'qu"ote',
        "tick`s",
        "l",
        "r",
        "e",
        "w",
        "Le",
        "RE",
        "Kind",
        "é",
        "x.y",
    ]
    rows = [{"le": i, "re": 5 + i, **{name: f"{name}{i % 2}" for name in names}} for i in range(3)]
    odd = hr.events(rows, pa.schema([(name, pa.string()) for name in names]))
    agree(odd)
    agree(odd.select(*[col(name) for name in reversed(names)]))
    agree(odd.join(odd, ["Select", "l", "Le"]))
    agree(odd.left_join(odd.where(col("SELECT") == "SELECT0"), "Select"))
    agree(odd.anti_join(odd.shift(1).where(col("r") == "r0"), "Select"))
    agree(odd.clip(odd.shift(1), ["l", "tick`s"]).coalesce())
    agree(
        odd.group_by("Select", "select").window(hr.tumbling(2)).aggregate(N=hr.count(), n=hr.max("a b"), r=hr.min("r"))
    )
    agree(odd.group_by("w").window(hr.snapshot()).aggregate(e=hr.collect("e"), E=hr.last('qu"ote')))
    agree(odd.group_by(x=col("l")).window(hr.count_by_start(2)).top(1, "Kind"))
    agree(odd.group_by("Kind").apply(lambda g: g.join(g, "Le")))


def test_every_type_of_column():
    schema = (
        "b BYTE, s SHORT, i INT, l LONG, f FLOAT, d DOUBLE, o BOOLEAN, t STRING, at DATETIME, c CHAR, "
        "xs ARRAY<DOUBLE>, ts ARRAY<STRING>"
    )
    full = {"b": -128, "s": 32767, "i": -(2**31), "l": 2**63 - 1, "f": 0.1, "d": 1e300, "o": True, "t": "ß", "c": "x",
            "at": datetime(2024, 5, 1, 12, 30, 0, 123456, tzinfo=UTC), "xs": [1.0, 2.5], "ts": ["a", "'"]}  # fmt: skip
    odd = {"f": float("nan"), "d": -0.0, "xs": [], "ts": ["é"], "at": datetime(1969, 12, 31, tzinfo=UTC), "t": ""}
    rows = [{"le": 1, "re": 4, **full}, {"le": 2, "re": 9, **odd}, {"le": 2, "re": 3}, {"le": 3, "re": 4, **full}]
    typed = hr.events(rows, schema)
    agree(typed)
    agree(typed.coalesce())
    agree(typed.left_join(typed.shift(1), ["b", "at", "t"]))
    agree(typed.group_by("f", "o", "at").window(hr.snapshot()).aggregate(n=hr.count(), d=hr.sum("d"), m=hr.max("at")))
    calls = {f"{name}_{c}": getattr(hr, name)(c) for c in "bsilfd" for name in ("sum", "avg", "min", "last", "median")}
    agree(typed.where(col("l").is_null() | (col("l") > 0)).window(hr.tumbling(3)).aggregate(**calls))
    agree(
        typed.window(hr.tumbling(3)).aggregate(
            a=hr.first("at"), b=hr.collect("c"), t=hr.collect("at"), f=hr.collect("f")
        )
    )
    agree(typed.group_by("c").window(hr.tumbling(3)).top(1, ["at", "f"]))
    agree(typed.select("xs", "ts", year=col("at").year(), more=col("b") + 1))


def test_nothing_gives_nothing():
    empty = hr.events([], "k STRING, i LONG, x DOUBLE")
    for stream in (empty, STREAM.where(col("i") > 99)):
        agree(stream, rows=False)
        agree(stream.join(STREAM, "k"), rows=False)
        agree(stream.coalesce(), rows=False)
        for window in WINDOWS.values():
            agree(stream.group_by("k").window(window).aggregate(n=hr.count(), c=hr.collect("x")), rows=False)
        agree(stream.window(hr.tumbling(2)).operate(Both(), "x"), rows=False)
    agree(STREAM.left_join(empty, "k"))
    agree(STREAM.anti_join(empty, "k").union(empty))
    agree(STREAM.clip(empty, "k"))


# ---- the surface


def test_the_script_can_be_read():
    query = STREAM.group_by("k").window(hr.tumbling(4)).aggregate(n=hr.count(), m=hr.median("x"))
    history = query.history(engine="duckdb")
    assert [statement.says for statement in history.statements][-1] == query.node.describe()
    assert "-- Aggregate n = count(*), m = median(x) over tumbling(4 ticks) per k\n" in history.sql()
    assert "a Python function" in history.sql()
    assert '"k"' in history.sql()
    assert "`k`" in history.sql(dialect="spark")
    assert history_diff(query.cht(), history.cht()) == ""


def test_what_a_history_cannot_be_is_said_at_once(tmp_path: Any):
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"engine": "duckbd"}, "instead: engine='duckdb'"),
        ({"late": "drop"}, "allowed: decide, include"),
        ({"engine": "duckdb", "master": "local[2]"}, "engine='spark'"),
    ]
    for options, told in wrong:
        with pytest.raises(HistoryError, match=told):
            STREAM.history(**options)
    with pytest.raises(HistoryError, match="dialect"):
        STREAM.history("duckdb").sql(dialect="oracle")  # type: ignore[arg-type]
    with pytest.raises(HistoryError, match="only Spark gives a data frame"):
        STREAM.history("duckdb").dataframe()
    with pytest.raises(HistoryError, match="Diverted"):
        STREAM.diverted().history()
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="new or empty"):
        STREAM.history("duckdb").write(tmp_path)


def test_a_history_is_written_as_parquet(tmp_path: Any):
    STREAM.history("duckdb").write(tmp_path / "out")
    assert history_diff(STREAM.cht(), pq.read_table(tmp_path / "out")) == ""


def test_the_options_are_those_of_the_class():
    assert set(inspect.signature(hr.Stream.history).parameters) == {"self", "engine", "late", "master"}
