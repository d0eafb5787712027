"""What people get wrong, and what they are told: a typed error that says what was given, what is allowed and what to
write instead, or a row diverted with the reason. Nothing vanishes, and nothing fails with a stack of somebody else's.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import col, errors

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are lost here on purpose

SCHEMA = "k STRING, t LONG, v INT"
SPANS = "k STRING, a LONG, b LONG"
GOOD = "k,t,v\na,1,2\n"


def written(folder: Path, content: str | bytes, name: str = "rows.csv") -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def points(folder: Path, content: str | bytes = GOOD, **options: Any) -> hr.Stream:
    path = written(folder, content)
    return hr.read_csv(path, SCHEMA, **{"lifetime": hr.point("t"), "progress": hr.ordered(), **options})


def parts_of(error: errors.HeadraceError) -> str:
    return f"{error.message} | {error.given} | {error.allowed} | {error.instead}"


def counts_of(run: hr.Run) -> dict[str, int]:
    (counts,) = run.counts.values()
    assert counts["rows"] == counts["accepted"] + counts["diverted"] + counts["dropped"]
    return counts


def reasons_of(run: hr.Run) -> dict[str, str]:
    """The reason by the row it is about."""
    return {row["row"]: row["reason"] for row in run.diverted().to_pylist()}


# --- rows that cannot be read ---------------------------------------------------------------------------------------


def test_broken_csv_rows_are_diverted_with_the_reason(tmp_path: Path):
    run = points(tmp_path, 'k,t,v\na,1,2\nb,x,3\nc,4\nd,5,99999999999\ne,6,7,8\n"f,6,7\n').run()
    assert run.cht().to_pylist() == [{"le": 1, "re": 2, "k": "a", "t": 1, "v": 2}]
    assert reasons_of(run) == {
        "b,x,3": "column 't': 'x' is not of type LONG",
        "c,4": "the row has 2 fields, expected 3",
        "d,5,99999999999": "column 'v': '99999999999' is out of range for INT (-2147483648 to 2147483647)",
        "e,6,7,8": "the row has 4 fields, expected 3",
        '"f,6,7': "the row has 1 field, expected 3",
    }
    assert counts_of(run)["malformed"] == 5


def test_broken_json_rows_are_diverted_with_the_reason(tmp_path: Path):
    lines = [
        '{"k": "a", "t": 1, "v": 2}',
        '{"k": "b"',
        "[1]",
        '{"k": "c", "t": "soon", "v": 1}',
        '{"k": "d", "t": 3, "v": 1.5}',
        '{"k": 5, "t": 3, "v": 1}',
        '{"k": "e", "t": 99999999999999999999, "v": 1}',
        '{"k": "f", "v": 1}',
    ]
    path = written(tmp_path, "\n".join(lines), "rows.json")
    run = hr.read_json(path, SCHEMA, lifetime=hr.point("t"), progress=hr.ordered()).run()
    assert run.cht().num_rows == 1
    reasons = [row["reason"] for row in run.diverted().to_pylist()]
    assert len(reasons) == 7
    for said in ("'soon' is not of type LONG", "1.5 is not of type INT", "5 is not of type STRING"):
        assert any(said in reason for reason in reasons), (said, reasons)
    assert any("99999999999999999999 is out of range for LONG" in reason for reason in reasons)
    assert "the time t is missing" in reasons
    assert counts_of(run)["malformed"] == 7


@pytest.mark.parametrize("content", [b"k,t,v\n\xff\xfe,1,2\na,3,4\n", b"k,t,v\nx\x00y,1,2\na,3,4\n"])
def test_bytes_that_are_no_text_do_not_stop_the_file(tmp_path: Path, content: bytes):
    run = points(tmp_path, content).run()
    assert {"le": 3, "re": 4, "k": "a", "t": 3, "v": 4} in run.cht().to_pylist()
    assert counts_of(run)["rows"] == 2


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("x,5,1", "reversed"),
        ("x,3,3", "empty or reversed"),
        ("x,,4", "the time a is missing"),
        ("x,4,", "the time b is missing"),
        ("x,9223372036854775807,9", "le must be finite"),
        ("x,-9223372036854775808,9", "le must be finite"),
        ("x,9223372036854775808,9", "out of range for LONG"),
        ("x,1,-9223372036854775809", "out of range for LONG"),
    ],
)
def test_lifetimes_that_are_none_are_diverted_or_raised(tmp_path: Path, row: str, reason: str):
    path = written(tmp_path, f"k,a,b\ngood,1,5\n{row}\n")
    progress = hr.advance(delay=100)
    run = hr.read_csv(path, SPANS, lifetime=hr.interval("a", "b"), progress=progress).run()
    assert run.cht().column("k").to_pylist() == ["good"]
    assert reason in next(iter(reasons_of(run).values()))
    assert counts_of(run)["diverted"] == 1
    with pytest.raises(errors.BadRow) as raised:
        hr.read_csv(path, SPANS, lifetime=hr.interval("a", "b"), progress=progress, bad_rows="raise").run()
    assert reason in raised.value.message
    assert "bad_rows='divert'" in raised.value.instead


def test_a_point_at_the_last_instant_has_no_room(tmp_path: Path):
    rows = f"k,t,v\na,{2**63 - 1},1\nb,{2**60 - 2},2\nc,{2**60},3\n"
    run = points(tmp_path, rows, progress=hr.advance(delay=10)).run()
    assert run.cht().column("k").to_pylist() == ["b"]
    assert sorted(reasons_of(run).values()) == [
        "le is beyond ±2**60 ticks, about 36 000 years from 1970", "le must be finite",
    ]  # fmt: skip


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "content"), [("a.csv", ""), ("a.csv", "k,t,v\n"), ("a.json", ""), ("a.json", "\n\n")])
def test_an_empty_file_is_an_empty_stream(tmp_path: Path, name: str, content: str):
    read = hr.read_csv if name.endswith("csv") else hr.read_json
    run = read(written(tmp_path, content, name), SCHEMA, lifetime=hr.point("t")).run()
    assert run.cht().num_rows == 0
    assert counts_of(run)["rows"] == 0
    assert run.cti() == hr.INFINITY


def test_a_schema_cannot_be_guessed_from_nothing(tmp_path: Path):
    with pytest.raises(errors.UnknownColumn, match="there is no column 't'"):
        hr.read_csv(written(tmp_path, ""), lifetime=hr.point("t"))


@pytest.mark.parametrize("content", [b"", b"this is no parquet file", b"PAR1PAR1"])
def test_what_is_no_parquet_file_is_a_source_error(tmp_path: Path, content: bytes):
    path = written(tmp_path, content, "a.parquet")
    with pytest.raises(errors.SourceError) as raised:
        hr.read_parquet(path, SCHEMA, lifetime=hr.point("t")).run()
    assert path in parts_of(raised.value)
    assert isinstance(raised.value, OSError)


def test_a_torn_compressed_file_is_a_source_error(tmp_path: Path):
    whole = gzip.compress(b"k,t,v\n" + b"a,1,2\n" * 10_000)
    path = written(tmp_path, whole[: len(whole) // 2], "a.csv.gz")
    with pytest.raises(errors.SourceError, match="cannot read"):
        hr.read_csv(path, SCHEMA, lifetime=hr.point("t"), progress=hr.ordered()).run()


def test_a_schema_that_does_not_fit_the_file_names_what_is_there(tmp_path: Path):
    with pytest.raises(errors.SchemaError) as raised:
        points(tmp_path, "key,time,value\na,1,2\n").run()
    assert raised.value.allowed == "key, time, value"
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": ["a"], "time": [1], "v": [1]}), path)
    with pytest.raises(errors.SchemaError, match="column 't' is missing") as raised:
        hr.read_parquet(path, SCHEMA, lifetime=hr.point("t")).run()
    assert "time" in raised.value.allowed
    pq.write_table(pa.table({"k": ["a"], "t": [[1]], "v": [1]}), path)
    with pytest.raises(errors.SchemaError, match="cannot be read as LONG"):
        hr.read_parquet(path, SCHEMA, lifetime=hr.point("t")).run()


def test_sources_that_are_not_there(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    for path in ("none.csv", "none*.csv", "empty", "none/deep.csv"):
        with pytest.raises(errors.SourceError) as raised:
            hr.read_csv(str(tmp_path / path), SCHEMA, lifetime=hr.point("t")).run()
        assert path in parts_of(raised.value)
    inside_a_file = written(tmp_path, GOOD) + "/a.csv"
    with pytest.raises(errors.SourceError):
        hr.read_csv(inside_a_file, lifetime=hr.point("t"))


def test_an_output_that_cannot_be_written_is_refused_before_anything_starts(tmp_path: Path):
    stream, file = points(tmp_path), written(tmp_path, "", "file")
    with pytest.raises(errors.SinkError) as raised:
        stream.start(hr.files(f"{file}/out"))
    assert file in parts_of(raised.value)
    assert "may write" in raised.value.instead
    with pytest.raises(errors.CheckpointError, match="cannot be written"):
        stream.start(hr.memory(), checkpoint=f"{file}/state")


def test_one_file_read_in_two_ways_is_two_sources(tmp_path: Path):
    path = written(tmp_path, "a;1\nb;2\n")
    options: dict[str, Any] = {"lifetime": hr.point("t"), "progress": hr.ordered(), "delimiter": ";"}
    whole = hr.read_csv(path, "k STRING, t LONG", header=False, **options)
    as_header = hr.read_csv(path, "a STRING, t LONG", **options)
    with pytest.raises(errors.SchemaError, match="'t' is missing in the header"):
        hr.run({"whole": whole, "header": as_header})
    same_columns = hr.read_csv(path, "k STRING, t LONG", **options | {"delimiter": ","}, header=False)
    run = hr.run({"whole": whole, "torn": same_columns})
    assert (run.cht("whole").num_rows, run.cht("torn").num_rows) == (2, 0)


# --- late events ----------------------------------------------------------------------------------------------------

LATE_INSERT = """
    kind   | le | re | k
    insert | 5  | 6  | early
    cti    | 10 |    |
    insert | 8  | 12 | late
    insert | 7  | 9  | gone
    insert | 10 | 11 | fine
