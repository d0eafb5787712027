"""One query, every host, the same history: whatever cuts a stream into batches, and whatever runs it, must not show.

All queries of the table run as one query with many outputs, so that each host runs them once. The measure is the local
host in one batch and one bucket, which the slow twins measure in turn (tests/properties).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tests.strategies.plans import plans

import headrace as hr
from headrace import col
from headrace.border import as_ticks
from headrace.testing import check_output

pytestmark = pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")  # rows are lost here on purpose

SCHEMA = "k STRING, i LONG, x DOUBLE"
SIGNAL = "k STRING, t LONG, v INT"
BERLIN = hr.tumbling("1 day", zone="Europe/Berlin")
Rows = list[dict[str, Any]]


def random_events(number: int, size: int = 40, *, late: float = 0.0) -> Rows:
    """A physical stream of inserts, chains of corrections and CTIs; a share `late` of it breaks a promise."""
    draw = random.Random(number)
    rows: Rows = []
    alive: list[dict[str, Any]] = []
    cti = 0
    while len(rows) < size:
        if draw.random() < 0.15:
            cti += draw.randrange(1, 8)
            rows.append({"kind": "cti", "le": cti})
            alive = [event for event in alive if event["re"] >= cti]
        elif alive and draw.random() < 0.4:
            event = alive.pop(draw.randrange(len(alive)))
            new = draw.choice([max(event["le"], cti), max(event["le"], cti) + draw.randrange(12), hr.INFINITY])
            if new != event["re"]:
                rows.append({**event, "kind": "retract", "re_new": new})
                alive += [{**event, "re": new}] if new > event["le"] else []
        else:
            le = cti + draw.randrange(15) if draw.random() >= late else cti - draw.randrange(1, 9)
            values = {"k": draw.choice("abc"), "i": draw.randrange(-5, 6), "x": draw.choice([None, 0.1, 2.5, -3.0])}
            re = draw.choice([le + 1, le + draw.randrange(1, 20), hr.INFINITY])
            event = {"kind": "insert", "le": le, "re": re, **values}
            rows.append(event)
            alive += [event] if le >= cti else []
    return rows


def sizes(number: int, total: int, parts: int = 6) -> list[int]:
    """A random way to cut `total` rows into batches."""
    cuts = sorted(random.Random(number).sample(range(1, total), parts - 1))
    return [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]


def log(number: int, size: int = 60) -> Rows:
    """Changes of a few keys, many at the same time, somewhat out of order; some are no changes."""
    draw = random.Random(number)
    kinds = ["+I", "+U", "+U", "-U", "-D", "?"]
    return [
        {
            "row_kind": draw.choice(kinds),
            "t": i // 2 + draw.randrange(8),
            "k": draw.choice("ab"),
            "id": draw.randrange(3),
            "v": i,
        }
        for i in range(size)
    ]


def dated(rows: Rows) -> Rows:
    """The same events with dates, five hours for each tick, around a night in which clocks change."""

    def moved(time: int) -> Any:
        return time if time == hr.INFINITY else datetime(2024, 3, 29, tzinfo=UTC) + timedelta(hours=5 * time)

    return [{name: moved(v) if name in ("le", "re", "re_new") else v for name, v in row.items()} for row in rows]


def paced(number: int, size: int = 60) -> Rows:
    """Points of three keys, each at its own pace; one falls silent."""
    draw = random.Random(number)
    keys = ["abc"[draw.randrange(3 if i < size // 2 else 2)] for i in range(size)]
    return [
        {"le": i + draw.randrange(3) - {"a": 0, "b": 6, "c": 2}[key], "k": key, "i": i, "x": None}
        for i, key in enumerate(keys)
    ]


def stream(rows: Rows, batches: Sequence[int] = (), **options: Any) -> hr.Stream:
    return hr.events(rows, SCHEMA, batches=batches, **options)


@hr.udf
def halved(x: float) -> float:
    return x / 2


EVERY_FUNCTION = {
    "n": hr.count(), "nx": hr.count("x"), "s": hr.sum("i"), "sx": hr.sum("x"), "a": hr.avg("x"), "lo": hr.min("x"),
    "hi": hr.max("i"), "v": hr.var("i"), "d": hr.stddev("x"), "f": hr.first("i"), "l": hr.last("x"),
    "mixed": hr.sum(col("i") * 2) / hr.count(), "m": hr.median("x"), "q": hr.quantile("i", 0.8), "c": hr.collect("x"),
    "t": hr.top_frequent("i", 2), "dc": hr.distinct_count("i"), "ad": hr.approx_distinct("x"), "j": hr.concat("k", "+"),
    "g": hr.geometric_mean("x"), "u": hr.avg(halved("x")), "p": hr.percentile_disc("k", 0.5),
    "w": hr.sum("x", where=col("i") > 1), "nw": hr.count(where=col("x") > 0.0),
}  # fmt: skip


@dataclass(frozen=True)
class Inputs:
    """The streams that queries are written over."""

    a: hr.Stream
    b: hr.Stream
    unruly: hr.Stream
    signal: hr.Stream
    #: The same files, read in another way.
    samples: hr.Stream
    #: Changes of a table: rows in memory with times of their own, and the same files in the order of their log.
    changes: hr.Stream
    log: hr.Stream
    #: The rows of `a`, hours apart, as dates; and rows of which some are late, with progress by key.
    dated: hr.Stream
    by_key: hr.Stream


def _nested(s: Inputs) -> hr.Stream:
    counts = s.a.group_by("k").window(hr.tumbling(5)).aggregate(n=hr.count(), top=hr.max("i"))
    return counts.group_by("n").window(hr.hopping(20, every=10)).aggregate(keys=hr.count(), top=hr.max("top"))


def _two_ways_to_one_key(s: Inputs) -> hr.Stream:
    """Rows that are together by nothing are united with rows that are together by `n`, then grouped by `n`."""
    total = s.a.window(hr.tumbling(4)).aggregate(n=hr.count())
    left = total.group_by("n").window(hr.tumbling(4)).aggregate(m=hr.count())
    right = s.b.select(n=col("i")).group_by("n").window(hr.tumbling(4)).aggregate(m=hr.count())
    return left.union(right).group_by("n").window(hr.tumbling(8)).aggregate(m=hr.sum("m"))


QUERIES: dict[str, Callable[[Inputs], hr.Stream]] = {
    "as it is": lambda s: s.a,
    "span operators": lambda s: (
        s.a.where((col("i") > -3) | col("x").is_null())
        .select("k", j=col("i") * 2, y=col("x").coalesce(0.5))
        .shift(7)
        .extend(-2)
    ),
    "set_duration and points": lambda s: s.a.set_duration(4).union(s.b.point_at_start()),
    "tumbling": lambda s: s.a.group_by("k").window(hr.tumbling(10)).aggregate(**EVERY_FUNCTION),
    "hopping": lambda s: s.a.group_by("k").window(hr.hopping(10, every=3, origin=1)).aggregate(**EVERY_FUNCTION),
    "jumping": lambda s: s.a.window(hr.hopping(3, every=10)).aggregate(**EVERY_FUNCTION),
    "union": lambda s: s.a.union(s.b).group_by("i").window(hr.tumbling(6)).aggregate(n=hr.count(), x=hr.avg("x")),
    "nested": _nested,
    "two ways to one key": _two_ways_to_one_key,
    "edge": lambda s: s.signal,
    "edge, aggregated": lambda s: s.signal.group_by("k").window(hr.tumbling(10)).aggregate(v=hr.avg("v"), n=hr.count()),
    "the same files as points": lambda s: s.samples,
    "changes": lambda s: s.changes,
    "changes, aggregated": lambda s: s.changes.group_by("k").window(hr.tumbling(10)).aggregate(n=hr.count()),
    "changes in the order of their log": lambda s: s.log,
    "changes that are malformed": lambda s: s.changes.diverted(),
    "final": lambda s: s.a.final(),
    "final windows": lambda s: s.b.group_by("k").window(hr.tumbling(7)).aggregate(n=hr.count()).final(),
    "some are late": lambda s: s.unruly.group_by("k").window(hr.tumbling(7)).aggregate(n=hr.count()),
    "diverted": lambda s: s.unruly.diverted(),
    "sessions that are cut": lambda s: s.a.group_by("k").window(hr.session(5, longest=8)).aggregate(n=hr.count()),
    "with columns of sessions": lambda s: s.a.group_by("k").window(hr.session(5)).with_columns(n=hr.count()),
    "calendar": lambda s: (
        s.dated.group_by("k").window(hr.tumbling("1 day", zone="Europe/Berlin")).aggregate(n=hr.count())
    ),
    "progress by key": lambda s: s.by_key.group_by("k").window(hr.tumbling(7)).aggregate(n=hr.count()),
}
FINAL = ("final", "final windows", "diverted", "changes that are malformed")


@pytest.fixture(scope="module")
def signal(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Samples of a few signals in four files, somewhat out of order."""
    folder, draw = tmp_path_factory.mktemp("signal"), random.Random(5)
    for number in range(4):
        rows = [f"{draw.choice('ab')},{number * 20 + draw.randrange(30)},{draw.randrange(9)}" for _ in range(12)]
        file = folder / f"{number}.csv"
        file.write_text("\n".join(["k,t,v", *rows]) + "\n")
        os.utime(file, (number + 1, number + 1))  # Spark takes files by their times, and those of one moment anyhow
    return str(folder)


