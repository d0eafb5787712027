"""Deep plans agree: after every batch with the slow twins, in any batches and buckets, and on Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.deep_plans import WRITTEN, deep_plan
from tests.conformance.test_hosts import random_events, sizes, stream

import headrace as hr
from headrace.testing import check_output
from headrace.testing.verify.differential import differential_reference

PLANS: dict[str, Callable[..., hr.Stream]] = WRITTEN | {f"plan {n}": deep_plan(n) for n in range(33)}


def streams(number: int, parts: int) -> tuple[hr.Stream, hr.Stream]:
    a, b = random_events(number, 16), random_events(number + 1, 12)
    return stream(a, sizes(number, len(a), parts)), stream(b, sizes(number + 7, len(b), parts))


@pytest.mark.parametrize("name", PLANS)
def test_differential_deep_plans(name: str):
    for number, parts, buckets in ((1, 6, 1), (3, 4, 3)):
        differential_reference(PLANS[name](streams(number, parts)).node, buckets=buckets)


@pytest.fixture(scope="module")
def on_spark(request: pytest.FixtureRequest) -> Any:
    """All plans in a few queries on Spark: a run costs seconds, whatever it holds."""
    request.getfixturevalue("spark")
    built = {name: build(streams(5, 3)) for name, build in PLANS.items()}
    runs = {}
    for start in range(3):
        part = {name: built[name] for name in list(built)[start::3]}
        here, there = hr.run(part), hr.run(part, host="spark", buckets=2)
        runs |= dict.fromkeys(part, (here, there))
    return runs


@pytest.mark.spark
@pytest.mark.parametrize("name", PLANS)
def test_differential_deep_plans_on_spark(on_spark: Any, name: str):
    right, found = on_spark[name]
    assert not hr.history_diff(right.cht(name), found.cht(name), names=("local", "spark"))
    check_output(found.events(name))
