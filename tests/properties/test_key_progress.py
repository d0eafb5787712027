"""Progress by key: promises and late rows, against a walk over the rows, for any division into batches (rule 3.2)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.testing.strategies import batch_sizes
from headrace.time import NEG_INFINITY

ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(0, 60)), min_size=1, max_size=25)


def walked(rows: list[tuple[Any, int]], delay: int, every: int, idle: int) -> tuple[list[int], int]:
    """The rows that are in time, by their place, and the CTI after all of them."""
    times: dict[Any, int] = {}
    cti, in_time = NEG_INFINITY, []
    for place, (key, time) in enumerate(rows):
        if time >= cti:
            in_time.append(place)
        times[key] = max(time, times.get(key, time))
        behind = min(t for t in times.values() if t > max(times.values()) - idle)
        cti = max(cti, (behind - delay) // every * every)
    return in_time, cti


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[tuple[Any, int]], list[int], int, int, int]:
    rows = draw(ROWS)
    delay, every, idle = draw(st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(1, 30)))
    return rows, draw(batch_sizes(len(rows))), delay, every, idle


@pytest.mark.filterwarnings("ignore::headrace.errors.RowsNotUsed")
@given(cases(), st.integers(1, 3))
def test_oracle_the_key_that_is_farthest_behind_decides(
    case: tuple[list[tuple[Any, int]], list[int], int, int, int], buckets: int
):
    rows, batches, delay, every, idle = case
    progress = hr.advance(delay, every, "drop", idle=idle, per="key")
    data = [{"le": time, "key": key, "place": place} for place, (key, time) in enumerate(rows)]
    stream = hr.events(data, "key STRING, place LONG", progress=progress, batches=batches)
    in_time, cti = walked(rows, delay, every, idle)
    # The query does not read the key.
    run = stream.select("place").run(finish=False, buckets=buckets)
    assert sorted(run.cht()["place"].to_pylist()) == in_time
    assert run.cti() == cti
    counted = stream.window(hr.tumbling(5)).aggregate(n=hr.count())
    assert sum(counted.cht(buckets=buckets)["n"].to_pylist()) == len(in_time)
