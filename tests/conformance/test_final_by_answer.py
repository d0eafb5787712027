"""Finality is a property of each answer (rule 3.5): a group that never comes to an end, or has gone quiet, holds back
no one else's answers. On every host, and without more to remember.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import col
from headrace.changes import Changes
from headrace.events import history
from headrace.host.local.run import Runner, batches_of, run_local
from headrace.optimizer import optimize
from headrace.plan.nodes import Final, Output
from headrace.stages.cut import cut

MINUTES, USERS = 30, 24
#: The CTI before the end is that of the last click; what is closed by then, of a robot that clicks every minute and of
#: users that click once each.
GIVEN = {
    "session": USERS, "session in sql": USERS, "session, and the clicks": USERS + MINUTES + USERS - 1,
    "count by start": MINUTES - 2, "count by end": MINUTES - 2,
    "tuples": MINUTES // 2 - 1, "tuples in sql": MINUTES // 2 - 1, "delta": MINUTES // 2 - 1,
    "landmark": MINUTES // 5 - 1,
    "pattern": MINUTES // 2 - 1, "pattern, all rows": MINUTES - 2, "over": MINUTES + USERS - 1,
}  # fmt: skip


def write_clicks(folder: Path) -> None:
    """A file a minute: a click of the robot, and one of a user who is never seen again."""
    folder.mkdir()
    for minute in range(MINUTES):
        rows = [{"t": 60 * minute, "who": "robot", "v": minute}]
        rows += [{"t": 60 * minute + 1, "who": f"user {minute}", "v": minute}] if minute < USERS else []
        path = folder / f"{minute:02d}.parquet"
        pq.write_table(pa.Table.from_pylist(rows), path)
        os.utime(path, (minute + 1, minute + 1))


def queries(folder: Path) -> dict[str, hr.Stream]:
    clicks = hr.read_parquet(str(folder), lifetime=hr.point("t"), progress=hr.advance(delay=0))
    each = clicks.group_by("who")
    sessions = each.window(hr.session(90)).aggregate(n=hr.count())
    twice = hr.pattern("A B", define={"B": col("v") == hr.prev("v") + 1})
    found = {
        "session": sessions,
        "session, and the clicks": sessions.where(col("n") > 0).union(clicks.select("who", n=col("v"))),
        "count by start": each.window(hr.count_by_start(2)).aggregate(n=hr.count()),
        "count by end": each.window(hr.count_by_end(2)).aggregate(n=hr.count()),
        "tuples": each.window(hr.sliding(2)).aggregate(n=hr.sum("v")),
        "delta": each.window(hr.delta(col("v") - col("first.v"), 1)).aggregate(n=hr.count()),
        "landmark": each.window(hr.landmark(0, every=5)).aggregate(n=hr.count()),
        "pattern": each.match(twice, n=hr.count()),
        "pattern, all rows": each.match(twice, rows="all", n=hr.count()),
        "over": each.over(rows=1).aggregate(n=hr.count()),
    }
    final = {name: stream.final() for name, stream in found.items()}
    partitioned = "SELECT who, sum(v) AS n FROM clicks [SIZE 2 PARTITIONED BY who] EMIT FINAL"
    final["tuples in sql"] = hr.sql(partitioned, clicks=clicks)
    session = "SELECT who, count(*) AS n FROM clicks [SESSION 90 ticks] GROUP BY who EMIT FINAL"
    final["session in sql"] = hr.sql(session, clicks=clicks)
    return final


def given_before_the_end(asked: dict[str, hr.Stream], host: str) -> dict[str, Changes]:
    if host == "local":
        done = run_local([Output(stream.node, name) for name, stream in asked.items()])
        parts = {name: [changes for changes, _ in result.batches[:-1]] for name, result in done.results.items()}
    else:
        sinks = {name: hr.memory() for name in asked}
        query = hr.start_all([(asked[name], sinks[name]) for name in asked], files_per_batch=10, buckets=2)
        try:
            query.process_all_available()
            parts = {name: [changes for changes, _ in sink.batches] for name, sink in sinks.items()}
        finally:
            query.stop()
    return {name: Changes.concat([Changes.empty(asked[name].schema), *parts[name]]) for name in asked}


@pytest.mark.parametrize("host", ["local", "spark"])
def test_what_is_closed_is_given_though_others_go_on_or_are_quiet(
    host: str, tmp_path: Path, request: pytest.FixtureRequest
):
    if host == "spark":
        request.getfixturevalue("spark")
    write_clicks(tmp_path / "in")
    asked = queries(tmp_path / "in")
    given = given_before_the_end(asked, host)
    assert {name: history(changes).num_rows for name, changes in given.items()} == GIVEN
    assert not any((changes.weight < 0).any() for changes in given.values())
    assert {row["who"] for row in history(given["session"]).to_pylist()} == {f"user {n}" for n in range(USERS)}


def held(runner: Runner) -> dict[str, int]:
    """How many rows each kind of operator remembers."""
    found: dict[str, int] = {}
    for stage in runner.stages:
        for run in stage:
            for kernel in run.kernels.values():
                name = type(kernel.node).__name__
                found[name] = found.get(name, 0) + int(kernel.state()["rows"])
    return found


def most_held(query: Callable[[hr.Stream], hr.Stream], minutes: int, users: int) -> dict[str, int]:
    """The most that operators remember while the robot clicks every minute, and at first users do."""
    rows: list[dict[str, Any]] = []
    sizes: list[int] = []
    for minute in range(minutes):
        clicks = [("robot", 60 * minute), *([(f"user {minute}", 60 * minute + 1)] if minute < users else [])]
        rows += [{"kind": "insert", "le": t, "re": t + 1, "who": who} for who, t in clicks]
        rows.append({"kind": "cti", "le": clicks[-1][1]})
        sizes.append(len(clicks) + 1)
    line = cut(optimize([Output(query(hr.events(rows, "who STRING", batches=sizes)).node, "out")]))
    assert not [node for node in line.nodes if isinstance(node, Final)]
    runner, most = Runner(line, 1, None), dict[str, int]()
    for blocks in batches_of(line.sources[0]):
        runner.round({line.sources[0].fingerprint: blocks})
        most = {name: max(n, most.get(name, 0)) for name, n in held(runner).items()}
    return most


def test_final_answers_are_forgotten_when_they_are_given():
    some = 20  # rows that a trace has not merged yet
    for minutes in (20, 200):  # of a session that goes on, all clicks are kept; of those that are over, nothing
        most = most_held(lambda clicks: _sessions(clicks).final(), minutes, minutes)
        assert most["Aggregate"] <= minutes + some, most
        assert sum(most.values()) <= minutes + 2 * some, most

    def counted(clicks: hr.Stream) -> hr.Stream:
        return clicks.group_by("who").window(hr.count_by_start(2)).aggregate(n=hr.count()).final()

    assert sum(most_held(counted, 400, 3).values()) <= 2 * some  # three users are quiet for ever


def _sessions(stream: hr.Stream) -> hr.Stream:
    return stream.group_by("who").window(hr.session(90)).aggregate(n=hr.count())


def test_explain_says_who_decides_what_is_final():
    clicks = hr.events([], "who STRING")
    text = _sessions(clicks).where(col("n") > 1).final().explain(liveliness=True)
    assert "Final" not in text
    assert "final answers only" in text
    assert "answers once, when a session is closed" in text
    assert "final answers do not wait for it" in text
    joined = _sessions(clicks).join(_sessions(clicks.shift(5)), "who").select("who").final().explain(liveliness=True)
    assert "answers wait for the CTI of Join: the least of its inputs" in joined


class Present(hr.Aggregate):
    """Fails where a value is missing."""

    input = "v LONG"
    output = "LONG"

    def compute(self, items: list[Any]) -> int:
        return sum(int(item) for item in items)


@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
def test_a_window_that_fails_is_reported_once_when_it_is_closed():
    rows = [
        {"kind": "insert", "le": 0, "re": 1, "who": "a", "v": None},
        {"kind": "insert", "le": 1, "re": 2, "who": "b", "v": 2},
        {"kind": "cti", "le": 20},
        {"kind": "insert", "le": 21, "re": 22, "who": "a", "v": None},
        {"kind": "retract", "le": 21, "re": 22, "re_new": 21, "who": "a", "v": None},
        {"kind": "insert", "le": 22, "re": 23, "who": "a", "v": 7},
    ]
    stream = hr.events(rows, "who STRING, v LONG", batches=[3, 1, 2])
    early = stream.group_by("who").window(hr.session(5), on_error="skip").aggregate(n=Present().of("v"))
    for asked in ({"final": early.final()}, {"final": early.final(), "early": early}):
        run = hr.run(asked)
        assert sorted(run.cht("final")["n"].to_pylist()) == [2, 7]
        assert run.counts["Present()"] == {"failed": 1}
        assert run.diverted().num_rows == 1
    sides = [r.batches for name, r in hr.run({"final": early.final()}).results.items() if name != "final"]
    assert [sum(len(side[i][0]) for side in sides) for i in range(4)] == [1, 0, 0, 0]
