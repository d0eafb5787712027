"""The flying fixed-point paper's reachability query, operator by operator: its example 1, times 1 to 4, drawn.

Links are drawn `3→1`; a path from n3 to n1 is `3…1` with a bit for every node it meets. In a round the join pairs links
with paths, what would meet a node twice is dropped, and what is left is a longer path, which goes round. Then the two
ways in which the paper lets events end: with a lifetime of their own, and by a retraction.
"""

from __future__ import annotations

from textwrap import dedent

import pytest
from tests.unit.operators.recurse.test_paper import LINKS, SOURCES, paths

import headrace as hr
from headrace.changes import Changes
from headrace.host.local.run import Runner, batches_of
from headrace.operators.recurse.body import Body
from headrace.optimizer import optimize
from headrace.plan.nodes import Join, Node, Output, Select, Where
from headrace.progress import Progress
from headrace.stages.cut import cut
from headrace.time import format_ticks

NAMES: dict[type[Node], str] = {Join: "join", Where: "pass", Select: "path"}


def drawn(changes: Changes) -> str:
    """What an operator gives, a payload at a time; where a lifetime takes the place of another, both."""
    told: dict[str, dict[int, str]] = {}
    for row in changes.to_table().to_pylist():
        what = f"{row['origin']}…{row['node']} {row['bv']:04b}"
        what = f"{row['src']}→{row['dst']} & {what}" if "src" in row else what
        told.setdefault(what, {})[row["__weight"]] = f"[{row['__le']}, {format_ticks(row['__re'])})"
    spans = {what: " becomes ".join(by[weight] for weight in sorted(by)) for what, by in told.items()}
    return ", ".join(f"{what} {span}" for what, span in sorted(spans.items())) or "nothing"


