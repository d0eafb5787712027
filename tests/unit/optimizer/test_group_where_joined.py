"""Groups that are joined come together by the keys of the join: one stage fewer, and the same history."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import headrace as hr
from headrace import col
from headrace.api.running import outputs_of
from headrace.host.local import run_local
from headrace.optimizer import RULES
from headrace.optimizer.group_where_joined import group_where_joined
from headrace.stages.cut import line_of

WITHOUT = tuple(rule for rule in RULES if rule is not group_where_joined)
TEN = hr.tumbling("10 s")


def _bids() -> hr.Stream:
    return hr.generated("bids", rows=600, seed=5, disorder=0.1).select("auction", "bidder", "price")


def _counted(*keys: str) -> hr.Stream:
    return _bids().group_by(*keys).window(TEN).aggregate(n=hr.count())


def _best(*keys: str) -> hr.Stream:
    return _bids().group_by(*keys).window(TEN).aggregate(best=hr.max("price"))


#: What is joined, and how many stages it takes with the rule and without it.
QUERIES: dict[str, tuple[Callable[[], hr.Stream], int, int]] = {
    "one side is narrower": (lambda: _counted("auction", "bidder").join(_best("auction"), "auction"), 1, 2),
    "both sides are wider": (
        lambda: _counted("auction", "bidder").join(
            _best("price", "auction").select("auction", best2=col("best")), "auction"), 1, 2,
    ),
    "another name, behind a filter": (
        lambda: _counted("auction", "bidder").where(col("n") > 0).select(who=col("bidder"), what=col("auction"))
        .join(_best("auction"), on={"what": "auction"}), 1, 2,
    ),
    "two keys in another order": (
        lambda: _counted("bidder", "auction").join(
            _best("auction", "bidder", "price"), ["auction", "bidder"]), 1, 2,
    ),
    "the other side is no group": (lambda: _counted("auction", "bidder").join(_bids(), "auction"), 1, 2),
    "a left join": (lambda: _counted("auction", "bidder").left_join(_best("auction"), "auction"), 1, 2),
    "an anti join": (lambda: _counted("auction", "bidder").anti_join(_best("auction"), "auction"), 1, 2),
    "joined by what is no key": (
        lambda: _counted("auction", "bidder").join(_best("auction"), on={"n": "auction"}), 2, 2,
    ),
    "the other side must travel": (
        lambda: _counted("auction", "bidder").join(_counted("price"), on={"auction": "n"}), 2, 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUERIES)
def test_stages(name: str):
    query, fewer, more = QUERIES[name]
    outputs = outputs_of({"out": query().node})
    assert (line_of(outputs, 2).depth, line_of(outputs, 2, WITHOUT).depth) == (fewer, more)


@pytest.mark.parametrize("buckets", [2, 3])
@pytest.mark.parametrize("name", QUERIES)
def test_the_history_is_the_same(name: str, buckets: int):
    query, _, _ = QUERIES[name]
    outputs = outputs_of({"out": query().node})
    alone = run_local(outputs, rules=(), batch_rows=150).results["out"].cht()
    spread = run_local(outputs, buckets=buckets, batch_rows=150).results["out"].cht()
    assert hr.same_history(alone, spread)
    assert alone.num_rows or name in ("an anti join", "joined by what is no key", "the other side must travel")


def test_what_others_read_too_stays_where_it_is():
    groups = _counted("auction", "bidder")
    outputs = outputs_of({"a": groups.join(_best("auction"), "auction").node, "b": groups.node})
    assert "brought together" not in "".join(node.describe() for node in line_of(outputs, 2).nodes)


def test_explain_says_what_brings_groups_together():
    assert "brought together by auction" in _counted("auction", "bidder").join(_best("auction"), "auction").explain()
