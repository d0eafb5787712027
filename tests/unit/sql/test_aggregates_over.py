"""Random window versions in queries: OVER gives what a plain reading of the text gives, whatever the batches."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from tests.fixtures.direct_aggregates import Direct
from tests.unit.sql.test_aggregates_random import Writer, same

import headrace as hr
from headrace.sql.aggregates import modules_of
from headrace.sql.printer import to_sql

SLOW = settings(
    max_examples=max(5, settings().max_examples // 5), deadline=None, phases=[Phase.explicit, Phase.generate]
)
SCHEMA = "k STRING, v INT, w DOUBLE"
Tuple = tuple[int, str, Any, Any]


def physical(tuples: list[Tuple], random: Random) -> list[dict[str, Any]]:
    """Events in some order that promises allow, among them some that are taken back."""
    waiting, found = list(tuples), []
    while waiting:
        size = random.randint(1, 4)
        part, waiting = waiting[:size], waiting[size:]
        events = [{"kind": "insert", "le": le, "re": le + 1, "k": k, "v": v, "w": w} for le, k, v, w in part]
        wrong = [{**random.choice(events), "v": 77, "w": 0.5} for _ in range(random.choice([0, 0, 1]))]
        events += wrong
        random.shuffle(events)
        taken = [{**one, "kind": "retract", "re_new": one["le"]} for one in wrong]
        found += events + taken
        if waiting:
            found.append({"kind": "cti", "le": random.randint(part[-1][0], waiting[0][0])})
    return found


def expected(direct: Direct, tuples: list[Tuple], frame: dict[str, int], *, active: bool) -> list[tuple[Any, ...]]:
    found = []
    for key in {k for _, k, _, _ in tuples}:
        mine = [one for one in tuples if one[1] == key]
        times, items = [one[0] for one in mine], [one[2:] for one in mine]
        if active:
            steps = direct.active(items, times, frame["range"])
            found += [(time, time + 1, key, *row) for _, time, rows in steps for row in rows]
            continue
        where = {"rows": frame["rows"]} if "rows" in frame else {"ticks": frame["range"]}
        for one, rows in zip(mine, direct.over(items, times, **where), strict=True):
            found += [(one[0], one[0] + 1, *one[1:], *row) for row in rows]
    return plain(found)


def plain(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """In one order; to the engine -0.0 is 0.0."""
    return sorted((tuple(v + 0.0 if isinstance(v, float) else v for v in row) for row in rows), key=str)


@pytest.mark.slow
@pytest.mark.parametrize("active", [False, True])
@SLOW
@given(st.integers(0, 2**64))
@example(315467227).via("what one EXPIRE deletes from the window does not expire, though its time has come as well")
def test_over(active: bool, seed: int):
    writer = Writer(seed)
    random = writer.random
    tree = writer.window_aggregate()
    module: Any = modules_of(to_sql(tree))["f"]
    items = [item for _ in range(3) for item in writer.items()]
    times = sorted(random.sample(range(40), len(items)))
    tuples = [(time, random.choice("ab"), *item) for time, item in zip(times, items, strict=True)]
    frame = {"range" if active or writer.maybe() else "rows": random.choice([0, 1, 3, 8])}
    stream = hr.events(physical(tuples, random), SCHEMA).group_by("k").over(**frame, active=active)
    run = stream.operate(module, "v", "w").run(batch_rows=random.randint(1, 6), buckets=random.choice([1, 2]))
    found = plain(tuple(row.values()) for row in run.cht().to_pylist())
    assert same(found, expected(Direct(tree), tuples, frame, active=active)), to_sql(tree)
