"""Reachability over a graph that changes, against a search at every instant: no twin, no shared line of code."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.operators.recurse.loops import SEEDS, closure, reached

import headrace as hr
from headrace.host.local.run import Runner, batches_of
from headrace.optimizer import optimize
from headrace.plan.nodes import Output
from headrace.stages.cut import cut
from headrace.testing.checks import check_output
from headrace.time import INFINITY

NODES = 7
Row = tuple[int, int, tuple[int, ...]]


class Told:
    """A physical stream that is made up as it goes, and the history it leaves."""

    def __init__(self, rng: random.Random, names: tuple[str, ...]) -> None:
        self.rng, self.names = rng, names
        self.alive: list[Row] = []
        self.events: list[dict[str, Any]] = []
        self.cti = 0

    def tell(self) -> None:
        """One more insert, correction or promise."""
        kind = self.rng.random()
        movable = [row for row in self.alive if row[1] >= self.cti]
        if kind < 0.15:
            self.cti += self.rng.randint(0, 4)
            self._event("cti", self.cti, None, None, (None,) * len(self.names))
        elif kind < 0.5 and movable:
            row = self.rng.choice(movable)
            ends = [self.cti + self.rng.randint(0, 6), INFINITY, *([row[0]] if row[0] >= self.cti else [])]
            new = max(self.rng.choice(ends), row[0])
            self.alive.remove(row)
            self.alive += [(row[0], new, row[2])] if new > row[0] else []
            self._event("retract", row[0], row[1], new, row[2])
        else:
            le = self.cti + self.rng.randint(0, 5)
            re = self.rng.choice([le + 1, le + self.rng.randint(1, 12), INFINITY])
            payload = tuple(self.rng.randrange(NODES) for _ in self.names)
            self.alive.append((le, re, payload))
            self._event("insert", le, re, None, payload)

    def _event(self, kind: str, le: int, re: int | None, new: int | None, payload: tuple[Any, ...]) -> None:
        times = {"kind": kind, "le": le, "re": re, "re_new": new}
        self.events.append(times | dict(zip(self.names, payload, strict=True)))

    def stream(self) -> hr.Stream:
        """What was told, in batches of random sizes."""
        sizes = []
        while sum(sizes) < len(self.events):
            sizes.append(min(self.rng.randint(1, 9), len(self.events) - sum(sizes)))
        return hr.events(self.events, ", ".join(f"{name} LONG" for name in self.names), batches=sizes)


def searched(edges: list[Row], starts: list[Row]) -> set[Row]:
    """Spans of `(start's number, node)` in which there is a path, found instant by instant."""
    times = sorted({time for row in [*edges, *starts] for time in row[:2]})
    spans: dict[tuple[int, ...], list[list[int]]] = {}
    for begin, end in pairwise(times):
        links = [p for le, re, p in edges if le <= begin < re]
        now = {p for le, re, p in starts if le <= begin < re}
        for pair in {pair for start in now for pair in _paths(start, links)}:
            mine = spans.setdefault(pair, [])
            if mine and mine[-1][1] == begin:
                mine[-1][1] = end
            else:
                mine.append([begin, end])
    return {(begin, end, pair) for pair, found in spans.items() for begin, end in found}


def _paths(start: tuple[int, ...], links: list[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    seen, todo = set(), [start[-1]]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += [dst for src, dst in links if src == node]
    yield from ((*start[:-1], node) for node in seen)


def history(stream: hr.Stream, buckets: int, *, restart: bool) -> set[Row]:
    """What a run leaves, restored after every batch if asked."""
    line = cut(optimize([Output(stream.node, "out")]), buckets)
    runner = Runner(line, buckets, None)
    feeds = {source.fingerprint: list(batches_of(source)) for source in line.sources}
    for number in range(max(map(len, feeds.values()))):
        runner.round({f: batches[number] for f, batches in feeds.items() if number < len(batches)})
        runner = Runner.restored(line, buckets, None, runner.save()) if restart else runner
    runner.end()
    result = runner.done.results["out"]
    check_output(result.events())
    rows = result.cht().to_pylist()
    return {(row.pop("le"), row.pop("re"), tuple(row.values())) for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_oracle_nodes_reached(seed: int):
    rng = random.Random(seed)
    starts, edges = Told(rng, ("node",)), Told(rng, ("src", "dst"))
    for _ in range(80):
        rng.choice([starts, edges, edges, edges]).tell()
    query = reached(starts.stream(), edges.stream())
    assert history(query, 1 + seed % 4, restart=seed % 3 == 0) == searched(edges.alive, starts.alive)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_oracle_pairs_with_a_path(seed: int):
    rng = random.Random(seed)
    edges = Told(rng, ("src", "dst"))
    for _ in range(60):
        edges.tell()
    assert history(closure(edges.stream()), 1 + seed % 4, restart=seed % 3 == 0) == searched(edges.alive, edges.alive)
