"""The library on made-up streams: batch SQL, the twins, restarts and any batches say the same (rule 10)."""

from __future__ import annotations

import pytest
from hypothesis import settings

import headrace as hr
from headrace import stdlib

SEEDS = max(5, settings().max_examples // 20)
STREAM = hr.events([{"le": 1, "k": "a", "i": 1, "x": 1.0}], "k STRING, i LONG, x DOUBLE")
ACTIVE = "OVER (PARTITION BY i RANGE 4 ticks PRECEDING ACTIVE EXPIRATION)"
QUERIES = {
    "approx_ones": "SELECT k, approx_ones(i > 0, 3, 2) AS n FROM s GROUP BY k",
    "ewma": "SELECT k, ewma(x, 0.25) AS mean FROM s GROUP BY k",
    "frequent_items": "SELECT k, frequent_items(i, 0.4) OVER (PARTITION BY k ROWS 3 PRECEDING) FROM s",
    "gap_group": "SELECT k, gap_group(i, 2) AS number FROM s GROUP BY k",
    "online_mean": "SELECT k, online_mean(x) OVER (PARTITION BY k RANGE 5 ticks PRECEDING) AS mean FROM s",
    "online_variance": "SELECT k, online_variance(x) OVER (PARTITION BY k ROWS 2 PRECEDING) AS variance FROM s",
    "priority_sample": "SELECT i, priority_sample(k, x) OVER (PARTITION BY i ROWS 2 PRECEDING) AS item FROM s",
    "silence": f"SELECT i, silence(k) {ACTIVE} AS heard FROM s",
    "theft_alarm": f"SELECT i, theft_alarm(k, CASE WHEN x > 0.0 THEN 'op' ELSE 'item' END) {ACTIVE} AS tag FROM s",
    "top_k": "SELECT i, top_k(k, x, 2) OVER (PARTITION BY i RANGE 5 ticks PRECEDING) FROM s",
}


def test_all_are_asked():
    assert list(QUERIES) == list(stdlib.LIBRARY)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_an_aggregate_of_the_library_is_verified(name: str):
    assert hr.sql(QUERIES[name], s=STREAM).verify(seeds=SEEDS).ok