class Watched:
    """Notes what the operators of a loop give, round by round."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[str] = []
        run = Body._run

        def noted(body: Body, node: Node, inputs: list[Changes], now: list[Progress]) -> tuple[Changes, Progress]:
            given = run(body, node, inputs, now)
            if any(map(len, inputs)):
                self.lines.append(f"{NAMES[type(node)]} {drawn(given[0])}")
            return given

        monkeypatch.setattr(Body, "_run", noted)


def walked(query: hr.Stream, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """For each batch: what the operators did, what left the loop, and how much the join then remembers."""
    watched, told = Watched(monkeypatch), []
    line = cut(optimize([Output(query.node, "out")]))
    runner = Runner(line, 1, None)
    feeds = {source.fingerprint: list(batches_of(source)) for source in line.sources}
    for number in range(max(map(len, feeds.values()))):
        watched.lines = []
        runner.round({f: batches[number] for f, batches in feeds.items() if number < len(batches)})
        done = runner.done
        (loop,) = hr.Run(done.results, done.counts, done.statistics).progress()["loops"]
        told.append(("\n".join(watched.lines), drawn(done.results["out"].batches[-1][0]), loop["loop"][0]["rows"]))
    return told


def steps(text: str) -> str:
    return dedent(text).strip("\n")


TIMES = [
    # Time 1: two sources. They lodge in the join; there are no links yet.
    """
    join nothing
    """,
    # Time 2: a link from n3 to n1. The path to n1 lodges, and joins to nothing.
    """
    join 3→1 & 3…3 0010 [2, ∞)
    pass 3→1 & 3…3 0010 [2, ∞)
    path 3…1 1010 [2, ∞)
    join nothing
    """,
    # Time 3: links from n1 to n2 and from n2 to n3. Two more rounds; each finds a cycle, the second nothing else.
    """
    join 1→2 & 3…1 1010 [3, ∞), 2→3 & 2…2 0100 [3, ∞)
    pass 1→2 & 3…1 1010 [3, ∞), 2→3 & 2…2 0100 [3, ∞)
    path 2…3 0110 [3, ∞), 3…2 1110 [3, ∞)
    join 2→3 & 3…2 1110 [3, ∞), 3→1 & 2…3 0110 [3, ∞)
    pass 3→1 & 2…3 0110 [3, ∞)
    path 2…1 1110 [3, ∞)
    join 1→2 & 2…1 1110 [3, ∞)
    pass nothing
    """,
    # Time 4: a link from n3 to n4, a node from which nothing goes on.
    """
    join 3→4 & 2…3 0110 [4, ∞), 3→4 & 3…3 0010 [4, ∞)
    pass 3→4 & 2…3 0110 [4, ∞), 3→4 & 3…3 0010 [4, ∞)
    path 2…4 0111 [4, ∞), 3…4 0011 [4, ∞)
    join nothing
    """,
]


def test_times_1_to_4(monkeypatch: pytest.MonkeyPatch):
    query = paths(hr.events(SOURCES, batches=[2, 0, 0, 0]), hr.events(LINKS, batches=[0, 1, 2, 1]))
    told = walked(query, monkeypatch)
    assert [done for done, _, _ in told] == [steps(time) for time in TIMES]
    assert [given for _, given, _ in told] == [
        "2…2 0100 [1, ∞), 3…3 0010 [1, ∞)",
        "3…1 1010 [2, ∞)",
        "2…1 1110 [3, ∞), 2…3 0110 [3, ∞), 3…2 1110 [3, ∞)",
        "2…4 0111 [4, ∞), 3…4 0011 [4, ∞)",
    ]
    # Links and paths in the join's two synopses: 0 + 2, 1 + 3, 3 + 6, 4 + 8.
    assert [lodged for _, _, lodged in told] == [2, 4, 9, 12]


def test_new_links_before_the_loop_is_at_rest(monkeypatch: pytest.MonkeyPatch):
    """All at once: other rounds, the same paths."""
    ((_, given, lodged),) = walked(paths(hr.events(SOURCES, batches=[2]), hr.events(LINKS, batches=[4])), monkeypatch)
    assert given == (
        "2…1 1110 [3, ∞), 2…2 0100 [1, ∞), 2…3 0110 [3, ∞), 2…4 0111 [4, ∞), "
        "3…1 1010 [2, ∞), 3…2 1110 [3, ∞), 3…3 0010 [1, ∞), 3…4 0011 [4, ∞)"
    )
    assert lodged == 12


def test_lifetimes_intersect_whenever_two_events_join(monkeypatch: pytest.MonkeyPatch):
    sources = hr.events("le | re | node | bit\n1 | 6 | 3 | 2", batches=[1])
    links = hr.events("le | re | src | dst | bit\n2 | 8 | 3 | 1 | 8\n3 | 10 | 1 | 2 | 4", batches=[0, 1, 1])
    _, second, third = walked(paths(sources, links), monkeypatch)
    assert second[0] == steps("""
        join 3→1 & 3…3 0010 [2, 6)
        pass 3→1 & 3…3 0010 [2, 6)
        path 3…1 1010 [2, 6)
        join nothing
    """)
    assert third[0] == steps("""
        join 1→2 & 3…1 1010 [3, 6)
        pass 1→2 & 3…1 1010 [3, 6)
        path 3…2 1110 [3, 6)
        join nothing
    """)


def test_a_retraction_ripples_forward(monkeypatch: pytest.MonkeyPatch):
    """At time 5 the link from n3 to n1 goes: first the paths that end with it, then, round the loop, what went on."""
    links = hr.events(LINKS + "    retract | 2  | ∞  | 5      | 3   | 1   | 8", batches=[4, 1])
    *_, (done, given, _) = walked(paths(hr.events(SOURCES, batches=[2]), links), monkeypatch)
    assert done == steps("""
        join 3→1 & 2…3 0110 [3, ∞) becomes [3, 5), 3→1 & 3…3 0010 [2, ∞) becomes [2, 5)
        pass 3→1 & 2…3 0110 [3, ∞) becomes [3, 5), 3→1 & 3…3 0010 [2, ∞) becomes [2, 5)
        path 2…1 1110 [3, ∞) becomes [3, 5), 3…1 1010 [2, ∞) becomes [2, 5)
        join 1→2 & 2…1 1110 [3, ∞) becomes [3, 5), 1→2 & 3…1 1010 [3, ∞) becomes [3, 5)
        pass 1→2 & 3…1 1010 [3, ∞) becomes [3, 5)
        path 3…2 1110 [3, ∞) becomes [3, 5)
        join 2→3 & 3…2 1110 [3, ∞) becomes [3, 5)
        pass nothing
    """)
    assert given == ("2…1 1110 [3, ∞) becomes [3, 5), 3…1 1010 [2, ∞) becomes [2, 5), 3…2 1110 [3, ∞) becomes [3, 5)")


def test_a_retraction_of_all_of_a_link_takes_its_paths_away(monkeypatch: pytest.MonkeyPatch):
    links = hr.events(LINKS + "    retract | 2  | ∞  | 2      | 3   | 1   | 8", batches=[4, 1])
    *_, (_, given, _) = walked(paths(hr.events(SOURCES, batches=[2]), links), monkeypatch)
    assert given == "2…1 1110 [3, ∞), 3…1 1010 [2, ∞), 3…2 1110 [3, ∞)"
    rows = paths(hr.events(SOURCES, batches=[2]), links).run().results["out"].batches[1][0].weight
    assert set(rows.tolist()) == {-1}
