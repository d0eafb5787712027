"""What `progress()` shows of loops: rounds, changes that circulate, lag, and the state of every operator."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.operators.recurse.loops import closure, reached

import headrace as hr
from headrace import col
from headrace.host.local.run import Runner, batches_of
from headrace.host.report import BatchReport
from headrace.optimizer import optimize
from headrace.plan.nodes import Output
from headrace.stages.cut import cut

# A chain of four links; then one more at its end, then one in its middle goes, and the promise moves.
LINKS = """
    kind    | le | re | re_new | src | dst
    insert  | 0  | ∞  |        | 1   | 2
    insert  | 0  | ∞  |        | 2   | 3
    insert  | 0  | ∞  |        | 3   | 4
    insert  | 0  | ∞  |        | 4   | 5
    insert  | 2  | ∞  |        | 5   | 6
    retract | 0  | ∞  | 3      | 3   | 4
    cti     | 3  |    |        |     |
"""
SEED = "kind | le | re | node\ninsert | 0 | ∞ | 1\ncti | 9 | | "


def steps(query: hr.Stream, *, buckets: int = 1, restart: bool = False) -> list[BatchReport]:
    """What is told after each batch."""
    line = cut(optimize([Output(query.node, "out")]))
    runner, told = Runner(line, buckets, None), []
    feeds = {source.fingerprint: list(batches_of(source)) for source in line.sources}
    for number in range(max(map(len, feeds.values()))):
        runner.round({f: batches[number] for f, batches in feeds.items() if number < len(batches)})
        done = runner.done
        told.append(hr.Run(done.results, done.counts, done.statistics).progress())
        runner = Runner.restored(line, buckets, None, runner.save()) if restart else runner
    return told


def sizes(loop: dict[str, Any]) -> dict[str, int]:
    return {part["operator"]: part["rows"] for part in loop["loop"]}


@pytest.mark.parametrize("restart", [False, True])
def test_rounds_changes_and_lag_batch_by_batch(restart: bool):
    """A restart forgets neither how deep the loop once was nor how much has gone round."""
    links = hr.events(LINKS, batches=[4, 1, 1, 1])
    told = [report["loops"][0] for report in steps(reached(hr.events(SEED), links), restart=restart)]
    # The chain; its new end; what is behind the link that goes, node by node; nothing.
    assert [loop["circulated"] for loop in told] == [[1, 1, 1, 1, 1], [1], [2, 2, 2], []]
    assert [(loop["rounds"], loop["most_rounds"]) for loop in told] == [(5, 5), (1, 5), (3, 5), (0, 5)]
    assert [loop["circulated_in_all"] for loop in told] == [5, 6, 12, 12]
    assert [loop["input_ctis"] for loop in told] == [[9, hr.NEG_INFINITY]] * 3 + [[9, 3]]
    assert [(loop["output_cti"], loop["lag"]) for loop in told] == [(hr.NEG_INFINITY, 0)] * 3 + [(3, 0)]


def test_rows_by_operator_add_up():
    links = hr.events(LINKS, batches=[4, 1, 1, 1])
    (loop,) = steps(reached(hr.events(SEED), links))[1]["loops"]
    assert loop["rows"] == sum(sizes(loop).values())
    # Five links and six nodes in the join; six nodes once derived and once found; six spans of the result.
    assert sizes(loop) == {"Join on node = src": 11, "found, by round": 12, "found, in one": 6}


def test_buckets_add_up():
    """Each tenant has a loop of its own, in some bucket; the deepest says how many rounds there were."""
    rows = [f"0 | ∞ | {tenant} | {n} | {n + 1}" for tenant in range(5) for n in range(1, 2 + tenant)]
    links = hr.events("\n".join(["le | re | t | src | dst", *rows]), batches=[len(rows)])
    seed = links.where(col("src") == 1).select("t", node=col("src"))
    query = hr.recurse(seed, lambda f: f.join(links, on={"t": "t", "node": "src"}).select("t", node=col("dst")))
    (alone,), (spread,) = (steps(query, buckets=n)[0]["loops"] for n in (1, 3))
    assert alone["circulated"] == spread["circulated"] == [5, 5, 4, 3, 2, 1]
    assert sizes(alone) == sizes(spread)
    assert (spread["rounds"], spread["most_rounds"], spread["circulated_in_all"]) == (6, 6, 20)


def test_all_derivations_and_rounds_of_their_own_tell_the_same():
    links = hr.events(LINKS, batches=[4, 1, 1, 1])
    told = [report["loops"][0] for report in steps(closure(links, distinct=False))]
    # Links, then paths of 2, of 3 (two ways to put each together) and of 4 from halves; and so on.
    assert [loop["circulated"] for loop in told] == [[4, 3, 3, 1], [1, 5, 5, 3, 1], [2, 8, 16, 8, 2], []]
    assert all(sizes(loop) == {"Join on dst = src": loop["rows"]} for loop in told)
    gone = hr.events("le | re | node\n0 | 1 | 9")
    query = hr.recurse(
        hr.events(SEED), lambda f: f.join(links, on={"node": "src"}).select(node=col("dst")).anti_join(gone, on="node")
    )
    told = [report["loops"][0] for report in steps(query)]
    assert [(loop["rounds"], loop["most_rounds"]) for loop in told] == [(5, 5), (1, 5), (3, 5), (0, 5)]
    assert list(sizes(told[0])) == ["Join on node = src", "AntiJoin on node = node", "found, by round"]
    assert told[0]["rows"] == sum(sizes(told[0]).values())


def test_loops_inside_of_loops_are_listed_and_shown():
    links = hr.events(LINKS, batches=[4, 1, 1, 1])
    query = hr.recurse(hr.events(SEED), lambda found: reached(found, links))
    report = steps(query)[0]
    outer, inner = report["loops"]
    assert inner in outer["loop"]
    lines = str(report).splitlines()
    assert lines[0] == "batch 0, CTI -∞"
    assert [line.strip() for line in lines if "rounds:" in line] == [
        f"rounds: {loop['rounds']}, at most {loop['most_rounds']} so far" for loop in (outer, inner)
    ]
    assert any(line.strip().startswith("Join on node = src: ") for line in lines)


def test_a_report_is_data():
    run = reached(hr.events(SEED), hr.events(LINKS)).run(finish=False)
    report = run.progress()
    assert json.loads(json.dumps(report)) == report
    assert (report["batch"], report["cti"]) == (len(run.statistics) - 1, 3)
    assert sum(counts["rows"] for counts in report["counts"].values()) == 9
    assert "lag 0" in str(report)
    assert hr.Run({}, {}, []).progress() == BatchReport.of(-1, {}, {}, [])


def test_a_loop_that_is_behind_its_inputs_lags():
    """Drained loops never do; those that run freely may."""
    state = {
        "operator": "Recurse", "held_by": "", "rows": 1, "bytes": 1, "segments": 1, "rounds": 1, "most_rounds": 1,
        "circulated": [1], "circulated_in_all": 1, "input_ctis": [9, 7], "output_cti": 4, "loop": [],
    }  # fmt: skip
    other = state | {"circulated": [2, 5], "rounds": 2, "output_cti": 5}
    (loop,) = BatchReport.of(0, {}, {}, [{"operators": {"a": state}}, {"operators": {"a": other}}])["loops"]
    assert (loop["lag"], loop["circulated"], loop["rounds"], loop["rows"]) == (3, [3, 5], 2, 2)
    (loop,) = BatchReport.of(0, {}, {}, [{"operators": {"a": state | {"output_cti": hr.NEG_INFINITY}}}])["loops"]
    assert loop["lag"] is None