def inputs(signal: str, cut: int | None) -> Inputs:
    def sized(rows: Rows, number: int) -> Sequence[int]:
        return () if cut is None else sizes(cut + number, len(rows))

    a, b, c = random_events(1), random_events(2), random_events(3, 60, late=0.3)
    return Inputs(
        stream(a, sized(a, 0)),
        stream(b, sized(b, 10)),
        stream(c, sized(c, 20), progress=hr.explicit(late="divert")),
        hr.read_csv(signal, SIGNAL, lifetime=hr.edge("t", "k", closes=col("v") == 0), progress=hr.advance(delay=30)),
        hr.read_csv(signal, SIGNAL, lifetime=hr.point("t"), progress=hr.advance(delay=5)),
        hr.read_changes(log(8), key=("k", "id"), at="t", encoding="flink", progress=hr.advance(delay=20)),
        hr.read_changes(signal, SIGNAL, key="k", encoding="upsert", deletes=col("v") == 0, format="csv"),
        stream(dated(a), sized(a, 30)),
        stream(paced(9), sized(paced(9), 40), progress=hr.advance(3, per="k", idle=10)),
    )  # fmt: skip


def run_all(given_: Inputs, **options: Any) -> hr.Run:
    return hr.run({name: build(given_) for name, build in QUERIES.items()}, **options)


