"""Loops on Spark: inside a bucket they come to rest in the batch; others go across buckets, a round a trip."""

from __future__ import annotations

import json
import math
import os
import random
import time
from pathlib import Path

import pytest
from tests.unit.operators.recurse.loops import closure, reached
from tests.unit.operators.recurse.test_closure import Told, searched
from tests.unit.operators.recurse.test_keyed_rounds import keyed_cheapest, keyed_closed
from tests.unit.operators.recurse.test_random_rounds import cheapest

import headrace as hr
from headrace import col
from headrace.testing import check_output
from headrace.time import INFINITY

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.parametrize("buckets", [1, 3])
def test_differential_loops_on_spark(buckets: int):
    rng = random.Random(buckets)
    starts, edges, spread = Told(rng, ("node",)), Told(rng, ("src", "dst")), Told(rng, ("t", "src", "dst"))
    for _ in range(24):
        rng.choice([starts, edges, edges, spread]).tell()
    links, keyed = edges.stream(), spread.stream()
    queries = {
        "reached": reached(starts.stream(), links),
        "closure": closure(links),
        "all": closure(links.where(col("src") < col("dst")), distinct=False),
        "cheapest": cheapest(starts.stream(), links.select("src", "dst", cost=col("dst") + 1)),
        "keyed": hr.recurse(
            keyed, lambda f: f.join(keyed, on={"t": "t", "dst": "src"}).select("t", "src", dst=col("dst_right"))
        ),
    }
    queries |= {"keyed cheapest": keyed_cheapest(keyed), "keyed closed": keyed_closed(keyed)}
    begin, chained = [{"le": 0, "re": 9, "node": 0}], [{"le": 0, "re": 9, "src": n, "dst": n + 1} for n in range(5)]
    queries["chain"] = reached(hr.events(begin, "node LONG"), hr.events(chained, "src LONG, dst LONG"))
    rising = hr.pattern("A B+").define(B=col("dst") > hr.prev("dst")).within(8).all_matches()
    rules = hr.events(rising.transitions())  # the re-entrant form of patterns is a loop, too
    queries["rising"] = links.match(rising, transitions=rules, begin=hr.first("dst"), end=hr.last("dst"))
    assert {queries[name].node.need(0) for name in ("keyed", "keyed cheapest", "keyed closed")} == {("t",)}
    here, there = hr.run(queries), hr.run(queries, host="spark", buckets=buckets)
    for name in queries:
        assert hr.history_diff(here.cht(name), there.cht(name), names=("local", "spark")) == ""
        check_output(there.events(name))
    found = {(row["le"], row["re"], (row["node"],)) for row in there.cht("reached").to_pylist()}
    assert found == searched(edges.alive, starts.alive)
    loops = [op for batch in there.statistics for part in batch for op in part["operators"].values() if "loop" in op]
    if buckets == 1:
        assert max(op["most_rounds"] for op in loops) > 2
    else:
        assert max(op.get("trips", 0) for op in loops) > 5


def chain(folder: Path, number: int, links: range) -> None:
    """A file of links from each node to the next, and a promise behind them."""
    rows = [{"kind": "insert", "le": node, "re": "inf", "src": node, "dst": node + 1} for node in links]
    draft = folder / f"_{number}"
    draft.write_text("\n".join(map(json.dumps, [*rows, {"kind": "cti", "le": links.stop}])) + "\n")
    os.utime(draft, (number + 1, number + 1))
    draft.rename(folder / f"{number}.json")


def test_a_loop_across_buckets_is_quiet_when_nothing_circulates_and_goes_on_from_its_checkpoint(tmp_path: Path):
    folder = tmp_path / "in"
    folder.mkdir()
    chain(folder, 0, range(4))
    links = hr.read_events(str(folder), "src LONG, dst LONG", format="json", progress=hr.explicit())
    query = hr.recurse(
        links.where(col("src") == 0).select(node=col("src")),
        lambda found: found.join(links, on={"node": "src"}).select(node=col("dst")),
    )
    kept, state = hr.memory(), str(tmp_path / "state")
    running = query.start(kept, checkpoint=state, buckets=3)
    running.process_all_available()
    batches = running.progress()["batch"]
    assert {row["node"] for row in kept.cht().to_pylist()} == {0, 1, 2, 3, 4}
    assert kept.batches[-1][1].cti == 4, "the promise has come round"
    time.sleep(3)
    assert running.progress()["batch"] == batches, "a loop at rest costs nothing"
    running.stop()
    assert batches < 12

    chain(folder, 1, range(4, 6))
    again = hr.memory()
    running = query.start(again, checkpoint=state, buckets=3)
    running.finish()
    running.stop()
    assert {(row["node"], row["le"]) for row in again.cht().to_pylist()} == {(5, 4), (6, 5)}
    assert again.batches[-1][1].cti == INFINITY
    assert running.driver.last is not None
    assert running.driver.last.record["feedback"] == [], "what was read is forgotten"


@pytest.mark.parametrize("most", [3, None])
def test_a_batch_goes_round_as_often_as_it_may(most: int | None, tmp_path: Path):
    folder = tmp_path / "in"
    folder.mkdir()
    links = hr.read_events(str(folder), "src LONG, dst LONG", format="json", progress=hr.explicit())
    kept = hr.memory()
    running = closure(links).start(kept, buckets=2, max_trips=most)
    running.driver.trip_seconds = math.inf
    for number in range(2):
        chain(folder, number, range(4 * number, 4 * number + 4))
        running.process_all_available()
    running.stop()
    assert kept.cht().num_rows == 36
    assert kept.batches[-1][1].cti == 8
    assert sum(running.batch_trips) >= 6
    assert len(running.batch_trips) == 2 if most is None else max(running.batch_trips) == 3


def test_a_loop_does_not_keep_a_query_with_a_clock_from_being_done(tmp_path: Path):
    folder = tmp_path / "in"
    folder.mkdir()
    chain(folder, 0, range(3))
    ticks = hr.heartbeat(every="10 ms", delay="0 s")  # every batch has a new promise
    rows = hr.read_json(str(folder), "src LONG, dst LONG, le LONG", lifetime=hr.point("le"), progress=ticks)
    kept = hr.memory()
    running = closure(rows.where(col("src") >= 0).select("src", "dst").set_duration(100)).start(kept, buckets=2)
    running.process_all_available()
    running.finish()
    running.stop()
    assert kept.cht().num_rows == 6
    assert kept.batches[-1][1].cti == INFINITY
