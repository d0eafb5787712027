"""Loops by hand: what they may hold, what they say of themselves, what they remember (rules 9.1 and 9.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.operators.recurse.loops import closure, reached

import headrace as hr
from headrace import col
from headrace.errors import Diverged, PlanError
from headrace.events import history_diff
from headrace.host.local.run import Runner, batches_of
from headrace.optimizer import optimize
from headrace.plan.nodes import Output, Source, walk
from headrace.stages.cut import cut
from headrace.testing.verify.differential import differential_reference
from headrace.time import INFINITY

LINKS = hr.events("""
    le | re | src | dst
    1  | ∞  | 1   | 2
    2  | 9  | 2   | 3
    4  | ∞  | 3   | 1
    5  | 7  | 3   | 4
""")
SEED = hr.events("le | re | node\n1 | ∞ | 1")


def rows(stream: hr.Stream) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in stream.cht().to_pylist())


def test_what_is_reached_lasts_as_long_as_a_way_does():
    assert rows(reached(SEED, LINKS)) == [(1, INFINITY, 1), (1, INFINITY, 2), (2, 9, 3), (5, 7, 4)]


def test_a_part_may_come_from_elsewhere_and_a_table_may_be_joined(tmp_path: Path):
    """The table is in a file, which is read when the query starts, wherever it is used."""
    pq.write_table(pa.table({"dst": [2, 3], "name": ["two", "three"]}), tmp_path / "names.parquet")
    more = hr.events("le | re | node\n3 | 4 | 9")

    def body(found: hr.Stream) -> hr.Stream:
        named = found.join(LINKS, on={"node": "src"}).join_table(str(tmp_path / "names.parquet"), on="dst")
        return named.where(col("name") != "four").select(node=col("dst")).union(more)

    assert rows(hr.recurse(SEED, body)) == [(1, INFINITY, 1), (1, INFINITY, 2), (2, 9, 3), (3, 4, 9)]


def test_a_loop_inside_a_loop():
    """Who can reach whom and back; and from there, in an outer loop, over bridges that open later."""
    bridges = hr.events("le | re | from | to\n6 | 8 | 3 | 7\n6 | ∞ | 7 | 8")

    def outer(found: hr.Stream) -> hr.Stream:
        near = reached(found, LINKS)
        return near.join(bridges, on={"node": "from"}).select(node=col("to")).union(near)

    query = hr.recurse(SEED, outer)
    expected = [(1, INFINITY, 1), (1, INFINITY, 2), (2, 9, 3), (5, 7, 4), (6, 8, 7), (6, 8, 8)]
    assert rows(query) == expected
    assert history_diff(query.cht(), query.history(engine="duckdb").cht()) == ""
    differential_reference(query.node, buckets=2)


def test_groups_inside_the_body():
    def body(found: hr.Stream) -> hr.Stream:
        step = found.join(LINKS, on={"node": "src"}).select("node", "dst")
        return step.group_by("node").apply(lambda g: g.where(col("dst") < 4).select("dst")).select(node=col("dst"))

    assert rows(hr.recurse(SEED, body)) == [(1, INFINITY, 1), (1, INFINITY, 2), (2, 9, 3)]


def test_columns_may_have_any_names():
    seed = SEED.select(round_1=col("node"), round_1_right=col("node"), result=col("node"))
    links = LINKS.select("src", round_1=col("dst"))

    def body(found: hr.Stream) -> hr.Stream:
        step = found.join(links, on={"result": "src"})
        return step.select("round_1", result=col("round_1_right_right"), round_1_right=col("round_1_right")).select(
            round_1=col("result"), round_1_right=col("round_1_right"), result=col("result")
        )

    query = hr.recurse(seed, body)
    assert {row[-1] for row in rows(query)} == {1, 2, 3, 4}
    differential_reference(query.node)


def test_columns_of_other_streams_that_nobody_uses_are_not_read(tmp_path: Path):
    (tmp_path / "links.csv").write_text("at,src,name,dst,cost\n1,1,x,2,3\n1,2,y,3,4\n")
    links = hr.read_csv(str(tmp_path), "at LONG, src LONG, name STRING, dst LONG, cost LONG", lifetime=hr.point("at"))
    dear = links.where(col("cost") > 9)
    query = hr.recurse(
        SEED, lambda f: f.anti_join(dear, on={"node": "dst"}).join(links, on={"node": "src"}).select(node=col("dst"))
    )
    assert rows(query) == [(1, 2, 2), (1, 2, 3), (1, INFINITY, 1)]
    (output,) = optimize([Output(query.node, "out")])
    (source,) = (n for n in walk(output) if isinstance(n, Source) and n.origin == links.node.origin)  # type: ignore[attr-defined]
    assert source.schema.names == ("src", "dst", "cost")


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (lambda found: found.set_duration(5), "SetDuration"),
        (lambda found: found.shift(-1), "Shift"),
        (lambda found: found.window(hr.tumbling(5)).aggregate(node=hr.max("node")), "Aggregate"),
        (lambda found: found.clip(SEED, on="node"), "Clip"),
        (lambda found: found.final(), "Final"),
    ],
)
def test_what_looks_at_more_than_an_instant_is_refused(body: Any, told: str):
    with pytest.raises(PlanError, match=f"cannot hold {told}") as caught:
        hr.recurse(SEED, body)
    assert caught.value.allowed
    assert caught.value.instead


@pytest.mark.parametrize(
    "body", [lambda f: f.distinct(), lambda f: f.anti_join(SEED, on="node"), lambda f: f.extend(-1)]
)
def test_what_counts_or_moves_back_is_refused_where_all_events_go_round(body: Any):
    with pytest.raises(PlanError, match="a loop of all events cannot hold"):
        hr.recurse(SEED, body, distinct=False)


def test_mistakes_are_told():
    with pytest.raises(PlanError, match="returns the columns of its seed"):
        hr.recurse(SEED, lambda found: found.join(LINKS, on={"node": "src"}))
    with pytest.raises(PlanError, match="must use its argument"):
        hr.recurse(SEED, lambda _: SEED)
    with pytest.raises(PlanError, match="needs a function"):
        hr.recurse(SEED, SEED)  # type: ignore[call-overload]
    with pytest.raises(PlanError, match="not a stream"):
        hr.recurse(SEED, lambda _: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(PlanError, match="the largest number of rounds of a loop"):
        hr.recurse(SEED, lambda found: found, max_rounds=0)
    with pytest.raises(PlanError, match="unknown progress of a loop"):
        hr.recurse(SEED, lambda found: found, progress="slow")  # type: ignore[call-overload]
    with pytest.raises(PlanError, match="by the same names"):
        hr.recurse({"a": SEED}, lambda a: {"b": a})
    with pytest.raises(PlanError, match="for 'b', the columns of its seed"):
        hr.recurse({"a": SEED, "b": LINKS}, lambda a, _: {"a": a, "b": a})
    with pytest.raises(PlanError, match="needs a seed"):
        hr.recurse({}, dict)
    with pytest.raises(PlanError, match="needs a seed of the group"):
        LINKS.group_by("src").apply(lambda g: hr.recurse(SEED, lambda f: f.join(g, on={"node": "src"}).select("node")))


def test_the_result_so_far_means_nothing_outside():
    kept: list[hr.Stream] = []
    hr.recurse(SEED, lambda found: kept.append(found) or found)  # type: ignore[func-returns-value]
    with pytest.raises(PlanError, match="only inside the loop"):
        kept[0].run()


def test_rounds_that_do_not_end_are_told_for_bodies_that_take_back():
    """What is there is not there, so it is there: no history is the same after another round."""
    with pytest.raises(Diverged, match="not come to rest after 7 rounds"):
        hr.recurse(SEED.where(col("node") > 1), lambda found: SEED.anti_join(found, on="node"), max_rounds=7).cht()


@pytest.mark.parametrize("sizes", [(5,), (1,) * 5])
def test_the_bound_is_for_all_rounds_not_for_those_that_a_batch_adds(sizes: tuple[int, ...]):
    links = hr.events("le | re | src | dst\n" + "\n".join(f"1 | 9 | {n} | {n + 1}" for n in range(1, 6)), batches=sizes)

    def body(found: hr.Stream) -> hr.Stream:
        return found.join(links, on={"node": "src"}).select(node=col("dst")).anti_join(SEED, on="node")

    assert len(rows(hr.recurse(SEED, body, max_rounds=6))) == 6
    with pytest.raises(Diverged, match="not come to rest after 5 rounds"):
        hr.recurse(SEED, body, max_rounds=5).cht()
    with pytest.raises(Diverged, match="not come to rest after 5 rounds"):
        hr.recurse(SEED, lambda f: f.join(links, on={"node": "src"}).select(node=col("dst")), max_rounds=5).cht()


# --- what is said ----------------------------------------------------------------------------------------------------


def test_explain_draws_the_loop():
    text = reached(SEED, LINKS).explain()
    assert "loop: repeats until a round derives nothing new" in text
    join, select, back = (line.strip() for line in text.splitlines() if ".1 " in line or ".2 " in line or "↺" in line)
    number = join.partition(".")[0]
    assert join.startswith(f"{number}.1 Join on node = src ← result, #")
    assert select == f"{number}.2 Select node = dst ← {number}.1"
    assert back.endswith(f", {number}.2")
    assert "operators of their own for every round" in hr.recurse(SEED, lambda f: f.anti_join(LINKS)).explain()
    assert "CTI: the least of its inputs" in reached(SEED, LINKS).explain(liveliness=True)


def test_loops_that_compute_the_same_are_the_same():
    """Checkpoints know a query by it: not by when it was written."""
    assert reached(SEED, LINKS).node.fingerprint == reached(SEED, LINKS).node.fingerprint
    assert closure(LINKS).node.fingerprint != closure(LINKS, distinct=False).node.fingerprint
    other = hr.recurse(SEED, lambda f: f.join(LINKS, on={"node": "dst"}).select(node=col("src")))
    assert other.node.fingerprint != reached(SEED, LINKS).node.fingerprint


# --- what is remembered ----------------------------------------------------------------------------------------------


def chain(length: int, lasts: int) -> list[dict[str, Any]]:
    """A ring of links that move on with time, each for a while, with promises."""
    events: list[dict[str, Any]] = []
    for t in range(length):
        events.append({"kind": "insert", "le": t, "re": t + lasts, "src": t % 5, "dst": (t + 1) % 5})
        events.append({"kind": "cti", "le": t, "re": None, "src": None, "dst": None})
    return events


@pytest.mark.slow
@pytest.mark.parametrize("query", ["reached", "closure", "rounds"])
def test_what_has_ended_is_forgotten(query: str):
    length = 60
    links = hr.events(chain(length, 7), "src LONG, dst LONG", batches=[2] * length)
    if query == "closure":
        stream = closure(links)
    elif query == "reached":
        stream = reached(links.select(node=col("src")), links)
    else:
        closed = links.where(col("src") > 9)
        stream = hr.recurse(links, lambda f: f.join(links, on={"dst": "src"}).select("src", dst=col("dst_right"))
                            .anti_join(closed, on="src"))  # fmt: skip
    line = cut(optimize([Output(stream.node, "out")]))
    runner = Runner(line, 1, None)
    sizes, rounds = [], []
    feeds = {source.fingerprint: batches_of(source) for source in line.sources}
    for _ in range(length):
        runner.round({f: block for f, feed in feeds.items() if (block := next(feed, None)) is not None})
        (state,) = (op for op in _operators(runner) if op["operator"].startswith("Recurse"))
        sizes.append(state["rows"])
        rounds.append(state["rounds"])
    assert max(sizes[length // 2 :]) <= max(sizes[10:30]) + 5
    assert max(rounds[length // 2 :]) <= max(rounds[10:30])
    assert state["held_by"]
    assert all(part["operator"] for part in state["loop"])
    runner.end()
    assert not [op for op in _operators(runner) if op["operator"].startswith("Recurse") and op["rows"]]


def _operators(runner: Runner) -> list[dict[str, Any]]:
    return [op for part in runner.done.statistics[-1] for op in part["operators"].values()]