"""


def test_late_events_meet_the_policy_of_their_input():
    def run(late: Any) -> hr.Run:
        return hr.events(LATE_INSERT, progress=hr.explicit(late=late)).run()

    def left(done: hr.Run) -> list[tuple[str, int, int]]:
        return sorted((row["k"], row["le"], row["re"]) for row in done.cht().to_pylist())

    on_time = [("early", 5, 6), ("fine", 10, 11)]
    dropped = run("drop")
    assert left(dropped) == on_time
    assert {n: c for n, c in counts_of(dropped).items() if n in ("late", "dropped")} == {"late": 2, "dropped": 2}
    diverted = run("divert")
    assert left(diverted) == on_time
    assert counts_of(diverted)["diverted"] == 2
    assert all(
        "late: its sync time" in reason and "before the CTI 10" in reason for reason in reasons_of(diverted).values()
    )
    adjusted = run("adjust")
    assert left(adjusted) == [*on_time, ("late", 10, 12)]
    assert {n: c for n, c in counts_of(adjusted).items() if n in ("late", "dropped", "adjusted", "diverted")} == {
        "late": 2,
        "dropped": 0,
        "diverted": 1,
        "adjusted": 1,
    }
    assert "nothing of its lifetime is left" in next(iter(reasons_of(adjusted).values()))
    with pytest.raises(errors.LateEvent, match="CTI 10") as raised:
        run("raise")
    assert "late" in str(raised.value.given)
    assert "late='divert'" in raised.value.instead


def test_a_late_retraction_meets_the_policy_too():
    drawn = """
        kind    | le | re | re_new | k
        insert  | 1  | 20 |        | a
        cti     | 10 |    |        |
        retract | 1  | 20 | 4      | a
    """

    def ends(late: Any) -> list[int]:
        return hr.events(drawn, progress=hr.explicit(late=late)).cht().column("re").to_pylist()

    assert [ends(late) for late in ("drop", "divert", "adjust")] == [[20], [20], [10]]


def test_one_event_from_the_far_future_does_not_make_all_others_late(tmp_path: Path):
    rows = "k,t,v\n" + "".join(f"a,{t},1\n" for t in (100, 101, 10**15, 102, 103))
    guarded = points(tmp_path, rows, progress=hr.advance(delay=0, max_skew=1000)).run()
    assert counts_of(guarded)["accepted"] == 5
    naive = points(tmp_path, rows, progress=hr.advance(delay=0)).run()
    assert counts_of(naive)["diverted"] == 2


# --- events written by hand -----------------------------------------------------------------------------------------


def test_a_retraction_of_an_event_that_never_was_is_an_error():
    retraction = {"kind": "retract", "le": 1, "re": 4, "re_new": 2, "k": 1}
    other_end = {"kind": "insert", "le": 1, "re": 5, "k": 1}
    for rows in ([retraction], [other_end, retraction]):
        never = hr.events(rows)
        for stream in (never, never.final(), never.group_by("k").window(hr.tumbling(2)).aggregate(n=hr.count())):
            with pytest.raises(errors.EventError, match="an event that is not there") as raised:
                stream.cht()
            assert '"kind": "retract"' in str(raised.value.given)


def test_a_retraction_of_an_event_that_never_was_is_diverted_from_a_file(tmp_path: Path):
    lines = [
        "kind,le,re,re_new,k",
        "insert,1,5,,a",
        "retract,1,4,2,a",
        "retract,1,5,3,a",
        "retract,1,5,2,a",
        "cti,9,,,",
    ]
    stream = hr.read_events(written(tmp_path, "\n".join(lines) + "\n"), "k STRING")
    run = hr.run({"out": stream, "n": stream.window(hr.tumbling(10)).aggregate(n=hr.count())})
    assert run.cht("out").to_pylist() == [{"le": 1, "re": 3, "k": "a"}]
    assert run.cht("n").column("n").to_pylist() == [1]
    assert all("an event that is not there" in reason for reason in reasons_of(run).values())
    assert counts_of(run)["diverted"] == 2


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"k": 1}], "events need a column 'le'"),
        ([{"kind": "update", "le": 1, "k": 1}], "kind must be insert, retract or cti"),
        ([{"le": 5, "re": 1, "k": 1}], "re must be greater than le"),
        ([{"le": None, "re": 1, "k": 1}], "le is missing"),
        ([{"le": 2**63, "re": 2**64, "k": 1}], "le is not a time"),
        ([{"le": 1, "re": 2**63, "k": 1}], "re is not a time"),
        ([{"le": 2**63 - 1, "k": 1}], "le must be finite"),
        ([{"le": "soon", "k": 1}], "le is not a time"),
        ([{"le": 1.5, "k": 1}], "le is not a time"),
        ([{"kind": "retract", "le": 1, "re": 4, "k": 1}], "re_new is missing"),
        ([{"kind": "retract", "le": 1, "re": 4, "re_new": 0, "k": 1}], "re_new must not be less than le"),
        (5, "these are not events"),
        ("", "the drawn table is empty"),
        ("le | k\n1 | a | b", "row 1 has 3 cells, the header has 2"),
    ],
)
def test_what_is_no_event(rows: Any, said: str):
    with pytest.raises(errors.EventError) as raised:
        hr.events(rows)
    assert said in raised.value.message


def test_payloads_that_do_not_fit():
    with pytest.raises(errors.SchemaError, match="mixes types"):
        hr.events([{"le": 1, "k": 1}, {"le": 1, "k": "a"}])
    with pytest.raises(errors.SchemaError, match="'k' does not hold INT"):
        hr.events([{"le": 1, "k": 2**40}], "k INT")
    with pytest.raises(errors.UnknownColumn, match="there is no column 'kk'"):
        hr.events([{"le": 1, "kk": 1}], "k LONG")
    with pytest.raises(errors.PlanError, match="do not add up") as raised:
        hr.events([{"le": 1, "k": 1}], batches=[2])
    assert raised.value.allowed == "sizes that sum to 1"


def test_streams_without_events():
    empty = hr.events([], "k STRING, v LONG")
    only_ctis = hr.events([{"kind": "cti", "le": 5}, {"kind": "cti", "le": 9}], "k STRING, v LONG", batches=[1, 1])
    for stream in (empty, only_ctis):
        counted = stream.group_by("k").window(hr.tumbling(2)).aggregate(n=hr.count(), m=hr.avg("v"))
        everything = {
            "a": stream,
            "b": counted,
            "c": counted.final(),
            "d": stream.union(stream),
            "e": stream.diverted(),
        }
        run = hr.run(everything, buckets=2)
        assert [run.cht(name).num_rows for name in everything] == [0] * 5
        assert [run.cti(name) for name in everything] == [hr.INFINITY] * 5
    with pytest.raises(errors.EventError, match="need a column 'le'"):
        hr.events([])


# --- queries that make no sense -------------------------------------------------------------------------------------


def stream_of(folder: Path) -> hr.Stream:
    return points(folder)


@pytest.mark.parametrize(
    ("build", "nearest"),
    [
        (lambda s: s.where(col("vv") > 1), "col('v')"),
        (lambda s: s.select("K"), "col('k')"),
        (lambda s: s.group_by("kk"), "col('k')"),
        (lambda s: s.window(hr.tumbling(2)).aggregate(n=hr.sum("vv")), "col('v')"),
    ],
)
def test_an_unknown_column_is_told_the_nearest(tmp_path: Path, build: Callable[[hr.Stream], Any], nearest: str):
    with pytest.raises(errors.UnknownColumn) as raised:
        build(stream_of(tmp_path))
    assert raised.value.allowed == "k, t, v"
    assert raised.value.instead == nearest
    assert isinstance(raised.value, KeyError)


@pytest.mark.parametrize(
    "lifetime",
    [
        hr.point("tt"),
        hr.interval("t", "tt"),
        hr.edge("tt"),
        hr.edge("t", key="kk"),
        hr.edge("t", key="k", closes=col("vv") > 1),
    ],
)
def test_a_lifetime_made_of_an_unknown_column(tmp_path: Path, lifetime: Any):
    with pytest.raises(errors.UnknownColumn) as raised:
        points(tmp_path, lifetime=lifetime)
    assert raised.value.instead in ("col('t')", "col('k')", "col('v')")


def test_a_lifetime_of_the_wrong_type(tmp_path: Path):
    with pytest.raises(errors.PlanError, match="k cannot be a time") as raised:
        points(tmp_path, lifetime=hr.point("k"))
    assert "DATETIME" in raised.value.allowed
    with pytest.raises(errors.PlanError, match="closes needs a BOOLEAN"):
        points(tmp_path, lifetime=hr.edge("t", key="k", closes=col("v")))


@pytest.mark.parametrize(
    ("build", "kind", "said"),
    [
        (lambda s: s.where(col("v")), errors.PlanError, "where needs a BOOLEAN"),
        (lambda s: s.select(), errors.PlanError, "at least one column"),
        (lambda s: s.select("k", k=col("v")), errors.SchemaError, "column 'k' appears twice"),
        (lambda s: s.select(le=col("v")), errors.SchemaError, "may not be named 'le'"),
        (lambda s: s.select(__x=col("v")), errors.SchemaError, "may not be named '__x'"),
        (lambda s: s.window(5), errors.PlanError, "tumbling(...)"),
        (lambda s: s.window(hr.tumbling(2)).aggregate(), errors.PlanError, "aggregate(n=hr.count())"),
        (lambda s: s.window(hr.tumbling(2)).aggregate(x=col("v")), errors.PlanError, "outside an aggregate"),
        (lambda s: s.window(hr.tumbling(2)).aggregate(x=hr.sum("k")), errors.ExpressionError, "cannot take STRING"),
        (lambda s: s.window(hr.tumbling(2)).aggregate(re_new=hr.count()), errors.SchemaError, "'re_new'"),
        (
            lambda s: s.group_by("k").window(hr.tumbling(2)).aggregate(k=hr.count()),
            errors.SchemaError,
            "column 'k' appears twice",
        ),
        (lambda s: s.union(s.select("k")), errors.PlanError, "select the same columns first"),
        (lambda s: s.set_duration(0), errors.PlanError, "a duration must be positive"),
        (lambda s: s.set_duration("-1 s"), errors.PlanError, "a duration must be positive"),
        (lambda s: s.shift("a while"), errors.TimeError, "'10 s'"),
        (lambda s: s.run(host="elsewhere"), errors.PlanError, "local, spark"),
        (lambda s: s.run().cht("other"), errors.PlanError, "there is no such output"),
        (lambda s: s.start(), errors.PlanError, "at least one sink"),
        (lambda s: s.start(hr.memory(encoding="upsert", key="kk")), errors.UnknownColumn, "col('k')"),
    ],
)
def test_a_query_that_makes_no_sense_cannot_be_built(
    tmp_path: Path, build: Callable[[hr.Stream], Any], kind: type[errors.HeadraceError], said: str
):
    with pytest.raises(kind) as raised:
        build(stream_of(tmp_path))
    assert said in parts_of(raised.value)


@pytest.mark.parametrize(
    ("build", "kind", "said"),
    [
        (lambda: hr.tumbling(0), errors.PlanError, "size must be positive"),
        (lambda: hr.tumbling("-5 s"), errors.PlanError, "size must be positive"),
        (lambda: hr.tumbling(hr.INFINITY), errors.PlanError, "positive and finite"),
        (lambda: hr.hopping(5, every=0), errors.PlanError, "hop must be positive"),
        (lambda: hr.tumbling("five s"), errors.TimeError, "'5 minutes'"),
        (lambda: hr.tumbling(1.5), errors.TimeError, "timedelta"),
        (lambda: hr.advance(delay="-1 s"), errors.PlanError, "must not be negative"),
        (lambda: hr.advance(delay=1, every=0), errors.PlanError, "every"),
        (lambda: hr.advance(delay=1, max_skew=-1), errors.PlanError, "max_skew"),
        (lambda: hr.heartbeat(every=0), errors.PlanError, "every must be positive"),
        (lambda: hr.explicit(late="ignore"), errors.PlanError, "raise, drop, adjust, divert"),
        (lambda: hr.files("out", format="csv"), errors.PlanError, "jsonl, parquet"),
        (lambda: hr.files("out", encoding="rows"), errors.PlanError, "events, changes, final, upsert"),
        (lambda: hr.files("out", encoding="upsert"), errors.PlanError, "key='symbol'"),
        (lambda: hr.memory(key="k"), errors.PlanError, "upsert rows need a key"),
        (lambda: hr.read_csv("a", "k", lifetime=hr.point("t")), errors.SchemaError, "'name TYPE, name TYPE'"),
        (lambda: hr.read_csv("a", "k STRNG", lifetime=hr.point("t")), errors.SchemaError, "STRING"),
        (lambda: hr.read_csv("a", "k INT, k INT", lifetime=hr.point("t")), errors.SchemaError, "appears twice"),
        (lambda: hr.read_csv("a", "__t LONG", lifetime=hr.point("__t")), errors.SchemaError, "may not be named"),
        (lambda: hr.read_csv("a", SCHEMA, lifetime=hr.point("t"), delimiter="::"), errors.SchemaError, "one plain"),
        (lambda: hr.read_csv("a", SCHEMA, lifetime=hr.point("t"), bad_rows="x"), errors.PlanError, "raise, divert"),
        (lambda: hr.read_events("a.xyz", SCHEMA), errors.SchemaError, ".parquet"),
    ],
)
def test_windows_policies_and_sinks_that_make_no_sense(
    build: Callable[[], Any], kind: type[errors.HeadraceError], said: str
):
    with pytest.raises(kind) as raised:
        build()
    assert said in parts_of(raised.value)


def test_columns_named_twice_in_the_file(tmp_path: Path):
    path = written(tmp_path, "k,t,k\na,1,2\n")
    with pytest.raises(errors.SchemaError, match="'k' appears twice"):
        hr.read_csv(path, lifetime=hr.point("t"))
    with pytest.raises(errors.SchemaError, match="'k' appears twice in the header"):
        hr.read_csv(path, "k STRING, t LONG", lifetime=hr.point("t"), progress=hr.ordered()).run()


def test_columns_of_a_file_that_are_its_times_are_no_payload(tmp_path: Path):
    path = written(tmp_path, "k,le,weight\na,1,2\n")
    stream = hr.read_csv(path, "k STRING, le LONG, weight LONG", lifetime=hr.point("le"), progress=hr.ordered())
    assert stream.cht().to_pylist() == [{"le": 1, "re": 2, "k": "a", "weight": 2}]
