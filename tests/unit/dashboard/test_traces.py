"""Traces as plain values: graphs, pages and questions by place, and how long a trace stays open."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.api.stream import Stream
from headrace.dashboard.file_lines import lines_of
from headrace.dashboard.open_traces import PARTS, OpenTraces, trace_part
from headrace.dashboard.traces import TraceData
from headrace.errors import HeadraceError, TraceError
from headrace.plan.nodes import Source
from headrace.testing.intents.samples import Merged
from headrace.tracing.record import TraceRecord
from headrace.tracing.traced import TracedRun

TICKS = """symbol,ts,price,quantity
A,2024-05-01T12:00:01Z,10.0,100
B,2024-05-01T12:00:04Z,50.0,0
A,2024-05-01T12:00:11Z,12.0,300
A,2024-05-01T12:00:05Z,11.0,100
B,2024-05-01T12:00:31Z,54.0,30
A,2024-05-01T12:00:02Z,99.0,100
"""


def prices(folder: Path) -> Stream:
    file = folder / "ticks.csv"
    file.write_text(TICKS)
    ticks = hr.read_csv(
        file, schema="symbol STRING, ts DATETIME, price DOUBLE, quantity INT",
        lifetime=hr.point("ts"), progress=hr.advance(delay="10 s", late="divert"),
    )  # fmt: skip
    windows = ticks.where(col("quantity") > 0).group_by("symbol").window(hr.tumbling("10 s"))
    return windows.aggregate(price=hr.avg("price"), n=hr.count())


@pytest.fixture
def data(tmp_path: Path) -> TraceData:
    return TraceData("prices", prices(tmp_path).trace(batch_rows=1, state=True))


def at(data: TraceData, operator: int, batch: int, weight: int) -> int:
    return next(row["row"] for row in data.changes(operator, batch)["rows"] if row["weight"] == weight)


def test_the_graph(data: TraceData):
    graph = data.graph()
    assert (graph["output"], graph["batches"], graph["ended"], graph["dates"]) == (3, 7, True, True)
    assert [(node["kind"], node["inputs"]) for node in graph["nodes"]] == [
        ("Source", []), ("Where", [1]), ("Aggregate", [2]), ("Diverted", [1]),
    ]  # fmt: skip
    assert [node["id"] for node in graph["nodes"] if node["side"]] == [4]
    assert graph["nodes"][2]["columns"][1] == {"name": "price", "type": "DOUBLE", "number": True}
    json.dumps(graph, allow_nan=False)


def test_a_batch_has_counts_progress_and_troubles(data: TraceData):
    corrected = {one["id"]: one for one in data.batch(3)["operators"]}[3]
    assert (corrected["added"], corrected["removed"]) == (1, 1)
    late = data.batch(5)["troubles"][0]
    assert (late["id"], late["counts"]) == (1, {"late": 1, "diverted": 1})
    assert (late["example"]["line"], late["example"]["reason"][:5]) == (7, "late:")
    assert data.batch(4)["operators"][0]["cti"] == "2024-05-01T12:00:21Z"
    assert data.batch(6)["end"]
    assert data.batch(6)["operators"][2]["cti"] == "inf"
    activity = data.activity(3)
    assert (activity["added"], activity["removed"]) == ([0, 0, 1, 1, 1, 0, 1], [0, 0, 0, 1, 0, 0, 0])


def test_a_query_that_has_read_nothing(tmp_path: Path):
    record = prices(tmp_path).trace().record
    empty = TraceData("nothing", TracedRun(TraceRecord(record.line, (), ended=False)))
    assert empty.graph()["batches"] == 0
    assert empty.activity(3) == {"step": 1, "added": [], "removed": [], "late": []}


def test_pages_of_changes_and_histories(data: TraceData):
    page = data.changes(3, 3)
    assert [(row["weight"], row["values"]["price"]) for row in page["rows"]] == [(-1, 10.0), (1, 10.5)]
    second = data.changes(3, 3, offset=1, limit=1)
    assert (second["total"], second["rows"]) == (2, page["rows"][1:])
    assert [row["values"]["price"] for row in data.history(3, 2)["rows"]] == [10.0]
    assert data.state(3, 2)["tables"][0]["total"] == 1


def test_questions_by_place(data: TraceData):
    why = data.why(3, 3, at(data, 3, 3, 1))
    steps = why["steps"]
    assert [(step["operator"], step["batch"], step["row"], step["weight"]) for step in steps if step["input"]] == [
        (1, 0, 0, 1), (1, 3, 0, 1),
    ]  # fmt: skip
    assert steps[0]["through"] == "window [2024-05-01T12:00:00, 2024-05-01T12:00:10) of symbol = A"
    assert data.why(3, 3, 0, at="history")["steps"][0] == steps[0]
    before = data.why(3, 3, at(data, 3, 3, -1))
    assert [step["batch"] for step in before["steps"] if step["input"]] == [0]


def test_a_removal_and_its_cause(data: TraceData):
    removed = data.why_retracted(3, 3, at(data, 3, 3, -1))
    assert removed["steps"][0]["weight"] == -1
    assert [(step["values"]["price"], step["weight"]) for step in removed["steps"] if step["input"]] == [(11.0, 1)]
    assert data.why_retracted(3, 2, 0) == removed
    with pytest.raises(TraceError, match="not taken back"):
        data.why_retracted(3, 4, 0)


def test_removals_that_one_batch_made_up_for():
    lines = "kind | le | re | re_new | k\ninsert | 1 | 9 | | a\ninsert | 1 | 9 | | b\n"
    there_and_back = hr.events(f"{lines}insert | 2 | 6 | | y\nretract | 2 | 6 | 2 | y")
    data = TraceData("back", there_and_back.trace(batch_rows=2))
    with pytest.raises(TraceError, match="added and taken back in one batch"):
        data.why(1, 1, at(data, 1, 1, -1))
    shorter = hr.events(f"{lines}retract | 1 | 9 | 5 | a").set_duration(2)
    data = TraceData("again", shorter.trace(batch_rows=2))
    with pytest.raises(TraceError, match="taken back and added again in one batch"):
        data.why_retracted(3, 1, at(data, 3, 1, -1))


def test_lines_of_inputs(data: TraceData):
    (line,) = data.lines(1, 3, 0)["lines"]
    assert (Path(line["file"]).name, line["line"]) == ("ticks.csv", 5)
    with pytest.raises(TraceError, match="not an input"):
        data.lines(3, 3, 0)


def test_why_not_and_why_of_a_cti(data: TraceData):
    answer = data.why_not(3, 6, values='{"symbol": "B"}', at="2024-05-01T12:00:05")
    filtered = answer["steps"][1]["reasons"][0]
    assert (filtered["kind"], filtered["events"][0]["row"], filtered["events"][0]["batch"]) == ("filtered", 0, 1)
    assert data.why_not(1, 6, values='{"price": "99", "quantity": "7"}')["reasons"]
    for wrong in ("{", '{"price": "x"}', '{"none": "1"}'):
        with pytest.raises(HeadraceError):
            data.why_not(3, 6, values=wrong)
    cti = data.why_cti(3, 4)
    assert [step["cti"] for step in cti["steps"]] == [f"2024-05-01T12:00:{second}Z" for second in (20, 21, 21)]
    assert cti["steps"][2]["events"][0]["row"] == 0


def test_what_became_of_an_input(data: TraceData):
    effects = data.forward(1, 3, 0)["effects"]
    answers = [
        (one["weight"], one["values"]["price"], one["batch"], one["row"]) for one in effects if one["operator"] == 3
    ]
    assert sorted(answers) == [(-1, 10.0, 2, 0), (1, 10.5, 3, 1)]
    with pytest.raises(TraceError, match="not an input"):
        data.forward(3, 3, 0)


@pytest.mark.parametrize(
    ("part", "parameters"),
    [
        ("nothing", {}),
        ("batch", {}),
        ("batch", {"batch": "-1"}),
        ("batch", {"batch": "99"}),
        ("changes", {"operator": "9", "batch": "0"}),
        ("changes", {"operator": "1", "batch": "0", "limit": "0"}),
        ("why", {"operator": "3", "batch": "3", "row": "9"}),
        ("why", {"operator": "3", "batch": "3", "row": "0", "at": "elsewhere"}),
    ],
)
def test_wrong_parameters_are_typed_errors(data: TraceData, part: str, parameters: dict[str, str]):
    with pytest.raises(HeadraceError):
        trace_part(data, part, parameters)


def test_parts_by_name(data: TraceData):
    place = {"operator": "3", "batch": "3", "row": "1", "at": "changes"}
    for part in set(PARTS) - {"forward", "lines", "why_retracted", "why_not"}:
        json.dumps(trace_part(data, part, place), allow_nan=False)
    assert trace_part(data, "why", place) == data.why(3, 3, 1)


def test_the_state_of_a_module_is_shown_as_bytes():
    events = hr.events("le | re | i | x\n1 | 5 | 1 | 2.0\n2 | 6 | 2 | 3.0").window(hr.hopping(4, every=2))
    data = TraceData("merged", events.aggregate(x=Merged().of("i", "x")).trace(state=True))
    (table,) = [one for one in data.state(operator=3, batch=0)["tables"] if one["name"] == "states"]
    states = {value for row in table["rows"] for value in row.values() if isinstance(value, str)}
    assert states
    assert all(re.fullmatch(r"\d+ bytes: 80[0-9a-f]{62}…", state) for state in states)


def test_where_breakpoints_would_have_stopped_the_run(data: TraceData):
    def stop(batch: int, operator: int, *wanted: dict[str, Any]) -> tuple[int, int] | None:
        found = data.stop(batch, operator, json.dumps(wanted))["place"]
        return None if found is None else (found["batch"], found["operator"])

    large = {"kind": "output", "operator": 2, "when": "price > 11"}
    assert stop(0, 0, large) == (2, 2)
    assert stop(2, 2, large) == (4, 2)
    assert stop(4, 2, large) is None
    assert stop(0, 0, {"kind": "output", "operator": 2, "when": "symbol = 'B'"}) == (4, 2)
    assert stop(0, 0, {"kind": "retraction", "operator": None}) == (3, 3)
    assert stop(0, 0, {"kind": "late", "operator": 1}) == (5, 4)
    passed = {"kind": "cti", "operator": 3, "when": "2024-05-01T12:00:20Z"}
    assert stop(0, 0, passed, {"kind": "late"}) == (4, 3)
    found = data.stop(0, 0, json.dumps([large, {"kind": "retraction"}]))
    assert found["breakpoints"] == ["output of #2 when price > 11.0", "retraction by any operator"]
    assert found["hits"] == [{"breakpoint": 1, "text": "breakpoint 1, output of #2 when price > 11.0: 1 change"}]


@pytest.mark.parametrize(
    "wrong",
    [
        "{",
        "{}",
        "[1]",
        '[{"kind": "none"}]',
        '[{"kind": "output"}]',
        '[{"kind": "output", "operator": "3"}]',
        '[{"kind": "output", "operator": 9}]',
        '[{"kind": "output", "operator": 2, "when": "price > many"}]',
        '[{"kind": "output", "operator": 2, "when": "none > 1"}]',
        '[{"kind": "output", "operator": 2, "when": "price IN (SELECT x FROM read_csv(1))"}]',
        '[{"kind": "cti", "operator": 3, "when": "5"}]',
        str([{"kind": "late"}] * 21).replace("'", '"'),
    ],
)
def test_breakpoints_that_are_none(data: TraceData, wrong: str):
    with pytest.raises(HeadraceError):
        trace_part(data, "stop", {"batch": "0", "breakpoints": wrong})


def test_two_traces_side_by_side(tmp_path: Path):
    kept = OpenTraces()
    stream = prices(tmp_path)
    first, second = kept.add("a", stream.trace()), kept.add("b", stream.where(col("n") > 1).trace())
    found = kept.part(first, "compare", {"other": second})
    assert (found["apart"], found["total"]) == (2, 3)
    assert {row["side"] for row in found["answers"][:2]} == {"left"}
    assert any(pair["left"] is None for pair in found["operators"])
    with pytest.raises(TraceError, match="no longer open"):
        kept.part(first, "compare", {})


def test_open_traces_are_bounded(tmp_path: Path):
    now = [0.0]
    trace = prices(tmp_path).trace()
    kept = OpenTraces(each=2, seconds=60, clock=lambda: now[0])
    first, second = kept.add("a", trace), kept.add("b", trace)
    assert kept.get(first).name == "a"
    third = kept.add("c", trace)
    with pytest.raises(TraceError, match="no longer open"):
        kept.get(second)
    with pytest.raises(TraceError, match="no longer open"):
        kept.get(third, owner="bob")
    now[0] = 61.0
    with pytest.raises(TraceError, match="no longer open"):
        kept.get(third)
    assert len(kept) == 0
    too_small: Any = OpenTraces(rows=3)
    with pytest.raises(TraceError, match="too large"):
        too_small.add("a", trace)


def test_an_owner_closes_its_own_traces_only(tmp_path: Path):
    trace = prices(tmp_path).trace()
    kept = OpenTraces(each=3, most=4)
    bobs = kept.add("bobs", trace, "bob")
    anns = [kept.add(f"{i}", trace, "ann") for i in range(9)]
    assert kept.get(bobs, "bob").name == "bobs"
    assert [kept.get(key, "ann").name for key in anns[-3:]] == ["6", "7", "8"]
    with pytest.raises(TraceError, match="no longer open"):
        kept.get(anns[5], "ann")
    cyds = kept.add("cyds", trace, "cyd")  # one too many: the oldest of whom has most
    assert (kept.get(bobs, "bob").name, kept.get(cyds, "cyd").name, len(kept)) == ("bobs", "cyds", 4)
    with pytest.raises(TraceError, match="no longer open"):
        kept.get(anns[6], "ann")
    rows = TraceData("", trace).rows
    full = OpenTraces(rows=3 * rows)
    first = full.add("first", trace, "bob")
    for _ in range(4):
        full.add("more", trace, "ann")
    assert (full.get(first, "bob").name, len(full)) == ("first", 3)


def narrow(folder: Path, text: str, schema: str, lifetime: Any) -> Source:
    """A source over a file, of which the optimizer has left the column `a`."""
    file = folder / "n.csv"
    file.write_text(text)
    record = hr.read_csv(file, schema=schema, lifetime=lifetime).trace().record
    return replace(record.source_of(record.operator(1)), read_columns=("a",))


def test_lines_have_the_lifetime_of_the_event(tmp_path: Path):
    def lines(source: Source, le: int, re: int) -> list[int]:
        return [line["line"] for line in lines_of(source, (le, re, {"a": 7}))[0]]

    points = narrow(tmp_path, "time,a\n1,7\n2,7\n3,7\n3,7\n", "time LONG, a LONG", hr.point("time"))
    assert [lines(points, le, le + 1) for le in (1, 2, 3)] == [[2], [3], [4, 5]]  # of two equal lines, one of both
    assert lines(points, 9, 10) == [2, 3, 4, 5]
    many = narrow(tmp_path, "time,a\n" + "9,7\n" * 30, "time LONG, a LONG", hr.point("time"))
    found, more = lines_of(many, (9, 10, {"a": 7}))
    assert (len(found), more) == (20, True)
    intervals = narrow(tmp_path, "s,e,a\n1,5,7\n1,6,7\n", "s LONG, e LONG, a LONG", hr.interval("s", "e"))
    assert [lines(intervals, 1, end) for end in (5, 6)] == [[2], [3]]
    edges = narrow(tmp_path, "time,a\n1,7\n4,7\n", "time LONG, a LONG", hr.edge("time", key="a"))
    assert [lines(edges, le, 1_000) for le in (1, 4)] == [[2], [3]]
