"""Loops whose bodies aggregate, rank, or ask for what is not there: each key has a loop of its own, in its bucket."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operators.recurse.loops import FEW, HALF, closure, restarts_do_not_show

import headrace as hr
from headrace import col
from headrace.testing.strategies import buckets, streams
from headrace.testing.verify.differential import differential_reference

KEYED = "t LONG, src LONG, dst LONG"


def keyed(max_events: int = 8) -> st.SearchStrategy[hr.Stream]:
    return streams(KEYED, max_events=max_events, odd=False)


def keyed_cheapest(links: hr.Stream) -> hr.Stream:
    """By tenant and pair, the least number of links on the way: a minimum inside the loop."""
    costs = links.select("t", "src", "dst", cost=hr.lit(1).cast("LONG"))

    def body(found: hr.Stream) -> hr.Stream:
        longer = found.join(costs, on={"t": "t", "dst": "src"}).where(col("cost") < 9)
        further = longer.select("t", "src", dst=col("dst_right"), cost=col("cost") + col("cost_right"))
        return further.union(costs).group_by("t", "src", "dst").window(hr.snapshot()).aggregate(cost=hr.min("cost"))

    return hr.recurse(costs, body, max_rounds=40)


def keyed_closed(links: hr.Stream) -> hr.Stream:
    """What is reached of each tenant, but for nodes that have a link to themselves."""
    closed = links.where(col("src") == col("dst")).select("t", node=col("src"))
    begin = links.where(col("src") == 0).select("t", node=col("src"))

    def body(found: hr.Stream) -> hr.Stream:
        further = found.join(links, on={"t": "t", "node": "src"}).select("t", node=col("dst"))
        return further.anti_join(closed, on={"t": "t", "node": "node"})

    return hr.recurse(begin, body)


def ranked(links: hr.Stream) -> hr.Stream:
    """Only the way to the greatest node goes on."""

    def body(found: hr.Stream) -> hr.Stream:
        further = found.join(links, on={"t": "t", "dst": "src"}).select("t", "src", dst=col("dst_right"))
        return further.group_by(t=col("t")).top(2, by="dst")

    return hr.recurse(links, body, max_rounds=40)


def nested(links: hr.Stream) -> hr.Stream:
    """A loop inside the loop, over what was found so far, which stays inside the key, too."""

    def inner(found: hr.Stream) -> hr.Stream:
        twice = lambda paths: (  # noqa: E731
            paths.join(paths.select(u=col("t"), mid=col("src"), end=col("dst")), on={"t": "u", "dst": "mid"}).select(
                "t", "src", dst=col("end")
            )
        )
        return hr.recurse(found, twice).where(col("src") < col("dst")).select("t", src=col("dst"), dst=col("src"))

    return hr.recurse(links, inner)


LOOPS = {"cheapest": keyed_cheapest, "closed": keyed_closed, "ranked": ranked, "nested": nested}


@pytest.mark.parametrize("name", LOOPS)
@settings(max_examples=max(5, HALF // 2))
@given(links=keyed(), n=buckets())
@pytest.mark.slow
def test_differential_each_key_has_a_loop_of_its_own(name: str, links: hr.Stream, n: int):
    query = LOOPS[name](links)
    assert [query.node.need(i) for i in range(len(query.node.inputs))] == [("t",)] * len(query.node.inputs)
    differential_reference(query.node, buckets=n)


@pytest.mark.slow
@settings(max_examples=FEW)
@given(keyed(), st.integers(2, 3))
def test_a_restored_loop_of_a_key_continues_as_if_nothing_had_happened(links: hr.Stream, n: int):
    restarts_do_not_show(keyed_cheapest(links), n)
    restarts_do_not_show(keyed_closed(links), n)


def test_rows_of_keys_are_in_several_buckets():
    links = hr.events([{"t": t, "src": n, "dst": n + 1, "le": 0, "re": 9} for t in range(8) for n in range(3)], KEYED)
    run = keyed_cheapest(links).run(buckets=4)
    held = [part["bucket"] for part in run.statistics[-2] for op in part["operators"].values() if "loop" in op]
    assert sorted(held) == [0, 1, 2, 3]
    assert hr.same_history(run.cht(), keyed_cheapest(links).cht())
    filled = {part["bucket"] for part in run.statistics[0] for op in part["operators"].values() if op.get("rows")}
    assert len(filled) > 1


# --- why there is no key ---------------------------------------------------------------------------------------------

LINKS = hr.events([], KEYED)
NODES = hr.events([], "node LONG")


def why(query: hr.Stream) -> str:
    """What `explain` says of a loop that stays in one bucket."""
    text = query.explain()
    assert "all in one bucket" in text
    (line,) = [line.strip() for line in text.splitlines() if "in one bucket, since" in line]
    return line.partition("all the way round: ")[2]


def counted(found: hr.Stream, *keys: str) -> hr.Stream:
    return found.group_by(*keys).window(hr.snapshot()).aggregate(n=hr.count())


def test_a_value_that_is_replaced():
    query = hr.recurse(
        NODES,
        lambda f: f.join(LINKS, on={"node": "src"}).select(node=col("dst")).anti_join(NODES, on="node"),
    )
    assert why(query) == "node: Select node = dst does not pass it on"


def test_a_count_over_all_keys_and_a_join_across_them():
    def body(found: hr.Stream) -> hr.Stream:
        sizes = counted(found, "src").where(col("n") < 3)
        return found.join(sizes, on="src").select("t", src=col("dst"), dst=col("src"))

    told = why(hr.recurse(LINKS, body))
    assert "t: Aggregate n = count(*) over snapshot per src is not grouped by it" in told
    assert "src: it comes back as dst" in told


def test_a_stream_from_outside_that_does_not_have_it():
    def body(found: hr.Stream) -> hr.Stream:
        further = found.join(NODES, on={"dst": "node"})
        return further.select("t", src=col("dst"), dst=col("src")).group_by("t").top(1, by="dst")

    assert "t: Join on dst = node brings rows together that differ in it" in why(hr.recurse(LINKS, body))


def test_a_loop_inside_that_no_key_keeps_together():
    def body(found: hr.Stream) -> hr.Stream:
        pairs = found.select("src", "dst")
        return found.join(closure(pairs), on=["src", "dst"]).select("t", "src", "dst").group_by("t").top(1, by="dst")

    told = why(hr.recurse(LINKS, body))
    assert "src: Recurse distinct, progress hybrid inside of it brings rows together that differ in it" in told


def test_a_loop_that_a_key_keeps_together_says_by_which():
    assert "a loop of its own in every bucket, by t" in keyed_cheapest(LINKS).explain()
    assert "in one bucket" not in keyed_cheapest(LINKS).explain()
    plain = hr.recurse(
        LINKS, lambda f: f.where(col("dst") > 0).select("t", "src", dst=col("dst") - 1).extend(1), distinct=False
    )
    assert "a loop of its own in every bucket, by t" in plain.explain()
