"""Failpoints: what a query announces, in which order, and that nothing is spent on it without a hook."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.grid.hook import Hook

import headrace as hr
from headrace import failpoints

COST = """
from time import perf_counter_ns
from headrace.failpoints import reach
def batch():
    began = perf_counter_ns()
    for _ in range(100_000):
        reach("plan", 1)
    return perf_counter_ns() - began
print(min(batch() for _ in range(10)) / 100_000)
"""


def steps_of(folder: Path) -> list[str]:
    """The points that a query of one batch reaches."""
    hook = Hook()
    rows = [{"le": t, "k": "ab"[t % 2], "v": t} for t in range(8)]
    counted = hr.events(rows, progress=hr.ordered()).group_by("k").window(hr.tumbling(4)).aggregate(n=hr.count())
    hook.watch(folder, note=True)
    query = counted.start(hr.files(str(folder / "out")), host="local", checkpoint=str(folder / "state"), buckets=2)
    try:
        query.process_all_available()
    finally:
        query.stop()
        hook.rest()
    return [step for step in hook.steps or () if not step.startswith("file ")]


def test_a_batch_reaches_its_points_in_order(tmp_path: Path):
    steps = steps_of(tmp_path)
    points = ["plan 0", "planned 0", "intake 0/0", "stage 0/1/0", "staged 0/1/0", "ran 0", "commit 0"]
    points += ["create commits/000000000000", "created commits/000000000000", "committed 0", "published 0"]
    points += ["clean 0", "cleaned 0"]
    assert [step for step in steps if step in points] == points
    assert {step.partition(" ")[0] for step in steps} >= {"read", "keys"}


def test_the_list_of_points_is_complete(tmp_path: Path):
    assert failpoints.__doc__ is not None
    table = failpoints.__doc__.partition("point        about")[2]
    listed = {name.strip() for line in table.splitlines()[1:] for name in line.strip().partition("  ")[0].split(",")}
    found = {step.partition(" ")[0] for step in steps_of(tmp_path)}
    assert found <= listed


def test_a_point_costs_nothing_without_a_hook():
    """In a process of its own: hooks stay for good, and other tests add some."""
    told = subprocess.run([sys.executable, "-c", COST], capture_output=True, text=True, check=True, timeout=120)
    assert float(told.stdout) < 2_000, "ns per call; 45 ns on an idle machine"