@pytest.fixture(scope="module")
def expected(signal: str) -> hr.Run:
    return run_all(inputs(signal, None))


@pytest.fixture(scope="module", params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def finished(request: pytest.FixtureRequest, signal: str) -> hr.Run:
    """Every query, on one host, in random batches."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    return run_all(inputs(signal, 77), host=request.param, buckets=3)


@pytest.mark.parametrize("name", QUERIES)
def test_differential_every_host_gives_the_same_history(finished: hr.Run, expected: hr.Run, name: str):
    right = expected.cht(name)
    assert right.num_rows, "an empty history proves nothing"
    assert not hr.history_diff(right, finished.cht(name), names=("expected", "this host"))


@pytest.mark.parametrize("name", QUERIES)
def test_what_leaves_keeps_its_promises(finished: hr.Run, name: str):
    events = as_ticks(finished.events(name))
    check_output(finished.events(name), retractions=name not in FINAL)
    ctis = [row["le"] for row in events.to_pylist() if row["kind"] == "cti"]
    assert ctis == sorted(set(ctis))
    assert ctis[-1] == hr.INFINITY


def test_counts_do_not_depend_on_the_host(finished: hr.Run, expected: hr.Run):
    assert finished.counts == expected.counts
    for counts in finished.counts.values():
        assert counts["rows"] == counts["accepted"] + counts["diverted"] + counts["dropped"]
    assert sum(counts["diverted"] for counts in finished.counts.values()) == finished.diverted().num_rows


# --- random plans ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("spark")
@seed(20250711)
@settings(
    max_examples=3,
    phases=[Phase.generate],
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(drawn=st.lists(plans(depth=5, max_events=8), min_size=8, max_size=8), buckets=st.integers(1, 5))
def test_differential_random_plans_on_spark(drawn: list[hr.Stream], buckets: int):
    """Eight random plans at a time: a run on Spark costs seconds, whatever it holds."""
    queries = {f"plan {number}": plan for number, plan in enumerate(drawn)}
    right = hr.run(queries)
    found = hr.run(queries, host="spark", buckets=buckets)
    for name, plan in queries.items():
        diff = hr.history_diff(right.cht(name), found.cht(name), names=("local", "spark"))
        assert not diff, f"{diff}\n{plan.explain()}"
        check_output(found.events(name))
