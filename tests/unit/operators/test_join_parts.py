"""What joins are made of: pairs that overlap, parts that are not covered, columns read, and work done per batch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.api.running import outputs_of
from headrace.changes import Changes
from headrace.host.local import run_local
from headrace.operators.overlap import overlapping
from headrace.operators.uncovered import uncovered_parts
from headrace.optimizer import RULES, optimize, prune_columns
from headrace.plan.nodes import Source, walk
from headrace.time import INFINITY
from headrace.trace import Trace

FAR = (0, 1, 5, 2**40, 2**60, -(2**60))
spans = st.tuples(st.sampled_from(FAR), st.integers(0, 8), st.sampled_from((1, 2, 3, 9, 2**50, INFINITY))).map(
    lambda drawn: (drawn[0] + drawn[1], INFINITY if drawn[2] == INFINITY else drawn[0] + drawn[1] + drawn[2])
)
keyed = st.tuples(st.sampled_from(["a", "b", None]), spans)


def changes(rows: list[tuple[str | None, tuple[int, int]]]) -> Changes:
    le, re = (np.array([span[end] for _, span in rows], np.int64) for end in (0, 1))
    return Changes.inserts(le, re, pa.table({"k": pa.array([key for key, _ in rows], pa.string())}))


@given(st.lists(keyed, max_size=12), st.lists(keyed, max_size=12), st.integers(0, 1))
def test_pairs_are_those_that_overlap(left: list, right: list, groups: int):
    a, b = changes(left), changes(right)
    i, j = overlapping(a, b, a.payload, b.payload, groups=groups)
    expected = {
        (x, y)
        for x, (mine, (start, end)) in enumerate(left)
        for y, (theirs, (begin, stop)) in enumerate(right)
        if mine == theirs and (groups or mine is not None) and start < stop and begin < end
    }
    found = list(zip(i.tolist(), j.tolist(), strict=True))
    assert sorted(found) == sorted(expected)


small = st.tuples(st.integers(0, 9), st.integers(1, 9)).map(lambda drawn: (drawn[0], drawn[0] + drawn[1]))


@given(st.lists(small, max_size=5), st.lists(small, max_size=6), st.data())
def test_gaps_are_the_instants_that_nothing_covers(rows: list, covers: list, data: st.DataObject):
    every = [(i, j) for i in range(len(rows)) for j in range(len(covers))]
    pairs = data.draw(st.lists(st.sampled_from(every), unique=True)) if every else []
    numbers = [np.array(part, np.int64) for part in ([p[0] for p in pairs], [p[1] for p in pairs])]
    ends = [np.array([span[end] for span in some], np.int64) for some in (rows, covers) for end in (0, 1)]
    found = zip(*(part.tolist() for part in uncovered_parts(ends[0], ends[1], *numbers, ends[2], ends[3])), strict=True)
    expected = []
    for row, (start, end) in enumerate(rows):
        mine = [covers[j] for i, j in pairs if i == row]
        free = [t for t in range(start, end) if not any(a <= t < b for a, b in mine)]
        for _, stretch in groupby(enumerate(free), lambda numbered: numbered[1] - numbered[0]):
            times = [t for _, t in stretch]
            expected.append((row, times[0], times[-1] + 1))
    assert sorted(found) == sorted(expected)


# --- columns ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def sides(tmp_path: Path) -> tuple[hr.Stream, hr.Stream]:
    """Two files that share the names k and x."""
    (tmp_path / "left.csv").write_text("t,k,x,a,b\n" + "".join(f"{t},{t % 3},{t},{t % 5},{t}\n" for t in range(40)))
    (tmp_path / "right.csv").write_text("t,k,x,c,d\n" + "".join(f"{t},{t % 2},{t % 7},{t},{t}\n" for t in range(40)))
    columns = "t LONG, k LONG, x LONG, "
    left = hr.read_csv(str(tmp_path / "left.csv"), columns + "a LONG, b LONG", lifetime=hr.point("t"))
    right = hr.read_csv(str(tmp_path / "right.csv"), columns + "c LONG, d LONG", lifetime=hr.point("t"))
    return left.set_duration(3), right.set_duration(4)


Query = Callable[[hr.Stream, hr.Stream], hr.Stream]


@pytest.mark.parametrize(
    ("query", "left", "right"),
    [
        (lambda a, b: a.join(b, "k").select("a", "x_right"), ("k", "a"), ("k", "x")),
        (lambda a, b: a.join(b, "k", where=col("c") > col("b")).select("k"), ("k", "b"), ("k", "c")),
        (lambda a, b: a.left_join(b, "k").select("x", "d"), ("k", "x"), ("k", "d")),
        (lambda a, b: a.anti_join(b, "k", where=col("x") == col("x_right")).select("b"), ("k", "x", "b"), ("k", "x")),
        (lambda a, b: a.clip(b, "k").select("b"), ("k", "b"), ("k",)),
        (lambda a, b: a.clip(b, {"k": "c"}).select("b"), ("k", "b"), ("c",)),
        (lambda a, b: a.join(b).window(hr.tumbling(9)).aggregate(n=hr.count()), ("t",), ("t",)),
        (lambda a, b: a.left_join(b, "k").join(a, "k").select("c", "a_right"), ("k", "a"), ("k", "c")),
    ],
    ids=["names stay", "condition", "left", "anti", "clip", "clip, other names", "nothing", "twice"],
)
def test_sources_below_joins_read_only_what_is_used(
    sides: tuple[hr.Stream, hr.Stream], query: Query, left: tuple[str, ...], right: tuple[str, ...]
):
    outputs = outputs_of({"out": query(*sides).node})
    read = [node.schema.names for node in walk(*optimize(outputs, [prune_columns])) if isinstance(node, Source)]
    assert sorted(read) == sorted([left, right])
    without = [rule for rule in RULES if rule is not prune_columns]
    both = [run_local(outputs, rules=rules, batch_rows=7, buckets=2).results["out"].cht() for rules in (RULES, without)]
    assert hr.same_history(*both)
    assert both[0].num_rows


# --- work ------------------------------------------------------------------------------------------------------------


def long_stream(rounds: int, *, endless: int = 0, name: str = "v") -> hr.Stream:
    """In every round four events that last a while, and a CTI; in the first, some that never end."""
    rows = [{"kind": "insert", "le": 0, "re": INFINITY, "k": i % 2, name: -i} for i in range(endless)]
    sizes = []
    for t in range(rounds):
        rows += [{"kind": "insert", "le": t, "re": t + 5, "k": i % 2, name: i} for i in range(4)]
        rows.append({"kind": "cti", "le": t})
        sizes.append(5 if t else 5 + endless)
    return hr.events(rows, f"k LONG, {name} LONG", batches=sizes)


@pytest.mark.slow
@pytest.mark.parametrize("endless", [0, 3], ids=["short", "some endless"])
@pytest.mark.parametrize("operator", ["join", "left_join", "anti_join", "clip"])
def test_a_batch_looks_at_no_more_rows_after_a_long_history(
    operator: str, endless: int, monkeypatch: pytest.MonkeyPatch
):
    looked_at: list[int] = []
    for method in ("lookup", "until"):
        plain = getattr(Trace, method)

        def counted(self: Trace, argument: object, plain: Callable = plain) -> pa.Table | None:
            found = plain(self, argument)
            looked_at.append(0 if found is None else found.num_rows)
            return found

        monkeypatch.setattr(Trace, method, counted)
    rounds = 160
    meet = getattr(long_stream(rounds, endless=endless), operator)(long_stream(rounds, name="w"), on="k")
    meet.run(finish=False)
    part = len(looked_at) // 8
    early, late = sum(looked_at[part : 2 * part]), sum(looked_at[-part:])
    assert 0 < late <= 1.3 * early
