"""Random graphs, queries over them, and restarts, for the tests of loops."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.host.local.run import Runner, batches_of
from headrace.optimizer import optimize
from headrace.plan.nodes import Output
from headrace.stages.cut import Line, cut
from headrace.testing.strategies import streams

EDGES = "src LONG, dst LONG"
HALF, FEW = (max(5, settings().max_examples // part) for part in (2, 10))
#: Of graphs that are made up from a number.
SEEDS = range(max(6, settings().max_examples // 8))


def edges(max_events: int = 14) -> st.SearchStrategy[hr.Stream]:
    return streams(EDGES, max_events=max_events, odd=False)


def seeds(max_events: int = 5) -> st.SearchStrategy[hr.Stream]:
    return streams("node LONG", max_events=max_events, odd=False)


def reached(seed: hr.Stream, links: hr.Stream) -> hr.Stream:
    """The nodes with a path from a seed."""
    return hr.recurse(seed, lambda found: found.join(links, on={"node": "src"}).select(node=col("dst")))


def closure(links: hr.Stream, **options: object) -> hr.Stream:
    """All pairs with a path between them: the result is joined with itself."""

    def longer(paths: hr.Stream) -> hr.Stream:
        return paths.join(paths, on={"dst": "src"}).select("src", dst=col("dst_right"))

    return hr.recurse(links, longer, **options)  # type: ignore[arg-type]


def restarts_do_not_show(query: hr.Stream, buckets: int) -> None:
    """Stopped and restored after every batch, or once in the middle, a run gives what it gives undisturbed."""
    line = cut(optimize([Output(query.node, "out")]), buckets)
    whole = _run(line, buckets, set())
    assert _run(line, buckets, set(range(len(whole)))) == whole
    assert _run(line, buckets, {len(whole) // 2}) == whole


def _run(line: Line, buckets: int, restarts: set[int]) -> list[object]:
    runner = Runner(line, buckets, None)
    feeds = {source.fingerprint: list(batches_of(source)) for source in line.sources}
    last = max(map(len, feeds.values()), default=0)
    for number in range(last + 1):
        if number in restarts:
            runner = Runner.restored(line, buckets, None, runner.save())
        if number < last:
            runner.round({f: batches[number] for f, batches in feeds.items() if number < len(batches)})
    runner.end()
    return [(sorted(map(repr, c.to_table().to_pylist())), p) for c, p in runner.done.results["out"].batches]
